/*
 * Inspects key logs and their maps. A log is read as if the store were opened: its durable part
 * must be whole, and a torn tail behind that will be cut. If the map will be believed, each id of
 * the log is looked up in it.
 *
 * Read inspect_key_log first, then inspect_slice_log with judge_gap, then inspect_slice_map.
 */
#include "dedup_slice_inspect.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include "cleanup.h"
#include "filter_repair.h"
#include "hash_set.h"
#include "key_spans.h"
#include "text.h"

/* Ids of a log that are missing in its map. */
struct missing {
	uint64_t ids, count; /* compared ids, missing ids */
	int64_t byte;        /* where in the map the first one is missing */
};

struct slice {
	struct dedup_inspection *inspection;
	const struct state_file *map_file; /* NULL: there is none */
	struct key_view log;
	struct dedup_map_view map;
	struct missing from_filter, from_index;
	struct hash_set there; /* ids that are present; only for the store `exact` */
	bool exact;
};

static bool is_believed(const struct slice *slice)
{
	return slice->map.use == DEDUP_MAP_USED || slice->map.use == DEDUP_MAP_LOADED;
}

static bool check_start(struct slice *slice)
{
	struct dedup_inspection *inspection = slice->inspection;
	const struct state_folder_view *folder = inspection->folder;
	const struct state_file *file = inspection->part.file;
	const struct key_log_start *start = &slice->log.start;
	const char *why = key_log_start_fault(start);
	/* A file shorter than its head was being created: key_log_open begins it anew. */
	if (slice->log.units < KEY_FIRST_UNIT)
		return true;

	if (!why && !folder->fault && start->seed != folder->head.seed)
		why = "was written with another seed than the folder's";
	if (!why && (start->slice != file->number || start->sub != file->sub))
		why = "is of another slice than its name says";
	if (!why && !folder->fault && start->slice_ms != folder->head.slice_ms)
		why = "is of a window that is cut otherwise";

	if (why)
		dedup_inspection_report(
		    inspection, file->name, 0, false, "%s: the store is refused", why);
	return !why;
}

static void note_missing_byte(struct missing *missing, uint64_t byte)
{
	if (!missing->count++)
		missing->byte = (int64_t)byte;
}

static void compare_entry(struct slice *slice, const struct key_entry *entry, uint64_t unit)
{
	if (unit >= slice->map.known.units)
		return;
	slice->from_filter.ids++;
	if (!dedup_map_view_in_filter(&slice->map, entry->hash))
		note_missing_byte(
		    &slice->from_filter, dedup_map_view_line(&slice->map, entry->hash));
	if (!dedup_map_view_in_index(&slice->map, entry->hash, unit))
		note_missing_byte(
		    &slice->from_index, dedup_map_view_bucket(&slice->map, entry->hash));
}

static void count_entry(struct slice *slice, const struct key_entry *entry)
{
	struct dedup_part *part = &slice->inspection->part;
	if (slice->exact && entry->offset == KEY_SPANS_GONE) {
		part->ids -= hash_set_remove(&slice->there, entry->hash);
		part->released++;
		return;
	}
	part->ids += !slice->exact || hash_set_add(&slice->there, entry->hash);
	if (entry->time_ms < part->first_ms)
		part->first_ms = entry->time_ms;
	if (entry->time_ms > part->last_ms)
		part->last_ms = entry->time_ms;
}

static void see_batch(struct slice *slice, const struct key_view_batch *batch)
{
	bool compare = slice->inspection->compare && is_believed(slice);
	for (uint64_t i = 1; i <= batch->count; i++) {
		const union key_unit *at = key_view_at(&slice->log, batch->unit + i);
		if (!at)
			return;
		const struct key_entry entry = at->entry;
		count_entry(slice, &entry);
		if (compare)
			compare_entry(slice, &entry, batch->unit + i);
	}

	if (batch->offset > slice->inspection->part.offset)
		slice->inspection->part.offset = batch->offset;
}

/* The number of units of the log that must be whole. */
static uint64_t whole_units(const struct slice *slice)
{
	uint64_t known =
	    is_believed(slice) && !slice->inspection->live ? slice->map.known.units : 0;
	uint64_t durable = slice->log.start.durable;
	return known > durable ? known : durable;
}

/* Reports the units from `unit` up to `end`, which are not part of a whole batch. */
static void judge_gap(struct slice *slice, uint64_t unit, uint64_t end)
{
	struct dedup_inspection *inspection = slice->inspection;
	uint64_t bytes = slice->log.bytes - unit * KEY_UNIT;
	int64_t at = (int64_t)(unit * KEY_UNIT);
	const char *name = inspection->part.file->name;

	if (end == slice->log.units && end < whole_units(slice))
		dedup_inspection_report(inspection, name, (int64_t)slice->log.bytes, false,
		    "it is shorter than the %" PRIu64
		    " bytes that were written: ids are lost; use a new folder, and load them again",
		    whole_units(slice) * KEY_UNIT);
	else if (unit < whole_units(slice))
		dedup_inspection_report(inspection, name, at, false,
		    "%" PRIu64 " bytes are damaged, which were whole: ids are lost; use a new "
		    "folder, and load them again",
		    (end - unit) * KEY_UNIT);
	else if (bytes)
		dedup_inspection_report(inspection, name, at, true,
		    inspection->live ? "%" PRIu64 " bytes at the end are being written"
				     : "torn tail of %" PRIu64
				       " bytes: it was never said to be durable, and will be cut",
		    bytes);
}

/* Reads the log up to the torn tail. */
static void inspect_slice_log(struct slice *slice)
{
	struct key_view_batch batch;
	uint64_t unit = KEY_FIRST_UNIT;
	if (slice->log.units < KEY_FIRST_UNIT)
		return;

	while (key_view_next(&slice->log, unit, &batch)) {
		/* a whole batch behind a torn one is cut with it: key_log.h */
		if (batch.unit > unit && unit >= whole_units(slice))
			break;
		if (batch.unit > unit)
			judge_gap(slice, unit, batch.unit);
		see_batch(slice, &batch);
		unit = batch.unit + batch.count + 1;
	}
	judge_gap(slice, unit, slice->log.units);
}

static void judge_missing(struct slice *slice, const struct missing *missing, const char *what)
{
	if (missing->count)
		dedup_inspection_report(slice->inspection, slice->map_file->name, missing->byte,
		    false,
		    "the %s lacks %" PRIu64 " of the %" PRIu64
		    " ids of its log: end who has the folder open and remove this file, it is made "
		    "anew from the log",
		    what, missing->count, slice->from_filter.ids);
}

static bool was_being_made(const struct dedup_map_head *head)
{
	static const uint8_t none[DEDUP_MAP_BOOT];
	return memcmp(head->boot, none, DEDUP_MAP_BOOT) == 0;
}

static const char *why_rebuilt(const struct slice *slice)
{
	if (slice->map.bytes < DEDUP_MAP_HEAD)
		return "is shorter than its head";
	if (dedup_map_fault(&slice->map.head, slice->log.seed))
		return dedup_map_fault(&slice->map.head, slice->log.seed);
	if (!slice->map.filter.words)
		return "is shorter or longer than its head says";

	if (slice->map.wrong_sum)
		return "is not as it was when it was sealed";
	if (was_being_made(&slice->map.head))
		return "was being made when its process ended";
	if (!dedup_map_is_of_this_boot(&slice->map.head))
		return "is of another start of the machine, and was not sealed";
	return "does not fit its log";
}

static void inspect_slice_map(struct slice *slice)
{
	struct dedup_inspection *inspection = slice->inspection;
	bool rebuilt = slice->map.use == DEDUP_MAP_REBUILT;
	if (rebuilt && inspection->live)
		return; /* it is being made */

	if (!slice->map_file || !slice->map.bytes)
		dedup_inspection_report(inspection, inspection->part.file->name, DEDUP_WHOLE_FILE,
		    true, "it has no map: one will be made from it");
	else if (rebuilt)
		dedup_inspection_report(inspection, slice->map_file->name, DEDUP_WHOLE_FILE, true,
		    "%s: it will be made anew from the log", why_rebuilt(slice));
	else if (slice->map.use == DEDUP_MAP_REFUSED &&
		 slice->map.known.units > slice->log.start.durable)
		dedup_inspection_report(inspection, inspection->part.file->name,
		    (int64_t)slice->log.bytes, false,
		    "it is shorter than the %" PRIu64
		    " bytes that its map knows: ids are lost; use a new folder, and load them "
		    "again",
		    slice->map.known.units * KEY_UNIT);

	judge_missing(slice, &slice->from_filter, "filter");
	judge_missing(slice, &slice->from_index, "index");
}

/* Bits that no id explains cost looks at the log, and no id is taken for done by them. While a
 * process writes, the filter may have more ids than were counted here. */
static void measure_slice_filter(struct slice *slice)
{
	struct dedup_inspection *inspection = slice->inspection;
	if (!is_believed(slice))
		return;

	const struct filter_state state = filter_measure(&slice->map.filter, slice->map.known.ids);
	inspection->part.false_rate = state.rate;
	if (state.damaged && !inspection->live)
		dedup_inspection_report(inspection, slice->map_file->name, DEDUP_MAP_HEAD, true,
		    "the filter takes %.3g%% of new ids for its own, and its ids explain %.3g%%: "
		    "answers stay right, and cost more; the next alarm makes the filter anew",
		    state.rate * 100, state.explained * 100);
}

static void close_slice(struct slice *slice)
{
	key_view_close(&slice->log);
	dedup_map_view_close(&slice->map);
	hash_set_finish(&slice->there);
}

static bool inspect_key_log(struct dedup_inspection *inspection, bool exact, struct err *err)
{
	struct dedup_part *part = &inspection->part;
	const struct state_file *map_file = exact ? NULL : inspection->map;
	OWNED(close_slice)
	struct slice slice = {.inspection = inspection, .map_file = map_file, .exact = exact};
	int folder = inspection->folder->fd;

	if (!key_view_open(&slice.log, folder, part->file->name))
		return dedup_inspection_fail_unless_gone(part->file->name, err);
	/* A log without a head gets the folder's seed when it is opened. */
	if (slice.log.units < KEY_FIRST_UNIT)
		slice.log.seed = inspection->folder->head.seed;
	if (map_file &&
	    !dedup_map_view_open(&slice.map, folder, map_file->name, &slice.log, inspection->live))
		return dedup_inspection_fail_unless_gone(map_file->name, err);

	part->bytes = slice.log.bytes;
	part->map_bytes = slice.map.bytes;
	part->slice_ms = slice.log.start.slice_ms;
	part->has_map = !exact;
	part->use = slice.map.use;

	if (check_start(&slice)) {
		inspect_slice_log(&slice);
		if (!exact) {
			inspect_slice_map(&slice);
			measure_slice_filter(&slice);
		}
	}
	dedup_inspection_end_part(inspection);
	return true;
}

static bool inspect_lone_map(struct dedup_inspection *inspection, struct err *err)
{
	const char *name = inspection->part.file->name;
	owned_text char *log = xformat("%.*slog", (int)strlen(name) - 3, name);
	struct stat state;
	(void)err;
	if (fstatat(inspection->folder->fd, name, &state, 0) == 0 &&
	    fstatat(inspection->folder->fd, log, &state, 0) != 0 &&
	    !dedup_map_is_empty(inspection->folder->fd, name, inspection->folder->head.seed))
		dedup_inspection_report(inspection, name, DEDUP_WHOLE_FILE, false,
		    "it is there without its key log: ids are lost; use a new folder, and load "
		    "them again");
	return true;
}

bool dedup_inspect_slice(struct dedup_inspection *inspection, struct err *err)
{
	if (inspection->part.file->kind == STATE_FILE_MAP)
		return inspect_lone_map(inspection, err);
	return inspect_key_log(inspection, false, err);
}

/* Only the store `bloom` has sub-slices of logs. */
bool dedup_inspect_log(struct dedup_inspection *inspection, struct err *err)
{
	if (inspection->part.file->sub == 0)
		return inspect_key_log(inspection, true, err);
	dedup_inspection_report_foreign(inspection);
	return true;
}
