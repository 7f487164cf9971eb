#pragma once
/* The token of a preview in answers and orders, for verbs on all that match. Internal to
 * relay/admin. */
#include "api_private.h"

/* Adds "token" and "expires_at" to the answer. Takes all but until_s from the preview. */
void api_preview_add(struct api_call *call, const struct preview *preview, json_t *answer);

/*
 * Reads count and at_us from the token of an order, which must be of a preview of the same verb,
 * owner and selection. False: refused.
 */
bool api_preview_check(
    struct api_call *call, const json_t *token, const char *path, struct preview *preview);
