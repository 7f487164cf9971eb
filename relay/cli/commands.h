#pragma once
/* The commands of outbox-relay, in the order of the help. Each has a file in relay/cli/commands. */
#include "call.h"

#define COMMANDS(X)                                                                                \
	X(migrate_up)                                                                              \
	X(migrate_status)                                                                          \
	X(migrate_print)                                                                           \
	X(check_config)                                                                            \
	X(config)                                                                                  \
	X(doctor)                                                                                  \
	X(run)                                                                                     \
	X(dev_broker)                                                                              \
	X(health)                                                                                  \
	X(status)                                                                                  \
	X(verify)                                                                                  \
	X(publisher_list)                                                                          \
	X(publisher_create)                                                                        \
	X(publisher_split)                                                                         \
	X(publisher_pause)                                                                         \
	X(publisher_resume)                                                                        \
	X(publisher_rebase)                                                                        \
	X(publisher_drop)                                                                          \
	X(partition_list)                                                                          \
	X(partition_make)                                                                          \
	X(partition_drop)                                                                          \
	X(partition_restore)                                                                       \
	X(message_find)                                                                            \
	X(parked_list)                                                                             \
	X(parked_show)                                                                             \
	X(parked_retry)                                                                            \
	X(parked_skip)                                                                             \
	X(replay)                                                                                  \
	X(lookback_list)                                                                           \
	X(lookback_show)                                                                           \
	X(lookback_commit)                                                                         \
	X(lookback_rollback)                                                                       \
	X(lookback_retry)                                                                          \
	X(deliver_list)                                                                            \
	X(deliver_pause)                                                                           \
	X(deliver_redrive)                                                                         \
	X(deliver_resume)                                                                          \
	X(rules_check)                                                                             \
	X(rules_reload)                                                                            \
	X(dedup_stores)                                                                            \
	X(dedup_size)                                                                              \
	X(dedup_stat)                                                                              \
	X(dedup_verify)                                                                            \
	X(dedup_load)                                                                              \
	X(help)                                                                                    \
	X(completion)                                                                              \
	X(version)

#define COMMAND_DECLARATION(name) extern const struct command command_##name;
COMMANDS(COMMAND_DECLARATION)
