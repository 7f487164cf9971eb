#include "redis_session.h"

#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "redis_slots.h"
#include "text.h"

static redis_greet greet_node;

bool redis_session_init(struct redis_session *server, const struct redis_access *access,
    int timeout_ms, const char *remembers, struct err *err)
{
	*server = (struct redis_session){.timeout_ms = timeout_ms, .name = xstrdup(remembers)};
	if (!redis_address_parse(access, &server->address, err))
		return false;
	server->servers = redis_servers_create(&server->address, greet_node, server);
	return true;
}

void redis_session_finish(struct redis_session *server)
{
	redis_servers_destroy(server->servers);
	redis_address_finish(&server->address);
	for (int i = 0; i < REDIS_MARKS; i++)
		free(server->marks[i]);
	free(server->mark);
	free(server->name);
}

/* --- a session's begin ---------------------------------------------------------------------- */

/* The last answer that is a text; NULL: none. */
static void keep_text(void *context, size_t number, const struct redis_answer *answer)
{
	char **last = context;

	(void)number;
	free(*last);
	*last = answer->kind == REDIS_TEXT ? xstrdup(answer->text) : NULL;
}

/* A server without INFO has no replicas and evicts nothing. */
static bool judge_redis_info(const char *place, const char *info, struct err *err)
{
	if (redis_info_is(info, "role", "slave"))
		return err_set(
		    err, ERR_RETRY, "%s: this is a replica: name the primary in url", place);
	bool drops = !redis_info_is(info, "maxmemory", "0\r") &&
		     redis_info_is(info, "maxmemory_policy", "") &&
		     !redis_info_is(info, "maxmemory_policy", "noeviction");
	return !drops ||
	       err_set(err, ERR_CONFIG,
		   "%s: it drops keys when its memory is full, which would be new again: set "
		   "maxmemory-policy noeviction",
		   place);
}

/* The mark is random, and exists as long as the server keeps its keys. */
static bool check_mark(struct redis *redis, const char *place, const char *key, char **mark,
    int64_t end, struct err *err)
{
	owned_text char *found = NULL;

	/* NX: another process may have set the mark of this name before. */
	if (!*mark)
		redis_sayf(redis, "SET %s %lld NX", key, (long long)clock_random());
	redis_sayf(redis, "GET %s", key);
	if (!redis_hear(redis, (int)(end - clock_ms()), keep_text, &found, err))
		return false;
	if (*mark && !text_equal(found, *mark))
		return err_set(err, ERR_FATAL,
		    "%s: it was started without its data, or emptied: the done ids are lost; "
		    "open the store again to continue without them",
		    place);
	if (!*mark)
		*mark = xstrdup(found);
	return true;
}

static bool check_marks(struct redis_session *server, struct redis *redis, int node,
    const char *place, int64_t end, struct err *err)
{
	if (!redis_servers_are_cluster(server->servers)) {
		owned_text char *key = xformat("%s:store", server->name);
		return check_mark(redis, place, key, &server->mark, end, err);
	}
	for (int i = 0; i < REDIS_MARKS; i++) {
		owned_text char *key = xformat("%s:store:%d", server->name, i);
		if (redis_servers_serves(server->servers, node, redis_slot(key, strlen(key))))
			return check_mark(redis, place, key, &server->marks[i], end, err);
	}
	return true; /* it serves too few slots to have one */
}

static bool greet_node(
    void *context, struct redis *redis, const char *info, int node, int64_t end, struct err *err)
{
	struct redis_session *server = context;
	const char *place = redis_place_of(redis);

	return judge_redis_info(place, info, err) &&
	       (!server->name || check_marks(server, redis, node, place, end, err));
}

bool redis_session_begin(struct redis_session *server, struct err *err)
{
	server->end = clock_ms() + server->timeout_ms;
	if (redis_servers_begin(server->servers, server->end, err))
		return true;
	redis_servers_close(server->servers);
	return false;
}

bool redis_session_is_cluster(const struct redis_session *server)
{
	return redis_servers_are_cluster(server->servers);
}

void redis_session_say(struct redis_session *server, struct redis_word key,
    const struct redis_word *words, size_t count)
{
	redis_servers_say(server->servers, key, words, count);
}

bool redis_session_hear(
    struct redis_session *server, redis_see *see, void *context, struct err *err)
{
	if (redis_servers_hear(server->servers, server->end, see, context, err))
		return true;
	redis_servers_close(server->servers);
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
	redis_session_say(server, key, words, 5);
}

void redis_session_say_renew(struct redis_session *server, struct redis_word key,
    struct redis_word text, struct redis_word ms)
{
	static const char script[] = IF_IT_IS "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1";
	const struct redis_word words[] = {
	    redis_word("EVAL"), redis_word(script), redis_word("1"), key, text, ms};
	redis_session_say(server, key, words, 6);
}
