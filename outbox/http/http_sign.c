#include "http_sign.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include "cleanup.h"

static const char prefix[] = "whsec_";
static const char version[] = "v1,";

enum {
	DIGEST_LENGTH = 32,
	ENCODED_LENGTH = (DIGEST_LENGTH + 2) / 3 * 4,
};

DEFINE_OWNED(EVP_MAC, EVP_MAC_free)
DEFINE_OWNED(EVP_MAC_CTX, EVP_MAC_CTX_free)

bool http_secret_parse(const char *text, struct http_secret *ret_secret, struct err *err)
{
	void *bytes;
	size_t length;
	bool fits;

	if (!text_starts(text, prefix))
		return err_set(
		    err, ERR_CONFIG, "a secret begins with \"%s\", then comes base64", prefix);
	text += sizeof prefix - 1;
	if (!text_base64_decode(text, strlen(text), &bytes, &length))
		return err_set(err, ERR_CONFIG,
		    "what follows \"%s\" is not base64 (A-Z a-z 0-9 + / with = at its end)",
		    prefix);
	fits = length >= HTTP_SECRET_MIN && length <= HTTP_SECRET_MAX;
	if (fits) {
		memcpy(ret_secret->key, bytes, length);
		ret_secret->length = length;
	}
	/* Before any return: no copy of the key stays in freed memory. */
	OPENSSL_cleanse(bytes, length);
	free(bytes);
	if (!fits)
		return err_set(err, ERR_CONFIG,
		    "a secret has %d to %d bytes, this one has %zu; `openssl rand -base64 32` "
		    "makes a good one",
		    HTTP_SECRET_MIN, HTTP_SECRET_MAX, length);
	return true;
}

void http_secret_finish(struct http_secret *secret)
{
	OPENSSL_cleanse(secret, sizeof *secret);
}

static bool id_is_good(const char *id)
{
	size_t length = strnlen(id, HTTP_SIGN_ID_MAX + 1);

	for (size_t i = 0; i < length; i++) {
		if (id[i] <= ' ' || id[i] >= 0x7f || id[i] == '.')
			return false;
	}
	return length && length <= HTTP_SIGN_ID_MAX;
}

/* The signed bytes: head ("id.timestamp.") and then the body. */
struct content {
	const char *head;
	const void *body;
	size_t length;
};

/* Writes the base64 of the HMAC, NUL-terminated. False: OpenSSL has no memory or no SHA-256. */
static bool encode_hmac(EVP_MAC *mac, const struct http_secret *secret,
    const struct content *content, char ret_encoded[ENCODED_LENGTH + 1])
{
	char name[] = "SHA256";
	const OSSL_PARAM params[] = {
	    OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, name, 0),
	    OSSL_PARAM_construct_end(),
	};
	OWNED(owned_EVP_MAC_CTX_free) EVP_MAC_CTX *context = EVP_MAC_CTX_new(mac);
	unsigned char bytes[DIGEST_LENGTH];
	size_t length;

	if (!context || !EVP_MAC_init(context, secret->key, secret->length, params) ||
	    !EVP_MAC_update(context, (const void *)content->head, strlen(content->head)) ||
	    !EVP_MAC_update(context, content->body, content->length) ||
	    !EVP_MAC_final(context, bytes, &length, sizeof bytes))
		return false;
	return EVP_EncodeBlock((unsigned char *)ret_encoded, bytes, DIGEST_LENGTH) ==
	       ENCODED_LENGTH;
}

static bool no_hmac(struct err *err)
{
	return err_set(err, ERR_FATAL, "OpenSSL cannot make a HMAC-SHA256");
}

bool http_sign(const struct http_secret *secrets, size_t count, const char *id, int64_t timestamp,
    const void *body, size_t length, struct text *ret_signature, struct err *err)
{
	OWNED(owned_EVP_MAC_free) EVP_MAC *mac = NULL;
	char head[HTTP_SIGN_ID_MAX + 32];

	if (!id_is_good(id))
		return err_set(err, ERR_REJECT,
		    "a %s has 1 to %d visible ASCII characters, none of them \".\"", HTTP_SIGN_ID,
		    HTTP_SIGN_ID_MAX);
	mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	if (!mac)
		return no_hmac(err);
	snprintf(head, sizeof head, "%s.%" PRId64 ".", id, timestamp);
	for (size_t i = 0; i < count; i++) {
		const struct content content = {head, body, length};
		char encoded[ENCODED_LENGTH + 1];
		if (!encode_hmac(mac, &secrets[i], &content, encoded))
			return no_hmac(err);
		text_addf(ret_signature, "%s%s%s", i ? " " : "", version, encoded);
	}
	return true;
}

/* Is the signature in the list? All of the right form are compared, so the time reveals nothing. */
static bool signature_is_listed(const char *list, const char *encoded)
{
	const size_t length = sizeof version - 1 + ENCODED_LENGTH;
	int found = 0;

	for (;;) {
		size_t word = strcspn(list, " ");
		if (word == length && text_starts(list, version))
			found |= !CRYPTO_memcmp(list + sizeof version - 1, encoded, ENCODED_LENGTH);
		if (!list[word])
			return found;
		list += word + 1;
	}
}

static bool timestamp_is_good(const char *text, int64_t now, int64_t tolerance, struct err *err)
{
	int64_t sent;

	if (!text_to_int64(text, 0, INT64_MAX / 2, &sent))
		return err_set(
		    err, ERR_DENIED, "%s is not a number of seconds", HTTP_SIGN_TIMESTAMP);
	if (sent < now - tolerance)
		return err_set(err, ERR_DENIED,
		    "%s is %" PRId64 " s old, more than %" PRId64
		    " s: an old request played back, or the clocks differ",
		    HTTP_SIGN_TIMESTAMP, now - sent, tolerance);
	if (sent > now + tolerance)
		return err_set(err, ERR_DENIED,
		    "%s lies %" PRId64 " s in the future, more than %" PRId64
		    " s: the clocks differ",
		    HTTP_SIGN_TIMESTAMP, sent - now, tolerance);
	return true;
}

bool http_verify(const struct http_secret *secrets, size_t count, const struct http_signed *what,
    int64_t now, int64_t tolerance, struct err *err)
{
	OWNED(owned_EVP_MAC_free) EVP_MAC *mac = NULL;
	char head[HTTP_SIGN_ID_MAX + 32];
	bool found = false;

	if (!what->id || !what->timestamp || !what->signature)
		return err_set(err, ERR_DENIED, "%s is missing",
		    !what->id          ? HTTP_SIGN_ID
		    : !what->timestamp ? HTTP_SIGN_TIMESTAMP
				       : HTTP_SIGN_SIGNATURE);
	if (!id_is_good(what->id))
		return err_set(err, ERR_DENIED, "%s is not one", HTTP_SIGN_ID);
	if (!timestamp_is_good(what->timestamp, now, tolerance, err))
		return false;
	mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	if (!mac)
		return no_hmac(err);
	/* The signature covers the timestamp as it was written: "007" is signed as "007". */
	if ((size_t)snprintf(head, sizeof head, "%s.%s.", what->id, what->timestamp) >= sizeof head)
		return err_set(err, ERR_DENIED, "%s is too long", HTTP_SIGN_TIMESTAMP);
	for (size_t i = 0; i < count; i++) {
		const struct content content = {head, what->body, what->length};
		char encoded[ENCODED_LENGTH + 1];
		if (!encode_hmac(mac, &secrets[i], &content, encoded))
			return no_hmac(err);
		/* No early exit: the time must not reveal which key fits. */
		found |= signature_is_listed(what->signature, encoded);
	}
	return found || err_set(err, ERR_DENIED, "no %s fits: another key, or another body",
			    HTTP_SIGN_SIGNATURE);
}
