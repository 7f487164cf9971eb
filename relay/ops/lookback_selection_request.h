#pragma once
/* Carries out an operator's order: decides the selected ids, or has the business called again. */
#include "command.h"

enum lookback_selection_verb { SELECTION_COMMIT, SELECTION_ROLLBACK, SELECTION_RETRY };

/* The body of `lookback commit`, `rollback` and `retry`. Returns the exit status. */
int lookback_selection_request_run(const struct call *call, enum lookback_selection_verb verb);

extern const struct command_option lookback_selection_request_options[];

/* A part of the description of each of these commands. */
#define LOOKBACK_SELECTION_REQUEST_HELP                                                            \
	"Ids are named with their type, all or none of them are changed; or --all takes what is "  \
	"overdue or parked, and options that must all hold choose among it. It is done when the "  \
	"command ends, in one transaction, and noted in outbox.audit with who and why.\n"
