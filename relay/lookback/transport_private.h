#pragma once
/* What the files of the transports share: how an answer is made of what came. */
#include "transport.h"

/*
 * The answer to a question as it grows; the first member of what a transport keeps of a question.
 * Between reply_begin and reply_finish; moving it is not allowed.
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
 * One id of a body that is being read, and its word (CHECK_WORDS: it has none of ours). False: this
 * id makes the whole answer worthless, which the answer says already.
 */
bool reply_add(
    struct reply *reply, const char *biz_id, size_t length, enum check_word word) MUST_CHECK;
/* The body was read, all of it. */
void reply_read(struct reply *reply);
/* Instead of reply_read: all ids are unknown, for this. Returns false. */
bool reply_fail(struct reply *reply, const char *failure, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ERR_CONFIG about a key of a section; returns false. */
bool check_refuse(const struct config_check *check, struct err *err, const char *key,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A setting that this transport has no use for, and whose author expects one. */
struct check_unfit {
	const char *key, *value, *why;
};
bool check_has_none(const struct config_check *check, const struct check_unfit *settings, int count,
    struct err *err) MUST_CHECK;

/* The body of an answer whose status is right: JSON, and one message in its frame. */
void transport_http_read(struct reply *reply, const char *bytes, size_t length);
void transport_grpc_read(struct reply *reply, const char *bytes, size_t length);

extern const struct transport_kind transport_http, transport_grpc, transport_sql;
