/*
 * The windowed filter (dedup_window.h). The key log confirms its hits, or a query of the business
 * (dedup_confirm.h). Read look_by_log and look_by_query first.
 */
#include <stdlib.h>
#include "bloom_filter.h"
#include "bloom_size.h"
#include "clock.h"
#include "dedup_confirm.h"
#include "dedup_slice_inspect.h"
#include "dedup_store.h"
#include "dedup_window.h"
#include "text.h"

enum { AHEAD = 12 };

struct bloom_store {
	struct dedup_store store;
	struct dedup_window *window;
	struct dedup_confirmer *confirm; /* NULL: the log confirms */
	/* buffers of look_by_query: for each hit its index, its filters, and whether it exists */
	size_t *places, capacity;
	uint64_t *found;
	bool *there;
};

static struct bloom_store *bloom_of(struct dedup_store *store)
{
	return (struct bloom_store *)store;
}

static void close_bloom_store(struct dedup_store *store)
{
	struct bloom_store *bloom = bloom_of(store);
	dedup_window_close(bloom->window);
	dedup_confirm_close(bloom->confirm);
	free(bloom->places);
	free(bloom->found);
	free(bloom->there);
	free(bloom);
}

static bool check_bloom(struct dedup_spec *spec, struct err *err)
{
	struct bloom_plan plan =
	    bloom_plan((uint64_t)spec->ids, spec->rate, (int)spec->slices, BLOOM_PLACES);
	if (spec->alarm < 0)
		spec->alarm = spec->rate * 2;
	if (spec->hot == 0)
		spec->hot = DEDUP_HOT;
	return dedup_confirm_check(spec, err) &&
	       dedup_spec_check_memory(spec, plan.filter_bytes, true, err);
}

static struct dedup_store *open_bloom_store(const struct dedup_spec *spec, struct err *err)
{
	bool sql = spec->confirm_sql;
	struct dedup_window_settings settings = dedup_spec_window(spec);
	struct bloom_store *bloom = xcalloc(1, sizeof *bloom);
	bloom->store.type = spec->type;
	/* The query is tried first, so that a wrong one creates no folder. */
	bloom->confirm = sql ? dedup_confirm_open(spec, err) : NULL;
	bloom->window = bloom->confirm || !sql ? dedup_window_open(&settings, err) : NULL;

	if (!bloom->window) {
		close_bloom_store(&bloom->store);
		return NULL;
	}
	bloom->store.seed = dedup_window_seed(bloom->window);
	return &bloom->store;
}

static void prefetch_window(
    struct dedup_window *window, const struct dedup_item *items, size_t count, size_t place)
{
	for (size_t i = place ? place + AHEAD : 0; i <= place + AHEAD && i < count; i++)
		dedup_window_prefetch(window, items[i].hash);
}

static enum outbox_dedup_state state_from_done(bool done)
{
	return done ? OUTBOX_DEDUP_DONE : OUTBOX_DEDUP_NEW;
}

static bool look_by_log(struct dedup_window *window, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	for (size_t i = 0; i < count; i++) {
		bool there;
		prefetch_window(window, items, count, i);
		if (!dedup_window_has(window, items[i].hash, &there, err))
			return false;
		ret_states[i] = state_from_done(there);
	}
	return true;
}

static void reserve_bloom_places(struct bloom_store *bloom, size_t count)
{
	if (count <= bloom->capacity)
		return;
	bloom->capacity = count;
	bloom->places = xrealloc(bloom->places, count * sizeof *bloom->places);
	bloom->found = xrealloc(bloom->found, count * sizeof *bloom->found);
	bloom->there = xrealloc(bloom->there, count * sizeof *bloom->there);
}

/* Decides all items except the hits, which go to bloom->places for the query. */
static bool look_by_filter(struct bloom_store *bloom, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, size_t *ret_hits, struct err *err)
{
	size_t hits = 0;
	reserve_bloom_places(bloom, count);
	for (size_t i = 0; i < count; i++) {
		struct fingerprint hash = items[i].hash;
		prefetch_window(bloom->window, items, count, i);

		ret_states[i] = state_from_done(dedup_window_is_hot(bloom->window, hash));
		if (ret_states[i] == OUTBOX_DEDUP_DONE)
			continue;

		if (!dedup_window_may_have(bloom->window, hash, &bloom->found[hits], err))
			return false;
		if (bloom->found[hits])
			bloom->places[hits++] = i;
		else
			dedup_window_judge(bloom->window, hash, 0, false); /* for the rate */
	}

	*ret_hits = hits;
	return true;
}

/*
 * The business commits before an id is done, so that the query sees each id of the filter. An id
 * that the query cannot be run for is refused at once, and not only when it comes again as a hit.
 */
static bool look_by_query(struct bloom_store *bloom, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	for (size_t i = 0; i < count; i++)
		if (!dedup_confirm_takes(bloom->confirm, &items[i], err))
			return false;

	size_t hits = 0;
	if (!look_by_filter(bloom, items, count, ret_states, &hits, err))
		return false;
	if (hits &&
	    !dedup_confirm_ask(bloom->confirm, items, bloom->places, hits, bloom->there, err))
		return false;

	for (size_t i = 0; i < hits; i++) {
		size_t place = bloom->places[i];
		dedup_window_judge(
		    bloom->window, items[place].hash, bloom->found[i], bloom->there[i]);
		ret_states[place] = state_from_done(bloom->there[i]);
	}
	return true;
}

static bool look_up_bloom(struct dedup_store *store, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	if (bloom_of(store)->confirm)
		return look_by_query(bloom_of(store), items, count, ret_states, err);
	return look_by_log(bloom_of(store)->window, items, count, ret_states, err);
}

/* If one id fails, the next call adds the ids before it once more: a log may have an id twice. */
static bool add_to_bloom(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	int64_t now_ms = clock_wall_us() / 1000;
	for (size_t i = 0; i < count; i++)
		dedup_window_prefetch(bloom_of(store)->window, items[i].hash);
	for (size_t i = 0; i < count; i++)
		if (!dedup_window_add(bloom_of(store)->window, items[i].hash, items[i].offset,
			items[i].time_ms, now_ms, err))
			return false;
	return true;
}

static bool checkpoint_bloom(struct dedup_store *store, int64_t offset, struct err *err)
{
	return dedup_window_checkpoint(bloom_of(store)->window, offset, err);
}

static bool flush_bloom(struct dedup_store *store, struct err *err)
{
	return dedup_window_flush(bloom_of(store)->window, err);
}

static void read_bloom_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct bloom_store *bloom = (const struct bloom_store *)store;
	struct dedup_window_figures figures;
	dedup_window_figures(bloom->window, &figures);

	stats->ids = figures.ids;
	stats->memory_bytes = figures.memory_bytes;
	stats->disk_bytes = figures.bytes;
	stats->slices = figures.slices;
	stats->sub_slices = figures.sub_slices;
	stats->newest_ms = figures.newest_ms == INT64_MIN ? -1 : figures.newest_ms;
	stats->offset = figures.offset;
	stats->filter_hits = figures.hits;
	stats->false_hits = figures.false_hits;
	stats->rebuilt = figures.rebuilt;
	stats->planned_rate = figures.planned_rate;
	stats->observed_rate = figures.observed_rate;
	stats->alarm = figures.alarm;
	stats->repairing = figures.repairing;
	stats->alarms = figures.alarms;
	stats->alarm_rate = figures.alarm_rate;
	stats->repairs = figures.repairs;
}

const struct dedup_store_type bloom_store = {
    .spec = {"bloom", dedup_settings,
	DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(RATE) | DEDUP_TAKES(ALARM) |
	    DEDUP_TAKES(WINDOW) | DEDUP_TAKES(SLICES) | DEDUP_TAKES(HOT) | DEDUP_TAKES(PATH) |
	    DEDUP_TAKES(CONFIRM) | DEDUP_TAKES(QUERY) | DEDUP_TAKES(DSN) | DEDUP_TAKES(TIMEOUT),
	DEDUP_TAKES(IDS)},
    .local = true,
    .check = check_bloom,
    .folder = "bloom",
    .files = 1 << STATE_FILE_LOG | 1 << STATE_FILE_MAP,
    .inspect = dedup_inspect_slice,
    .promise = {.store = "bloom",
	.false_positives = "none: the key log, or a query, confirms each hit of the filter",
	.false_negatives = "none, for at least the window behind the newest record",
	.restart = "remembers ids that a checkpoint made durable; after kill -9 also ids that "
		   "were written",
	.scope = "copies that one process sees with one folder: on the same machine and in the "
		 "same partition, while the number of partitions stays the same",
	.memory =
	    "the filter: 18 bits an id at 1 %, 27 at 0.1 %; a hit reads the index; 70 bytes for "
	    "each id that is not written yet",
	.disk = "32 bytes an id in the log, 8 in the index, and the filter"},
    .open = open_bloom_store,
    .close = close_bloom_store,
    .look = look_up_bloom,
    .add = add_to_bloom,
    .flush = flush_bloom,
    .checkpoint = checkpoint_bloom,
    .stats = read_bloom_stats,
};
