#include "api_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
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
	struct api_caller *caller;
};

struct rows {
	struct row *items;
	int count;
};

struct api_auth {
	pthread_mutex_t mutex;
	struct rows rows; /* guarded by it */
};

static struct digest digest_of_token(const char *token)
{
	struct digest digest = {{0}};

	/* Fails only when OpenSSL has no SHA-256; then no token may match another. */
	if (EVP_Digest(token, strlen(token), digest.bytes, NULL, EVP_sha256(), NULL) != 1)
		abort();
	return digest;
}

/* --- callers --------------------------------------------------------------------------------- */

static struct api_caller *caller_create(const struct config_token *token)
{
	struct api_caller *caller = xcalloc(1, sizeof *caller);

	atomic_init(&caller->holders, 1);
	caller->roles = config_token_roles(token);
	caller->token.name = xstrdup(token->name);
	config_list_copy(&caller->token.publishers, &token->publishers);
	config_list_copy(&caller->token.sections, &token->sections);
	config_list_copy(&caller->token.types, &token->types);
	return caller;
}

static struct api_caller *hold_caller(struct api_caller *caller)
{
	atomic_fetch_add(&caller->holders, 1);
	return caller;
}

void api_caller_release(struct api_caller *caller)
{
	if (!caller || atomic_fetch_sub(&caller->holders, 1) > 1)
		return;
	config_list_finish(&caller->token.publishers);
	config_list_finish(&caller->token.sections);
	config_list_finish(&caller->token.types);
	free(caller->token.name);
	free(caller);
}

/* --- their tokens ---------------------------------------------------------------------------- */

static void add_caller(struct rows *rows, const struct config_token *section)
{
	struct api_caller *caller = caller_create(section);

	rows->items = xrealloc(
	    rows->items, (size_t)(rows->count + section->tokens.count + 1) * sizeof *rows->items);
	for (int i = 0; i < section->tokens.count; i++)
		rows->items[rows->count++] =
		    (struct row){digest_of_token(section->tokens.items[i]), hold_caller(caller)};
	api_caller_release(caller);
}

static struct rows rows_of_config(const struct config *config)
{
	struct rows rows = {0};

	for (int i = 0; i < config->token_count; i++)
		add_caller(&rows, &config->tokens[i]);
	return rows;
}

static void free_rows(struct rows *rows)
{
	for (int i = 0; i < rows->count; i++)
		api_caller_release(rows->items[i].caller);
	free(rows->items);
}

struct api_auth *api_auth_create(const struct config *config)
{
	struct api_auth *auth = xcalloc(1, sizeof *auth);

	pthread_mutex_init(&auth->mutex, NULL);
	auth->rows = rows_of_config(config);
	return auth;
}

void api_auth_destroy(struct api_auth *auth)
{
	if (!auth)
		return;
	free_rows(&auth->rows);
	pthread_mutex_destroy(&auth->mutex);
	free(auth);
}

void api_auth_reload(struct api_auth *auth, const struct config *config)
{
	struct rows fresh = rows_of_config(config), former;

	pthread_mutex_lock(&auth->mutex);
	former = auth->rows;
	auth->rows = fresh;
	pthread_mutex_unlock(&auth->mutex);
	free_rows(&former);
}

/* --- a request ------------------------------------------------------------------------------- */

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

struct api_caller *api_auth_find(struct api_auth *auth, const char *authorization)
{
	const char *token = token_in(authorization);
	struct api_caller *caller = NULL;
	struct digest digest;

	if (!token)
		return NULL;
	digest = digest_of_token(token);

	pthread_mutex_lock(&auth->mutex);
	/* Rows behind the match count too, so that the time does not tell where it was. */
	for (int i = 0; i < auth->rows.count; i++) {
		const struct row *row = &auth->rows.items[i];

		if (CRYPTO_memcmp(digest.bytes, row->digest.bytes, sizeof digest.bytes) == 0)
			caller = row->caller;
	}
	if (caller)
		hold_caller(caller);
	pthread_mutex_unlock(&auth->mutex);
	return caller;
}
