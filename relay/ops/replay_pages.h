#pragma once
/*
 * Reads a replay's rows in pages, on a connection of its own. No page is begun before there is room
 * for it, and one that turns out too large is cut short, so that no statement waits for Kafka and
 * memory holds what `[publisher] memory` allows.
 */
#include "pg.h"
#include "replay_row.h"
#include "replay_send.h"

struct replay_pages {
	struct pg *pg; /* the caller's */
	const struct replay *replay;
	int64_t after;        /* the sender has all rows up to this id */
	int64_t rows;         /* of the next page */
	int64_t count, bytes; /* rows and bytes of the current page that the sender has */
	struct message *held; /* the newest rows: a row that shares their id may follow */
	int held_count, held_room;
	bool copying, first, cut, ever_cut;
	bool finished; /* there are no more rows */
};

void replay_pages_init(struct replay_pages *pages, struct pg *pg, const struct replay *replay);
void replay_pages_finish(struct replay_pages *pages);
/* Takes what has come, and asks for the next page when the sender has room. Does not block. */
bool replay_pages_step(
    struct replay_pages *pages, struct replay_send *send, struct err *err) MUST_CHECK;
