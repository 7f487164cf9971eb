#pragma once
/* Sessions of the console in requests: finds the caller, and checks the page that sends. Internal
 * to relay/admin. */
#include "api_private.h"

/* Does the request show a session instead of a token? */
bool api_session_is_shown(const struct api_call *call);

/*
 * Finds the caller of the session, or refuses. A request that changes something (is_unsafe) also
 * needs the CSRF token, and must come from a page of our own.
 */
void api_session_judge(struct api_call *call, bool is_unsafe);

/* A browser says which page sends a request. False: a page of somebody else; refused. */
bool api_session_check_origin(struct api_call *call);

/* The answer sets the cookie of call->session, or removes it. */
void api_session_set_cookie(struct api_call *call);
void api_session_remove_cookie(struct api_call *call);
