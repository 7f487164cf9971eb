#pragma once
/*
 * Signatures of Standard Webhooks (the symmetric kind, v1): three headers that prove to the
 * receiver who sent a request, and that it was neither changed nor replayed.
 *
 *   webhook-id         the id of the message, the same at every attempt
 *   webhook-timestamp  when this attempt was sent, whole seconds since 1970-01-01 UTC
 *   webhook-signature  "v1,<base64>" for each key, separated by spaces
 *
 * where <base64> is base64(HMAC-SHA256(key, "id.timestamp.body")). During a key rotation the new
 * and the old key both sign, and the receiver accepts either.
 *
 * The functions keep no state; any thread may call. Error messages never contain a secret.
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

/* The bytes of a key, in the caller's memory; http_secret_finish wipes them. */
struct http_secret {
	unsigned char key[HTTP_SECRET_MAX];
	size_t length;
};

/*
 * Parses "whsec_" and 24 to 64 bytes in base64 (RFC 4648, padded). False (ERR_CONFIG): the error
 * says what is wrong with the secret, without quoting a character of it.
 */
bool http_secret_parse(
    const char *text, struct http_secret *ret_secret, struct err *err) MUST_CHECK;
void http_secret_finish(struct http_secret *secret);

/*
 * Appends the value of webhook-signature to *ret_signature: one signature for each key, in the
 * order of the keys (the newest first).
 *
 * ERR_REJECT: the id is empty, is longer than HTTP_SIGN_ID_MAX, or contains a "." or a byte that is
 * not visible ASCII: with a "." one signature would fit two messages ("a.1", 2 and "a", 1).
 */
bool http_sign(const struct http_secret *secrets, size_t count, const char *id, int64_t timestamp,
    const void *body, size_t length, struct text *ret_signature, struct err *err) MUST_CHECK;

/* A signed request as its receiver got it; a missing header is NULL. */
struct http_signed {
	const char *id, *timestamp, *signature;
	const void *body;
	size_t length;
};

/*
 * True: one of the keys made one of the signatures, and the timestamp is at most `tolerance`
 * seconds away from now (both in seconds since 1970). False (ERR_DENIED): the error says why.
 * Ignores signatures of other versions. Compares in constant time.
 */
bool http_verify(const struct http_secret *secrets, size_t count, const struct http_signed *what,
    int64_t now, int64_t tolerance, struct err *err) MUST_CHECK;
