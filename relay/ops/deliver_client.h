#pragma once
/*
 * The client of the commands `deliver ...`: calls the process that runs the sections over its HTTP
 * interface.
 */
#include <jansson.h>
#include "call.h"
#include "errors.h"

/*
 * Sends a request to [api] listen of the configuration, with the first token of the role that it
 * needs; order NULL: a read. Fails if the status is not 200. The caller owns *ret_answer.
 */
bool deliver_client_ask(const struct call *call, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err) MUST_CHECK;

/* `deliver pause` and `deliver resume`: returns the exit status. */
int deliver_client_operate(const struct call *call, const char *verb);
extern const struct command_option deliver_client_options[];
