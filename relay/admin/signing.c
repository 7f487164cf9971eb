#include "signing.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include "cleanup.h"
#include "hex.h"
#include "text.h"

static int compare_tokens(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Fails only when OpenSSL has no SHA-256; a key that anybody knows would be worse. */
static void digest_key(const struct text *secret, unsigned char ret_key[SIGNING_KEY])
{
	if (EVP_Digest(secret->data, secret->length, ret_key, NULL, EVP_sha256(), NULL) != 1)
		abort();
	OPENSSL_cleanse(secret->data, secret->length);
}

void signing_key_of_tokens(
    const struct config *config, const char *purpose, unsigned char ret_key[SIGNING_KEY])
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
	text_addf(&joined, "outbox-relay %s\n", purpose);
	for (int i = 0; i < count; i++)
		text_addf(&joined, "%s\n", all[i]);
	free(all);
	digest_key(&joined, ret_key);
}

void signing_key_of_secret(
    const char *secret, const char *purpose, unsigned char ret_key[SIGNING_KEY])
{
	OWNED(text_finish) struct text joined = {0};

	text_addf(&joined, "outbox-relay %s\n%s\n", purpose, secret);
	digest_key(&joined, ret_key);
}

void signing_mac(
    const unsigned char key[SIGNING_KEY], const char *text, char ret_mac[SIGNING_MAC_TEXT + 1])
{
	unsigned char mac[SIGNING_MAC_TEXT / 2];
	size_t length;

	if (!EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, key, SIGNING_KEY,
		(const unsigned char *)text, strlen(text), mac, sizeof mac, &length))
		abort();
	*hex_write(ret_mac, mac, sizeof mac) = '\0';
}

bool signing_check(const unsigned char key[SIGNING_KEY], const char *text, const char *mac)
{
	char wanted[SIGNING_MAC_TEXT + 1];

	if (strlen(mac) != SIGNING_MAC_TEXT)
		return false;
	signing_mac(key, text, wanted);
	return CRYPTO_memcmp(wanted, mac, SIGNING_MAC_TEXT) == 0;
}
