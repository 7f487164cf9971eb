/*
 * The keys of the forms, behind the store's name; SLICE is redis_slices_name:
 *
 *   bitmap  NAME:bitmap:PARTITION, with a window NAME:SLICE:PARTITION: a bit of it, as in the
 *           classic scheme: 10 bits of the id's CRC32 are the partition, 22 the offset in it
 *   bloom   NAME:bloom, with a window NAME:bloom:SLICE: a filter of the module RedisBloom
 *
 * NAME:filter has the settings that all processes must share. Read struct filter_form first, then
 * one form, then redis_filter_add.
 */
#include "redis_filter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "bloom_size.h"
#include "redis_slices.h"
#include "text.h"

enum {
	OFFSET_BITS = 22,
	PARTITIONS = 1024,
	MOST_ADDED = 1000,
	MOST_LOOKED = 64,
	MOST_APART_MS = 60000,
	REST_MS = 1000,
	DAY_MS = 86400000,
	MOST_DAYS = MOST_LOOKED - 2
};

/* The key of a slice, or the begin of its keys. */
struct slice_key {
	char text[160];
	size_t length;
};

struct filter_form {
	const char *name;
	int swept; /* how many slices before the window are looked for when the filter is opened */
	void (*name_slice)(
	    const struct redis_filter *filter, int64_t slice, struct slice_key *ret_key);
	void (*say_looks)(
	    struct redis_filter *filter, const struct dedup_item *const *items, size_t count);
	void (*see_look)(struct redis_filter *filter, size_t number,
	    const struct redis_answer *answer, int64_t *ret_until);
	void (*say_adds)(struct redis_filter *filter, const struct dedup_item *items, size_t count);
	void (*see_add)(
	    struct redis_filter *filter, size_t number, const struct redis_answer *answer);
	/* Removes the keys of a slice that has left the window. */
	void (*say_sweep)(struct redis_filter *filter, int64_t slice);
	bool (*prepare)(
	    struct redis_filter *filter, const struct dedup_spec *spec, struct err *err);
};

struct redis_filter {
	struct redis_session *server;
	const struct filter_form *form;
	char *name;
	struct redis_slices slices;
	/* The slices of a look, from the next one backwards. */
	int64_t next;
	struct slice_key looked[MOST_LOOKED];
	int looked_count;      /* 0: not chosen yet */
	char *capacity, *rate; /* words of commands to RedisBloom */
	/* The slice of an add. */
	int64_t adding;
	struct slice_key added;
	size_t added_count;
	/* Partitions of the slice whose key has an end on the server, and those for which the
	 * current call sends the end. */
	uint64_t ending[PARTITIONS / 64];
	uint32_t asked[MOST_ADDED];
	size_t asked_count;
};

static bool has_window(const struct redis_filter *filter)
{
	return filter->slices.count > 0;
}

static int64_t slice_of_now(const struct redis_filter *filter)
{
	return redis_slices_number(&filter->slices, redis_slices_now_ms());
}

/*
 * The server deletes a slice one slice later. This difference is larger than that of the clocks: so
 * an id that is remembered here (dedup_hot.h) is forgotten before the server forgets it.
 */
static int64_t until_of(const struct redis_filter *filter, int64_t slice)
{
	if (!has_window(filter))
		return INT64_MAX;
	return redis_slices_begin_ms(&filter->slices, slice + filter->slices.count);
}

/* The slices that the filter is looked up in; their keys change once in a slice. */
static void choose_looks(struct redis_filter *filter)
{
	int64_t next = slice_of_now(filter) + 1;
	if (filter->looked_count && next == filter->next)
		return;

	filter->next = next;
	filter->looked_count = has_window(filter) ? (int)filter->slices.count + 2 : 1;
	for (int i = 0; i < filter->looked_count; i++)
		filter->form->name_slice(filter, next - i, &filter->looked[i]);
}

/* --- form=bitmap ---------------------------------------------------------------------------- */

/* The place of an id, as words of a command. */
struct bit_place {
	uint32_t partition;
	char partition_text[12], offset_text[12];
	size_t partition_length;
};

static struct bit_place begin_of_partition(uint32_t partition)
{
	struct bit_place place = {.partition = partition};

	place.partition_length = (size_t)snprintf(
	    place.partition_text, sizeof place.partition_text, "%" PRIu32, partition);
	return place;
}

static struct bit_place bit_place_of(const struct dedup_item *item)
{
	uint32_t crc = (uint32_t)crc32(0, item->id, (uInt)item->length);
	uint32_t offset = crc & ((1U << OFFSET_BITS) - 1);
	struct bit_place place = begin_of_partition(crc >> OFFSET_BITS);

	snprintf(place.offset_text, sizeof place.offset_text, "%" PRIu32, offset);
	return place;
}

static void name_bitmaps(
    const struct redis_filter *filter, int64_t slice, struct slice_key *ret_key)
{
	char name[REDIS_SLICE_NAME] = "bitmap";
	if (has_window(filter))
		redis_slices_name(&filter->slices, slice, name);
	ret_key->length =
	    (size_t)snprintf(ret_key->text, sizeof ret_key->text, "%s:%s:", filter->name, name);
}

/* words: the command, room for the key, and more words. */
static void say_to_bitmap(struct redis_filter *filter, const struct slice_key *slice,
    const struct bit_place *place, struct redis_word *words, size_t count)
{
	char key[sizeof slice->text + sizeof place->partition_text];
	memcpy(key, slice->text, slice->length);
	memcpy(key + slice->length, place->partition_text, place->partition_length);
	words[1] = (struct redis_word){key, slice->length + place->partition_length};
	redis_session_say(filter->server, words[1], words, count);
}

static void say_get_bits(
    struct redis_filter *filter, const struct dedup_item *const *items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct bit_place place = bit_place_of(items[i]);
		struct redis_word words[] = {
		    redis_word("GETBIT"), {0}, redis_word(place.offset_text)};
		for (int slice = 0; slice < filter->looked_count; slice++)
			say_to_bitmap(filter, &filter->looked[slice], &place, words, 3);
	}
}

static void keep_latest(int64_t *until, int64_t found_until)
{
	if (*until < found_until)
		*until = found_until;
}

static void see_bit(struct redis_filter *filter, size_t number, const struct redis_answer *answer,
    int64_t *ret_until)
{
	size_t each = (size_t)filter->looked_count;
	if (answer->number == 1)
		keep_latest(&ret_until[number / each],
		    until_of(filter, filter->next - (int64_t)(number % each)));
}

static bool is_ending(const struct redis_filter *filter, uint32_t partition)
{
	return filter->ending[partition / 64] >> partition % 64 & 1;
}

static void change_ending(struct redis_filter *filter, uint32_t partition)
{
	filter->ending[partition / 64] ^= UINT64_C(1) << partition % 64;
}

/* Sends the end of each key once in a slice; again if no answer came. */
static void say_set_bits(struct redis_filter *filter, const struct dedup_item *items, size_t count)
{
	char end[24];
	filter->asked_count = 0;
	snprintf(end, sizeof end, "%" PRId64, redis_slices_end_ms(&filter->slices, filter->adding));

	for (size_t i = 0; i < count; i++) {
		struct bit_place place = bit_place_of(&items[i]);
		struct redis_word words[] = {
		    redis_word("SETBIT"), {0}, redis_word(place.offset_text), redis_word("1")};
		say_to_bitmap(filter, &filter->added, &place, words, 4);
		if (has_window(filter) && !is_ending(filter, place.partition)) {
			change_ending(filter, place.partition);
			filter->asked[filter->asked_count++] = place.partition;
		}
	}

	for (size_t i = 0; i < filter->asked_count; i++) {
		struct bit_place place = begin_of_partition(filter->asked[i]);
		struct redis_word words[] = {redis_word("PEXPIREAT"), {0}, redis_word(end)};
		say_to_bitmap(filter, &filter->added, &place, words, 3);
		/* until the answer has come */
		change_ending(filter, filter->asked[i]);
	}
}

static void see_end_of_bitmap(
    struct redis_filter *filter, size_t number, const struct redis_answer *answer)
{
	if (number >= filter->added_count && answer->number == 1)
		change_ending(filter, filter->asked[number - filter->added_count]);
}

static void say_sweep_bitmaps(struct redis_filter *filter, int64_t slice)
{
	struct slice_key key;
	name_bitmaps(filter, slice, &key);
	for (uint32_t i = 0; i < PARTITIONS; i++) {
		struct bit_place place = begin_of_partition(i);
		struct redis_word words[] = {redis_word("UNLINK"), {0}};
		say_to_bitmap(filter, &key, &place, words, 2);
	}
}

/* --- form=bloom ----------------------------------------------------------------------------- */

static void name_filter(const struct redis_filter *filter, int64_t slice, struct slice_key *ret_key)
{
	char name[REDIS_SLICE_NAME] = "";
	if (has_window(filter))
		redis_slices_name(&filter->slices, slice, name);
	ret_key->length = (size_t)snprintf(ret_key->text, sizeof ret_key->text, "%s:bloom%s%s",
	    filter->name, name[0] ? ":" : "", name);
}

static struct redis_word word_of_key(const struct slice_key *key)
{
	return (struct redis_word){key->text, key->length};
}

static void say_have_items(
    struct redis_filter *filter, const struct dedup_item *const *items, size_t count)
{
	struct redis_word words[2 + MOST_ADDED] = {redis_word("BF.MEXISTS")};
	for (size_t i = 0; i < count; i++)
		words[2 + i] = (struct redis_word){items[i]->id, items[i]->length};
	for (int slice = 0; slice < filter->looked_count; slice++) {
		words[1] = word_of_key(&filter->looked[slice]);
		redis_session_say(filter->server, words[1], words, 2 + count);
	}
}

static void see_have_items(struct redis_filter *filter, size_t number,
    const struct redis_answer *answer, int64_t *ret_until)
{
	int64_t until = until_of(filter, filter->next - (int64_t)number);
	for (size_t i = 0; i < answer->count; i++)
		if (redis_answer_item(answer, i).number == 1)
			keep_latest(&ret_until[i], until);
}

/*
 * A dated filter is made by its first ids: BF.MADD would make one for 100 ids. Its end is sent with
 * each batch, since nobody else sends it if this process is killed.
 */
static void say_add_items(struct redis_filter *filter, const struct dedup_item *items, size_t count)
{
	struct redis_word key = word_of_key(&filter->added);
	struct redis_word words[9 + MOST_ADDED] = {redis_word("BF.INSERT"), key,
	    redis_word("CAPACITY"), redis_word(filter->capacity), redis_word("ERROR"),
	    redis_word(filter->rate), redis_word("EXPANSION"), redis_word("2"),
	    redis_word("ITEMS")};
	size_t first = 9;

	if (!has_window(filter)) {
		words[0] = redis_word("BF.MADD");
		first = 2;
	}
	for (size_t i = 0; i < count; i++)
		words[first + i] = (struct redis_word){items[i].id, items[i].length};
	redis_session_say(filter->server, key, words, first + count);

	if (has_window(filter)) {
		char end[24];
		snprintf(end, sizeof end, "%" PRId64,
		    redis_slices_end_ms(&filter->slices, filter->adding));
		const struct redis_word expire[] = {redis_word("PEXPIREAT"), key, redis_word(end)};
		redis_session_say(filter->server, key, expire, 3);
	}
}

static void say_sweep_filter(struct redis_filter *filter, int64_t slice)
{
	struct slice_key key;
	name_filter(filter, slice, &key);
	const struct redis_word words[] = {redis_word("UNLINK"), word_of_key(&key)};
	redis_session_say(filter->server, words[1], words, 2);
}

static void store_filter_number(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	*(int64_t *)context = answer->number;
}

static bool explain_missing_module(const struct redis_filter *filter, struct err *err)
{
	if (strstr(err->message, "unknown command"))
		err_set(err, ERR_CONFIG,
		    "%s: form=bloom needs the module RedisBloom, which it has not: load that, or "
		    "choose form=key or form=bitmap",
		    filter->server->address.place);
	return false;
}

/* If another process creates the filter first, that one is used. */
static bool reserve_redis_filter(struct redis_filter *filter, struct err *err)
{
	int64_t exists = 0;
	struct redis_session *server = filter->server;
	owned_text char *key = xformat("%s:bloom", filter->name);
	const struct redis_word exists_words[] = {redis_word("EXISTS"), redis_word(key)};
	redis_session_say(server, redis_word(key), exists_words, 2);
	/* After a failure `exists` is still 0, so the result is false. */
	if (!redis_session_hear(server, store_filter_number, &exists, err) || exists)
		return exists;

	const struct redis_word words[] = {redis_word("BF.RESERVE"), redis_word(key),
	    redis_word(filter->rate), redis_word(filter->capacity), redis_word("EXPANSION"),
	    redis_word("2")};
	redis_session_say(server, redis_word(key), words, 6);
	if (redis_session_hear(server, store_filter_number, &exists, err))
		return true;

	/* An error of the server ends the session. */
	if (strstr(err->message, "item exists"))
		return redis_session_begin(server, err);
	return explain_missing_module(filter, err);
}

/* BF.MEXISTS answers "no" for a key of another type, which BF.CARD refuses. */
static bool check_dated_filters(struct redis_filter *filter, struct err *err)
{
	int64_t number;
	choose_looks(filter);
	for (int i = 0; i < filter->looked_count; i++) {
		const struct redis_word words[] = {
		    redis_word("BF.CARD"), word_of_key(&filter->looked[i])};
		redis_session_say(filter->server, words[1], words, 2);
	}
	return redis_session_hear(filter->server, store_filter_number, &number, err) ||
	       explain_missing_module(filter, err);
}

/* A window has one filter more than days, which share its rate. */
static bool prepare_filters(
    struct redis_filter *filter, const struct dedup_spec *spec, struct err *err)
{
	int64_t days = has_window(filter) ? filter->slices.count : 1;
	double share = bloom_plan((uint64_t)spec->ids, spec->rate, (int)days, BLOOM_PLACES).share;
	filter->capacity = xformat("%" PRId64, (spec->ids + days - 1) / days);
	filter->rate = xformat("%.9g", has_window(filter) ? share : spec->rate);
	return has_window(filter) ? check_dated_filters(filter, err)
				  : reserve_redis_filter(filter, err);
}

/* --- forms ---------------------------------------------------------------------------------- */

static const struct filter_form filter_forms[] = {
    {"bitmap", 8, name_bitmaps, say_get_bits, see_bit, say_set_bits, see_end_of_bitmap,
	say_sweep_bitmaps, NULL},
    {"bloom", 31, name_filter, say_have_items, see_have_items, say_add_items, NULL,
	say_sweep_filter, prepare_filters},
};

static const struct filter_form *filter_form_of(const struct dedup_spec *spec)
{
	const struct filter_form *form = filter_forms;
	while (!text_equal(form->name, spec->type->form))
		form++;
	return form;
}

static int64_t slice_ms_of(const struct dedup_spec *spec)
{
	return spec->windowed ? dedup_spec_slice_ms(spec) : 0;
}

/*
 * Two processes, each apart from the server by this, may disagree by less than a slice, and one of
 * them may have begun its call a timeout ago; another timeout is for the answer of the server's
 * clock.
 */
int64_t redis_filter_most_apart_ms(const struct dedup_spec *spec)
{
	int64_t most = slice_ms_of(spec) / 2 - spec->timeout_ms;
	if (!spec->windowed)
		return 0;
	return most < MOST_APART_MS ? most : MOST_APART_MS;
}

bool redis_filter_check_slices(const struct dedup_spec *spec, struct err *err)
{
	int64_t shortest = 2 * spec->timeout_ms + REST_MS;
	return !spec->windowed || slice_ms_of(spec) >= shortest ||
	       err_set(err, ERR_CONFIG,
		   "window=%" PRId64 "ms has slices of %" PRId64
		   " ms, which must be twice timeout and a second, %" PRId64
		   " ms: lengthen window, or lower slices or timeout",
		   spec->window_ms, slice_ms_of(spec), shortest);
}

bool redis_filter_check_days(struct dedup_spec *spec, struct err *err)
{
	int64_t days = spec->window_ms / DAY_MS;

	if (spec->sliced)
		return err_set(err, ERR_CONFIG,
		    "slices is refused with form=bloom, which has one filter for each day of "
		    "window: leave it out");
	if (!spec->windowed)
		return !spec->zone || err_set(err, ERR_CONFIG,
					  "zone is refused without window, since ids are "
					  "remembered forever: add window=30d, or leave zone out");
	if (spec->window_ms % DAY_MS || days < 1 || days > MOST_DAYS)
		return err_set(err, ERR_CONFIG,
		    "window=%" PRId64 "ms is refused with form=bloom: write whole days from 1d to "
		    "%dd, or choose form=bitmap or form=key",
		    spec->window_ms, MOST_DAYS);

	spec->slices = days;
	if (!spec->zone)
		spec->zone = xstrdup("UTC");
	struct time_zone *zone = time_zone_open(spec->zone, err);
	time_zone_destroy(zone);
	return zone;
}

/* --- life ----------------------------------------------------------------------------------- */

static void store_filter_text(void *context, size_t number, const struct redis_answer *answer)
{
	char **text = context;
	if (number == 1 && answer->kind == REDIS_TEXT)
		*text = xstrdup(answer->text);
}

static char *describe_window(const struct redis_filter *filter, const struct dedup_spec *spec)
{
	if (!has_window(filter))
		return xstrdup("");
	if (filter->slices.zone)
		return xformat(" window=%" PRId64 "d zone=%s", spec->slices, spec->zone);
	return xformat(" window=%" PRId64 "ms slices=%" PRId64, spec->window_ms, spec->slices);
}

/* With other settings the keys have other names: two processes would not see each other's ids. */
static bool check_settings_of_name(
    struct redis_filter *filter, const struct dedup_spec *spec, struct err *err)
{
	owned_text char *there = NULL;
	owned_text char *key = xformat("%s:filter", filter->name);
	owned_text char *window = describe_window(filter, spec);
	owned_text char *own = xformat("form=%s%s", filter->form->name, window);
	const struct redis_word set[] = {
	    redis_word("SET"), redis_word(key), redis_word(own), redis_word("NX")};
	const struct redis_word get[] = {redis_word("GET"), redis_word(key)};

	redis_session_say(filter->server, redis_word(key), set, 4);
	redis_session_say(filter->server, redis_word(key), get, 2);
	if (!redis_session_hear(filter->server, store_filter_text, &there, err))
		return false;
	if (!there)
		return err_set(err, ERR_RETRY, "%s: the key %s was removed while it was read",
		    filter->server->address.place, key);
	return text_equal(there, own) ||
	       err_set(err, ERR_CONFIG,
		   "%s: the name %s is in use there with %s, and this line has %s, which has "
		   "other keys: write the same settings, or choose another name",
		   filter->server->address.place, filter->name, there, own);
}

/*
 * A process that is killed between an addition and its PEXPIREAT leaves a key without an end, if
 * nobody adds to this slice after it. One slice is left out: by the server's clock it may still be
 * alive.
 */
static bool sweep_slices(struct redis_filter *filter, int64_t now, int most, struct err *err)
{
	int64_t number, last = now - filter->slices.count - 2;
	for (int i = 0; i < most; i++) {
		if (!redis_session_begin(filter->server, err))
			return false;
		filter->form->say_sweep(filter, last - i);
		if (!redis_session_hear(filter->server, store_filter_number, &number, err))
			return false;
	}
	return true;
}

/* A slice that begins has other keys. */
static bool enter_slice(struct redis_filter *filter, int64_t slice, int swept, struct err *err)
{
	if (!sweep_slices(filter, slice, swept, err))
		return false;
	filter->adding = slice;
	filter->form->name_slice(filter, slice, &filter->added);
	memset(filter->ending, 0, sizeof filter->ending);
	return true;
}

struct redis_filter *redis_filter_open(
    struct redis_session *server, const struct dedup_spec *spec, struct err *err)
{
	struct redis_filter *filter = xcalloc(1, sizeof *filter);
	filter->server = server;
	filter->form = filter_form_of(spec);
	filter->name = xstrdup(spec->name);
	filter->slices = (struct redis_slices){
	    .slice_ms = slice_ms_of(spec), .count = spec->windowed ? spec->slices : 0};
	int swept = has_window(filter) ? filter->form->swept : 0;
	bool by_day = has_window(filter) && spec->zone;
	filter->slices.zone = by_day ? time_zone_open(spec->zone, err) : NULL;

	if ((!by_day || filter->slices.zone) && check_settings_of_name(filter, spec, err) &&
	    (!filter->form->prepare || filter->form->prepare(filter, spec, err)) &&
	    enter_slice(filter, slice_of_now(filter), swept, err))
		return filter;
	redis_filter_close(filter);
	return NULL;
}

void redis_filter_close(struct redis_filter *filter)
{
	if (!filter)
		return;
	time_zone_destroy(filter->slices.zone);
	free(filter->capacity);
	free(filter->rate);
	free(filter->name);
	free(filter);
}

/* --- look, add ------------------------------------------------------------------------------ */

void redis_filter_say_looks(
    struct redis_filter *filter, const struct dedup_item *const *items, size_t count)
{
	choose_looks(filter);
	filter->form->say_looks(filter, items, count);
}

void redis_filter_see_look(struct redis_filter *filter, size_t number,
    const struct redis_answer *answer, int64_t *ret_until)
{
	filter->form->see_look(filter, number, answer, ret_until);
}

static void see_addition(void *context, size_t number, const struct redis_answer *answer)
{
	struct redis_filter *filter = context;
	if (filter->form->see_add)
		filter->form->see_add(filter, number, answer);
}

bool redis_filter_add(struct redis_filter *filter, const struct dedup_item *items, size_t count,
    int64_t *ret_until, struct err *err)
{
	int64_t slice = slice_of_now(filter);
	if (slice != filter->adding && !enter_slice(filter, slice, 1, err))
		return false;

	filter->added_count = count;
	filter->form->say_adds(filter, items, count);
	*ret_until = until_of(filter, slice);
	return redis_session_hear(filter->server, see_addition, filter, err);
}
