/*
 * Ids on a Redis server, shared between machines. A pending id has a key with a lease, which only
 * this process can remove. A done id has the same key, with the window as its time to live
 * (form=key), or is in a filter (redis_filter.h).
 *
 * An id is claimed before the filter is queried, and added to the filter before the claim ends: so
 * the next holder of a claim sees everything that was done under earlier ones.
 *
 * Read ask_round first, which claims, looks, settles doubts and renews; then add_chunk.
 */
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "dedup_confirm.h"
#include "dedup_hot.h"
#include "redis_filter.h"
#include "redis_session.h"
#include "dedup_store.h"
#include "hash_set.h"
#include "hex.h"
#include "text.h"

enum { CHUNK = 1000 };

struct redis_store {
	struct dedup_store store;
	struct redis_filter *filter;       /* NULL: the keys of claims store done ids, too */
	struct dedup_confirmer *confirm;   /* of the filter's hits; NULL: no query confirms them */
	uint64_t hits, false_hits, misses; /* with a query */
	struct redis_session server;
	char *lease_ms, *window_ms; /* words of commands */
	/* Values of a claim's key: a number that only this store has, negative when the id is done.
	 * The server stores a number without a string, which saves it memory and time. */
	char *pending, *done;
	struct text key;
	size_t prefix; /* number of its first bytes, which all claims share */
	/* Ids that the filter has while the answer to the end of their claim is missing. Nobody can
	 * take them for new since then, so a claim of another process is no loss. */
	struct hash_set settled;
	/* Done ids that the server has, each up to a time. Never filled before the server's answer,
	 * and only believed for ids that it has: another process may add any other. */
	struct dedup_hot hot;
	int64_t hot_ms; /* form=key: how long an id is believed; 0: no hot layer */
	int64_t offset;
};

static struct redis_store *redis_of(struct dedup_store *store)
{
	return (struct redis_store *)store;
}

/* Is the id a UUID in its usual spelling? Its 16 bytes cost the server less. */
static bool is_uuid(const struct dedup_item *item, char ret_bytes[UUID_BYTES])
{
	char written[UUID_TEXT];
	if (!uuid_read(item->id, item->length, ret_bytes))
		return false;
	uuid_write(ret_bytes, written);
	return memcmp(written, item->id, UUID_TEXT) == 0;
}

/* NAME:id:ID, or NAME:id=BYTES for a UUID. Valid until the next call. */
static struct redis_word redis_id_key(struct redis_store *redis, const struct dedup_item *item)
{
	char uuid[UUID_BYTES];
	bool short_one = is_uuid(item, uuid);
	redis->key.length = redis->prefix;
	text_append(&redis->key, short_one ? "=" : ":", 1);
	text_append(
	    &redis->key, short_one ? uuid : item->id, short_one ? UUID_BYTES : item->length);
	return (struct redis_word){redis->key.data, redis->key.length};
}

static bool has_hot_layer(const struct redis_store *redis)
{
	return redis->hot.places;
}

/* until_ms: by the wall clock, INT64_MAX for ever. The layer itself goes by the clock of the
 * machine, which nobody sets. */
static void note_hot_item(
    struct redis_store *redis, const struct dedup_item *item, int64_t until_ms)
{
	int64_t wall_ms = clock_wall_us() / 1000;
	if (has_hot_layer(redis))
		dedup_hot_put(&redis->hot, item->hash,
		    until_ms == INT64_MAX ? until_ms : clock_ms() + until_ms - wall_ms);
}

/* --- look ----------------------------------------------------------------------------------- */

struct round {
	struct redis_store *redis;
	const struct dedup_item *all; /* of the whole call */
	const struct dedup_item *items[CHUNK];
	enum outbox_dedup_state *states[CHUNK];
	bool claimed[CHUNK], done[CHUNK];
	bool old[CHUNK];      /* a claim of this process, if any, was made by an earlier call */
	int64_t until[CHUNK]; /* how long the hot layer may believe a done id */
	size_t count;
	size_t asked[CHUNK], asked_count; /* items of the second and third request */
};

/*
 * A server answers in order, so the looks may follow the claims at once. In a cluster they go to
 * different nodes, or are redirected apart: no look is sent before all claims are answered.
 */
static bool looks_follow_claims(const struct redis_store *redis)
{
	return redis->filter && !redis_session_is_cluster(&redis->server);
}

static void see_look(void *context, size_t number, const struct redis_answer *answer)
{
	struct round *round = context;
	redis_filter_see_look(round->redis->filter, number, answer, round->until);
}

/* The answers to looks, if any, come behind those to claims. */
static void see_claim(void *context, size_t number, const struct redis_answer *answer)
{
	struct round *round = context;
	if (number < round->count)
		round->claimed[number] = answer->kind != REDIS_NOTHING;
	else
		see_look(context, number - round->count, answer);
}

static void say_claims(struct round *round)
{
	struct redis_store *redis = round->redis;
	for (size_t i = 0; i < round->count; i++) {
		struct redis_word key = redis_id_key(redis, round->items[i]);
		const struct redis_word words[] = {redis_word("SET"), key,
		    redis_word(redis->pending), redis_word("NX"), redis_word("PX"),
		    redis_word(redis->lease_ms)};
		redis_session_say(&redis->server, key, words, 6);
		round->done[i] = round->old[i] = false;
		round->until[i] = 0;
	}
}

static bool ask_claims(struct round *round, struct err *err)
{
	struct redis_store *redis = round->redis;
	bool follow = looks_follow_claims(redis);

	say_claims(round);
	if (follow)
		redis_filter_say_looks(redis->filter, round->items, round->count);
	if (!redis_session_hear(&redis->server, see_claim, round, err))
		return false;

	if (redis->filter && !follow) {
		redis_filter_say_looks(redis->filter, round->items, round->count);
		if (!redis_session_hear(&redis->server, see_look, round, err))
			return false;
	}
	for (size_t i = 0; i < round->count; i++)
		round->done[i] = round->until[i] > 0;
	return true;
}

/*
 * The business commits before an id is done, so that the query sees each id of the filter. A hit
 * that it does not confirm is a false one: the id's claim decides, as if the filter had missed it.
 * If the query fails, no id is new; the claims stay, and the next look finds them.
 */
static bool confirm_hits(struct round *round, struct err *err)
{
	struct redis_store *redis = round->redis;
	size_t places[CHUNK], hits[CHUNK], count = 0;
	bool there[CHUNK];

	for (size_t i = 0; i < round->count; i++)
		if (round->done[i]) {
			places[count] = (size_t)(round->items[i] - round->all);
			hits[count++] = i;
		}
	redis->hits += count;
	redis->misses += round->count - count;
	if (count == 0)
		return true;
	if (!dedup_confirm_ask(redis->confirm, round->all, places, count, there, err))
		return false;

	for (size_t i = 0; i < count; i++)
		if (!there[i]) {
			round->done[hits[i]] = false;
			round->until[hits[i]] = 0;
			redis->false_hits++;
		}
	/* The query has used time of the call: the rest of it has a deadline of its own. */
	return redis_session_begin(&redis->server, err);
}

static void ask_once_more(struct round *round, size_t at)
{
	round->asked[round->asked_count++] = at;
}

/* Reads the value of a key that could not be claimed. The answer to the removal of a claim is a
 * number, and changes nothing. */
static void see_doubt(void *context, size_t number, const struct redis_answer *answer)
{
	struct round *round = context;
	const struct redis_store *redis = round->redis;
	size_t at = round->asked[number];
	if (answer->kind != REDIS_TEXT)
		return;
	round->claimed[at] = text_equal(answer->text, redis->pending);
	round->done[at] = answer->text[0] == '-';
	round->until[at] = clock_wall_us() / 1000 + redis->hot_ms;
}

/*
 * Settles two cases: the filter has an id that was claimed, so the claim is removed; or an id was
 * neither claimed nor done, so its key is read.
 */
static bool ask_doubts(struct round *round, struct err *err)
{
	struct redis_store *redis = round->redis;
	round->asked_count = 0;
	for (size_t i = 0; i < round->count; i++) {
		if (round->claimed[i] != round->done[i])
			continue;

		struct redis_word key = redis_id_key(redis, round->items[i]);
		const struct redis_word words[] = {redis_word("GET"), key};
		if (round->claimed[i])
			redis_session_say_remove(&redis->server, key, redis_word(redis->pending));
		else
			redis_session_say(&redis->server, key, words, 2);
		round->old[i] = !round->claimed[i];
		ask_once_more(round, i);
	}

	return redis_session_hear(&redis->server, see_doubt, round, err);
}

static void see_renewed(void *context, size_t number, const struct redis_answer *answer)
{
	struct round *round = context;
	round->claimed[round->asked[number]] = answer->number == 1;
}

static void see_second_look(void *context, size_t number, const struct redis_answer *answer)
{
	struct round *round = context;
	int64_t until[CHUNK] = {0};

	redis_filter_see_look(round->redis->filter, number, answer, until);
	for (size_t i = 0; i < round->asked_count; i++)
		if (until[i] > round->until[round->asked[i]])
			round->until[round->asked[i]] = until[i];
}

/*
 * An old claim may have been made behind the look, by a command of a connection that was given up.
 * Another process may have had the id done before that: a second look decides.
 */
static bool look_behind_old(struct round *round, struct err *err)
{
	struct redis_store *redis = round->redis;
	const struct dedup_item *items[CHUNK];
	size_t count = 0;

	for (size_t i = 0; i < round->asked_count; i++) {
		size_t at = round->asked[i];
		round->until[at] = 0;
		if (!round->claimed[at])
			continue;
		round->asked[count] = at;
		items[count++] = round->items[at];
	}
	round->asked_count = count;
	if (!redis->filter || count == 0)
		return true;

	redis_filter_say_looks(redis->filter, items, count);
	if (!redis_session_hear(&redis->server, see_second_look, round, err))
		return false;
	for (size_t i = 0; i < count; i++)
		round->done[round->asked[i]] = round->until[round->asked[i]] > 0;
	return !redis->confirm || confirm_hits(round, err);
}

/* A claim whose answer was lost has already used a part of its lease. */
static bool renew_old(struct round *round, struct err *err)
{
	struct redis_store *redis = round->redis;
	round->asked_count = 0;
	for (size_t i = 0; i < round->count; i++) {
		if (!round->old[i] || !round->claimed[i])
			continue;
		redis_session_say_renew(&redis->server, redis_id_key(redis, round->items[i]),
		    redis_word(redis->pending), redis_word(redis->lease_ms));
		ask_once_more(round, i);
	}
	return redis_session_hear(&redis->server, see_renewed, round, err) &&
	       look_behind_old(round, err);
}

static void report_round(struct round *round)
{
	struct redis_store *redis = round->redis;
	for (size_t i = 0; i < round->count; i++) {
		*round->states[i] = round->done[i]      ? OUTBOX_DEDUP_DONE
				    : round->claimed[i] ? OUTBOX_DEDUP_NEW
							: OUTBOX_DEDUP_PENDING;
		if (round->done[i])
			note_hot_item(redis, round->items[i], round->until[i]);
	}
}

static bool ask_round(struct round *round, struct err *err)
{
	struct redis_session *server = &round->redis->server;
	if (round->count == 0)
		return true;
	if (!redis_session_begin(server, err))
		return false;
	if (!ask_claims(round, err) || (round->redis->confirm && !confirm_hits(round, err)) ||
	    !ask_doubts(round, err) || !renew_old(round, err))
		return false;
	report_round(round);
	return true;
}

/* If a look fails, the next one finds the claims that it made, or they end with their lease. */
static bool claim_in_redis(struct dedup_store *store, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	struct redis_store *redis = redis_of(store);
	struct round round = {.redis = redis, .all = items};

	/* An id that the query cannot be run for is refused before it is claimed. */
	for (size_t i = 0; redis->confirm && i < count; i++)
		if (!dedup_confirm_takes(redis->confirm, &items[i], err))
			return false;

	for (size_t i = 0; i < count; i++) {
		if (has_hot_layer(redis) && dedup_hot_has(&redis->hot, items[i].hash, clock_ms())) {
			ret_states[i] = OUTBOX_DEDUP_DONE;
			continue;
		}

		round.items[round.count] = &items[i];
		round.states[round.count++] = &ret_states[i];
		if (round.count < CHUNK)
			continue;
		if (!ask_round(&round, err))
			return false;
		round.count = 0;
	}

	return ask_round(&round, err);
}

/* --- add ------------------------------------------------------------------------------------ */

struct sum {
	const struct redis_store *redis;
	const struct dedup_item *items;
	size_t lost;
};

/* Reads the value that the key had before. The id is lost unless it was this store's claim, or
 * nothing, or this store's `done` from a call whose answer was lost. */
static void see_replaced(void *context, size_t number, const struct redis_answer *answer)
{
	struct sum *sum = context;
	(void)number;
	sum->lost += answer->kind == REDIS_TEXT && !text_equal(answer->text, sum->redis->pending) &&
		     !text_equal(answer->text, sum->redis->done);
}

/* 0: the claim is of another process. */
static void see_removed(void *context, size_t number, const struct redis_answer *answer)
{
	struct sum *sum = context;
	sum->lost +=
	    answer->number == 0 && !hash_set_has(&sum->redis->settled, sum->items[number].hash);
}

static void settle_items(struct redis_store *redis, const struct dedup_item *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		hash_set_add(&redis->settled, items[i].hash);
}

static void end_settled(struct redis_store *redis, const struct dedup_item *items, size_t count)
{
	for (size_t i = 0; redis->settled.count && i < count; i++)
		hash_set_remove(&redis->settled, items[i].hash);
}

static void say_done(struct redis_store *redis, const struct dedup_item *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct redis_word key = redis_id_key(redis, &items[i]);
		const struct redis_word words[] = {redis_word("SET"), key, redis_word(redis->done),
		    redis_word("PX"), redis_word(redis->window_ms), redis_word("GET")};
		redis_session_say(&redis->server, key, words, 6);
	}
}

static void say_remove(struct redis_store *redis, const struct dedup_item *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		redis_session_say_remove(
		    &redis->server, redis_id_key(redis, &items[i]), redis_word(redis->pending));
}

/* Waits for the filter's answer before the claim ends: a server whose memory is full would refuse
 * the addition, and yet remove the claim. */
static bool add_chunk(struct redis_store *redis, const struct dedup_item *items, size_t count,
    size_t *lost, struct err *err)
{
	struct sum sum = {.redis = redis, .items = items};
	struct redis_filter *filter = redis->filter;
	int64_t until_ms = clock_wall_us() / 1000 + redis->hot_ms;

	if (!redis_session_begin(&redis->server, err) ||
	    (filter && !redis_filter_add(filter, items, count, &until_ms, err)))
		return false;

	(filter ? say_remove : say_done)(redis, items, count);
	if (!redis_session_hear(&redis->server, filter ? see_removed : see_replaced, &sum, err)) {
		if (filter)
			settle_items(redis, items, count);
		return false;
	}

	end_settled(redis, items, count);
	*lost += sum.lost;
	for (size_t i = 0; i < count; i++)
		note_hot_item(redis, &items[i], until_ms);
	return true;
}

static bool add_to_redis(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct redis_store *redis = redis_of(store);
	size_t lost = 0;
	for (size_t i = 0; i < count; i += CHUNK)
		if (!add_chunk(redis, items + i, count - i < CHUNK ? count - i : CHUNK, &lost, err))
			return false;
	return lost == 0 ||
	       err_set(err, ERR_FENCED,
		   "%s: their lease of %s ms was over, and somebody else took %zu of %zu ids: they "
		   "are handled twice; raise lease beyond the longest time of handling",
		   redis->server.address.place, redis->lease_ms, lost, count);
}

/* --- give back, remove ---------------------------------------------------------------------- */

static void store_number(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	*(int64_t *)context = answer->number;
}

static bool run_each(struct redis_store *redis, const struct dedup_item *items, size_t count,
    void (*say)(struct redis_store *redis, const struct dedup_item *items, size_t count),
    struct err *err)
{
	int64_t last;
	for (size_t i = 0; i < count; i += CHUNK) {
		if (!redis_session_begin(&redis->server, err))
			return false;
		say(redis, items + i, count - i < CHUNK ? count - i : CHUNK);
		if (!redis_session_hear(&redis->server, store_number, &last, err))
			return false;
	}
	return true;
}

static bool release_in_redis(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	if (!run_each(redis_of(store), items, count, say_remove, err))
		return false;
	end_settled(redis_of(store), items, count);
	return true;
}

/* Does not touch an id that is pending in some process. */
static void say_forget(struct redis_store *redis, const struct dedup_item *items, size_t count)
{
	static const char script[] = "local is = redis.call('GET', KEYS[1]) "
				     "if not is or is:sub(1, 1) ~= '-' then return 0 end "
				     "redis.call('DEL', KEYS[1]) return 1";
	for (size_t i = 0; i < count; i++) {
		struct redis_word key = redis_id_key(redis, &items[i]);
		const struct redis_word words[] = {
		    redis_word("EVAL"), redis_word(script), redis_word("1"), key};
		redis_session_say(&redis->server, key, words, 4);
		if (has_hot_layer(redis))
			dedup_hot_drop(&redis->hot, items[i].hash);
	}
}

static bool remove_from_redis(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	return run_each(redis_of(store), items, count, say_forget, err);
}

/* --- life ----------------------------------------------------------------------------------- */

static void close_redis_store(struct dedup_store *store)
{
	struct redis_store *redis = redis_of(store);
	redis_filter_close(redis->filter);
	dedup_confirm_close(redis->confirm);
	redis_session_finish(&redis->server);

	dedup_hot_finish(&redis->hot);
	hash_set_finish(&redis->settled);
	text_finish(&redis->key);
	free(redis->pending);
	free(redis->done);
	free(redis->lease_ms);
	free(redis->window_ms);
	free(redis);
}

/* With form=key the hot layer is off by default: another process can release an id without the
 * layer noticing. */
static bool check_redis_keys(struct dedup_spec *spec, struct err *err)
{
	if (spec->sliced || spec->zone)
		return err_set(err, ERR_CONFIG,
		    "%s is refused with form=key, where each id has a time of its own: leave it "
		    "out, or choose form=%s",
		    spec->sliced ? "slices" : "zone", spec->sliced ? "bitmap" : "bloom");
	return (!spec->confirm_sql && !spec->query && !spec->dsn) ||
	       err_set(err, ERR_CONFIG,
		   "confirm, query and dsn are refused with form=key, which compares ids as a "
		   "whole: leave them out, or choose form=bitmap or form=bloom");
}

/* A claim must outlive the call that made it, which waits for the server up to three times, and for
 * the query. */
static bool check_redis_confirm(struct dedup_spec *spec, struct err *err)
{
	if (spec->hot == 0)
		spec->hot = DEDUP_HOT;
	if (!dedup_confirm_check(spec, err))
		return false;
	return !spec->confirm_sql || spec->lease_ms >= 4 * spec->timeout_ms ||
	       err_set(err, ERR_CONFIG,
		   "lease=%lldms is shorter than four times timeout, which confirm=sql may take: "
		   "lengthen lease, or shorten timeout",
		   (long long)spec->lease_ms);
}

static bool check_redis_bitmap(struct dedup_spec *spec, struct err *err)
{
	if (spec->sliced && !spec->windowed)
		return err_set(err, ERR_CONFIG,
		    "slices is refused without window, since ids are remembered forever: add "
		    "window=24h, or leave slices out");
	if (spec->zone)
		return err_set(err, ERR_CONFIG,
		    "zone is refused with form=bitmap, whose slices begin in UTC: leave it out, or "
		    "choose form=bloom");
	return redis_filter_check_slices(spec, err) && check_redis_confirm(spec, err);
}

static bool check_redis_bloom(struct dedup_spec *spec, struct err *err)
{
	return redis_filter_check_days(spec, err) && redis_filter_check_slices(spec, err) &&
	       check_redis_confirm(spec, err);
}

static bool open_redis_filter(
    struct redis_store *redis, const struct dedup_spec *spec, struct err *err)
{
	/* The query is tried first, so that a wrong one leaves no key. */
	redis->confirm = spec->confirm_sql ? dedup_confirm_open(spec, err) : NULL;
	if (spec->confirm_sql && (!redis->confirm || !redis_session_begin(&redis->server, err)))
		return false;
	redis->filter = redis_filter_open(&redis->server, spec, err);
	return redis->filter;
}

static struct dedup_store *open_redis(
    const struct dedup_spec *spec, bool with_filter, struct err *err)
{
	struct redis_store *redis = xcalloc(1, sizeof *redis);
	long long us = clock_random();
	redis->store = (struct dedup_store){spec->type, (uint64_t)clock_random()};
	redis->pending = xformat("%lld", us);
	redis->done = xformat("-%lld", us);
	redis->lease_ms = xformat("%lld", (long long)spec->lease_ms);
	redis->window_ms = xformat("%lld", (long long)spec->window_ms);
	text_addf(&redis->key, "%s:%s", spec->name, with_filter ? "pending" : "id");
	redis->prefix = redis->key.length;
	redis->offset = -1;

	if (spec->hot) {
		dedup_hot_init(&redis->hot, (uint64_t)spec->hot);
		redis->hot_ms = spec->window_ms;
	}

	bool good = redis_session_init(
	    &redis->server, &spec->server, (int)spec->timeout_ms, spec->name, err);
	if (with_filter)
		redis->server.most_apart_ms = redis_filter_most_apart_ms(spec);
	if (good && redis_session_begin(&redis->server, err) &&
	    (!with_filter || open_redis_filter(redis, spec, err)))
		return &redis->store;
	close_redis_store(&redis->store);
	return NULL;
}

static struct dedup_store *open_redis_keys(const struct dedup_spec *spec, struct err *err)
{
	return open_redis(spec, false, err);
}

static struct dedup_store *open_redis_filters(const struct dedup_spec *spec, struct err *err)
{
	return open_redis(spec, true, err);
}

/* Done ids are on the server already, as durable as it keeps them. */
static bool note_redis_offset(struct dedup_store *store, int64_t offset, struct err *err)
{
	(void)err;
	if (offset > redis_of(store)->offset)
		redis_of(store)->offset = offset;
	return true;
}

static void read_redis_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct redis_store *redis = (const struct redis_store *)store;
	uint64_t asked = redis->misses + redis->false_hits;
	stats->offset = redis->offset;
	stats->filter_hits = redis->hits;
	stats->false_hits = redis->false_hits;
	stats->observed_rate = asked ? (double)redis->false_hits / (double)asked : 0;
	if (has_hot_layer(redis))
		stats->memory_bytes = (redis->hot.mask + 1) * sizeof *redis->hot.places;
}

#define REDIS_SPEC(needs)                                                                          \
	.spec = {"redis", dedup_settings,                                                          \
	    DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(RATE) | DEDUP_TAKES(WINDOW) |      \
		DEDUP_TAKES(SLICES) | DEDUP_TAKES(HOT) | DEDUP_TAKES(FORM) | DEDUP_TAKES(URL) |    \
		DEDUP_TAKES(NAME) | DEDUP_TAKES(LEASE) | DEDUP_TAKES(TIMEOUT) |                    \
		DEDUP_TAKES(PASSWORD_FILE) | DEDUP_TAKES(TLS_CA) | DEDUP_TAKES(TLS_CERTIFICATE) |  \
		DEDUP_TAKES(TLS_KEY) | DEDUP_TAKES(SENTINEL_PASSWORD_FILE) | DEDUP_TAKES(ZONE) |   \
		DEDUP_TAKES(CONFIRM) | DEDUP_TAKES(QUERY) | DEDUP_TAKES(DSN),                      \
	    DEDUP_TAKES(URL) | DEDUP_TAKES(NAME) | (needs)}
#define REDIS_LIFE                                                                                 \
	.close = close_redis_store, .look = claim_in_redis, .add = add_to_redis,                   \
	.give_back = release_in_redis, .checkpoint = note_redis_offset, .stats = read_redis_stats
#define REDIS_RESTART                                                                              \
	"of a consumer: forgets no id, and pending ids are free after their lease; of the "        \
	"server: remembers ids that it wrote to its disk before (appendfsync); a server "          \
	"that lost all ids is refused by open stores"
#define REDIS_NEGATIVES                                                                            \
	"none, as long as the server keeps the writes that it acknowledged: a failover may "       \
	"lose the last of them"
#define REDIS_LOST "such a message is lost; none with confirm=sql, where a query confirms each hit"
#define REDIS_FILTER_WINDOW                                                                        \
	"; an id is remembered forever, with window for at least the window after it was done, "   \
	"less the difference of the clocks, a minute at most"
#define REDIS_SCOPE "all consumers that use the server with this name"
#define REDIS_DISK "of the server"

const struct dedup_store_type redis_store = {
    REDIS_SPEC(0),
    .form = "key",
    .check = check_redis_keys,
    .open = open_redis_keys,
    .promise = {.store = "redis",
	.releases = true,
	.shared = true,
	.false_positives = "none: ids are compared as a whole",
	.false_negatives = REDIS_NEGATIVES "; an id is remembered for the window after it was done",
	.restart = REDIS_RESTART,
	.scope = REDIS_SCOPE,
	.memory = "of the server: about 130 bytes for an id that is a UUID, 160 for 36 "
		  "other bytes; of the process: 24 bytes for each id of hot",
	.disk = REDIS_DISK},
    .remove = remove_from_redis,
    REDIS_LIFE,
};

const struct dedup_store_type redis_bitmap_store = {
    REDIS_SPEC(DEDUP_TAKES(IDS)),
    .form = "bitmap",
    .window_optional = true,
    .check = check_redis_bitmap,
    .open = open_redis_filters,
    .promise = {.store = "redis form=bitmap",
	.lossy = true,
	.shared = true,
	.false_positives = "the number of remembered ids, divided by 2^32: 0.23 % at 10 M, 2.3 % "
			   "at 100 M; " REDIS_LOST,
	.false_negatives = REDIS_NEGATIVES REDIS_FILTER_WINDOW,
	.restart = REDIS_RESTART,
	.scope = REDIS_SCOPE,
	.memory = "of the server: up to 512 MiB, whatever the number of ids; with window up to "
		  "512 MiB for each living slice, one more than slices",
	.disk = REDIS_DISK},
    REDIS_LIFE,
};

const struct dedup_store_type redis_bloom_store = {
    REDIS_SPEC(DEDUP_TAKES(IDS)),
    .form = "bloom",
    .window_optional = true,
    .check = check_redis_bloom,
    .open = open_redis_filters,
    .promise = {.store = "redis form=bloom",
	.lossy = true,
	.shared = true,
	.false_positives = "the setting rate, as RedisBloom keeps it, with window for all days "
			   "together; beyond ids a filter grows (EXPANSION 2); " REDIS_LOST,
	.false_negatives = REDIS_NEGATIVES REDIS_FILTER_WINDOW,
	.restart = REDIS_RESTART,
	.scope = REDIS_SCOPE,
	.memory = "of the server: about 16 bits an id at 0.1 %, with window=30d 23",
	.disk = REDIS_DISK},
    REDIS_LIFE,
};
