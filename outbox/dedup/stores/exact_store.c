/*
 * Remembers ids exactly, in memory. With a path the ids are also in key logs, from which they are
 * read after a restart.
 */
#include <inttypes.h>
#include <stdlib.h>
#include "clock.h"
#include "dedup_slice_inspect.h"
#include "dedup_store.h"
#include "key_spans.h"
#include "text.h"
#include "wheel_table.h"

enum { AHEAD = 12, SPANS = 8 };

struct exact_store {
	struct dedup_store store;
	struct wheel_table table;
	struct state_folder folder;
	struct key_spans *spans; /* NULL: in memory only */
	int64_t newest_ms, offset;
};

static struct exact_store *exact_of(struct dedup_store *store)
{
	return (struct exact_store *)store;
}

static void close_exact_store(struct dedup_store *store)
{
	struct exact_store *exact = exact_of(store);
	wheel_table_finish(&exact->table);
	if (exact->spans)
		key_spans_close(exact->spans);
	state_folder_close(&exact->folder);
	free(exact);
}

static void remember_entry(struct exact_store *exact, const struct key_entry *entry)
{
	wheel_table_add(&exact->table, entry->hash, entry->time_ms);
	if (entry->time_ms > exact->newest_ms)
		exact->newest_ms = entry->time_ms;
}

static void restore_entry(void *context, const struct key_entry *entry)
{
	remember_entry(context, entry);
}

static bool open_spans(struct exact_store *exact, const struct dedup_spec *spec, struct err *err)
{
	int64_t span_ms = (spec->window_ms + SPANS - 1) / SPANS;
	if (!spec->path)
		return true;
	if (!state_folder_open(&exact->folder, spec->path, "exact", SPANS, span_ms, 0, err))
		return false;
	exact->store.seed = exact->folder.head.seed;
	exact->spans =
	    key_spans_open(&exact->folder, (uint64_t)spec->ids, restore_entry, exact, err);
	if (exact->spans)
		exact->offset = key_spans_offset(exact->spans);
	return exact->spans;
}

static bool check_exact(struct dedup_spec *spec, struct err *err)
{
	uint64_t id_bytes = sizeof(struct wheel_entry) + sizeof(uint32_t);
	if (spec->ids > WHEEL_MOST)
		return err_set(err, ERR_CONFIG,
		    "ids=%" PRId64
		    " is more than the %u that 'exact' has places for: lower ids, or choose bloom",
		    spec->ids, WHEEL_MOST);
	return dedup_spec_check_memory(spec, (uint64_t)spec->ids * id_bytes, false, err);
}

static struct dedup_store *open_exact_store(const struct dedup_spec *spec, struct err *err)
{
	struct exact_store *exact = xcalloc(1, sizeof *exact);
	exact->store = (struct dedup_store){spec->type, (uint64_t)clock_random()};
	exact->folder = (struct state_folder){.fd = -1, .lock = -1};
	exact->newest_ms = exact->offset = -1;
	wheel_table_init(&exact->table, (uint64_t)spec->ids, spec->window_ms);
	if (open_spans(exact, spec, err))
		return &exact->store;
	close_exact_store(&exact->store);
	return NULL;
}

static bool look_up_exact(struct dedup_store *store, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	const struct wheel_table *table = &exact_of(store)->table;
	(void)err;
	for (size_t i = 0; i < count && i < AHEAD; i++)
		wheel_table_prefetch(table, items[i].hash);
	for (size_t i = 0; i < count; i++) {
		if (i + AHEAD < count)
			wheel_table_prefetch(table, items[i + AHEAD].hash);
		ret_states[i] =
		    wheel_table_has(table, items[i].hash) ? OUTBOX_DEDUP_DONE : OUTBOX_DEDUP_NEW;
	}
	return true;
}

/* If one id fails, the next call adds the ids before it once more: a log may have an id twice. */
static bool add_exact_ids(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct exact_store *exact = exact_of(store);
	for (size_t i = 0; i < count; i++) {
		const struct key_entry entry = {items[i].hash, items[i].offset, items[i].time_ms};
		if (exact->spans && !key_spans_add(exact->spans, &entry, err))
			return false;
		remember_entry(exact, &entry);
	}
	return true;
}

static bool remove_exact_ids(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct exact_store *exact = exact_of(store);
	(void)err;
	for (size_t i = 0; i < count; i++)
		if (wheel_table_remove(&exact->table, items[i].hash) && exact->spans)
			key_spans_release(exact->spans, items[i].hash, clock_wall_us() / 1000);
	return true;
}

static bool checkpoint_exact(struct dedup_store *store, int64_t offset, struct err *err)
{
	struct exact_store *exact = exact_of(store);
	if (exact->spans && !key_spans_checkpoint(exact->spans, offset, err))
		return false;
	if (exact->spans && offset > exact->offset)
		exact->offset = offset;
	return true;
}

static bool flush_exact(struct dedup_store *store, struct err *err)
{
	struct exact_store *exact = exact_of(store);
	return !exact->spans || key_spans_flush(exact->spans, err);
}

static void read_exact_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct exact_store *exact = (const struct exact_store *)store;
	stats->ids = exact->table.count;
	stats->memory_bytes = wheel_table_bytes(&exact->table);
	stats->disk_bytes = exact->spans ? key_spans_bytes(exact->spans) : 0;
	stats->newest_ms = exact->newest_ms;
	stats->offset = exact->offset;
}

const struct dedup_store_type exact_store = {
    .spec = {"exact", dedup_settings,
	DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(WINDOW) | DEDUP_TAKES(PATH),
	DEDUP_TAKES(IDS)},
    .local = true,
    .in_memory = true,
    .check = check_exact,
    .folder = "exact",
    .files = 1 << STATE_FILE_LOG,
    .inspect = dedup_inspect_log,
    .promise = {.store = "exact",
	.releases = true,
	.false_positives = "none",
	.false_negatives = "none, for at least the window behind the newest record",
	.restart = "with a path it remembers ids that a checkpoint made durable; without one it "
		   "forgets all ids",
	.scope = "copies that one process sees with one folder: on the same machine and in the "
		 "same partition, while the number of partitions stays the same",
	.memory = "24 bytes an id, and 4 to 8 for each planned id",
	.disk = "32 bytes an id, and 32 for each span when it is released; no disk without a path"},
    .open = open_exact_store,
    .close = close_exact_store,
    .look = look_up_exact,
    .add = add_exact_ids,
    .remove = remove_exact_ids,
    .flush = flush_exact,
    .checkpoint = checkpoint_exact,
    .stats = read_exact_stats,
};
