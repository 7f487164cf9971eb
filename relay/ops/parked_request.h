#pragma once
/*
 * What an operator asks of parked rows: to try them again, or to leave them out. It is only noted,
 * with who and why; the owner of each row's shard carries it out at its next look.
 */
#include "command.h"

enum parked_verb { PARKED_RETRY, PARKED_SKIP };

/* The body of `parked retry` and `parked skip`. Returns the exit status. */
int parked_request_run(const struct call *call, enum parked_verb verb);

extern const struct command_option parked_request_options[];
