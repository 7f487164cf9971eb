#pragma once
/* Who may do what: bearer tokens and their roles. Internal to relay/admin. */
#include "config.h"

enum api_role { API_SEND = 1, API_READ = 2, API_OPERATE = 4 };

struct api_auth;

struct api_auth *api_auth_create(const struct config_api *config);
void api_auth_destroy(struct api_auth *auth); /* NULL is fine */

/*
 * The roles (a sum of enum api_role) of an Authorization header, NULL: there is none. 0: it is not
 * "Bearer" and a token that is known. Takes as long whichever token it is, and whether or not it is
 * one.
 */
unsigned api_auth_roles(const struct api_auth *auth, const char *authorization);

/* It has a token, right or wrong. */
bool api_auth_has_token(const char *authorization);
