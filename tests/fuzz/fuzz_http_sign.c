/*
 * Any text is a secret, or is refused without a character of it; any headers are no signature of
 * ours, unless they are one. Lines: secret, id, timestamp, signature; the rest is the body.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "http_sign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void sign_and_verify(const struct http_secret *secret, const char *id, const char *body)
{
	OWNED(text_finish) struct text signature = {0};
	struct err err = {0};

	if (!http_sign(secret, 1, id, 1700000000, body, strlen(body), &signature, &err)) {
		require(err.kind == ERR_REJECT);
		return;
	}
	struct http_signed what = {id, "1700000000", text_string(&signature), body, strlen(body)};
	require(http_verify(secret, 1, &what, 1700000000, 300, &err));
	what.timestamp = "1700000001";
	require(!http_verify(secret, 1, &what, 1700000000, 300, &err));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	owned_text char *text = xmalloc(size + 1);
	char *rest = text;
	struct http_secret secret = {0};
	const struct http_secret fixed = {"0123456789abcdef0123456789abcdef", 32};
	struct http_signed what = {0};
	struct err err = {0};

	memcpy(text, data, size);
	text[size] = '\0';
	const char *line = strsep(&rest, "\n");
	bool good = http_secret_parse(line, &secret, &err);
	require(good ? secret.length >= HTTP_SECRET_MIN && secret.length <= HTTP_SECRET_MAX
		     : err.kind == ERR_CONFIG && err.message[0]);
	what.id = strsep(&rest, "\n");
	what.timestamp = rest ? strsep(&rest, "\n") : NULL;
	what.signature = rest ? strsep(&rest, "\n") : NULL;
	what.body = rest ? rest : "";
	what.length = strlen(what.body);
	if (!http_verify(&fixed, 1, &what, 1700000000, 300, &err))
		require(err.kind == ERR_DENIED && err.message[0]);
	if (what.id)
		sign_and_verify(good ? &secret : &fixed, what.id, what.body);
	http_secret_finish(&secret);
	return 0;
}
