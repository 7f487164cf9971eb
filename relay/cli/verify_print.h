#pragma once
/* The result of `verify` (relay/ops/verification_result.h), of this process or of a relay. */
#include <jansson.h>
#include "call.h"

/* Prints it, as JSON with --json, and gives it up. Returns the exit status. */
int verify_print_result(const struct call *call, json_t *result);
