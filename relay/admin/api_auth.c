#include "api_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include "cleanup.h"
#include "text.h"

/*
 * Digests are compared instead of tokens: all have one length, and they do not show that a token is
 * nearly right.
 */
struct digest {
	unsigned char bytes[EVP_MAX_MD_SIZE];
};

struct row {
	struct digest digest;
	unsigned role;
	const struct config_sender *sender; /* NULL: the token may speak for every type */
};

struct api_auth {
	struct row *rows;
	int count;
};

static struct digest digest_of_token(const char *token)
{
	struct digest digest = {{0}};

	/* Fails only when OpenSSL has no SHA-256; then no token may match another. */
	if (EVP_Digest(token, strlen(token), digest.bytes, NULL, EVP_sha256(), NULL) != 1)
		abort();
	return digest;
}

static void add_tokens(struct api_auth *auth, const struct config_list *tokens, unsigned role,
    const struct config_sender *sender)
{
	auth->rows =
	    xrealloc(auth->rows, (size_t)(auth->count + tokens->count + 1) * sizeof *auth->rows);
	for (int i = 0; i < tokens->count; i++)
		auth->rows[auth->count++] =
		    (struct row){digest_of_token(tokens->items[i]), role, sender};
}

struct api_auth *api_auth_create(const struct config *config)
{
	struct api_auth *auth = xcalloc(1, sizeof *auth);

	add_tokens(auth, &config->api.send_tokens, API_SEND, NULL);
	add_tokens(auth, &config->api.read_tokens, API_READ, NULL);
	add_tokens(auth, &config->api.operate_tokens, API_OPERATE, NULL);
	for (int i = 0; i < config->sender_count; i++)
		add_tokens(auth, &config->senders[i].tokens, API_SEND, &config->senders[i]);
	return auth;
}

void api_auth_destroy(struct api_auth *auth)
{
	if (!auth)
		return;
	free(auth->rows);
	free(auth);
}

/* The token behind "Bearer"; NULL: the header has another form. */
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

struct api_rights api_auth_rights(const struct api_auth *auth, const char *authorization)
{
	const char *token = token_in(authorization);
	struct api_rights rights = {0};
	struct digest digest;

	if (!token)
		return rights;
	digest = digest_of_token(token);
	for (int i = 0; i < auth->count; i++) {
		const struct row *row = &auth->rows[i];
		/* Rows behind a match count too: a token may have several roles. */
		bool same =
		    CRYPTO_memcmp(digest.bytes, row->digest.bytes, sizeof digest.bytes) == 0;

		rights.roles |= row->role & -(unsigned)same;
		if (same && row->sender)
			rights.sender = row->sender;
	}
	return rights;
}
