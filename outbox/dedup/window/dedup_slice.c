/*
 * A slice's two files. When they are opened, use_map decides whether the map is believed, and
 * read_slice_log brings into the map what the log has behind it: the map's `known` says up to which
 * unit. A write does the same with the units that it has added. Whenever the map proves to be
 * damaged, rebuild_slice_map makes it anew from the log.
 *
 * Read open_slice_files first, then judge_slice_map, then see_entry and fill_one, then
 * dedup_slice_has and dedup_slice_write.
 */
#include "dedup_slice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "disk_error.h"
#include "dedup_map.h"
#include "fault.h"
#include "text.h"

enum { NAME = 64, AHEAD = 16 };

static struct dedup_map_head *slice_map_head(const struct dedup_slice *slice)
{
	return slice->map;
}

static void name_slice_file(const struct dedup_slice_plan *plan, const char *end, char name[NAME])
{
	snprintf(name, NAME, "%lld.%d.%s", (long long)plan->head.slice, plan->head.sub, end);
}

/* --- the map -------------------------------------------------------------------------------- */

static uint64_t seed_of(const struct dedup_slice *slice)
{
	return slice->plan.head.seed;
}

static void lay_out_map(struct dedup_slice *slice, void *map)
{
	char *filter = (char *)map + DEDUP_MAP_HEAD;
	slice->map = map;
	slice->filter.words = (void *)filter;
	slice->index.buckets = (void *)(filter + slice->filter.lines * BLOOM_LINE);
}

/* A file of another size is of another plan, or was being created: it is emptied. */
static bool open_map(struct dedup_slice *slice, const char *name, int folder, struct err *err)
{
	struct stat state;
	slice->map_fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (slice->map_fd < 0 || fstat(slice->map_fd, &state))
		return disk_error_fail(name, "opened", err);

	/* all room is taken now: a page that finds none on the disk later would be a SIGBUS */
	if ((uint64_t)state.st_size != slice->map_bytes &&
	    (ftruncate(slice->map_fd, 0) ||
		(errno = posix_fallocate(slice->map_fd, 0, (off_t)slice->map_bytes))))
		return disk_error_fail(name, "made", err);

	void *map =
	    mmap(NULL, slice->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slice->map_fd, 0);
	if (map == MAP_FAILED)
		return disk_error_fail(name, "mapped", err);
	lay_out_map(slice, map);
	return true;
}

static bool is_of_plan(const struct dedup_slice *slice)
{
	const struct dedup_map_head *head = slice_map_head(slice);
	return !dedup_map_fault(head, seed_of(slice)) && head->lines == slice->filter.lines &&
	       head->buckets == slice->index.count;
}

/* A sealed map of an earlier start of the machine is proved at once; one of this start piece by
 * piece, as it is read. */
static enum dedup_slice_origin judge_slice_map(struct dedup_slice *slice)
{
	const struct dedup_map_head *head = slice_map_head(slice);
	bool same_boot = dedup_map_is_of_this_boot(head);
	slice->pieces = dedup_map_pieces(slice->map, seed_of(slice));
	if (head->sealed == 0)
		return same_boot ? SLICE_MAPPED : SLICE_REBUILT;
	if (head->sealed != 1 || head->checksum != dedup_map_sum(head, &slice->pieces))
		return SLICE_REBUILT;
	map_pieces_begin(&slice->pieces);
	if (same_boot)
		return SLICE_MAPPED;
	return map_pieces_prove_all(&slice->pieces) ? SLICE_SEALED : SLICE_REBUILT;
}

static enum dedup_slice_origin judge_files(struct dedup_slice *slice)
{
	if (is_of_plan(slice))
		return judge_slice_map(slice);
	return key_log_written(slice->log) == KEY_FIRST_UNIT ? SLICE_NEW : SLICE_REBUILT;
}

static void note_slice_known(struct dedup_slice *slice, struct dedup_map_known known)
{
	slice->known = known;
	dedup_map_note(slice_map_head(slice), known, seed_of(slice));
}

/* Begins a map, of zeroes. It has no boot id yet, so that a map that was filled only in part is
 * made again. */
static void begin_map(struct dedup_slice *slice)
{
	struct dedup_map_head *head = slice_map_head(slice);
	map_pieces_finish(&slice->pieces);
	head->version = DEDUP_MAP_VERSION;
	head->lines = slice->filter.lines;
	head->buckets = slice->index.count;
	memcpy(head->magic, DEDUP_MAP_MAGIC, sizeof head->magic);
	slice->pieces = dedup_map_pieces(slice->map, seed_of(slice));
	note_slice_known(slice, (struct dedup_map_known){.units = KEY_FIRST_UNIT, .offset = -1});
}

/* Empties the map without touching each page. Nothing may read the map meanwhile. */
static bool make_map(struct dedup_slice *slice, const char *name, struct err *err)
{
	if (ftruncate(slice->map_fd, 0) ||
	    (errno = posix_fallocate(slice->map_fd, 0, (off_t)slice->map_bytes)))
		return disk_error_fail(name, "made", err);
	begin_map(slice);
	return true;
}

static void wipe_map_magic(struct dedup_slice *slice)
{
	memset(slice_map_head(slice)->magic, 0, sizeof slice_map_head(slice)->magic);
}

static void stamp_map_boot(struct dedup_slice *slice)
{
	struct dedup_map_head *head = slice_map_head(slice);
	if (!dedup_map_boot(head->boot))
		memset(head->boot, 0, sizeof head->boot);
}

/* A log is never shorter than its map knows: units that a killed process wrote remain while the
 * machine runs, and the units that a sealed map knows were durable before. */
static bool check_log(const struct dedup_slice *slice, const char *name, struct err *err)
{
	return slice->known.units <= key_log_written(slice->log) ||
	       err_set(err, ERR_CONFIG,
		   "%s: its key log is shorter than it was: ids are lost; use a new folder, and "
		   "load them again",
		   name);
}

/* --- from the log into the map -------------------------------------------------------------- */

/* Entries on their way into the map. They wait in a ring while the memory brings their lines and
 * buckets. */
struct filling {
	struct dedup_slice *slice;
	const struct bloom_code *code;
	struct {
		struct fingerprint hash;
		uint32_t unit;
	} ring[AHEAD];
	uint64_t seen, done;
	bool again; /* a killed process may have put some of them into the map */
	bool wrong; /* a piece of the map has changed since its seal, or an id had no room */
};

/* Proves the buckets that a look reads: up to the first one with room. */
static bool prove_buckets(struct dedup_slice *slice, struct fingerprint hash)
{
	uint64_t first = key_index_bucket(&slice->index, hash);
	for (uint64_t i = 0; slice->pieces.left && i < slice->index.count; i++) {
		const struct key_bucket *bucket =
		    &slice->index.buckets[(first + i) % slice->index.count];
		if (!map_pieces_prove(&slice->pieces, bucket))
			return false;
		if (bucket->count < KEY_BUCKET_UNITS)
			break;
	}
	return true;
}

static bool prove_line(struct dedup_slice *slice, struct fingerprint hash)
{
	return map_pieces_prove(&slice->pieces, bloom_line(&slice->filter, hash));
}

static bool is_wanted_unit(void *context, uint32_t unit)
{
	return unit == *(const uint32_t *)context;
}

static void fill_one(struct filling *filling)
{
	struct dedup_slice *slice = filling->slice;
	int place = (int)(filling->done++ % AHEAD);
	struct fingerprint hash = filling->ring[place].hash;
	uint32_t unit = filling->ring[place].unit;
	if (filling->wrong || !prove_line(slice, hash) || !prove_buckets(slice, hash)) {
		filling->wrong = true;
		return;
	}

	filling->code->add(&slice->filter, hash);
	if (filling->again && key_index_find(&slice->index, hash, is_wanted_unit, &unit))
		return;
	/* the index has room for half as many ids again as planned: only a damaged one is full */
	if (!key_index_add(&slice->index, hash, unit))
		filling->wrong = true;
}

static void see_entry(void *context, uint64_t unit, const struct key_entry *entry)
{
	struct filling *filling = context;
	if (filling->seen - filling->done == AHEAD)
		fill_one(filling);
	int place = (int)(filling->seen++ % AHEAD);
	filling->ring[place].hash = entry->hash;
	filling->ring[place].unit = (uint32_t)unit;
	__builtin_prefetch(bloom_line(&filling->slice->filter, entry->hash), 1);
	key_index_prefetch(&filling->slice->index, entry->hash);
}

/* Afterwards the map has everything that is written. */
static void end_filling(struct filling *filling)
{
	struct dedup_slice *slice = filling->slice;
	while (filling->done < filling->seen)
		fill_one(filling);
	if (!filling->wrong)
		note_slice_known(
		    slice, (struct dedup_map_known){.units = key_log_written(slice->log),
			       .ids = slice->known.ids + filling->seen,
			       .offset = key_log_offset(slice->log)});
}

static bool fail_full(const struct dedup_slice *slice, struct err *err)
{
	return err_set(err, ERR_FATAL,
	    "%lld.%d.map has no room for the ids of its log: open the window again, and it is made "
	    "anew",
	    (long long)slice->plan.head.slice, slice->plan.head.sub);
}

/* Makes a damaged map anew from the log, whose batches are verified. */
static bool rebuild_slice_map(struct dedup_slice *slice, struct err *err)
{
	struct filling filling = {.slice = slice, .code = *bloom_codes()};
	memset(slice->map, 0, slice->map_bytes);
	begin_map(slice);
	slice->origin = SLICE_REBUILT;
	fault_point("in_map_rebuild");

	bool good = key_log_show(slice->log, KEY_FIRST_UNIT, see_entry, &filling, err);
	if (good)
		end_filling(&filling);
	if (good && !filling.wrong) {
		stamp_map_boot(slice);
		return true;
	}

	wipe_map_magic(slice);
	return good && fail_full(slice, err);
}

static bool read_slice_log(struct dedup_slice *slice, struct err *err)
{
	struct filling filling = {
	    .slice = slice, .code = *bloom_codes(), .again = slice->origin == SLICE_MAPPED};
	if (!key_log_read(
		slice->log, slice->known.units, slice->known.offset, see_entry, &filling, err))
		return false;
	end_filling(&filling);
	return !filling.wrong || rebuild_slice_map(slice, err);
}

/* --- life ----------------------------------------------------------------------------------- */

static bool use_map(struct dedup_slice *slice, const char *name, struct err *err)
{
	slice->origin = judge_files(slice);
	if (slice->origin == SLICE_NEW || slice->origin == SLICE_REBUILT)
		return make_map(slice, name, err);
	slice->known = *dedup_map_known(slice_map_head(slice), seed_of(slice));
	if (!check_log(slice, name, err))
		return false;
	if (key_log_begins(slice->log, slice->known.units))
		return true;
	slice->origin = SLICE_REBUILT; /* no process writes such a number of units */
	return make_map(slice, name, err);
}

static bool open_slice_files(struct dedup_slice *slice, int folder, struct err *err)
{
	char log[NAME], map[NAME];
	name_slice_file(&slice->plan, "log", log);
	name_slice_file(&slice->plan, "map", map);
	slice->log = key_log_open(folder, log, &slice->plan.head, slice->plan.ids, err);
	if (!slice->log || !open_map(slice, map, folder, err) || !use_map(slice, map, err))
		return false;
	slice_map_head(slice)->sealed = 0;
	if (!read_slice_log(slice, err))
		return false;
	stamp_map_boot(slice); /* only now: a map that was filled in part is made again */
	return true;
}

bool dedup_slice_open(
    struct dedup_slice *ret_slice, int folder, const struct dedup_slice_plan *plan, struct err *err)
{
	*ret_slice = (struct dedup_slice){.plan = *plan, .map_fd = -1};
	ret_slice->filter.lines = plan->lines;
	ret_slice->index.count = key_index_buckets(plan->ids);
	ret_slice->map_bytes = dedup_map_bytes(plan->lines, ret_slice->index.count);
	if (open_slice_files(ret_slice, folder, err))
		return true;
	dedup_slice_close(ret_slice);
	return false;
}

void dedup_slice_close(struct dedup_slice *slice)
{
	key_log_close(slice->log);
	map_pieces_finish(&slice->pieces);
	if (slice->map)
		munmap(slice->map, slice->map_bytes);
	if (slice->map_bytes && slice->map_fd >= 0)
		close(slice->map_fd);
	*slice = (struct dedup_slice){0};
}

void dedup_slice_touch(const struct dedup_slice *slice)
{
	size_t step = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t at = 0; at < slice->map_bytes; at += step) {
		volatile char *page = (char *)slice->map + at;
		*page = *page;
	}
}

bool dedup_slice_rename(struct dedup_slice *slice, int folder, int64_t number, struct err *err)
{
	char log[NAME], map[NAME], old_map[NAME];
	name_slice_file(&slice->plan, "map", old_map);
	slice->plan.head.slice = number;
	name_slice_file(&slice->plan, "log", log);
	name_slice_file(&slice->plan, "map", map);
	if (renameat(folder, old_map, folder, map))
		disk_error_fail(old_map, "renamed", err);
	else if (key_log_rename(slice->log, folder, log, &slice->plan.head, err))
		return true;
	dedup_slice_close(slice);
	return false;
}

void dedup_slice_remove(struct dedup_slice *slice, int folder)
{
	char log[NAME], map[NAME];
	name_slice_file(&slice->plan, "log", log);
	name_slice_file(&slice->plan, "map", map);
	dedup_slice_close(slice);
	unlinkat(folder, map, 0);
	unlinkat(folder, log, 0);
}

/* --- repair --------------------------------------------------------------------------------- */

/* Lengthens the file, and maps it a second time. The map that is in use stays as it is: a look at
 * it must find its ids also when this fails. NULL: it failed. */
static void *map_longer(const struct dedup_slice *slice, uint64_t bytes, struct err *err)
{
	char name[NAME];
	name_slice_file(&slice->plan, "map", name);
	if ((errno = posix_fallocate(slice->map_fd, 0, (off_t)bytes)) == 0) {
		void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slice->map_fd, 0);
		if (map != MAP_FAILED)
			return map;
	}

	disk_error_fail(name, "lengthened", err);
	/* the room that was taken is given back: other files need it now */
	if (ftruncate(slice->map_fd, (off_t)slice->map_bytes))
		err_prefix(err, "%s stays too long", name);
	return NULL;
}

bool dedup_slice_remake(struct dedup_slice *slice, uint64_t lines, struct err *err)
{
	uint64_t bytes = dedup_map_bytes(lines, slice->index.count);
	if (bytes > slice->map_bytes) {
		void *map = map_longer(slice, bytes, err);
		if (!map)
			return false;

		fault_point("before_map_repair");
		munmap(slice->map, slice->map_bytes);
		slice->map_bytes = bytes;
		slice->filter.lines = lines;
		lay_out_map(slice, map);
	}

	if (rebuild_slice_map(slice, err))
		return true;
	/* whatever the reason: a look at a filter without its ids would call them new */
	err->kind = ERR_FATAL;
	return false;
}

void dedup_slice_distrust(struct dedup_slice *slice)
{
	wipe_map_magic(slice);
}

/* --- use ------------------------------------------------------------------------------------ */

void dedup_slice_add(struct dedup_slice *slice, const struct key_entry *entry)
{
	key_log_add(slice->log, entry);
}

bool dedup_slice_prove(struct dedup_slice *slice, struct fingerprint hash, struct err *err)
{
	return prove_line(slice, hash) || rebuild_slice_map(slice, err);
}

struct question {
	struct key_log *log;
	struct fingerprint hash;
	bool damaged_log;
};

static bool is_it(void *context, uint32_t unit)
{
	const struct question *question = context;
	const struct key_entry *entry = key_log_at(question->log, unit);
	return entry && entry->hash.low == question->hash.low &&
	       entry->hash.high == question->hash.high;
}

/* The index says that the id at this unit has the wanted tag. True: it has not, or the log is
 * damaged there, and may have had the wanted id. */
static bool is_wrong(void *context, uint32_t unit)
{
	struct question *question = context;
	const struct key_entry *entry = key_log_at(question->log, unit);
	if (!entry)
		return true;
	question->damaged_log = !key_log_is_whole_at(question->log, unit);
	return question->damaged_log || key_index_tag(entry->hash) != key_index_tag(question->hash);
}

static bool find_in_slice(struct dedup_slice *slice, struct fingerprint hash)
{
	struct question question = {slice->log, hash, false};
	return key_index_find(&slice->index, hash, is_it, &question);
}

/* An id that the filter may have was not found: checks index and log. Few looks come to this. */
static bool recheck_missing_id(
    struct dedup_slice *slice, struct fingerprint hash, bool *ret_there, struct err *err)
{
	struct question question = {slice->log, hash, false};
	if (!key_index_find(&slice->index, hash, is_wrong, &question))
		return true;
	if (!rebuild_slice_map(slice, err))
		return false;
	*ret_there = find_in_slice(slice, hash);
	return true;
}

bool dedup_slice_has(
    struct dedup_slice *slice, struct fingerprint hash, bool *ret_there, struct err *err)
{
	if (!prove_buckets(slice, hash) && !rebuild_slice_map(slice, err))
		return false;
	*ret_there = find_in_slice(slice, hash);
	return *ret_there || recheck_missing_id(slice, hash, ret_there, err);
}

bool dedup_slice_is_full(const struct dedup_slice *slice)
{
	return !key_index_takes(key_log_written(slice->log) + key_log_added(slice->log) + 1);
}

uint64_t dedup_slice_ids(const struct dedup_slice *slice)
{
	return slice->known.ids + key_log_added(slice->log);
}

uint64_t dedup_slice_bytes(const struct dedup_slice *slice)
{
	return slice->map_bytes + key_log_written(slice->log) * KEY_UNIT;
}

int64_t dedup_slice_offset(const struct dedup_slice *slice)
{
	return key_log_offset(slice->log);
}

bool dedup_slice_write(struct dedup_slice *slice, int64_t offset, struct err *err)
{
	uint64_t from = key_log_written(slice->log);
	struct filling filling = {.slice = slice, .code = *bloom_codes()};
	if (!key_log_write(slice->log, offset, err))
		return false;
	if (key_log_written(slice->log) == from)
		return true;
	if (!key_log_show(slice->log, from, see_entry, &filling, err))
		return false;
	end_filling(&filling);
	return !filling.wrong || rebuild_slice_map(slice, err);
}

bool dedup_slice_sync(struct dedup_slice *slice, struct err *err)
{
	if (key_log_sync(slice->log, err))
		return true;
	if (err->kind == ERR_FATAL) /* the next opening reads the whole log, and writes it again */
		wipe_map_magic(slice);
	return false;
}

bool dedup_slice_seal(struct dedup_slice *slice, struct err *err)
{
	struct dedup_map_head *head = slice_map_head(slice);
	if (!dedup_slice_sync(slice, err))
		return false;
	map_pieces_seal(&slice->pieces);
	head->checksum = dedup_map_sum(head, &slice->pieces);
	head->sealed = 1;
	return msync(slice->map, slice->map_bytes, MS_SYNC) == 0 ||
	       disk_error_fail("the map of a slice", "made durable", err);
}
