/*
 * A connection to one Redis server with a deadline for each call, on hiredis' parser. [the link]
 * connects and greets; [talk] collects commands (redis_say), sends them and reads the answers
 * (redis_hear).
 */
#include "redis.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "clock.h"
#include "text.h"

struct redis {
	redisContext *link;
	char *place;
	size_t said; /* and not heard */
	char *refusal;
	char *command; /* while it is said */
	size_t capacity;
};

/* --- errors --------------------------------------------------------------------------------- */

/* The beginnings of the server's errors, and their kinds. */
static const struct meaning {
	const char *begin;
	enum err_kind kind;
	const char *cure;
} meanings[] = {
    {"NOAUTH", ERR_DENIED, "give the password in url"},
    {"WRONGPASS", ERR_DENIED, "correct user and password in url"},
    {"ERR invalid password", ERR_DENIED, "correct the password in url"},
    {"ERR Client sent AUTH", ERR_DENIED, "the server has no password: leave it out of url"},
    {"ERR AUTH", ERR_DENIED, "the server has no such user: leave it out of url"},
    {"NOPERM", ERR_DENIED, "give the user this right (ACL SETUSER)"},
    {"OOM", ERR_RETRY, "raise the server's maxmemory; nothing was forgotten"},
    {"READONLY", ERR_RETRY, "it is a replica now: name the primary in url"},
    {"LOADING", ERR_RETRY, "it starts"},
    {"MISCONF", ERR_RETRY, "it cannot save: give it room on its disk"},
    {"MOVED", ERR_CONFIG, "it is a part of a cluster, which is not spoken here: name one server"},
    {"ASK", ERR_CONFIG, "it is a part of a cluster, which is not spoken here: name one server"},
    {"WRONGTYPE", ERR_CONFIG, "somebody else uses this name: choose another"},
    {"ERR unknown command", ERR_CONFIG, "the server has no such command"},
    {"ERR DB index", ERR_CONFIG, "correct the database in url"},
    {"ERR invalid DB", ERR_CONFIG, "correct the database in url"},
};

static bool refuse_redis_reply(struct redis *redis, const char *said, struct err *err)
{
	for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
		if (text_starts(said, meanings[i].begin))
			return err_set(err, meanings[i].kind, "%s: %s; %s", redis->place, said,
			    meanings[i].cure);
	return err_set(err, ERR_RETRY, "%s: %s", redis->place, said);
}

static bool fail_link(const struct redis *redis, const char *why, struct err *err)
{
	return err_set(err, ERR_RETRY, "%s: %s; does the server run?", redis->place, why);
}

static bool lose_link(const struct redis *redis, struct err *err)
{
	return fail_link(
	    redis, redis->link->err == REDIS_ERR_IO ? strerror(errno) : redis->link->errstr, err);
}

/* --- the link ------------------------------------------------------------------------------- */

/* Until one of the events comes. */
static bool wait_for_link(struct redis *redis, short events, int64_t end, struct err *err)
{
	struct pollfd wanted = {.fd = redis->link->fd, .events = events};

	for (;;) {
		int64_t left = end - clock_ms();
		int ready = left > 0 ? poll(&wanted, 1, (int)left) : 0;
		if (ready > 0)
			return true;
		if (ready == 0)
			return err_set(
			    err, ERR_RETRY, "%s: no answer within the timeout", redis->place);
		if (errno != EINTR)
			return fail_link(redis, strerror(errno), err);
	}
}

/* hiredis writes so that who writes to a link that was closed gets SIGPIPE, which may end the
 * application: the thread does not take it, and if it came from this write, it is gone. */
static bool send_some(struct redis *redis, int *ret_all)
{
	const struct timespec at_once = {0};
	sigset_t pipe, before, pending;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	bool good = redisBufferWrite(redis->link, ret_all) == REDIS_OK;
	int why = errno;
	/* A SIGPIPE that was pending before belongs to the application, and stays. */
	if (!good && why == EPIPE && !sigismember(&pending, SIGPIPE))
		sigtimedwait(&pipe, NULL, &at_once);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = why;
	return good;
}

static bool finish_connect(struct redis *redis, int64_t end, struct err *err)
{
	int failure = 0;
	socklen_t size = sizeof failure;
	if (!redis->link || redis->link->err)
		return fail_link(redis, redis->link ? redis->link->errstr : "no memory", err);
	if (!wait_for_link(redis, POLLOUT, end, err))
		return false;
	getsockopt(redis->link->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
	return failure == 0 || fail_link(redis, strerror(failure), err);
}

static void ignore_answer(void *context, size_t number, const struct redis_answer *answer)
{
	(void)context;
	(void)number;
	(void)answer;
}

static bool greet_server(
    struct redis *redis, const struct redis_address *address, int64_t end, struct err *err)
{
	if (address->user)
		redis_sayf(redis, "AUTH %s %s", address->user, address->password);
	else if (address->password)
		redis_sayf(redis, "AUTH %s", address->password);
	if (address->database)
		redis_sayf(redis, "%s %d", "SELECT", address->database);
	return redis->said == 0 ||
	       redis_hear(redis, (int)(end - clock_ms()), ignore_answer, NULL, err);
}

struct redis *redis_connect(const struct redis_address *address, int timeout_ms, struct err *err)
{
	int64_t end = clock_ms() + timeout_ms;
	struct redis *redis = xcalloc(1, sizeof *redis);
	redis->place = xstrdup(address->place);
	redis->link = address->path ? redisConnectUnixNonBlock(address->path)
				    : redisConnectNonBlock(address->host, address->port);
	if (finish_connect(redis, end, err) && greet_server(redis, address, end, err))
		return redis;
	redis_destroy(redis);
	return NULL;
}

void redis_destroy(struct redis *redis)
{
	if (!redis)
		return;
	if (redis->link)
		redisFree(redis->link);
	free(redis->place);
	free(redis->refusal);
	free(redis->command);
	free(redis);
}

bool redis_is_open(const struct redis *redis)
{
	struct pollfd idle = {.fd = redis->link->fd, .events = POLLIN};
	return !redis->link->err && poll(&idle, 1, 0) == 0;
}

/* --- talk ----------------------------------------------------------------------------------- */

enum { AT_ONCE = 64 };

/* The server works on the commands that it has received while the rest is being sent. */
static void note_said(struct redis *redis)
{
	int done;
	if (++redis->said % AT_ONCE == 0 && !redis->link->err)
		(void)send_some(redis, &done); /* a failure stays in link->err */
}

struct redis_word redis_word(const char *text)
{
	return (struct redis_word){text, strlen(text)};
}

enum { SIZE_ROOM = 24 };

/* As "*6\r\n". */
static char *put_size(char *at, char kind, size_t size)
{
	char digits[SIZE_ROOM];
	int count = 0;
	do
		digits[count++] = (char)('0' + size % 10);
	while ((size /= 10) > 0);
	*at++ = kind;
	while (count)
		*at++ = digits[--count];
	*at++ = '\r';
	*at++ = '\n';
	return at;
}

static char *reserve_command(struct redis *redis, const struct redis_word *words, size_t count)
{
	size_t room = SIZE_ROOM;
	for (size_t i = 0; i < count; i++)
		room += SIZE_ROOM + words[i].length + 2;
	if (room > redis->capacity) {
		redis->capacity = room * 2;
		redis->command = xrealloc(redis->command, redis->capacity);
	}
	return redis->command;
}

/* By hand: hiredis takes as long to write a command as a server to carry it out. */
void redis_say(struct redis *redis, const struct redis_word *words, size_t count)
{
	char *at = put_size(reserve_command(redis, words, count), '*', count);
	for (size_t i = 0; i < count; i++) {
		at = put_size(at, '$', words[i].length);
		memcpy(at, words[i].bytes, words[i].length);
		at += words[i].length;
		*at++ = '\r';
		*at++ = '\n';
	}
	redisAppendFormattedCommand(redis->link, redis->command, (size_t)(at - redis->command));
	note_said(redis);
}

void redis_sayf(struct redis *redis, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	redisvAppendCommand(redis->link, format, values);
	va_end(values);
	note_said(redis);
}

static struct redis_answer read_answer(const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_NIL:
		return (struct redis_answer){.kind = REDIS_NOTHING};
	case REDIS_REPLY_INTEGER:
		return (struct redis_answer){.kind = REDIS_NUMBER, .number = reply->integer};
	case REDIS_REPLY_ARRAY:
		return (struct redis_answer){.kind = REDIS_LIST};
	default:
		return (struct redis_answer){
		    .kind = REDIS_TEXT, .text = reply->str, .length = reply->len};
	}
}

/* The error of the answer, or of one of its elements if it is a list; NULL: there is none. */
static const char *error_of(const redisReply *reply)
{
	const char *error = reply->type == REDIS_REPLY_ERROR ? reply->str : NULL;
	if (reply->type == REDIS_REPLY_ARRAY)
		for (size_t i = 0; !error && i < reply->elements; i++)
			error = error_of(reply->element[i]);
	return error;
}

/* What was received already. False: the stream is not of the protocol. */
static bool take_redis_answers(
    struct redis *redis, size_t *heard, redis_see *see, void *context, struct err *err)
{
	void *reply;

	while (*heard < redis->said) {
		if (redisGetReplyFromReader(redis->link, &reply) != REDIS_OK)
			return lose_link(redis, err);
		if (!reply)
			return true;

		const struct redis_answer answer = read_answer(reply);
		const char *error = error_of(reply);
		if (!error)
			see(context, *heard, &answer);
		/* A later error may be a consequence of the first one. */
		else if (!redis->refusal)
			redis->refusal = xstrdup(error);

		freeReplyObject(reply);
		++*heard;
	}
	return true;
}

/* Sends and receives what can be, so that neither side waits for the other to read. */
static bool exchange_bytes(struct redis *redis, bool *sent, int64_t end, struct err *err)
{
	int done = *sent;
	if (redis->link->err || (!*sent && !send_some(redis, &done)))
		return lose_link(redis, err);
	*sent = done;
	short events = (short)(POLLIN | (*sent ? 0 : POLLOUT));
	if (!wait_for_link(redis, events, end, err))
		return false;
	return redisBufferRead(redis->link) == REDIS_OK || lose_link(redis, err);
}

bool redis_hear(struct redis *redis, int timeout_ms, redis_see *see, void *context, struct err *err)
{
	int64_t end = clock_ms() + timeout_ms;
	size_t heard = 0;
	bool sent = false;
	while (heard < redis->said)
		if (!exchange_bytes(redis, &sent, end, err) ||
		    !take_redis_answers(redis, &heard, see, context, err))
			return false;
	redis->said = 0;
	return !redis->refusal || refuse_redis_reply(redis, redis->refusal, err);
}

const char *redis_refusal(const struct redis *redis)
{
	return redis->refusal;
}
