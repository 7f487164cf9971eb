#pragma once
/* A question to the operator, on the terminal. */
#include "call.h"
#include "errors.h"

/* Nothing but a terminal can answer. */
bool confirm_can_ask(void);

/* True: it was answered with yes. ERR_REJECT: nothing was done. */
bool confirm_ask(const char *question, struct err *err) MUST_CHECK;

/*
 * Of a command with --reason, --dry-run and --yes: is it said why, and can somebody be asked? Both
 * are needed, but for --dry-run.
 */
bool confirm_check(const struct call *call, struct err *err) MUST_CHECK;
/* confirm_ask, unless --yes was given. */
bool confirm_call(const struct call *call, const char *question, struct err *err) MUST_CHECK;
