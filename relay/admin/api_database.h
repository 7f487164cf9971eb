#pragma once
/*
 * The questions of the HTTP interface to one database: a thread with a connection of its own, one
 * question after another. It also knows how long a payload the tables take: a message that is
 * acknowledged and then too long for them would be lost to its sender. Internal to relay/admin.
 */
#include "config.h"
#include "errors.h"
#include "pg.h"
#include "wire.h"

struct api_database;

enum { API_QUESTION_PARAMS = 6 };

/* Belongs to the api_database from api_database_ask until done is called. */
struct api_question {
	const char
	    *sql; /* of sql/queries; its answer is the text in the first row's first column */
	char *params[API_QUESTION_PARAMS]; /* the question's own; NULL: SQL NULL */
	int param_count;
	bool changes; /* the statement changes something: then it is not sent again on a new
			 connection */
	int64_t give_up_ms;
	/* Called once, by the thread of the api_database, and must not block. */
	void (*done)(void *context);
	void *context;
	/* the answer */
	bool well;
	char *json; /* malloc'ed; NULL: no row, or null */
	struct err err;
	char sqlstate[6];
	struct api_question *prev, *next;
};
void api_question_finish(struct api_question *question); /* what it owns */

/* Returns when it knows how long a payload may be, or after some seconds without an answer. */
struct api_database *api_database_start(const struct postgres_settings *postgres, struct err *err);
/* Cancels the running question and answers the waiting ones with an error. NULL is fine. */
void api_database_stop(struct api_database *database);

/* Any thread. False: too many wait, and it was not taken. */
bool api_database_ask(struct api_database *database, struct api_question *question);

/*
 * Notes that the id of this UUID was prepared with this digest. False: the id was prepared with
 * another digest within the last minutes; the reader may not have stored that prepare yet. Any
 * thread.
 */
bool api_database_claim(struct api_database *database, const unsigned char id[UUID_BYTES],
    const unsigned char digest[LOOKBACK_DIGEST]);
/* Removes the note of a prepare that was refused: no topic has it. */
void api_database_unclaim(struct api_database *database, const unsigned char id[UUID_BYTES]);

/* The longest payload, as of some seconds ago; -1: the database never answered. Any thread. */
int64_t api_database_payload_most(struct api_database *database);
