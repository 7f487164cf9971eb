#include "api_preview.h"

#include "clock.h"
#include "moment.h"

void api_preview_add(struct api_call *call, const struct preview *counted, json_t *answer)
{
	struct preview preview = *counted;
	unsigned char key[PREVIEW_KEY];
	char token[PREVIEW_TOKEN_SIZE], expires[MOMENT_SIZE];

	preview.until_s = clock_wall_us() / 1000000 + PREVIEW_VALID_S;
	api_preview_key(call->api, key);
	preview_token_write(key, &preview, token);
	moment_format(preview.until_s * 1000000, expires);
	json_object_set_new(answer, "token", json_string(token));
	json_object_set_new(answer, "expires_at", json_string(expires));
}

bool api_preview_check(
    struct api_call *call, const json_t *token, const char *path, struct preview *preview)
{
	unsigned char key[PREVIEW_KEY];
	struct refusal refusal;

	if (!token) {
		api_refuse(call, 400, "bad_value",
		    "a filter needs the token of a preview: post it to %s first", path);
		return false;
	}
	api_preview_key(call->api, key);
	if (preview_token_check(
		key, json_string_value(token), preview, clock_wall_us() / 1000000, &refusal))
		return true;
	api_refuse(call, 409, refusal.code, "%s", refusal.text);
	return false;
}
