/*
 * Claims on a Redis server or cluster. The key NAME:claim:{N}:ID holds the token, and expires after
 * the lease. NAME:token:{N} is the largest token of these ids so far. N is the CRC32 of the id,
 * modulo 1024: the two keys lie in one slot of a cluster, and the ids spread over the nodes. A
 * token is the time in microseconds, made to rise: so it also exceeds a token that a failover lost,
 * unless the clocks of the servers are further apart than the failover takes.
 *
 * On a single server one script takes or releases all claims of a call; in a cluster each claim has
 * a script of its own, since a script may only use the keys of one slot.
 */
#include <stdlib.h>
#include <zlib.h>
#include "arena.h"
#include "claims_store.h"
#include "redis_session.h"
#include "text.h"

enum { BUCKETS = 1024 };

struct claims_store {
	struct redis_session server;
	char *name, *lease_ms;
	struct text key;
};

static void close_redis_claims(struct claims_store *claims)
{
	redis_session_finish(&claims->server);
	text_finish(&claims->key);
	free(claims->name);
	free(claims->lease_ms);
	free(claims);
}

static struct claims_store *open_redis_claims(const struct claims_spec *spec, struct err *err)
{
	struct claims_store *claims = xcalloc(1, sizeof *claims);
	claims->name = xstrdup(spec->name);
	claims->lease_ms = xformat("%lld", (long long)spec->lease_ms);
	if (redis_session_init(&claims->server, &spec->server, (int)spec->timeout_ms, NULL, err) &&
	    redis_session_begin(&claims->server, err))
		return claims;
	close_redis_claims(claims);
	return NULL;
}

static int bucket_of(const void *id, size_t length)
{
	return (int)(crc32(0, id, (uInt)length) % BUCKETS);
}

/* The key is valid until the next call. */
static struct redis_word redis_claim_key(struct claims_store *claims, const void *id, size_t length)
{
	text_clear(&claims->key);
	text_addf(&claims->key, "%s:claim:{%d}:", claims->name, bucket_of(id, length));
	text_append(&claims->key, id, length);
	return (struct redis_word){claims->key.data, claims->key.length};
}

static void say_take(struct claims_store *claims, const struct claims_id *id)
{
	static const char script[] =
	    "local time = redis.call('TIME') "
	    "local last = tonumber(redis.call('GET', KEYS[2]) or 0) "
	    "local token = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2])) "
	    "if not redis.call('SET', KEYS[1], token, 'NX', 'PX', ARGV[1]) then return 0 end "
	    "redis.call('SET', KEYS[2], token) return tonumber(token)";

	owned_text char *token_key =
	    xformat("%s:token:{%d}", claims->name, bucket_of(id->id, id->length));
	const struct redis_word words[] = {redis_word("EVAL"), redis_word(script), redis_word("2"),
	    redis_claim_key(claims, id->id, id->length), redis_word(token_key),
	    redis_word(claims->lease_ms)};
	redis_session_say(&claims->server, redis_word(token_key), words, 6);
}

/* A command with one script for many claims. */
struct many {
	struct redis_word *words;
	size_t count;
	struct arena memory; /* of the words */
};

static void add_word(struct many *many, struct redis_word word)
{
	const char *copy = arena_copy(&many->memory, word.bytes, word.length);
	many->words[many->count++] = (struct redis_word){copy, word.length};
}

static void begin_many(struct many *many, const char *script, size_t keys, size_t others)
{
	owned_text char *number = xformat("%zu", keys);
	*many = (struct many){.words = xcalloc(3 + keys + others, sizeof *many->words)};
	add_word(many, redis_word("EVAL"));
	add_word(many, redis_word(script));
	add_word(many, redis_word(number));
}

/* The words are sent. */
static void say_many(struct claims_store *claims, struct many *many)
{
	redis_session_say(&claims->server, many->words[3], many->words, many->count);
	arena_finish(&many->memory);
	free(many->words);
}

static void say_take_many(struct claims_store *claims, const struct claims_id *ids, size_t count)
{
	static const char script[] =
	    "local time = redis.call('TIME') "
	    "local now = time[1] * 1000000 + time[2] "
	    "local tokens = {} "
	    "for i = 1, #KEYS, 2 do "
	    "local last = tonumber(redis.call('GET', KEYS[i + 1]) or 0) "
	    "local token = string.format('%.0f', math.max(last + 1, now)) "
	    "if redis.call('SET', KEYS[i], token, 'NX', 'PX', ARGV[1]) then "
	    "redis.call('SET', KEYS[i + 1], token) "
	    "tokens[#tokens + 1] = tonumber(token) "
	    "else tokens[#tokens + 1] = 0 end "
	    "end "
	    "return tokens";
	struct many many;

	begin_many(&many, script, 2 * count, 1);
	for (size_t i = 0; i < count; i++) {
		owned_text char *token_key =
		    xformat("%s:token:{%d}", claims->name, bucket_of(ids[i].id, ids[i].length));
		add_word(&many, redis_claim_key(claims, ids[i].id, ids[i].length));
		add_word(&many, redis_word(token_key));
	}
	add_word(&many, redis_word(claims->lease_ms));
	say_many(claims, &many);
}

static void say_release_many(struct claims_store *claims, const struct claims_id *ids, size_t count)
{
	static const char script[] =
	    "local held = {} "
	    "for i, key in ipairs(KEYS) do "
	    "held[i] = redis.call('GET', key) == ARGV[i] and redis.call('DEL', key) or 0 "
	    "end "
	    "return held";
	struct many many;

	begin_many(&many, script, count, count);
	for (size_t i = 0; i < count; i++)
		add_word(&many, redis_claim_key(claims, ids[i].id, ids[i].length));
	for (size_t i = 0; i < count; i++) {
		owned_text char *token = xformat("%lld", (long long)ids[i].token);
		add_word(&many, redis_word(token));
	}
	say_many(claims, &many);
}

/* The numbers of the answers, or of the list that is the only answer. */
struct numbers {
	int64_t *numbers;
	size_t count, seen;
};

static void note_number(struct numbers *numbers, const struct redis_answer *answer)
{
	if (answer->kind == REDIS_NUMBER && numbers->seen < numbers->count)
		numbers->numbers[numbers->seen++] = answer->number;
}

static void see_number(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	note_number(context, answer);
	for (size_t i = 0; answer->kind == REDIS_LIST && i < answer->count; i++) {
		const struct redis_answer one = redis_answer_item(answer, i);
		note_number(context, &one);
	}
}

/* A missing number would free an id that is claimed. */
static bool hear_numbers(
    struct claims_store *claims, int64_t *ret_numbers, size_t count, struct err *err)
{
	struct numbers numbers = {ret_numbers, count, 0};
	return redis_session_hear(&claims->server, see_number, &numbers, err) &&
	       (numbers.seen == count ||
		   err_set(err, ERR_RETRY, "the server answers for %zu of %zu claims", numbers.seen,
		       count));
}

static bool take_redis_claims(
    struct claims_store *claims, struct claims_id *ids, size_t count, struct err *err)
{
	if (!redis_session_begin(&claims->server, err))
		return false;

	if (count > 1 && !redis_session_is_cluster(&claims->server))
		say_take_many(claims, ids, count);
	else
		for (size_t i = 0; i < count; i++)
			say_take(claims, &ids[i]);

	int64_t *tokens = xcalloc(count, sizeof *tokens);
	bool good = hear_numbers(claims, tokens, count, err);
	for (size_t i = 0; good && i < count; i++)
		ids[i].token = tokens[i];
	free(tokens);
	return good;
}

/* Reads the answers to the commands of a call: 1 if the claim was held. */
static bool hear_held(struct claims_store *claims, size_t count, bool *ret_held, struct err *err)
{
	int64_t *held = xcalloc(count, sizeof *held);
	bool good = hear_numbers(claims, held, count, err);
	for (size_t i = 0; good && i < count; i++)
		ret_held[i] = held[i] == 1;
	free(held);
	return good;
}

static bool renew_redis_claims(struct claims_store *claims, const struct claims_id *ids,
    size_t count, bool *ret_held, struct err *err)
{
	if (!redis_session_begin(&claims->server, err))
		return false;
	for (size_t i = 0; i < count; i++) {
		owned_text char *token = xformat("%lld", (long long)ids[i].token);
		redis_session_say_renew(&claims->server,
		    redis_claim_key(claims, ids[i].id, ids[i].length), redis_word(token),
		    redis_word(claims->lease_ms));
	}
	return hear_held(claims, count, ret_held, err);
}

static void say_release(struct claims_store *claims, const struct claims_id *id)
{
	owned_text char *token = xformat("%lld", (long long)id->token);
	redis_session_say_remove(
	    &claims->server, redis_claim_key(claims, id->id, id->length), redis_word(token));
}

static bool release_redis_claims(struct claims_store *claims, const struct claims_id *ids,
    size_t count, bool *ret_held, struct err *err)
{
	if (!redis_session_begin(&claims->server, err))
		return false;
	if (count > 1 && !redis_session_is_cluster(&claims->server))
		say_release_many(claims, ids, count);
	else
		for (size_t i = 0; i < count; i++)
			say_release(claims, &ids[i]);
	return hear_held(claims, count, ret_held, err);
}

const struct claims_store_type redis_claims = {
    .spec = {"redis", claims_settings,
	1 << CLAIMS_URL | 1 << CLAIMS_PASSWORD_FILE | 1 << CLAIMS_TLS_CA |
	    1 << CLAIMS_TLS_CERTIFICATE | 1 << CLAIMS_TLS_KEY | 1 << CLAIMS_SENTINEL_PASSWORD_FILE |
	    1 << CLAIMS_NAME | 1 << CLAIMS_LEASE | 1 << CLAIMS_TIMEOUT,
	1 << CLAIMS_URL | 1 << CLAIMS_NAME},
    .open = open_redis_claims,
    .close = close_redis_claims,
    .take = take_redis_claims,
    .renew = renew_redis_claims,
    .release = release_redis_claims,
};
