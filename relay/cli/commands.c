#include "commands.h"

#include <stddef.h>

#define COMMAND_ADDRESS(name) &command_##name,

const char program_name[] = "outbox-relay";
const struct command *const commands[] = {COMMANDS(COMMAND_ADDRESS) NULL};
