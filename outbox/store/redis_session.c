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
	free(server->name);
}

/* --- a session's begin ---------------------------------------------------------------------- */

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

/* It changes only when somebody sets the clock. */
static int64_t wall_beside_clock(void)
{
	return clock_wall_us() / 1000 - clock_ms();
}

/* Keys with a date in their name: two processes must agree on it, and the server deletes them by
 * its own clock. A server that does not show its clock is not judged. */
static bool judge_redis_clock(
    struct redis_session *server, const char *place, const char *info, struct err *err)
{
	static const char name[] = "\nserver_time_usec:";
	const char *found = strstr(info, name);
	if (!found || !server->most_apart_ms)
		return true;

	int64_t server_us = strtoll(found + sizeof name - 1, NULL, 10);
	int64_t ahead_ms = (server_us - clock_wall_us()) / 1000;
	server->wall_ms = wall_beside_clock();
	return llabs(ahead_ms) <= server->most_apart_ms / 2 ||
	       err_set(err, ERR_RETRY,
		   "%s: its clock is %lld ms %s this machine's, at most are %lld: set the clocks "
		   "(NTP)",
		   place, llabs(ahead_ms), ahead_ms > 0 ? "ahead of" : "behind",
		   (long long)server->most_apart_ms / 2);
}

/* --- marks ---------------------------------------------------------------------------------- */

/*
 * A mark is a random number, which exists as long as the server keeps its keys. In a cluster
 * this asks each node for all marks in its slots: slots move, and a node that lost its data has to
 * show it also if only some of its slots are those it had before.
 */
struct mark_look {
	struct redis_session *server;
	int marks[REDIS_MARKS];
	size_t set_count, count; /* commands SET, which come first; marks */
	bool lost;
	char *error;
};

static char *mark_key(const struct redis_session *server, int mark)
{
	return redis_session_is_cluster(server) ? xformat("%s:store:%d", server->name, mark)
						: xformat("%s:store", server->name);
}

/* The slot is served by another node now, or is on its way there: that node has the mark. */
static bool is_redirection(const char *error)
{
	return text_starts(error, "MOVED") || text_starts(error, "ASK");
}

static void see_mark(void *context, size_t number, const struct redis_answer *answer)
{
	struct mark_look *look = context;

	if (answer->kind == REDIS_ERROR) {
		if (!look->error && !is_redirection(answer->text))
			look->error = xstrdup(answer->text);
		return;
	}
	if (number < look->set_count)
		return;

	char **mark = &look->server->marks[look->marks[number - look->set_count]];
	bool found = answer->kind == REDIS_TEXT;
	if (*mark)
		look->lost |= !found || !text_equal(answer->text, *mark);
	/* otherwise the command that sets it was redirected, and the next connection sets it */
	else if (found)
		*mark = xstrdup(answer->text);
}

static void choose_marks(struct mark_look *look, int node)
{
	const struct redis_session *server = look->server;
	int count = redis_session_is_cluster(server) ? REDIS_MARKS : 1;

	for (int i = 0; i < count; i++) {
		owned_text char *key = mark_key(server, i);
		if (redis_servers_serves(server->servers, node, redis_slot(key, strlen(key))))
			look->marks[look->count++] = i;
	}
}

static void say_mark_commands(struct mark_look *look, struct redis *redis)
{
	for (size_t i = 0; i < look->count; i++) {
		owned_text char *key = mark_key(look->server, look->marks[i]);
		if (look->server->marks[look->marks[i]])
			continue;
		/* NX: another process may have set the mark of this name before. */
		redis_sayf(redis, "SET %s %lld NX", key, (long long)clock_random());
		look->set_count++;
	}
	for (size_t i = 0; i < look->count; i++) {
		owned_text char *key = mark_key(look->server, look->marks[i]);
		redis_sayf(redis, "GET %s", key);
	}
}

static bool check_marks(
    struct redis_session *server, struct redis *redis, int node, int64_t end, struct err *err)
{
	struct mark_look look = {.server = server};
	const char *place = redis_place_of(redis);

	choose_marks(&look, node);
	say_mark_commands(&look, redis);
	bool heard = redis_hear_all(redis, (int)(end - clock_ms()), see_mark, &look, err);
	if (heard && look.error)
		heard = redis_refuse(place, look.error, err);
	free(look.error);
	if (!heard || !look.lost)
		return heard;
	return err_set(err, ERR_FATAL,
	    "%s: it was started without its data, or emptied: what the store had there is lost; "
	    "open the store again to continue without it",
	    place);
}

static bool greet_node(
    void *context, struct redis *redis, const char *info, int node, int64_t end, struct err *err)
{
	struct redis_session *server = context;

	const char *place = redis_place_of(redis);

	return judge_redis_info(place, info, err) && judge_redis_clock(server, place, info, err) &&
	       (!server->name || check_marks(server, redis, node, end, err));
}

bool redis_session_begin(struct redis_session *server, struct err *err)
{
	/* The comparison with the server's clock was with another clock: connect anew, and compare.
	 */
	if (server->most_apart_ms && server->wall_ms &&
	    llabs(wall_beside_clock() - server->wall_ms) > server->most_apart_ms / 2)
		redis_servers_close(server->servers);
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
