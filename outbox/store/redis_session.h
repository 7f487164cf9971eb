#pragma once
/*
 * A store's session with a server of Redis: begun when it is needed, given up after each failure.
 * A call ends within the timeout, connecting included (but for the resolver).
 *
 * What a server forgets, it does silently; so a session begins with a look at how it is set up. One
 * that may drop keys when its memory is full (maxmemory-policy) is ERR_CONFIG; a replica is
 * ERR_RETRY; one that has lost the store's mark, since it was started without its data or emptied,
 * is ERR_FATAL: what was done is not known there any more.
 *
 * All keys begin with the store's name and a colon. Owned by one thread.
 */
#include "errors.h"
#include "redis.h"

struct redis_session {
	struct redis_address address;
	int timeout_ms;
	char *mark_key; /* NULL: nothing is remembered there */
	char *mark;     /* what stands at it; NULL: it was not read yet */
	struct redis *redis;
	int64_t end; /* of the call, by clock_ms */
};

/* Connects nowhere. remembers: the name whose mark the server keeps; NULL: none. */
bool redis_session_init(struct redis_session *server, const char *url, int timeout_ms,
    const char *remembers, struct err *err) MUST_CHECK;
void redis_session_finish(struct redis_session *server);

/* A call begins: there is a session (server->redis), to say commands to. */
bool redis_session_begin(struct redis_session *server, struct err *err) MUST_CHECK;
/* Hears what was said, as redis_hear. On failure the session has ended, and what became of the
 * commands is not known. */
bool redis_session_hear(
    struct redis_session *server, redis_see *see, void *context, struct err *err) MUST_CHECK;

/*
 * Says a script: what stands at the key is removed, or lives for so many milliseconds more, if it
 * is this text. Its answer is the number 1 if it was, 0 if something else is there, -1 if nothing.
 */
void redis_session_say_remove(
    struct redis_session *server, struct redis_word key, struct redis_word text);
void redis_session_say_renew(struct redis_session *server, struct redis_word key,
    struct redis_word text, struct redis_word ms);
