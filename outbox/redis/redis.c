/*
 * A session with one Redis server with a deadline for each call: the protocol, by hiredis' parser
 * and formatter, over redis_link.c. [the session] connects and greets; [talk] collects commands
 * (redis_say), sends them and reads the answers (redis_hear).
 */
#include "redis.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "redis_link.h"
#include "text.h"

struct redis {
	struct redis_link *link;
	redisReader *reader;
	char *place;
	bool uncertified;     /* TLS without a certificate of this client */
	struct text commands; /* bytes of commands, of which `sent` are sent */
	size_t sent;
	size_t said; /* and not heard */
	bool shows_errors;
	char *refusal;
};

/* --- errors --------------------------------------------------------------------------------- */

/* The beginnings of the server's errors, and their kinds. */
static const struct meaning {
	const char *begin;
	enum err_kind kind;
	const char *cure;
} meanings[] = {
    {"NOAUTH", ERR_DENIED, "give the password in url or password_file"},
    {"WRONGPASS", ERR_DENIED, "correct user and password, in url or password_file"},
    {"ERR invalid password", ERR_DENIED, "correct the password in url or password_file"},
    {"ERR Client sent AUTH", ERR_DENIED, "the server has no password: leave it out"},
    {"ERR AUTH", ERR_DENIED, "the server has no password: leave it out"},
    {"NOPERM", ERR_DENIED, "give the user this right (ACL SETUSER)"},
    {"ERR The user executing the script", ERR_DENIED,
	"give the user the rights of the commands in it (ACL SETUSER)"},
    {"ERR ACL failure in script", ERR_DENIED,
	"give the user the rights of the commands in it (ACL SETUSER)"},
    {"OOM", ERR_RETRY, "raise the server's maxmemory; nothing was forgotten"},
    {"READONLY", ERR_RETRY, "it is a replica now: name the primary in url"},
    {"NOREPLICAS", ERR_RETRY, "it has fewer replicas than min-replicas-to-write"},
    {"LOADING", ERR_RETRY, "it starts"},
    {"MISCONF", ERR_RETRY, "it cannot save: give it room on its disk"},
    {"MOVED", ERR_RETRY, "the cluster has moved the slot of this key"},
    {"ASK", ERR_RETRY, "the cluster moves the slot of this key"},
    {"CLUSTERDOWN", ERR_RETRY, "the cluster has a slot that no node serves"},
    {"TRYAGAIN", ERR_RETRY, "the cluster moves the slot of these keys"},
    {"CROSSSLOT", ERR_FATAL, "these keys lie in several slots"},
    {"WRONGTYPE", ERR_CONFIG, "somebody else uses this name: choose another"},
    {"ERR unknown command", ERR_CONFIG, "the server has no such command"},
    {"ERR SELECT is not allowed", ERR_CONFIG,
	"a cluster has database 0 alone: leave the database out of url"},
    {"ERR DB index", ERR_CONFIG, "correct the database in url"},
    {"ERR invalid DB", ERR_CONFIG, "correct the database in url"},
};

bool redis_refuse(const char *place, const char *error, struct err *err)
{
	for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
		if (text_starts(error, meanings[i].begin))
			return err_set(
			    err, meanings[i].kind, "%s: %s; %s", place, error, meanings[i].cure);
	return err_set(err, ERR_RETRY, "%s: %s", place, error);
}

static bool lose_link(const struct redis *redis, const char *why, struct err *err)
{
	return err_set(err, ERR_RETRY, "%s: %s; does the server run%s?", redis->place, why,
	    redis->uncertified ? ", and does it want a client's certificate (tls_certificate)"
			       : "");
}

/* --- the session ------------------------------------------------------------------------------ */

static void ignore_answer(void *context, size_t number, const struct redis_answer *answer)
{
	(void)context;
	(void)number;
	(void)answer;
}

static bool greet_server(
    struct redis *redis, const struct redis_address *address, int64_t end, struct err *err)
{
	owned_text char *read = NULL;
	const char *password = address->password;

	/* read at each connect, so that a new password needs no restart */
	if (address->password_file) {
		read = redis_address_password(address, err);
		if (!read)
			return false;
		password = read;
	}
	if (address->user)
		redis_sayf(redis, "AUTH %s %s", address->user, password ? password : "");
	else if (password)
		redis_sayf(redis, "AUTH %s", password);
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
	redis->uncertified = address->tls && !address->tls_certificate;
	redis->reader = redisReaderCreate();
	redis->link = redis_link_open(address, end, err);
	if (redis->link && greet_server(redis, address, end, err))
		return redis;
	redis_destroy(redis);
	return NULL;
}

void redis_destroy(struct redis *redis)
{
	if (!redis)
		return;
	redis_link_close(redis->link);
	redisReaderFree(redis->reader);
	text_finish(&redis->commands);
	free(redis->place);
	free(redis->refusal);
	free(redis);
}

bool redis_is_open(const struct redis *redis)
{
	return redis_link_is_idle(redis->link);
}

/* --- talk ----------------------------------------------------------------------------------- */

enum { AT_ONCE = 64, ROOM = 16384 };

/* A failure shows in the next call of redis_link_receive. */
void redis_flush(struct redis *redis)
{
	ssize_t count = 1;

	while (redis->sent < redis->commands.length && count > 0) {
		count = redis_link_send(redis->link, redis->commands.data + redis->sent,
		    redis->commands.length - redis->sent);
		redis->sent += count > 0 ? (size_t)count : 0;
	}
	if (redis->sent == redis->commands.length) {
		text_clear(&redis->commands);
		redis->sent = 0;
	}
}

/* The server works on the commands that it has received while the rest is being sent. */
static void note_said(struct redis *redis)
{
	if (++redis->said % AT_ONCE == 0)
		redis_flush(redis);
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

/* By hand: hiredis takes as long to write a command as a server to carry it out. */
void redis_format(struct text *out, const struct redis_word *words, size_t count)
{
	size_t room = SIZE_ROOM;

	for (size_t i = 0; i < count; i++)
		room += SIZE_ROOM + words[i].length + 2;
	text_reserve(out, room);

	char *begin = out->data + out->length;
	char *at = put_size(begin, '*', count);
	for (size_t i = 0; i < count; i++) {
		at = put_size(at, '$', words[i].length);
		memcpy(at, words[i].bytes, words[i].length);
		at += words[i].length;
		*at++ = '\r';
		*at++ = '\n';
	}
	out->length += (size_t)(at - begin);
}

void redis_say(struct redis *redis, const struct redis_word *words, size_t count)
{
	redis_format(&redis->commands, words, count);
	note_said(redis);
}

void redis_say_bytes(struct redis *redis, const void *bytes, size_t length)
{
	text_append(&redis->commands, bytes, length);
	note_said(redis);
}

void redis_sayf(struct redis *redis, const char *format, ...)
{
	char *command = NULL;
	va_list values;

	va_start(values, format);
	int length = redisvFormatCommand(&command, format, values);
	va_end(values);
	if (length < 0)
		abort(); /* no memory, or a format that this file does not use */
	text_append(&redis->commands, command, (size_t)length);
	redisFreeCommand(command);
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
		return (struct redis_answer){
		    .kind = REDIS_LIST, .list = reply, .count = reply->elements};
	default:
		return (struct redis_answer){
		    .kind = REDIS_TEXT, .text = reply->str, .length = reply->len};
	}
}

struct redis_answer redis_answer_item(const struct redis_answer *list, size_t i)
{
	return read_answer(((const redisReply *)list->list)->element[i]);
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
		if (redisReaderGetReply(redis->reader, &reply) != REDIS_OK)
			return lose_link(redis, redis->reader->errstr, err);
		if (!reply)
			return true;

		struct redis_answer answer = read_answer(reply);
		const char *error = error_of(reply);
		if (error && redis->shows_errors)
			answer = (struct redis_answer){
			    .kind = REDIS_ERROR, .text = error, .length = strlen(error)};
		if (!error || redis->shows_errors)
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
static bool exchange_bytes(struct redis *redis, int64_t end, struct err *err)
{
	char buffer[ROOM];
	ssize_t count;

	redis_flush(redis);
	if (!redis_link_wait(redis->link, redis->commands.length > 0, end, err))
		return false;
	redis_flush(redis);
	/* until there is nothing: TLS may hold bytes for which no poll wakes up */
	while ((count = redis_link_receive(redis->link, buffer, sizeof buffer)) > 0)
		if (redisReaderFeed(redis->reader, buffer, (size_t)count) != REDIS_OK)
			return lose_link(redis, redis->reader->errstr, err);
	return true;
}

bool redis_hear(struct redis *redis, int timeout_ms, redis_see *see, void *context, struct err *err)
{
	int64_t end = clock_ms() + timeout_ms;
	size_t heard = 0;

	while (heard < redis->said) {
		if (!exchange_bytes(redis, end, err) ||
		    !take_redis_answers(redis, &heard, see, context, err))
			return false;
		/* answers that came before the end of the stream count */
		if (heard < redis->said && redis_link_failure(redis->link)[0])
			return lose_link(redis, redis_link_failure(redis->link), err);
	}
	redis->said = 0;
	return !redis->refusal || redis_refuse(redis->place, redis->refusal, err);
}

bool redis_hear_all(
    struct redis *redis, int timeout_ms, redis_see *see, void *context, struct err *err)
{
	redis->shows_errors = true;
	bool heard = redis_hear(redis, timeout_ms, see, context, err);
	redis->shows_errors = false;
	return heard;
}

const char *redis_place_of(const struct redis *redis)
{
	return redis->place;
}

const char *redis_refusal(const struct redis *redis)
{
	return redis->refusal;
}
