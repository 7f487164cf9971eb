#pragma once
/* What an operator does to undecided ids: decide them, or have the business asked anew. */
#include "command.h"

enum undecided_verb { UNDECIDED_COMMIT, UNDECIDED_ROLLBACK, UNDECIDED_RETRY };

/* The body of `lookback commit`, `rollback` and `retry`. Returns the exit status. */
int undecided_request_run(const struct call *call, enum undecided_verb verb);

extern const struct command_option undecided_request_options[];

/* Of the description of each of them. */
#define UNDECIDED_REQUEST_HELP                                                                     \
	"Ids are named with their type, all or none of them are changed; or --all takes what is "  \
	"overdue or parked, and options that must all hold choose among it. It is done when the "  \
	"command ends, in one transaction, and noted in outbox.audit with who and why.\n"
