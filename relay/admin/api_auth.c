#include "api_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include "cleanup.h"
#include "text.h"

/* Digests are compared, which have one length and say nothing of a token that is nearly right. */
struct digest {
	unsigned char bytes[EVP_MAX_MD_SIZE];
};

struct row {
	struct digest digest;
	unsigned role;
};

struct api_auth {
	struct row *rows;
	int count;
};

static struct digest digest_of(const char *token)
{
	struct digest digest = {{0}};

	/* Fails only when OpenSSL has no SHA-256; then no token may match another. */
	if (EVP_Digest(token, strlen(token), digest.bytes, NULL, EVP_sha256(), NULL) != 1)
		abort();
	return digest;
}

static void add(struct api_auth *auth, const struct config_list *tokens, unsigned role)
{
	auth->rows =
	    xrealloc(auth->rows, (size_t)(auth->count + tokens->count + 1) * sizeof *auth->rows);
	for (int i = 0; i < tokens->count; i++)
		auth->rows[auth->count++] = (struct row){digest_of(tokens->items[i]), role};
}

struct api_auth *api_auth_create(const struct config_api *config)
{
	struct api_auth *auth = xcalloc(1, sizeof *auth);

	add(auth, &config->send_tokens, API_SEND);
	add(auth, &config->read_tokens, API_READ);
	add(auth, &config->operate_tokens, API_OPERATE);
	return auth;
}

void api_auth_destroy(struct api_auth *auth)
{
	if (!auth)
		return;
	free(auth->rows);
	free(auth);
}

/* What stands behind "Bearer"; NULL: it is something else. */
static const char *token_in(const char *authorization)
{
	static const char scheme[] = "Bearer ";

	if (!authorization || strncasecmp(authorization, scheme, strlen(scheme)) != 0)
		return NULL;
	authorization += strlen(scheme);
	return authorization + strspn(authorization, " ");
}

bool api_auth_has_token(const char *authorization)
{
	const char *token = token_in(authorization);

	return token && *token;
}

unsigned api_auth_roles(const struct api_auth *auth, const char *authorization)
{
	const char *token = token_in(authorization);
	struct digest digest;
	unsigned roles = 0;

	if (!token)
		return 0;
	digest = digest_of(token);
	for (int i = 0; i < auth->count; i++) {
		bool same = CRYPTO_memcmp(
				digest.bytes, auth->rows[i].digest.bytes, sizeof digest.bytes) == 0;

		roles |= auth->rows[i].role & -(unsigned)same;
	}
	return roles;
}
