#include "preview_token.h"

#include <inttypes.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

void preview_key(const struct config *config, unsigned char ret_key[PREVIEW_KEY])
{
	signing_key_of_tokens(config, "preview", ret_key);
}

/* --- the snapshot ---------------------------------------------------------------------------- */

/* "XMIN:XMAX:XIP,…" */
void preview_note_snapshot(struct preview *preview, const char *snapshot)
{
	int length = (int)strcspn(snapshot, ":");

	if (strlen(snapshot) < PREVIEW_SEEN)
		text_copy(preview->seen, PREVIEW_SEEN, snapshot);
	else
		snprintf(
		    preview->seen, PREVIEW_SEEN, "%.*s:%.*s:", length, snapshot, length, snapshot);
}

/* --- the token ------------------------------------------------------------------------------- */

/* No part but the last may have a line end, so no two previews give the same text. */
static char *preview_text(const struct preview *preview)
{
	return xformat("%s\n%s\n%" PRId64 ".%" PRId64 ".%" PRId64 ".%s\n%s", preview->verb,
	    preview->publisher, preview->until_s, preview->at_us, preview->count, preview->seen,
	    preview->selection);
}

void preview_token_write(const unsigned char key[PREVIEW_KEY], const struct preview *preview,
    char ret_token[PREVIEW_TOKEN_SIZE])
{
	owned_text char *text = preview_text(preview);
	char mac[SIGNING_MAC_TEXT + 1];

	signing_mac(key, text, mac);
	snprintf(ret_token, PREVIEW_TOKEN_SIZE, "%" PRId64 ".%" PRId64 ".%" PRId64 ".%s.%s",
	    preview->until_s, preview->at_us, preview->count, preview->seen, mac);
}

/* Reads a number that ends with a dot. NULL: there is none. */
static const char *read_token_part(const char *at, int64_t *ret)
{
	size_t length = strcspn(at, ".");
	char digits[24];

	if (at[length] != '.' || length == 0 || length >= sizeof digits)
		return NULL;
	memcpy(digits, at, length);
	digits[length] = '\0';
	return text_to_int64(digits, 0, INT64_MAX, ret) ? at + length + 1 : NULL;
}

/* Reads a snapshot that ends with a dot. NULL: there is none. */
static const char *read_token_snapshot(const char *at, char ret_seen[PREVIEW_SEEN])
{
	size_t length = strspn(at, "0123456789:,");

	if (at[length] != '.' || length >= PREVIEW_SEEN)
		return NULL;
	memcpy(ret_seen, at, length);
	ret_seen[length] = '\0';
	return at + length + 1;
}

bool preview_token_check(const unsigned char key[PREVIEW_KEY], const char *token,
    struct preview *preview, int64_t now_s, struct refusal *refusal)
{
	const char *mac = read_token_part(token, &preview->until_s);

	mac = mac ? read_token_part(mac, &preview->at_us) : NULL;
	mac = mac ? read_token_part(mac, &preview->count) : NULL;
	mac = mac ? read_token_snapshot(mac, preview->seen) : NULL;
	if (mac) {
		owned_text char *text = preview_text(preview);

		if (signing_check(key, text, mac))
			return now_s < preview->until_s ||
			       refusal_set(refusal, "token_expired",
				   "token is older than 10 minutes: make a new preview");
	}
	return refusal_set(refusal, "bad_token",
	    "token is not of a preview of this verb and filter: make a preview with the same ones");
}
