#pragma once
/*
 * A store's session with a Redis server. It is opened when it is needed, and closed after each
 * failure. A call blocks for the timeout at most, which includes the connect; only the resolution
 * of a host name may take longer.
 *
 * A Redis server loses keys silently, so each session first checks the server. ERR_CONFIG: the
 * server may evict keys when its memory is full (maxmemory-policy). ERR_RETRY: the server is a
 * replica. ERR_FATAL: the store's mark is gone, because the server was started without its data or
 * was emptied, so that the server no longer knows which ids are done.
 *
 * All keys begin with the store's name and a colon. Owned by one thread.
 */
#include "errors.h"
#include "redis.h"

struct redis_session {
	struct redis_address address;
	int timeout_ms;
	char *mark_key; /* NULL: this session needs no mark */
	char *mark;     /* value of that key; NULL: not read yet */
	struct redis *redis;
	int64_t end; /* deadline of the call, by clock_ms */
};

/* Connects nowhere. remembers: the name whose mark the server keeps; NULL: none. */
bool redis_session_init(struct redis_session *server, const struct redis_access *access,
    int timeout_ms, const char *remembers, struct err *err) MUST_CHECK;
void redis_session_finish(struct redis_session *server);

/* Begins a call: opens a session (server->redis) if there is none. */
bool redis_session_begin(struct redis_session *server, struct err *err) MUST_CHECK;
/* Reads the answers, as redis_hear does. On failure the session has ended, and the commands may or
 * may not have been executed. */
bool redis_session_hear(
    struct redis_session *server, redis_see *see, void *context, struct err *err) MUST_CHECK;

/*
 * Sends a script that removes the key, or sets its time to live, if the value of the key is this
 * text. The answer is a number: 1 if the value is the text, 0 if it is another one, -1 if the key
 * does not exist.
 */
void redis_session_say_remove(
    struct redis_session *server, struct redis_word key, struct redis_word text);
void redis_session_say_renew(struct redis_session *server, struct redis_word key,
    struct redis_word text, struct redis_word ms);
