#pragma once
/*
 * Sessions of the console: an operator's browser shows one instead of a token. The relay keeps
 * none: the cookie holds the session, and its signature makes every process with the same key
 * accept it. Internal to relay/admin. Any thread.
 *
 * A login makes a new session from random bytes, and a cookie without a valid signature is ignored,
 * so that nobody can choose a session for somebody else. The cookie names the [token] section and
 * holds a keyed digest of the token: without that token in the configuration the session has ended.
 */
#include "signing.h"

enum { SESSION_NONCE = 16, SESSION_HEX = 2 * SESSION_NONCE };

struct session {
	char *name;                        /* of the [token] section */
	char fingerprint[SESSION_HEX + 1]; /* of its token: session_fingerprint */
	char nonce[SESSION_HEX + 1];
	int64_t begun_s, used_s; /* since 1970: the login, and the newest cookie */
};

/* [api] session_key; without one, a digest of all tokens. */
void session_key(const struct config *config, unsigned char ret_key[SIGNING_KEY]);

/* digest: the SHA-256 of the token, in hexadecimal. */
void session_fingerprint(
    const unsigned char key[SIGNING_KEY], const char *digest, char ret[SESSION_HEX + 1]);

/* Finish *ret_session. */
void session_begin(
    const char *name, const char *fingerprint, int64_t now_s, struct session *ret_session);
void session_finish(struct session *session); /* all zero is fine */

/* The value of the cookie; the caller frees. */
char *session_write(const unsigned char key[SIGNING_KEY], const struct session *session);
/* False: not a session that this key has signed. Finish *ret_session if it is true. */
bool session_read(const unsigned char key[SIGNING_KEY], const char *cookie,
    struct session *ret_session) MUST_CHECK;

/* A page of another origin cannot read it, so requests that change something have to show it. */
void session_csrf(const unsigned char key[SIGNING_KEY], const struct session *session,
    char ret_csrf[SIGNING_MAC_TEXT + 1]);
bool session_csrf_check(
    const unsigned char key[SIGNING_KEY], const struct session *session, const char *csrf);
