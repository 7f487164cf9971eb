#pragma once
/* Shared by the commands `lookback …`: their options and arguments, prompts and results. */
#include "call.h"
#include "lookback_order.h"

/*
 * The body of a command whose arguments, if there are any, are TYPE ID…: the configuration, the
 * named ids, then `work`. Returns the exit status.
 */
int lookback_call_run(const struct call *call,
    bool (*work)(const struct call *call, struct lookback_selection *selection, struct err *err));

/* Options of each command that can select ids by them. */
#define LOOKBACK_SELECTION_OPTIONS                                                                 \
	{"type", "TYPE", "Selects ids of this business type."},                                    \
	    {"section", "NAME", "Selects ids of this [lookback] section."},                        \
	    {"state", "STATE", "Selects ids that are overdue, or parked."},                        \
	    {"service", "NAME", "Selects ids that this [check] section answers for."},             \
	    {"error", "TEXT", "Selects ids whose last error contains this text."},                 \
	    {"from", "TIME", "Selects ids that were prepared at this time (UTC) or later."},       \
	{                                                                                          \
		"to", "TIME", "Selects ids that were prepared before this time."                   \
	}
#define LOOKBACK_POSTGRES_OPTION                                                                   \
	{                                                                                          \
		"postgres", "SECTION",                                                             \
		    "The [postgres] section (default: that of the [lookback] section)."            \
	}

/* Reads LOOKBACK_SELECTION_OPTIONS into `chosen`. */
bool lookback_call_choose(
    const struct call *call, struct lookback_selection *selection, struct err *err) MUST_CHECK;
/* The first of these options that is given; NULL: none. */
const char *lookback_call_first_option(const struct call *call);

/* Do the ids, --all and the options of an order fit together? */
bool lookback_call_check(const struct call *call, const struct lookback_selection *selection,
    struct err *err) MUST_CHECK;

/* The body of `lookback commit`, `rollback` and `retry`. Returns the exit status. */
int lookback_call_order(const struct call *call, enum lookback_verb verb);
extern const struct command_option lookback_order_options[];

/* A part of the description of each of these commands. */
#define LOOKBACK_ORDER_HELP                                                                        \
	"Name a type and its ids; the command changes all of them or none. Or use --all for "      \
	"every overdue or parked id, with options to select among them, all of which must match. " \
	"The command works in one transaction, which has committed when the command exits, and "   \
	"records the operator and the reason in outbox.audit.\n"
