#include "dedup_inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "cleanup.h"
#include "counting_filter.h"
#include "file_list.h"
#include "hash_set.h"
#include "key_spans.h"
#include "mapped_file.h"
#include "sequence_file.h"
#include "text.h"

enum { WHOLE_FILE = -1 };

struct inspection {
	const struct dedup_inspector *to;
	struct state_folder_view *folder;
	bool compare, live;
	struct dedup_part part;
};

static void report_finding(struct inspection *inspection, const char *file, int64_t byte,
    bool harmless, const char *format, ...) __attribute__((format(printf, 5, 6)));

static void report_finding(struct inspection *inspection, const char *file, int64_t byte,
    bool harmless, const char *format, ...)
{
	char what[300];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	const struct dedup_finding finding = {file, byte, harmless, what};
	inspection->part.damaged |= !harmless;
	if (inspection->to->found)
		inspection->to->found(inspection->to->context, &finding);
}

/* A file that is gone was removed when its slice was over. */
static bool fail_unless_gone(const char *name, struct err *err)
{
	bool denied = errno == EACCES || errno == EPERM;
	return errno == ENOENT || err_set(err, denied ? ERR_DENIED : ERR_RETRY,
				      "%s cannot be read: %s", name, strerror(errno));
}

/* --- a key log and its map ------------------------------------------------------------------ */

/* Of the ids of a log, what its map has not. */
struct missing {
	uint64_t ids, count;
	int64_t byte; /* of the first */
};

struct slice {
	struct inspection *inspection;
	const struct state_file *map_file; /* NULL: there is none */
	struct key_view log;
	struct dedup_map_view map;
	struct missing from_filter, from_index;
	struct hash_set there; /* of exact */
	bool exact;
};

static bool is_believed(const struct slice *slice)
{
	return slice->map.use == DEDUP_MAP_USED || slice->map.use == DEDUP_MAP_LOADED;
}

static bool check_start(struct slice *slice)
{
	struct inspection *inspection = slice->inspection;
	const struct state_folder_view *folder = inspection->folder;
	const struct state_file *file = inspection->part.file;
	const struct key_log_start *start = &slice->log.start;
	const char *why = key_log_start_fault(start);
	if (slice->log.units < KEY_FIRST_UNIT)
		return true;
	if (!why && !folder->fault && start->seed != folder->head.seed)
		why = "was written with another seed than the folder's";
	if (!why && (start->slice != file->number || start->sub != file->sub))
		why = "is of another slice than its name says";
	if (!why && !folder->fault && start->slice_ms != folder->head.slice_ms)
		why = "is of a window that is cut otherwise";
	if (why)
		report_finding(inspection, file->name, 0, false, "%s: the store is refused", why);
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

/* So much of the log must be whole. */
static uint64_t whole_units(const struct slice *slice)
{
	uint64_t known =
	    is_believed(slice) && !slice->inspection->live ? slice->map.known.units : 0;
	uint64_t durable = slice->log.start.durable;
	return known > durable ? known : durable;
}

/* From this unit on up to `end` there is no whole batch. */
static void judge_gap(struct slice *slice, uint64_t unit, uint64_t end)
{
	struct inspection *inspection = slice->inspection;
	uint64_t bytes = slice->log.bytes - unit * KEY_UNIT;
	int64_t at = (int64_t)(unit * KEY_UNIT);
	const char *name = inspection->part.file->name;
	if (end == slice->log.units && end < whole_units(slice))
		report_finding(inspection, name, (int64_t)slice->log.bytes, false,
		    "it is shorter than the %" PRIu64
		    " bytes that were written: ids are lost; use a new folder, and load them again",
		    whole_units(slice) * KEY_UNIT);
	else if (unit < whole_units(slice))
		report_finding(inspection, name, at, false,
		    "%" PRIu64 " bytes are damaged, which were whole: ids are lost; use a new "
		    "folder, and load them again",
		    (end - unit) * KEY_UNIT);
	else if (bytes)
		report_finding(inspection, name, at, true,
		    inspection->live ? "%" PRIu64 " bytes at the end are being written"
				     : "torn tail of %" PRIu64
				       " bytes: it was never said to be durable, and will be cut",
		    bytes);
}

/* Up to what will be cut. */
static void inspect_slice_log(struct slice *slice)
{
	struct key_view_batch batch;
	uint64_t unit = KEY_FIRST_UNIT;
	if (slice->log.units < KEY_FIRST_UNIT)
		return;
	while (key_view_next(&slice->log, unit, &batch)) {
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
		report_finding(slice->inspection, slice->map_file->name, missing->byte, false,
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
	struct inspection *inspection = slice->inspection;
	bool rebuilt = slice->map.use == DEDUP_MAP_REBUILT;
	if (rebuilt && inspection->live)
		return; /* it is being made */
	if (!slice->map_file || !slice->map.bytes)
		report_finding(inspection, inspection->part.file->name, WHOLE_FILE, true,
		    "it has no map: one will be made from it");
	else if (rebuilt)
		report_finding(inspection, slice->map_file->name, WHOLE_FILE, true,
		    "%s: it will be made anew from the log", why_rebuilt(slice));
	else if (slice->map.use == DEDUP_MAP_REFUSED &&
		 slice->map.known.units > slice->log.start.durable)
		report_finding(inspection, inspection->part.file->name, (int64_t)slice->log.bytes,
		    false,
		    "it is shorter than the %" PRIu64
		    " bytes that its map knows: ids are lost; use a new folder, and load them "
		    "again",
		    slice->map.known.units * KEY_UNIT);
	judge_missing(slice, &slice->from_filter, "filter");
	judge_missing(slice, &slice->from_index, "index");
}

static void close_slice(struct slice *slice)
{
	key_view_close(&slice->log);
	dedup_map_view_close(&slice->map);
	hash_set_finish(&slice->there);
}

static bool inspect_slice(
    struct inspection *inspection, const struct state_file *map_file, bool exact, struct err *err)
{
	struct dedup_part *part = &inspection->part;
	OWNED(close_slice)
	struct slice slice = {.inspection = inspection, .map_file = map_file, .exact = exact};
	int folder = inspection->folder->fd;
	if (!key_view_open(&slice.log, folder, part->file->name))
		return fail_unless_gone(part->file->name, err);
	if (slice.log.units < KEY_FIRST_UNIT)
		slice.log.seed = inspection->folder->head.seed;
	if (map_file &&
	    !dedup_map_view_open(&slice.map, folder, map_file->name, &slice.log, inspection->live))
		return fail_unless_gone(map_file->name, err);
	part->bytes = slice.log.bytes;
	part->map_bytes = slice.map.bytes;
	part->slice_ms = slice.log.start.slice_ms;
	part->has_map = !exact;
	part->use = slice.map.use;
	if (check_start(&slice)) {
		inspect_slice_log(&slice);
		if (!exact)
			inspect_slice_map(&slice);
	}
	if (inspection->to->part)
		inspection->to->part(inspection->to->context, part);
	return true;
}

/* --- files that are memory ------------------------------------------------------------------ */

static uint64_t count_nibbles(uint64_t word)
{
	uint64_t pairs =
	    (word & UINT64_C(0x0f0f0f0f0f0f0f0f)) + (word >> 4 & UINT64_C(0x0f0f0f0f0f0f0f0f));
	return pairs * UINT64_C(0x0101010101010101) >> 56;
}

/* How many ids the body stands for; a counter that is full stands for nobody knows how many. */
static uint64_t count_body(FILE *file, bool counters, bool *ret_sure)
{
	uint64_t words[512], count = 0;
	size_t length;
	*ret_sure = true;
	while ((length = fread(words, sizeof *words, sizeof words / sizeof *words, file)) > 0)
		for (size_t i = 0; i < length; i++) {
			uint64_t full = words[i] & words[i] >> 1;
			count += counters ? count_nibbles(words[i])
					  : (uint64_t)__builtin_popcountll(words[i]);
			if (counters && (full & full >> 2 & UINT64_C(0x1111111111111111)))
				*ret_sure = false;
		}
	return counters ? count / BLOOM_BITS : count;
}

/* Between an id and its count a process may have been killed. */
static void inspect_mapped_body(
    struct inspection *inspection, FILE *file, uint64_t ids, bool counters)
{
	bool sure;
	uint64_t count = count_body(file, counters, &sure);
	if (sure && !inspection->live && count + 1 < ids)
		report_finding(inspection, inspection->part.file->name, MAPPED_HEAD, false,
		    "it counts %" PRIu64 " ids, and has %" PRIu64
		    " of them: damaged, or cut off by a loss of power before a checkpoint",
		    ids, count);
}

static bool check_mapped(
    struct inspection *inspection, const struct mapped_head *head, uint64_t bytes)
{
	const struct state_file *file = inspection->part.file;
	const char *why = mapped_head_fault(head, bytes);
	if (!why && !inspection->folder->fault && head->seed != inspection->folder->head.seed)
		why = "was written with another seed than the folder's";
	if (!why && head->number != file->number)
		why = "is of another slice than its name says";
	if (why)
		report_finding(inspection, file->name, 0, false, "%s: the store is refused", why);
	return !why;
}

static bool inspect_mapped(struct inspection *inspection, struct err *err)
{
	struct dedup_part *part = &inspection->part;
	struct mapped_head head = {0};
	struct stat state;
	int fd =
	    openat(inspection->folder->fd, part->file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	owned_file FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
	if (!file || fstat(fd, &state))
		return fail_unless_gone(part->file->name, err);
	part->bytes = (uint64_t)state.st_size;
	bool whole = fread(&head, sizeof head, 1, file) == 1 && part->bytes >= MAPPED_HEAD;
	if (mapped_file_is_blank(fd, part->bytes))
		report_finding(inspection, part->file->name, WHOLE_FILE, true,
		    inspection->live ? "it is being made"
				     : "it was being made: it will be made anew");
	else if (check_mapped(inspection, &head, whole ? part->bytes - MAPPED_HEAD : 0)) {
		part->ids = head.count;
		part->offset = head.offset;
		fseek(file, MAPPED_HEAD, SEEK_SET);
		if (inspection->compare && part->file->kind != STATE_FILE_OFFSET)
			inspect_mapped_body(
			    inspection, file, head.count, part->file->kind == STATE_FILE_COUNTS);
	}
	if (part->file->kind == STATE_FILE_COUNTS && !inspection->folder->fault)
		part->slice_ms = inspection->folder->head.slice_ms;
	if (inspection->to->part)
		inspection->to->part(inspection->to->context, part);
	return true;
}

/* --- positions ------------------------------------------------------------------------------ */

static bool inspect_positions(struct inspection *inspection, struct err *err)
{
	struct dedup_part *part = &inspection->part;
	struct stat state;
	owned_text char *marks = sequence_file_read(inspection->folder->fd, &part->offset);
	if (!marks && errno != EBADMSG)
		return fail_unless_gone(part->file->name, err);
	if (!marks)
		report_finding(inspection, part->file->name, WHOLE_FILE, false,
		    "it is not as it was written: the store is refused; remove it, and what came "
		    "since the offset that is committed may come twice");
	if (fstatat(inspection->folder->fd, part->file->name, &state, 0) == 0)
		part->bytes = (uint64_t)state.st_size;
	if (inspection->to->part)
		inspection->to->part(inspection->to->context, part);
	return true;
}

/* --- the folder ----------------------------------------------------------------------------- */

/* Has the folder's store files of this kind? Of a folder without a head anybody may have been. */
static bool is_of_store(const struct state_folder_view *folder, const struct state_file *file)
{
	static const struct {
		const char *store;
		int kinds;
	} rows[] = {{"bloom", 1 << STATE_FILE_LOG | 1 << STATE_FILE_MAP},
	    {"exact", 1 << STATE_FILE_LOG}, {"counting", 1 << STATE_FILE_COUNTS},
	    {"bitmap", 1 << STATE_FILE_BITS | 1 << STATE_FILE_OFFSET},
	    {"sequence", 1 << STATE_FILE_POSITIONS},
	    {"bithash", 1 << STATE_FILE_BITS | 1 << STATE_FILE_OFFSET}};
	bool exact_sub = text_equal(folder->store, "exact") && file->sub != 0;
	for (size_t i = 0; !folder->fault && i < sizeof rows / sizeof *rows; i++)
		if (text_equal(rows[i].store, folder->store))
			return rows[i].kinds >> file->kind & 1 && !exact_sub;
	return file->kind != STATE_FILE_OTHER;
}

static bool has_ids(const struct state_folder_view *folder, const struct state_file *file)
{
	struct stat state;
	return file->kind == STATE_FILE_COUNTS ||
	       (file->kind == STATE_FILE_LOG && fstatat(folder->fd, file->name, &state, 0) == 0 &&
		   state.st_size > KEY_LOG_HEAD);
}

/* Files that were there at a checkpoint. While the folder is in use, slices end. */
static void inspect_list(struct inspection *inspection)
{
	const struct state_folder_view *folder = inspection->folder;
	struct file_list listed, there = {0};
	struct err why;
	int64_t newest = INT64_MIN;
	for (size_t i = 0; i < folder->count; i++) {
		const struct state_file *file = &folder->files[i];
		if (has_ids(folder, file) && there.count < FILE_LIST_MOST)
			file_list_add(&there, file->number, file->sub);
		if (file->kind == STATE_FILE_LOG && file->number > newest)
			newest = file->number;
	}
	if (!file_list_read(folder->fd, folder->head.seed, &listed, &why)) {
		report_finding(inspection, "files", 0, false, "%s", why.message);
		return;
	}
	const struct file_name *missing =
	    file_list_missing(&listed, &there, newest, (int)folder->head.slices);
	if (missing && !inspection->live)
		report_finding(inspection, "files", WHOLE_FILE, false,
		    "of slice %" PRId64 ", sub-slice %" PRId64
		    " it knows a file that is missing, or empty: ids are lost; use a new folder, "
		    "and load them again",
		    missing->number, missing->sub);
}

static bool is_map_of(const struct state_file *map, const struct state_file *log)
{
	return map->kind == STATE_FILE_MAP && map->number == log->number && map->sub == log->sub;
}

static bool inspect_lone_map(struct inspection *inspection, struct err *err)
{
	const char *name = inspection->part.file->name;
	owned_text char *log = xformat("%.*slog", (int)strlen(name) - 3, name);
	struct stat state;
	(void)err;
	if (fstatat(inspection->folder->fd, name, &state, 0) == 0 &&
	    fstatat(inspection->folder->fd, log, &state, 0) != 0 &&
	    !dedup_map_is_empty(inspection->folder->fd, name, inspection->folder->head.seed))
		report_finding(inspection, name, WHOLE_FILE, false,
		    "it is there without its key log: ids are lost; use a new folder, and load "
		    "them again");
	return true;
}

/* Takes the file at *at, and the map of a log with it. */
static bool inspect_file(struct inspection *inspection, size_t *at, struct err *err)
{
	const struct state_folder_view *folder = inspection->folder;
	const struct state_file *file = &folder->files[*at], *map = NULL;
	inspection->part = (struct dedup_part){
	    .file = file, .offset = -1, .first_ms = INT64_MAX, .last_ms = INT64_MIN};
	if (!is_of_store(folder, file)) {
		report_finding(inspection, file->name, WHOLE_FILE, true,
		    "it is no file of this store, and is left alone");
		return true;
	}
	if (file->kind == STATE_FILE_MAP)
		return inspect_lone_map(inspection, err);
	if (file->kind == STATE_FILE_POSITIONS)
		return inspect_positions(inspection, err);
	if (file->kind != STATE_FILE_LOG)
		return inspect_mapped(inspection, err);
	if (*at + 1 < folder->count && is_map_of(&folder->files[*at + 1], file))
		map = &folder->files[++*at];
	return inspect_slice(inspection, map, text_equal(folder->store, "exact"), err);
}

bool dedup_inspect(
    const char *path, bool compare, const struct dedup_inspector *inspector, struct err *err)
{
	OWNED(state_folder_view_close) struct state_folder_view folder;
	struct inspection inspection = {.to = inspector, .folder = &folder, .compare = compare};
	bool good = state_folder_view_open(&folder, path, err);
	inspection.live = folder.holder != 0;
	if (!good)
		return false;
	if (inspector->folder)
		inspector->folder(inspector->context, &folder);
	if (folder.fault)
		report_finding(&inspection, "window", 0, false,
		    "%s: use a new folder, and load the ids again", folder.fault);
	if (!folder.fault)
		inspect_list(&inspection);
	for (size_t i = 0; good && i < folder.count; i++)
		good = inspect_file(&inspection, &i, err) || err_prefix(err, "path=%s", path);
	return good;
}
