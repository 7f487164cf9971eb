#include "commands.h"

#include <stddef.h>

#define COMMAND_ADDRESS(name) &command_##name,

const char program_name[] = "outbox-relay";
const struct command *const commands[] = {COMMANDS(COMMAND_ADDRESS) NULL};
const struct command_heading command_headings[] = {
    {"Start", &command_migrate_up},
    {"Watch", &command_status},
    {"Outbox", &command_publisher_list},
    {"Look-back", &command_lookback_list},
    {"Inbox", &command_deliver_list},
    {"Help", &command_help},
    {0},
};
