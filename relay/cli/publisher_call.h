#pragma once
/* Shared by the commands `publisher pause`, `resume`, `split`, `drop` and `rebase`. */
#include <jansson.h>
#include "call.h"
#include "command.h"

/*
 * POST /v1/publishers/{publisher}/{order} to --server, with --reason. Takes the body over; the
 * caller owns *ret_answer.
 */
bool publisher_call_send(const struct call *call, const char *publisher, const char *order,
    json_t *body, json_t **ret_answer, struct err *err) MUST_CHECK;

int publisher_call_pause(const struct call *call, bool pauses);
extern const struct command_option publisher_pause_options[];
