#pragma once
/*
 * Where is a message? Its row, and for each publisher every stage that the database knows. The
 * answer never depends on Kafka; message_record.h adds what Kafka knows. Blocking; one thread.
 *
 * By id and by event id a message is found at any size of the table. By topic and key it is found
 * only within a range of time, because the table has no index on keys.
 */
#include <jansson.h>
#include "database.h"

enum { MESSAGE_ROWS = 20, MESSAGE_MOST_ROWS = 100 };

/* {0} and message_question_read. */
struct message_question {
	int64_t id;                           /* 0: not by id */
	char *event_id;                       /* NULL: not by event id */
	char *topic, *key;                    /* NULL: not by topic and key; the key as \x00ff */
	char *from_at, *to_at;                /* RFC 3339; NULL: no range */
	int64_t limit, after;                 /* with topic and key; after: an id */
	bool conflicts;                       /* each word is right, but not with the others */
	bool payload;                         /* shows payload and headers */
	const struct config_list *publishers; /* only these; count 0: all */
};
void message_question_finish(struct message_question *question);

/* The words of a caller; NULL: not given. */
struct message_words {
	const char *id, *event_id, *topic, *key, *from, *to, *limit, *after;
};
/* ERR_REJECT: a word is wrong, or they do not go together; the message has the cure. */
bool message_question_read(const struct message_words *words, struct message_question *ret_question,
    struct err *err) MUST_CHECK;

/*
 * The answer as docs/reference/api.md describes it; its rows may be none. NULL: the database
 * failed.
 */
json_t *message_find(struct pg *pg, const struct postgres_settings *postgres,
    const struct message_question *question, struct err *err);
/*
 * After message_record_search: adds when the log noted the acknowledgement of each record that was
 * found.
 */
bool message_find_acknowledged(struct pg *pg, const struct postgres_settings *postgres,
    json_t *answer, struct err *err) MUST_CHECK;
/* Explains an answer without rows, and suggests a fix; the caller frees. */
char *message_find_nothing(const struct message_question *question, const json_t *answer);
