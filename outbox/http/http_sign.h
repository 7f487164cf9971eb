#pragma once
/*
 * Signatures of Standard Webhooks (the symmetric kind, v1): three headers that tell the receiver
 * who sent a request, and that nobody changed it or plays an old one back.
 *
 *   webhook-id         what the message is called, the same at every attempt
 *   webhook-timestamp  when this attempt was sent, whole seconds since 1970-01-01 UTC
 *   webhook-signature  "v1,<base64>" for each key, separated by spaces
 *
 * with base64(HMAC-SHA256(key, "id.timestamp.body")). While a key is being rotated both the new and
 * the old one sign, and the receiver takes any of them.
 *
 * No function here keeps anything; any thread may call. Messages never hold a secret.
 */
#include <stdint.h>
#include "errors.h"
#include "text.h"

#define HTTP_SIGN_ID "webhook-id"
#define HTTP_SIGN_TIMESTAMP "webhook-timestamp"
#define HTTP_SIGN_SIGNATURE "webhook-signature"

enum {
	HTTP_SECRET_MIN = 24,
	HTTP_SECRET_MAX = 64,
	HTTP_SIGN_ID_MAX = 256,
};

/* The bytes of a key: on the caller's memory, to be wiped by http_secret_finish. */
struct http_secret {
	unsigned char key[HTTP_SECRET_MAX];
	size_t length;
};

/*
 * "whsec_" and 24 to 64 bytes in base64 (RFC 4648, padded). False (ERR_CONFIG): what is wrong with
 * it, without a character of it.
 */
bool http_secret_parse(
    const char *text, struct http_secret *ret_secret, struct err *err) MUST_CHECK;
void http_secret_finish(struct http_secret *secret);

/*
 * Appends the value of webhook-signature, one signature a key in their order (the newest first), to
 * *ret_signature.
 *
 * ERR_REJECT: the id is empty, longer than HTTP_SIGN_ID_MAX, or has something else than visible
 * ASCII without "." in it: with a "." one signature would fit two messages ("a.1", 2 and "a", 1).
 */
bool http_sign(const struct http_secret *secrets, size_t count, const char *id, int64_t timestamp,
    const void *body, size_t length, struct text *ret_signature, struct err *err) MUST_CHECK;

/* What a receiver was sent; NULL for a header that is missing. */
struct http_signed {
	const char *id, *timestamp, *signature;
	const void *body;
	size_t length;
};

/*
 * True: one of the signatures is that of one of the keys, and the timestamp is at most `tolerance`
 * seconds from now (both in seconds since 1970). False (ERR_DENIED): why. Signatures of other
 * versions are passed over. Compares in constant time.
 */
bool http_verify(const struct http_secret *secrets, size_t count, const struct http_signed *what,
    int64_t now, int64_t tolerance, struct err *err) MUST_CHECK;
