#pragma once
/* Shared by the commands `deliver …`, which call the process that runs the sections. */
#include "call.h"
#include "deliver_client.h"
#include "text.h"

/* deliver_client_ask, at [api] of the configuration. */
bool deliver_call_ask(const struct call *call, const char *path, const json_t *order,
    json_t **ret_answer, struct err *err) MUST_CHECK;

/* Adds a section of the answer to GET /v1/deliver, as indented lines. */
void deliver_call_add_section(struct text *out, const json_t *section);

/* The body of `deliver pause` and `deliver resume`. Returns the exit status. */
int deliver_call_operate(const struct call *call, const char *verb);
extern const struct command_option deliver_operate_options[];
