#pragma once
/*
 * A session with a server of Redis: commands are said, many in a row, and their answers heard. The
 * adapter of hiredis; nothing else in the tree includes it.
 *
 * Errors: ERR_RETRY when the server is gone, slow, starting, a replica, or out of memory;
 * ERR_DENIED for a password or a right; ERR_CONFIG for a command that the server does not have, a
 * cluster, or a key of somebody else. After a failure the session is of no use: destroy it.
 *
 * Owned by one thread.
 */
#include <stddef.h>
#include <stdint.h>
#include "cleanup.h"
#include "redis_address.h"
#include "text.h"

struct redis;

/* Takes at most that time, except for the resolver, if a host is given by name. */
struct redis *redis_connect(const struct redis_address *address, int timeout_ms, struct err *err);
void redis_destroy(struct redis *redis); /* takes NULL */
DEFINE_OWNED(struct redis, redis_destroy)

/* Is it, as far as one can tell without asking? Not while answers are to come. */
bool redis_is_open(const struct redis *redis);

struct redis_word {
	const void *bytes;
	size_t length;
};
struct redis_word redis_word(const char *text);

/* One command; it is copied. */
void redis_say(struct redis *redis, const struct redis_word *words, size_t count);
/* One command, words apart by blanks: %s a string, %b a pointer and a size_t, %d, %lld. */
void redis_sayf(struct redis *redis, const char *format, ...);

/* A command that redis_format has written. The same bytes may be sent to several servers. */
void redis_say_bytes(struct redis *redis, const void *bytes, size_t length);
/* Adds the bytes of one command to a text. */
void redis_format(struct text *out, const struct redis_word *words, size_t count);
/* Sends what was said, as far as the connection takes it now, so that several servers can work at
 * the same time. */
void redis_flush(struct redis *redis);

enum redis_answer_kind { REDIS_NOTHING, REDIS_TEXT, REDIS_NUMBER, REDIS_LIST, REDIS_ERROR };
struct redis_answer {
	enum redis_answer_kind kind;
	const char *text; /* ends with NUL; for the time of the call. Also of an error */
	size_t length;
	int64_t number;
	const void *list; /* for redis_answer_item */
	size_t count;     /* of a list */
};
/* i < count. */
struct redis_answer redis_answer_item(const struct redis_answer *list, size_t i);
typedef void redis_see(void *context, size_t number, const struct redis_answer *answer);

/*
 * Sends what was said, and shows the answers, in order. An answer that is an error, or a list
 * with one, ends in a failure; those behind it were carried out all the same, and are heard.
 */
bool redis_hear(
    struct redis *redis, int timeout_ms, redis_see *see, void *context, struct err *err) MUST_CHECK;
/* The same, and errors are shown as answers: only a lost connection is a failure. */
bool redis_hear_all(
    struct redis *redis, int timeout_ms, redis_see *see, void *context, struct err *err) MUST_CHECK;
/* Sets *err to the kind of the server's error, with a cure. Returns false. */
bool redis_refuse(const char *place, const char *error, struct err *err);
/* For messages; as long as the session. */
const char *redis_place_of(const struct redis *redis);
/* The first error that the server answered, for as long as the session; NULL: none. */
const char *redis_refusal(const struct redis *redis);
