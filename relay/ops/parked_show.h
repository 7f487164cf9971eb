#pragma once
/* Everything about one parked row, for `parked show` and the API. Blocking. */
#include "parked.h"

/*
 * The row, the row that it waits behind, the number of rows behind it, the requests of operators,
 * and headers and payload if `payload`. Headers are null and the payload is "hidden" without it,
 * or if the login may not read them. The caller owns *ret_shown; NULL: the id is not parked. False:
 * *err says why.
 */
bool parked_show(struct parked *parked, int64_t id, bool payload, json_t **ret_shown,
    struct err *err) MUST_CHECK;
/* Explains that the id is not parked, and suggests a fix; the caller frees. */
char *parked_show_nothing(const char *publisher, int64_t id);
