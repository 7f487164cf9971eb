#include "parked_digest.h"

#include <openssl/evp.h>
#include <stdlib.h>

#include "errors.h"
#include "text.h"

struct parked_digester {
	EVP_MD *kind; /* fetched once, as fetching costs more than a digest */
	EVP_MD_CTX *context;
};

struct parked_digester *parked_digester_create(void)
{
	struct parked_digester *digester = xcalloc(1, sizeof *digester);
	digester->kind = EVP_MD_fetch(NULL, "SHA256", NULL);
	digester->context = EVP_MD_CTX_new();
	/* Without a digest a message could not be distinguished from a parked one. */
	if (!digester->kind || !digester->context ||
	    !EVP_DigestInit_ex2(digester->context, digester->kind, NULL))
		abort();
	return digester;
}

void parked_digester_destroy(struct parked_digester *digester)
{
	if (!digester)
		return;
	EVP_MD_CTX_free(digester->context);
	EVP_MD_free(digester->kind);
	free(digester);
}

int64_t parked_digest(struct parked_digester *digester, const char *topic, size_t topic_length,
    const char *key, size_t key_length)
{
	unsigned char bytes[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *context = digester->context;
	uint64_t number = 0;

	if (!EVP_DigestInit_ex2(context, NULL, NULL) ||
	    !EVP_DigestUpdate(context, topic, topic_length) || !EVP_DigestUpdate(context, "", 1) ||
	    !EVP_DigestUpdate(context, key, key_length) ||
	    !EVP_DigestFinal_ex(context, bytes, NULL))
		abort();
	for (int i = 0; i < 8; i++)
		number = number << 8 | bytes[i];
	return (int64_t)number;
}
