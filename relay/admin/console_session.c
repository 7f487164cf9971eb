#include "console_session.h"

#include <inttypes.h>
#include <openssl/rand.h>
#include <string.h>
#include "cleanup.h"
#include "hex.h"
#include "text.h"

/* The parts of a cookie, between dots; the name is in hexadecimal, since it may have any bytes. */
enum { PART_NAME, PART_FINGERPRINT, PART_NONCE, PART_BEGUN, PART_USED, PARTS };
enum { COOKIE_BYTES = 2048 };

void session_key(const struct config *config, unsigned char ret_key[SIGNING_KEY])
{
	if (config->api.session_key[0])
		signing_key_of_secret(config->api.session_key, "session", ret_key);
	else
		signing_key_of_tokens(config, "session", ret_key);
}

void session_fingerprint(
    const unsigned char key[SIGNING_KEY], const char *digest, char ret[SESSION_HEX + 1])
{
	owned_text char *text = xformat("token\n%s", digest);
	char mac[SIGNING_MAC_TEXT + 1];

	signing_mac(key, text, mac);
	text_copy(ret, SESSION_HEX + 1, mac);
}

void session_begin(
    const char *name, const char *fingerprint, int64_t now_s, struct session *ret_session)
{
	unsigned char nonce[SESSION_NONCE];

	/* Two equal sessions would share their CSRF token. */
	if (RAND_bytes(nonce, sizeof nonce) != 1)
		abort();
	*ret_session = (struct session){.name = xstrdup(name), .begun_s = now_s, .used_s = now_s};
	text_copy(ret_session->fingerprint, sizeof ret_session->fingerprint, fingerprint);
	*hex_write(ret_session->nonce, nonce, sizeof nonce) = '\0';
}

void session_finish(struct session *session)
{
	free(session->name);
	*session = (struct session){0};
}

/* --- the cookie ------------------------------------------------------------------------------ */

static char *session_signed_text(const char *parts)
{
	return xformat("session\n%s", parts);
}

char *session_write(const unsigned char key[SIGNING_KEY], const struct session *session)
{
	size_t length = strlen(session->name);
	owned_text char *name = xcalloc(2 * length + 1, 1);
	owned_text char *parts = NULL, *text = NULL;
	char mac[SIGNING_MAC_TEXT + 1];

	hex_write(name, session->name, length);
	parts = xformat("%s.%s.%s.%" PRId64 ".%" PRId64, name, session->fingerprint, session->nonce,
	    session->begun_s, session->used_s);
	text = session_signed_text(parts);
	signing_mac(key, text, mac);
	return xformat("%s.%s", parts, mac);
}

/* Cuts a text at its dots. False: it has another number of parts. */
static bool split_session(char *text, char *ret_parts[PARTS])
{
	int count = 0;

	for (char *at = text; at; count++) {
		char *dot = strchr(at, '.');

		if (count == PARTS)
			return false;
		ret_parts[count] = at;
		if (dot)
			*dot++ = '\0';
		at = dot;
	}
	return count == PARTS;
}

/* Its signature is valid, so only we have written it. */
static bool read_session_parts(char *parts[PARTS], struct session *ret_session)
{
	size_t length = strlen(parts[PART_NAME]) / 2;
	owned_text char *name = xcalloc(length + 1, 1);
	struct session session = {0};

	if (!hex_read(parts[PART_NAME], length, name) ||
	    !text_to_int64(parts[PART_BEGUN], 0, INT64_MAX, &session.begun_s) ||
	    !text_to_int64(parts[PART_USED], 0, INT64_MAX, &session.used_s))
		return false;
	text_copy(session.fingerprint, sizeof session.fingerprint, parts[PART_FINGERPRINT]);
	text_copy(session.nonce, sizeof session.nonce, parts[PART_NONCE]);
	session.name = name;
	name = NULL;
	*ret_session = session;
	return true;
}

bool session_read(
    const unsigned char key[SIGNING_KEY], const char *cookie, struct session *ret_session)
{
	const char *mac = strrchr(cookie, '.');
	owned_text char *parts = NULL, *text = NULL;
	char *cut[PARTS];

	if (!mac || strlen(cookie) > COOKIE_BYTES)
		return false;
	parts = xformat("%.*s", (int)(mac - cookie), cookie);
	text = session_signed_text(parts);
	return signing_check(key, text, mac + 1) && split_session(parts, cut) &&
	       read_session_parts(cut, ret_session);
}

/* --- CSRF ------------------------------------------------------------------------------------ */

/* The cookie changes while the session is used; its CSRF token does not. */
static char *csrf_text(const struct session *session)
{
	return xformat(
	    "csrf\n%s\n%s\n%" PRId64, session->fingerprint, session->nonce, session->begun_s);
}

void session_csrf(const unsigned char key[SIGNING_KEY], const struct session *session,
    char ret_csrf[SIGNING_MAC_TEXT + 1])
{
	owned_text char *text = csrf_text(session);

	signing_mac(key, text, ret_csrf);
}

bool session_csrf_check(
    const unsigned char key[SIGNING_KEY], const struct session *session, const char *csrf)
{
	owned_text char *text = csrf_text(session);

	return signing_check(key, text, csrf);
}
