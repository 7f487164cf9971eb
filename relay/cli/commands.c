#include "commands.h"

#include <stddef.h>

const struct command *const commands[] = {
    &command_run,
    &command_migrate_up,
    &command_migrate_status,
    &command_migrate_print,
    &command_doctor,
    &command_status,
    &command_slot_list,
    &command_slot_create,
    &command_slot_split,
    &command_slot_rebase,
    &command_slot_drop,
    &command_partition_list,
    &command_partition_make,
    &command_partition_drop,
    &command_parked_list,
    &command_parked_show,
    &command_parked_retry,
    &command_parked_skip,
    &command_replay,
    &command_verify,
    &command_bench,
    &command_check_config,
    &command_config,
    &command_dev_broker,
    &command_help,
    &command_version,
    NULL,
};
