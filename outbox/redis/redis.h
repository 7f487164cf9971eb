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

enum redis_answer_kind { REDIS_NOTHING, REDIS_TEXT, REDIS_NUMBER, REDIS_LIST };
struct redis_answer {
	enum redis_answer_kind kind;
	const char *text; /* ends with NUL; for the time of the call */
	size_t length;
	int64_t number;
};
typedef void redis_see(void *context, size_t number, const struct redis_answer *answer);

/*
 * Sends what was said, and shows the answers, in order. An answer that is an error, or a list
 * with one, ends in a failure; those behind it were carried out all the same, and are heard.
 */
bool redis_hear(
    struct redis *redis, int timeout_ms, redis_see *see, void *context, struct err *err) MUST_CHECK;
/* The first error that the server answered, for as long as the session; NULL: none. */
const char *redis_refusal(const struct redis *redis);
