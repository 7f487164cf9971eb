#include "preview_token.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include "cleanup.h"
#include "hex.h"
#include "text.h"

enum { MAC_BYTES = 32, MAC_TEXT = 2 * MAC_BYTES };

/* --- the key --------------------------------------------------------------------------------- */

static int compare_tokens(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void preview_key(const struct config *config, unsigned char ret_key[PREVIEW_KEY])
{
	OWNED(text_finish) struct text joined = {0};
	const char **all;
	int count = 0;

	for (int i = 0; i < config->token_count; i++)
		count += config->tokens[i].tokens.count;
	all = xcalloc((size_t)count + 1, sizeof *all);
	count = 0;
	for (int i = 0; i < config->token_count; i++)
		for (int k = 0; k < config->tokens[i].tokens.count; k++)
			all[count++] = config->tokens[i].tokens.items[k];
	/* processes may list them in another order */
	qsort(all, (size_t)count, sizeof *all, compare_tokens);

	/* the first line keeps the key apart from the digests by which tokens are compared */
	text_add(&joined, "outbox-relay preview\n");
	for (int i = 0; i < count; i++)
		text_addf(&joined, "%s\n", all[i]);
	free(all);

	/* Fails only when OpenSSL has no SHA-256; a key that anybody knows would be worse. */
	if (EVP_Digest(joined.data, joined.length, ret_key, NULL, EVP_sha256(), NULL) != 1)
		abort();
	OPENSSL_cleanse(joined.data, joined.length);
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
static void sign_preview(
    const unsigned char key[PREVIEW_KEY], const struct preview *preview, char ret_mac[MAC_TEXT + 1])
{
	owned_text char *signed_text = xformat("%s\n%s\n%" PRId64 ".%" PRId64 ".%" PRId64 ".%s\n%s",
	    preview->verb, preview->publisher, preview->until_s, preview->at_us, preview->count,
	    preview->seen, preview->selection);
	unsigned char mac[MAC_BYTES];
	size_t length;

	if (!EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, key, PREVIEW_KEY,
		(const unsigned char *)signed_text, strlen(signed_text), mac, sizeof mac, &length))
		abort();
	*hex_write(ret_mac, mac, sizeof mac) = '\0';
}

void preview_token_write(const unsigned char key[PREVIEW_KEY], const struct preview *preview,
    char ret_token[PREVIEW_TOKEN_SIZE])
{
	char mac[MAC_TEXT + 1];

	sign_preview(key, preview, mac);
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
	char wanted[MAC_TEXT + 1];

	mac = mac ? read_token_part(mac, &preview->at_us) : NULL;
	mac = mac ? read_token_part(mac, &preview->count) : NULL;
	mac = mac ? read_token_snapshot(mac, preview->seen) : NULL;
	if (mac && strlen(mac) == MAC_TEXT) {
		sign_preview(key, preview, wanted);
		/* Takes the same time wherever the first difference is. */
		if (CRYPTO_memcmp(wanted, mac, MAC_TEXT) == 0)
			return now_s < preview->until_s ||
			       refusal_set(refusal, "token_expired",
				   "token is older than 10 minutes: make a new preview");
	}
	return refusal_set(refusal, "bad_token",
	    "token is not of a preview of this verb and filter: make a preview with the same ones");
}
