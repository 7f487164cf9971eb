#pragma once
/* A question to the operator, on the terminal. */
#include "errors.h"

/* Nothing but a terminal can answer. */
bool confirm_can_ask(void);

/* True: it was answered with yes. ERR_REJECT: nothing was done. */
bool confirm_ask(const char *question, struct err *err) MUST_CHECK;
