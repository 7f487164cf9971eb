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
	{"type", "TYPE", "Only ids of this business type."},                                       \
	    {"section", "NAME", "Only those of this [lookback] section."},                         \
	    {"state", "STATE", "Only those that are overdue, or parked."},                         \
	    {"service", "NAME", "Only those that this [check] section is asked about."},           \
	    {"error", "TEXT", "Only those with this as a part of their last error."},              \
	    {"from", "TIME", "Only those prepared at this time (UTC) or later."},                  \
	{                                                                                          \
		"to", "TIME", "Only those prepared before this time."                              \
	}
#define LOOKBACK_POSTGRES_OPTION                                                                   \
	{                                                                                          \
		"postgres", "SECTION",                                                             \
		    "The [postgres] section; that of the [lookback] section unless given."         \
	}

/* Reads LOOKBACK_SELECTION_OPTIONS into `chosen`. */
bool lookback_call_choose(
    const struct call *call, struct lookback_selection *selection, struct err *err) MUST_CHECK;
/* The first of these options that is given; NULL: none. */
const char *lookback_call_first_option(const struct call *call);

/* The body of `lookback commit`, `rollback` and `retry`. Returns the exit status. */
int lookback_call_order(const struct call *call, enum lookback_verb verb);
extern const struct command_option lookback_order_options[];

/* A part of the description of each of these commands. */
#define LOOKBACK_ORDER_HELP                                                                        \
	"Ids are named with their type, all or none of them are changed; or --all takes what is "  \
	"overdue or parked, and options that must all hold choose among it. It is done when the "  \
	"command ends, in one transaction, and noted in outbox.audit with who and why.\n"
