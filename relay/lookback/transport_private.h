#pragma once
/* Shared by the files of the transports: makes an answer from a response. */
#include "transport.h"

/*
 * The answer to a question as it grows, from reply_begin to reply_finish. It is the first member of
 * a transport's struct for a question, and must not be moved.
 */
struct reply {
	struct check_answer answer; /* first: transports give it out and take it back */
	const struct check_question *question;
	enum check_word *words; /* answer.words */
	signed char *said;      /* one an id: a word, CHECK_WORDS for none of ours, -1: nothing */
	int next;               /* where the next id is looked for */
	int64_t began_us;
};

void reply_begin(struct reply *reply, const struct check_question *question);
void reply_finish(struct reply *reply);

/*
 * Adds one id of a body that is being read, and its word (CHECK_WORDS: an unknown word). False:
 * this id makes the whole answer invalid, which was noted in the answer.
 */
bool reply_add(
    struct reply *reply, const char *biz_id, size_t length, enum check_word word) MUST_CHECK;
/* The body was read, all of it. */
void reply_read(struct reply *reply);
/* Call it instead of reply_read: all ids are unknown, for this reason. Returns false. */
bool reply_fail(struct reply *reply, const char *failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ERR_CONFIG about a key of a section; returns false. */
bool check_refuse(const struct config_check *check, struct err *err, const char *key,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A setting that this transport would ignore, although its author expects an effect. */
struct check_unfit {
	const char *key, *value, *why;
};
bool check_has_none(const struct config_check *check, const struct check_unfit *settings, int count,
    struct err *err) MUST_CHECK;

/* The body of an answer whose status is right: JSON, and one message in its frame. */
void transport_http_read(struct reply *reply, const char *bytes, size_t length);
void transport_grpc_read(struct reply *reply, const char *bytes, size_t length);

extern const struct transport_kind transport_http, transport_grpc, transport_sql;
