/*
 * Claims on a Redis server or cluster. The key NAME:claim:{N}:ID holds the token, and expires after
 * the lease. NAME:token:{N} is the largest token of these ids so far. N is the CRC32 of the id,
 * modulo 1024: the two keys lie in one slot of a cluster, and the ids spread over the nodes. A
 * token is the time in microseconds, made to rise: so it also exceeds a token that a failover lost,
 * unless the clocks of the servers are further apart than the failover takes.
 */
#include <stdlib.h>
#include <zlib.h>
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

static void store_claim_number(void *context, size_t number, const struct redis_answer *answer)
{
	((int64_t *)context)[number] = answer->number;
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

static void store_token(void *context, size_t number, const struct redis_answer *answer)
{
	((struct claims_id *)context)[number].token = answer->number;
}

static bool take_redis_claims(
    struct claims_store *claims, struct claims_id *ids, size_t count, struct err *err)
{
	if (!redis_session_begin(&claims->server, err))
		return false;
	for (size_t i = 0; i < count; i++)
		say_take(claims, &ids[i]);
	return redis_session_hear(&claims->server, store_token, ids, err);
}

/* Reads the answers to the commands of a call: 1 if the claim was held. */
static bool hear_held(struct claims_store *claims, size_t count, bool *ret_held, struct err *err)
{
	int64_t *held = xcalloc(count, sizeof *held);
	bool good = redis_session_hear(&claims->server, store_claim_number, held, err);
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

static bool release_redis_claims(struct claims_store *claims, const struct claims_id *ids,
    size_t count, bool *ret_held, struct err *err)
{
	if (!redis_session_begin(&claims->server, err))
		return false;
	for (size_t i = 0; i < count; i++) {
		owned_text char *token = xformat("%lld", (long long)ids[i].token);
		redis_session_say_remove(&claims->server,
		    redis_claim_key(claims, ids[i].id, ids[i].length), redis_word(token));
	}
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
