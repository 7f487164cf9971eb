#pragma once
/*
 * The token of a preview: proves to any process with the same tokens of the HTTP interface which
 * selection the preview counted, and when. "UNTIL.AT.COUNT.SEEN.HMAC". Nothing is kept in memory.
 * Internal to relay/admin.
 */
#include "signing.h"

enum {
	PREVIEW_KEY = SIGNING_KEY,
	PREVIEW_SEEN = 4096, /* with the NUL */
	PREVIEW_TOKEN_SIZE = 160 + PREVIEW_SEEN,
	PREVIEW_VALID_S = 600,
};

struct preview {
	const char *verb;
	const char *publisher; /* or another owner of the rows, such as a database */
	const char *selection; /* JSON with sorted members */
	int64_t until_s;       /* the token is valid before this time, in s since 1970 */
	int64_t at_us;         /* when the rows were counted, by the database's clock */
	int64_t count;
	char seen[PREVIEW_SEEN]; /* the snapshot in which they were counted; "": none */
};

/*
 * Notes a snapshot. If its text is too long, the token keeps a snapshot that sees less: only the
 * transactions before the oldest open one.
 */
void preview_note_snapshot(struct preview *preview, const char *snapshot);

/* A digest of all tokens of the configuration. */
void preview_key(const struct config *config, unsigned char ret_key[PREVIEW_KEY]);

void preview_token_write(const unsigned char key[PREVIEW_KEY], const struct preview *preview,
    char ret_token[PREVIEW_TOKEN_SIZE]);
/*
 * Takes verb, publisher and selection from the caller, and reads the rest from the token. False:
 * `bad_token`, not made with this key for this verb and selection; `token_expired`.
 */
bool preview_token_check(const unsigned char key[PREVIEW_KEY], const char *token,
    struct preview *preview, int64_t now_s, struct refusal *refusal) MUST_CHECK;
