#pragma once
/*
 * Selects the rows of a replay by terms as an operator writes them, all of which must hold.
 *
 *   ids=10..20  created=2026-01-02..2026-01-03T12:00  topic=orders  key=42  key=\x00ff
 *   event-id=8c1a…  state=published
 *
 * Either end of a range may be left open. ids includes both ends, created the first only.
 */
#include <jansson.h>
#include "errors.h"
#include "moment.h"

enum replay_term {
	REPLAY_IDS,
	REPLAY_CREATED,
	REPLAY_TOPIC,
	REPLAY_KEY,
	REPLAY_EVENT_ID,
	REPLAY_STATE,
	REPLAY_TERMS
};

/* {0} and replay_filter_init; every text is safe within quotes in SQL. */
struct replay_filter {
	char *terms[REPLAY_TERMS]; /* in their canonical form; NULL: not given. A key is in hex. */
	int64_t from_id, to_id;    /* 1 and INT64_MAX where open */
	char from_at[MOMENT_SIZE], to_at[MOMENT_SIZE]; /* -infinity and infinity where open */
	bool
	    conflicts; /* the refused term is well formed; its range is reversed or in the future */
};

void replay_filter_init(struct replay_filter *filter);
void replay_filter_finish(struct replay_filter *filter);

/*
 * now_us: moments after it are refused. ERR_REJECT: the term is wrong; the message says why and
 * suggests a fix.
 */
bool replay_filter_add(
    struct replay_filter *filter, const char *term, int64_t now_us, struct err *err) MUST_CHECK;

/* True if no term restricts the rows; state=published alone does not count. */
bool replay_filter_is_everything(const struct replay_filter *filter);

/* {"ids": "10..20", …}; the caller frees. */
char *replay_filter_json(const struct replay_filter *filter);
bool replay_filter_from_json(
    struct replay_filter *filter, const char *json, struct err *err) MUST_CHECK;
