#pragma once
/*
 * Commands that destroy or repeat work show their plan and ask on a terminal; without a terminal
 * they need --yes and --reason.
 */
#include "call.h"
#include "errors.h"

/* Options of each such command. */
#define CONFIRM_OPTIONS                                                                            \
	{"reason", "TEXT",                                                                         \
	    "The reason, stored in outbox.audit. Required in scripts and with --yes, except for "  \
	    "--dry-run."},                                                                         \
	    {"dry-run", NULL, "Shows the changes without making them."},                           \
	{                                                                                          \
		"yes", NULL, "Does not ask. Required, together with --reason, without a terminal." \
	}

/* Only a terminal can answer. */
bool confirm_can_ask(void);

/* True: the answer was yes. ERR_REJECT: nothing was done. */
bool confirm_ask(const char *question, struct err *err) MUST_CHECK;

/* Has the command what it needs without a terminal, or is there one? */
bool confirm_check(const struct call *call, struct err *err) MUST_CHECK;
/* confirm_ask, unless --yes was given. */
bool confirm_call(const struct call *call, const char *question, struct err *err) MUST_CHECK;
/* For outbox.audit; never empty after confirm_check. */
const char *confirm_reason(const struct call *call);

/*
 * --force WORD[,WORD…] names what the command may contradict. `words` are those that the command
 * knows, ended by NULL.
 */
bool confirm_check_force(
    const struct call *call, const char *const *words, struct err *err) MUST_CHECK;
