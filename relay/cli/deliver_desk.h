#pragma once
/* What the commands `deliver ...` share: they ask the process that runs the sections, over its HTTP
 * interface. */
#include <jansson.h>
#include "call.h"
#include "errors.h"

/*
 * A request to [api] listen of the configuration, with the first token of the role that it needs;
 * order NULL: a question. Fails for an answer that is no 200. The caller has the reference.
 */
bool deliver_desk_ask(const struct call *call, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err) MUST_CHECK;

/* `deliver pause` and `deliver resume`: returns the exit status. */
int deliver_desk_operate(const struct call *call, const char *verb);
extern const struct command_option deliver_desk_options[];
