#pragma once
/* Who may do what: bearer tokens and their roles. Internal to relay/admin. */
#include "config.h"

enum api_role { API_SEND = 1, API_READ = 2, API_OPERATE = 4 };

struct api_auth;

/* The configuration outlives it. */
struct api_auth *api_auth_create(const struct config *config);
void api_auth_destroy(struct api_auth *auth); /* NULL is fine */

struct api_rights {
	unsigned roles;                     /* a sum of enum api_role; 0: no known token */
	const struct config_sender *sender; /* that sends; NULL: it may speak for every type */
};

/*
 * The rights of an Authorization header, or none without "Bearer" and a known token. Takes the same
 * time for every token, known or unknown.
 */
struct api_rights api_auth_rights(const struct api_auth *auth, const char *authorization);

/* Does the header hold a token, right or wrong? */
bool api_auth_has_token(const char *authorization);
