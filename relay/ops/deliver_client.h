#pragma once
/* Calls the process that runs [deliver] sections, over its HTTP interface. */
#include <jansson.h>
#include "config.h"

/*
 * Sends a request to `listen` of [api], with the first token that has the role for it; order NULL:
 * a read of all sections. Fails if the status is not 200. The caller owns *ret_answer.
 */
bool deliver_client_ask(const struct config *config, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err) MUST_CHECK;
