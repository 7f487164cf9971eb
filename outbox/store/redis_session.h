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
#include "redis_servers.h"

enum {
	REDIS_MARKS =
	    1024 /* the marks that a store has in a cluster; a single server has the first */
};

struct redis_session {
	struct redis_address address;
	struct redis_servers *servers;
	int timeout_ms;
	/*
	 * How far apart the clocks of server and process may be; 0: any. A connection that finds
	 * half of it is ERR_RETRY; the other half is for a clock that somebody sets later.
	 */
	int64_t most_apart_ms;
	int64_t wall_ms; /* the wall clock less clock_ms, at the last comparison; 0: none */
	char *name;      /* the store whose marks are checked; NULL: none */
	/* NAME:store, of a cluster NAME:store:NUMBER; NULL: not read yet */
	char *marks[REDIS_MARKS];
	int64_t end; /* deadline of the call, by clock_ms */
};

/* Connects nowhere. remembers: the name whose mark the server keeps; NULL: none. */
bool redis_session_init(struct redis_session *server, const struct redis_access *access,
    int timeout_ms, const char *remembers, struct err *err) MUST_CHECK;
void redis_session_finish(struct redis_session *server);

/* Begins a call: opens connections if there are none. */
bool redis_session_begin(struct redis_session *server, struct err *err) MUST_CHECK;
/* After a call that has begun. */
bool redis_session_is_cluster(const struct redis_session *server);
/* Adds a command, of which all keys lie in the slot of `key`. */
void redis_session_say(struct redis_session *server, struct redis_word key,
    const struct redis_word *words, size_t count);
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
