/*
 * No cookie without a valid signature is a session. One that is signed, whatever its parts are, is
 * refused, or is written and read again as the same session.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "console_session.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const unsigned char key[SIGNING_KEY] = "a key of 32 bytes, 32 of them..";

static void require(bool condition)
{
	if (!condition)
		abort();
}

static char *with_signature(const char *parts)
{
	owned_text char *text = xformat("session\n%s", parts);
	char mac[SIGNING_MAC_TEXT + 1];

	signing_mac(key, text, mac);
	return xformat("%s.%s", parts, mac);
}

static void check_signed(const char *parts)
{
	owned_text char *cookie = with_signature(parts), *again = NULL;
	struct session session = {0}, second = {0};
	char csrf[SIGNING_MAC_TEXT + 1];

	if (!session_read(key, cookie, &session))
		return;
	again = session_write(key, &session);
	require(session_read(key, again, &second));
	require(session.begun_s == second.begun_s && session.used_s == second.used_s);
	require(strcmp(session.nonce, second.nonce) == 0 &&
		strcmp(session.fingerprint, second.fingerprint) == 0);
	session_csrf(key, &session, csrf);
	require(session_csrf_check(key, &session, csrf));
	session_finish(&session);
	session_finish(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	owned_text char *text = xmalloc(size + 1);
	struct session session;

	memcpy(text, data, size);
	text[size] = '\0';
	require(!session_read(key, text, &session));
	check_signed(text);
	return 0;
}
