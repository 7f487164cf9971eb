#include "redis_session.h"

#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "text.h"

bool redis_session_init(struct redis_session *server, const struct redis_access *access,
    int timeout_ms, const char *remembers, struct err *err)
{
	*server = (struct redis_session){.timeout_ms = timeout_ms,
	    .mark_key = remembers ? xformat("%s:store", remembers) : NULL};
	return redis_address_parse(access, &server->address, err);
}

static void close_redis_session(struct redis_session *server)
{
	redis_destroy(server->redis);
	server->redis = NULL;
}

void redis_session_finish(struct redis_session *server)
{
	close_redis_session(server);
	redis_address_finish(&server->address);
	free(server->mark_key);
	free(server->mark);
}

/* --- a session's begin ---------------------------------------------------------------------- */

static void keep_text(void *context, size_t number, const struct redis_answer *answer)
{
	char **last = context;
	(void)number;
	free(*last);
	*last = answer->kind == REDIS_TEXT ? xstrdup(answer->text) : NULL;
}

/* The value of a line "name:value" of INFO. */
static bool info_is(const char *info, const char *name, const char *value)
{
	size_t length = strlen(name);
	for (const char *line = info; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			return strncmp(line + length + 1, value, strlen(value)) == 0;
	}
	return false;
}

/* A server without INFO has no replicas and evicts nothing. */
static bool judge_redis_info(const struct redis_session *server, const char *info, struct err *err)
{
	const char *place = server->address.place;
	if (info_is(info, "role", "slave"))
		return err_set(
		    err, ERR_RETRY, "%s: this is a replica: name the primary in url", place);
	bool drops = !info_is(info, "maxmemory", "0\r") && info_is(info, "maxmemory_policy", "") &&
		     !info_is(info, "maxmemory_policy", "noeviction");
	return !drops ||
	       err_set(err, ERR_CONFIG,
		   "%s: it drops keys when its memory is full, which would be new again: set "
		   "maxmemory-policy noeviction",
		   place);
}

static bool look_around(struct redis_session *server, struct err *err)
{
	owned_text char *info = NULL;
	redis_sayf(server->redis, "INFO");
	if (redis_hear(server->redis, (int)(server->end - clock_ms()), keep_text, &info, err))
		return judge_redis_info(server, info ? info : "", err);
	const char *refusal = redis_refusal(server->redis);
	if (!refusal || !text_starts(refusal, "ERR unknown command"))
		return false;
	close_redis_session(server);
	server->redis = redis_connect(&server->address, (int)(server->end - clock_ms()), err);
	return server->redis;
}

/* The mark is random, and exists as long as the server keeps its keys. */
static bool check_mark(struct redis_session *server, struct err *err)
{
	owned_text char *mark = NULL;

	/* NX: another process may have set the mark of this name before. */
	if (!server->mark)
		redis_sayf(
		    server->redis, "SET %s %lld NX", server->mark_key, (long long)clock_random());
	redis_sayf(server->redis, "GET %s", server->mark_key);
	if (!redis_hear(server->redis, (int)(server->end - clock_ms()), keep_text, &mark, err))
		return false;
	if (server->mark && !text_equal(mark, server->mark))
		return err_set(err, ERR_FATAL,
		    "%s: it was started without its data, or emptied: the done ids are lost; "
		    "open the store again to continue without them",
		    server->address.place);
	if (!server->mark)
		server->mark = xstrdup(mark);
	return true;
}

bool redis_session_begin(struct redis_session *server, struct err *err)
{
	server->end = clock_ms() + server->timeout_ms;
	if (server->redis && !redis_is_open(server->redis))
		close_redis_session(server);
	if (server->redis)
		return true;
	server->redis = redis_connect(&server->address, server->timeout_ms, err);
	if (server->redis && look_around(server, err) &&
	    (!server->mark_key || check_mark(server, err)))
		return true;
	close_redis_session(server);
	return false;
}

bool redis_session_hear(
    struct redis_session *server, redis_see *see, void *context, struct err *err)
{
	int64_t left = server->end - clock_ms();
	if (redis_hear(server->redis, left > 0 ? (int)left : 0, see, context, err))
		return true;
	close_redis_session(server);
	return false;
}

/* --- scripts -------------------------------------------------------------------------------- */

#define IF_IT_IS                                                                                   \
	"local is = redis.call('GET', KEYS[1]) "                                                   \
	"if not is then return -1 end "                                                            \
	"if is ~= ARGV[1] then return 0 end "

void redis_session_say_remove(
    struct redis_session *server, struct redis_word key, struct redis_word text)
{
	static const char script[] = IF_IT_IS "redis.call('DEL', KEYS[1]) return 1";
	const struct redis_word words[] = {
	    redis_word("EVAL"), redis_word(script), redis_word("1"), key, text};
	redis_say(server->redis, words, 5);
}

void redis_session_say_renew(struct redis_session *server, struct redis_word key,
    struct redis_word text, struct redis_word ms)
{
	static const char script[] = IF_IT_IS "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1";
	const struct redis_word words[] = {
	    redis_word("EVAL"), redis_word(script), redis_word("1"), key, text, ms};
	redis_say(server->redis, words, 6);
}
