#pragma once
/* The rows of commands.c, each in its own file. */
#include "call.h"

extern const struct command command_run;
extern const struct command command_check_config;
extern const struct command command_config;
extern const struct command command_migrate_up;
extern const struct command command_migrate_status;
extern const struct command command_migrate_print;
extern const struct command command_doctor;
extern const struct command command_status;
extern const struct command command_publisher_list;
extern const struct command command_publisher_create;
extern const struct command command_publisher_split;
extern const struct command command_publisher_rebase;
extern const struct command command_publisher_drop;
extern const struct command command_partition_list;
extern const struct command command_partition_make;
extern const struct command command_partition_drop;
extern const struct command command_lookback_list;
extern const struct command command_lookback_show;
extern const struct command command_lookback_commit;
extern const struct command command_lookback_rollback;
extern const struct command command_lookback_retry;
extern const struct command command_parked_list;
extern const struct command command_parked_show;
extern const struct command command_parked_retry;
extern const struct command command_parked_skip;
extern const struct command command_deliver_list;
extern const struct command command_deliver_pause;
extern const struct command command_deliver_redrive;
extern const struct command command_deliver_resume;
extern const struct command command_replay;
extern const struct command command_verify;
extern const struct command command_dedup_stores;
extern const struct command command_dedup_size;
extern const struct command command_dedup_stat;
extern const struct command command_dedup_verify;
extern const struct command command_dedup_load;
extern const struct command command_dev_broker;
extern const struct command command_help;
extern const struct command command_version;
