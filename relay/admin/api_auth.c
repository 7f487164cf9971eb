#include "api_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>
#include "cleanup.h"
#include "hex.h"
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
	char fingerprint[SESSION_HEX + 1]; /* by which sessions name the token */
	struct api_caller *caller;
};

struct rows {
	struct row *items;
	int count;
	unsigned char session_key[SIGNING_KEY];
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
	config_list_copy(&caller->token.roles, &token->roles);
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
	config_list_finish(&caller->token.roles);
	config_list_finish(&caller->token.publishers);
	config_list_finish(&caller->token.sections);
	config_list_finish(&caller->token.types);
	free(caller->token.name);
	free(caller);
}

/* --- their tokens ---------------------------------------------------------------------------- */

static void write_fingerprint(const unsigned char key[SIGNING_KEY], struct row *row)
{
	char digest[2 * sizeof row->digest.bytes + 1];

	*hex_write(digest, row->digest.bytes, sizeof row->digest.bytes) = '\0';
	session_fingerprint(key, digest, row->fingerprint);
}

static void add_caller(struct rows *rows, const struct config_token *section)
{
	struct api_caller *caller = caller_create(section);

	rows->items = xrealloc(
	    rows->items, (size_t)(rows->count + section->tokens.count + 1) * sizeof *rows->items);
	for (int i = 0; i < section->tokens.count; i++) {
		struct row *row = &rows->items[rows->count++];

		*row = (struct row){.digest = digest_of_token(section->tokens.items[i]),
		    .caller = hold_caller(caller)};
		write_fingerprint(rows->session_key, row);
	}
	api_caller_release(caller);
}

static struct rows rows_of_config(const struct config *config)
{
	struct rows rows = {0};

	session_key(config, rows.session_key);
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
	char ignored[SESSION_HEX + 1];

	return token ? api_auth_find_token(auth, token, ignored) : NULL;
}

struct api_caller *api_auth_find_token(
    struct api_auth *auth, const char *token, char ret_fingerprint[SESSION_HEX + 1])
{
	struct digest digest = digest_of_token(token);
	const struct row *found = NULL;
	struct api_caller *caller = NULL;

	pthread_mutex_lock(&auth->mutex);
	/* Rows behind the match count too, so that the time does not tell where it was. */
	for (int i = 0; i < auth->rows.count; i++) {
		const struct row *row = &auth->rows.items[i];

		if (CRYPTO_memcmp(digest.bytes, row->digest.bytes, sizeof digest.bytes) == 0)
			found = row;
	}
	if (found) {
		caller = hold_caller(found->caller);
		text_copy(ret_fingerprint, SESSION_HEX + 1, found->fingerprint);
	}
	pthread_mutex_unlock(&auth->mutex);
	return caller;
}

struct api_caller *api_auth_find_session(struct api_auth *auth, const struct session *session)
{
	struct api_caller *caller = NULL;

	pthread_mutex_lock(&auth->mutex);
	/* The session is signed: nobody can try fingerprints here. */
	for (int i = 0; i < auth->rows.count && !caller; i++) {
		const struct row *row = &auth->rows.items[i];

		if (text_equal(row->caller->token.name, session->name) &&
		    text_equal(row->fingerprint, session->fingerprint))
			caller = hold_caller(row->caller);
	}
	pthread_mutex_unlock(&auth->mutex);
	return caller;
}

void api_auth_session_key(struct api_auth *auth, unsigned char ret_key[SIGNING_KEY])
{
	pthread_mutex_lock(&auth->mutex);
	memcpy(ret_key, auth->rows.session_key, SIGNING_KEY);
	pthread_mutex_unlock(&auth->mutex);
}
