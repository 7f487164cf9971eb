/*
 * Ids on a Redis server, shared between machines. A pending id has a key with a lease, which only
 * this process can remove. The form says how a done id is stored:
 *
 *   key     the same key, with the window as its time to live
 *   bitmap  a bit of NAME:bitmap:PARTITION, as in the classic scheme: 10 bits of the id's CRC32 are
 *           the partition, 22 the offset in it
 *   bloom   an item of NAME:bloom, a filter of the module RedisBloom
 *
 * An id is claimed before the filter is queried, and added to the filter before the claim ends: so
 * the next holder of a claim sees everything that was done under earlier ones.
 *
 * Read struct form first; then ask_round, which claims, settles doubts and renews; then add_chunk.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "clock.h"
#include "dedup_hot.h"
#include "redis_session.h"
#include "dedup_store.h"
#include "hex.h"
#include "text.h"

enum { CHUNK = 1000, OFFSET_BITS = 22 };

struct redis_store;
struct form {
	const char *name;
	const char *claims; /* the keys of pending ids begin with it, behind the store's name */
	/* Sends one command, whose answer is 1 if the id is done. NULL: the claim's key says it. */
	void (*say_look)(struct redis_store *redis, const struct dedup_item *item);
	/* Sends any number of commands that store done ids. NULL: the claim's key stores them. */
	void (*say_add)(struct redis_store *redis, const struct dedup_item *items, size_t count);
	bool (*prepare)(struct redis_store *redis, const struct dedup_spec *spec, struct err *err);
};

struct redis_store {
	struct dedup_store store;
	const struct form *form;
	struct redis_session server;
	char *name, *lease_ms, *window_ms; /* words of commands */
	/* Values of a claim's key: a number that only this store has, negative when the id is done.
	 * The server stores a number without a string, which saves it memory and time. */
	char *pending, *done;
	struct text key;
	size_t prefix; /* number of its first bytes, which all claims share */
	struct dedup_hot hot;
	int64_t hot_ms; /* how long a done id of the hot layer is believed; 0: no hot layer */
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

static void note_hot_item(struct redis_store *redis, const struct dedup_item *item)
{
	if (redis->hot_ms)
		dedup_hot_put(&redis->hot, item->hash, clock_ms() + redis->hot_ms);
}

/* --- forms ---------------------------------------------------------------------------------- */

static void say_bit(struct redis_store *redis, const char *command, const struct dedup_item *item,
    const char *value)
{
	uint32_t crc = (uint32_t)crc32(0, item->id, (uInt)item->length);
	owned_text char *key = xformat("%s:bitmap:%u", redis->name, crc >> OFFSET_BITS);
	owned_text char *offset = xformat("%u", crc & ((1U << OFFSET_BITS) - 1));
	const struct redis_word words[] = {
	    redis_word(command), redis_word(key), redis_word(offset), redis_word(value)};
	redis_session_say(&redis->server, redis_word(key), words, value[0] ? 4 : 3);
}

static void say_get_bit(struct redis_store *redis, const struct dedup_item *item)
{
	say_bit(redis, "GETBIT", item, "");
}

static void say_set_bits(struct redis_store *redis, const struct dedup_item *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		say_bit(redis, "SETBIT", &items[i], "1");
}

static void say_filter_has(struct redis_store *redis, const struct dedup_item *item)
{
	owned_text char *key = xformat("%s:bloom", redis->name);
	const struct redis_word words[] = {
	    redis_word("BF.EXISTS"), redis_word(key), {item->id, item->length}};
	redis_session_say(&redis->server, redis_word(key), words, 3);
}

static void say_filter_add(struct redis_store *redis, const struct dedup_item *items, size_t count)
{
	owned_text char *key = xformat("%s:bloom", redis->name);
	struct redis_word words[2 + CHUNK] = {
	    redis_word(count == 1 ? "BF.ADD" : "BF.MADD"), redis_word(key)};
	for (size_t i = 0; i < count; i++)
		words[2 + i] = (struct redis_word){items[i].id, items[i].length};
	redis_session_say(&redis->server, redis_word(key), words, 2 + count);
}

static void store_number(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	*(int64_t *)context = answer->number;
}

/* If another process creates the filter first, that one is used. */
static bool reserve_redis_filter(
    struct redis_store *redis, const struct dedup_spec *spec, struct err *err)
{
	int64_t exists = 0;
	owned_text char *key = xformat("%s:bloom", redis->name);
	const struct redis_word exists_words[] = {redis_word("EXISTS"), redis_word(key)};
	redis_session_say(&redis->server, redis_word(key), exists_words, 2);
	/* After a failure `exists` is still 0, so the result is false. */
	if (!redis_session_hear(&redis->server, store_number, &exists, err) || exists)
		return exists;

	owned_text char *rate = xformat("%.9g", spec->rate);
	owned_text char *ids = xformat("%lld", (long long)spec->ids);
	const struct redis_word words[] = {redis_word("BF.RESERVE"), redis_word(key),
	    redis_word(rate), redis_word(ids), redis_word("EXPANSION"), redis_word("2")};
	redis_session_say(&redis->server, redis_word(key), words, 6);
	if (redis_session_hear(&redis->server, store_number, &exists, err))
		return true;

	/* An error of the server ends the session. */
	if (strstr(err->message, "item exists"))
		return redis_session_begin(&redis->server, err);
	if (strstr(err->message, "unknown command"))
		err_set(err, ERR_CONFIG,
		    "%s: form=bloom needs the module RedisBloom, which it has not: load that, or "
		    "choose form=key or form=bitmap",
		    redis->server.address.place);
	return false;
}

static const struct form forms[] = {
    {"key", "id", NULL, NULL, NULL},
    {"bitmap", "pending", say_get_bit, say_set_bits, NULL},
    {"bloom", "pending", say_filter_has, say_filter_add, reserve_redis_filter},
};

static const struct form *form_of(const struct dedup_spec *spec)
{
	const struct form *form = forms;
	while (!text_equal(form->name, spec->type->form))
		form++;
	return form;
}

/* --- look ----------------------------------------------------------------------------------- */

struct round {
	struct redis_store *redis;
	const struct dedup_item *items[CHUNK];
	enum outbox_dedup_state *states[CHUNK];
	bool claimed[CHUNK], done[CHUNK];
	bool old[CHUNK]; /* a claim of this process, if any, was made by an earlier call */
	size_t count;
	size_t asked[CHUNK], asked_count; /* items of the second and third request */
};

/*
 * A server answers in order, so a look may follow its claim at once. In a cluster the two go to
 * different nodes, or are redirected apart: no look is sent before all claims are answered.
 */
static bool look_follows_claim(const struct redis_store *redis)
{
	return redis->form->say_look && !redis_session_is_cluster(&redis->server);
}

/* With a look behind each claim, each item has two answers. */
static void see_claim(void *context, size_t number, const struct redis_answer *answer)
{
	struct round *round = context;
	size_t each = look_follows_claim(round->redis) ? 2 : 1, at = number / each;
	if (number % each == 0)
		round->claimed[at] = answer->kind != REDIS_NOTHING;
	else
		round->done[at] = answer->number == 1;
}

static void see_look(void *context, size_t number, const struct redis_answer *answer)
{
	((struct round *)context)->done[number] = answer->number == 1;
}

static bool ask_claims(struct round *round, struct err *err)
{
	struct redis_store *redis = round->redis;
	bool follows = look_follows_claim(redis);

	for (size_t i = 0; i < round->count; i++) {
		struct redis_word key = redis_id_key(redis, round->items[i]);
		const struct redis_word words[] = {redis_word("SET"), key,
		    redis_word(redis->pending), redis_word("NX"), redis_word("PX"),
		    redis_word(redis->lease_ms)};
		redis_session_say(&redis->server, key, words, 6);
		round->done[i] = round->old[i] = false;
		if (follows)
			redis->form->say_look(redis, round->items[i]);
	}
	if (!redis_session_hear(&redis->server, see_claim, round, err))
		return false;
	if (follows || !redis->form->say_look)
		return true;

	for (size_t i = 0; i < round->count; i++)
		redis->form->say_look(redis, round->items[i]);
	return redis_session_hear(&redis->server, see_look, round, err);
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
	return redis_session_hear(&redis->server, see_renewed, round, err);
}

static void report_round(struct round *round)
{
	struct redis_store *redis = round->redis;
	for (size_t i = 0; i < round->count; i++) {
		*round->states[i] = round->done[i]      ? OUTBOX_DEDUP_DONE
				    : round->claimed[i] ? OUTBOX_DEDUP_NEW
							: OUTBOX_DEDUP_PENDING;
		if (round->done[i])
			note_hot_item(redis, round->items[i]);
	}
}

static bool ask_round(struct round *round, struct err *err)
{
	struct redis_session *server = &round->redis->server;
	if (round->count == 0)
		return true;
	if (!redis_session_begin(server, err))
		return false;
	if (!ask_claims(round, err) || !ask_doubts(round, err) || !renew_old(round, err))
		return false;
	report_round(round);
	return true;
}

/* If a look fails, the next one finds the claims that it made, or they end with their lease. */
static bool claim_in_redis(struct dedup_store *store, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	struct redis_store *redis = redis_of(store);
	struct round round = {.redis = redis};
	for (size_t i = 0; i < count; i++) {
		if (redis->hot_ms && dedup_hot_has(&redis->hot, items[i].hash, clock_ms())) {
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

static void see_removed(void *context, size_t number, const struct redis_answer *answer)
{
	struct sum *sum = context;
	(void)number;
	sum->lost += answer->number == 0;
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

/* Waits for the answer before the claim ends: a server whose memory is full would refuse the
 * addition, and yet remove the claim. */
static bool tell_filter(
    struct redis_store *redis, const struct dedup_item *items, size_t count, struct err *err)
{
	int64_t last;
	if (!redis->form->say_add)
		return true;
	redis->form->say_add(redis, items, count);
	return redis_session_hear(&redis->server, store_number, &last, err);
}

static bool add_chunk(struct redis_store *redis, const struct dedup_item *items, size_t count,
    size_t *lost, struct err *err)
{
	struct sum sum = {.redis = redis};
	bool by_key = !redis->form->say_add;
	if (!redis_session_begin(&redis->server, err) || !tell_filter(redis, items, count, err))
		return false;
	(by_key ? say_done : say_remove)(redis, items, count);
	if (!redis_session_hear(&redis->server, by_key ? see_replaced : see_removed, &sum, err))
		return false;
	*lost += sum.lost;
	for (size_t i = 0; i < count; i++)
		note_hot_item(redis, &items[i]);
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
	return run_each(redis_of(store), items, count, say_remove, err);
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
		if (redis->hot_ms)
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
	redis_session_finish(&redis->server);
	dedup_hot_finish(&redis->hot);
	text_finish(&redis->key);
	free(redis->name);
	free(redis->pending);
	free(redis->done);
	free(redis->lease_ms);
	free(redis->window_ms);
	free(redis);
}

/* These forms forget nothing, so that the hot layer is always right. With form=key it is off by
 * default: a key expires, and another process can release it, without the hot layer noticing. */
static bool check_redis_filter(struct dedup_spec *spec, struct err *err)
{
	if (spec->hot == 0)
		spec->hot = DEDUP_HOT;
	return !spec->window_ms ||
	       err_set(err, ERR_CONFIG,
		   "window is refused with form=%s, which forgets nothing: leave it out, or choose "
		   "form=key",
		   spec->type->form);
}

static struct dedup_store *open_redis_store(const struct dedup_spec *spec, struct err *err)
{
	struct redis_store *redis = xcalloc(1, sizeof *redis);
	long long us = clock_random();
	redis->form = form_of(spec);
	redis->store = (struct dedup_store){spec->type, (uint64_t)clock_random()};
	redis->name = xstrdup(spec->name);
	redis->pending = xformat("%lld", us);
	redis->done = xformat("-%lld", us);
	redis->lease_ms = xformat("%lld", (long long)spec->lease_ms);
	redis->window_ms = xformat("%lld", (long long)spec->window_ms);
	text_addf(&redis->key, "%s:%s", redis->name, redis->form->claims);
	redis->prefix = redis->key.length;
	redis->offset = -1;

	if (spec->hot) {
		dedup_hot_init(&redis->hot, (uint64_t)spec->hot);
		redis->hot_ms = spec->window_ms;
	}

	if (redis_session_init(
		&redis->server, &spec->server, (int)spec->timeout_ms, spec->name, err) &&
	    redis_session_begin(&redis->server, err) &&
	    (!redis->form->prepare || redis->form->prepare(redis, spec, err)))
		return &redis->store;
	close_redis_store(&redis->store);
	return NULL;
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
	stats->offset = redis->offset;
	if (redis->hot_ms)
		stats->memory_bytes = (redis->hot.mask + 1) * sizeof *redis->hot.places;
}

#define REDIS_SPEC(needs)                                                                          \
	.spec = {"redis", dedup_settings,                                                          \
	    DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(RATE) | DEDUP_TAKES(WINDOW) |      \
		DEDUP_TAKES(HOT) | DEDUP_TAKES(FORM) | DEDUP_TAKES(URL) | DEDUP_TAKES(NAME) |      \
		DEDUP_TAKES(LEASE) | DEDUP_TAKES(TIMEOUT) | DEDUP_TAKES(PASSWORD_FILE) |           \
		DEDUP_TAKES(TLS_CA) | DEDUP_TAKES(TLS_CERTIFICATE) | DEDUP_TAKES(TLS_KEY) |        \
		DEDUP_TAKES(SENTINEL_PASSWORD_FILE),                                               \
	    DEDUP_TAKES(URL) | DEDUP_TAKES(NAME) | (needs)}
#define REDIS_LIFE                                                                                 \
	.open = open_redis_store, .close = close_redis_store, .look = claim_in_redis,              \
	.add = add_to_redis, .give_back = release_in_redis, .checkpoint = note_redis_offset,       \
	.stats = read_redis_stats
#define REDIS_RESTART                                                                              \
	"of a consumer: forgets no id, and pending ids are free after their lease; of the "        \
	"server: remembers ids that it wrote to its disk before (appendfsync); a server "          \
	"that lost all ids is refused by open stores"
#define REDIS_NEGATIVES                                                                            \
	"none, as long as the server keeps the writes that it acknowledged: a failover may "       \
	"lose the last of them"
#define REDIS_SCOPE "all consumers that use the server with this name"
#define REDIS_DISK "of the server"

const struct dedup_store_type redis_store = {
    REDIS_SPEC(0),
    .form = "key",
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
    .check = check_redis_filter,
    .promise = {.store = "redis form=bitmap",
	.lossy = true,
	.shared = true,
	.false_positives = "the number of done ids, divided by 2^32: 0.23 % at 10 M, 2.3 % at "
			   "100 M; such a message is lost",
	.false_negatives = REDIS_NEGATIVES,
	.restart = REDIS_RESTART,
	.scope = REDIS_SCOPE,
	.memory = "of the server: up to 512 MiB, whatever the number of ids",
	.disk = REDIS_DISK},
    REDIS_LIFE,
};

const struct dedup_store_type redis_bloom_store = {
    REDIS_SPEC(DEDUP_TAKES(IDS)),
    .form = "bloom",
    .check = check_redis_filter,
    .promise = {.store = "redis form=bloom",
	.lossy = true,
	.shared = true,
	.false_positives = "the setting rate, as RedisBloom keeps it; beyond ids the filter grows "
			   "(EXPANSION 2); such a message is lost",
	.false_negatives = REDIS_NEGATIVES,
	.restart = REDIS_RESTART,
	.scope = REDIS_SCOPE,
	.memory = "of the server: about 14 bits an id at 0.1 %",
	.disk = REDIS_DISK},
    REDIS_LIFE,
};
