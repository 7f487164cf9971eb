#pragma once
/*
 * Bearer tokens, and the roles and limits of their [token] sections. Internal to relay/admin. Any
 * thread.
 */
#include <stdatomic.h>
#include "config.h"
#include "console_session.h"

struct api_auth;

/* A [token] section as of a request. Another configuration does not change it. */
struct api_caller {
	atomic_int holders;
	unsigned roles;            /* a sum of enum config_role */
	struct config_token token; /* its name and its scope, without its tokens */
};

struct api_auth *api_auth_create(const struct config *config);
void api_auth_destroy(struct api_auth *auth); /* NULL is fine */
/* From now on those of this configuration are the tokens. */
void api_auth_reload(struct api_auth *auth, const struct config *config);

/*
 * The caller with the token of an Authorization header; NULL without "Bearer" and a known token. It
 * takes the same time for every token, known or unknown. To be given back by api_caller_release.
 */
struct api_caller *api_auth_find(struct api_auth *auth, const char *authorization);
/*
 * The caller with this token, and the fingerprint by which a session names the token; NULL:
 * unknown.
 */
struct api_caller *api_auth_find_token(
    struct api_auth *auth, const char *token, char ret_fingerprint[SESSION_HEX + 1]);
/* The caller of a session; NULL: its token is no longer one of the section's. */
struct api_caller *api_auth_find_session(struct api_auth *auth, const struct session *session);
/* The key that signs sessions. */
void api_auth_session_key(struct api_auth *auth, unsigned char ret_key[SIGNING_KEY]);

void api_caller_release(struct api_caller *caller); /* NULL is fine */

/* Does the header hold a token, right or wrong? */
bool api_auth_has_token(const char *authorization);
