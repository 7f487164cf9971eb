/*
 * Counting filters, one for each slice of the window, in files that are mapped into memory:
 * N.S.counts. As in dedup_window.h an id is in the slice of its record's time, a full slice gets a
 * sub-slice, and an expired slice is removed as a whole. There is no log that confirms a hit, which
 * makes the store lossy.
 *
 * The kind in the head of a file tells the width of its counters. So the setting `counter` may
 * change from start to start: files that exist keep their width, new ones have the new width.
 *
 * Read open_count_part and remove_old_parts first, then add_counts; find_only finds the filter from
 * which an id may be removed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bloom_size.h"
#include "cleanup.h"
#include "counting_filter.h"
#include "state_folder.h"
#include "dedup_mapped_inspect.h"
#include "dedup_store.h"
#include "file_list.h"
#include "mapped_file.h"
#include "slice_time.h"
#include "state_file_name.h"
#include "text.h"

enum { AHEAD = 12, NAME = 64 };

struct part {
	int64_t number;
	int sub;
	uint64_t ids; /* number of ids that it has room for */
	struct mapped_file file;
};

struct counting_store {
	struct dedup_store store;
	struct state_folder folder;
	struct bloom_plan plan;
	/* sorted by number and sub; a part that moves the window is there before the expired ones
	 * are removed, hence one more */
	struct part parts[BLOOM_FILTERS + 1];
	struct counting_filter filters[BLOOM_FILTERS + 1];
	int count;
	int bits; /* width of the counters in new files */
	struct slice_time time;
	int64_t offset;
	bool folder_dirty; /* files were created, and a loss of power may remove them */
};
_Static_assert((int)FILE_LIST_MOST >= (int)BLOOM_FILTERS, "a list has room for all slices");

static struct counting_store *counting_of(struct dedup_store *store)
{
	return (struct counting_store *)store;
}

static void name_count_file(int64_t number, int sub, char name[NAME])
{
	snprintf(name, NAME, "%lld.%d.counts", (long long)number, sub);
}

/* --- slices --------------------------------------------------------------------------------- */

static int place_of_part(const struct counting_store *counting, int64_t number, int sub)
{
	int place = 0;
	while (place < counting->count &&
	       (counting->parts[place].number < number ||
		   (counting->parts[place].number == number && counting->parts[place].sub < sub)))
		place++;
	return place;
}

static int insert_part(struct counting_store *counting, const struct part *part, int bits)
{
	int place = place_of_part(counting, part->number, part->sub),
	    behind = counting->count++ - place;

	/* Both arrays have the same order, so that an index means the same slice in both. */
	memmove(
	    &counting->parts[place + 1], &counting->parts[place], (size_t)behind * sizeof *part);
	memmove(&counting->filters[place + 1], &counting->filters[place],
	    (size_t)behind * sizeof *counting->filters);

	counting->parts[place] = *part;
	counting->filters[place] = (struct counting_filter){
	    part->file.bytes, part->file.head->bytes / counting_line_bytes(bits), bits};
	slice_time_note(&counting->time, part->number);
	return place;
}

static uint64_t lines_of(const struct counting_store *counting, int sub)
{
	uint64_t ids = counting->plan.ids;
	for (int i = 1; i < sub; i++)
		ids *= 2;
	return sub ? bloom_sub_lines(&counting->plan, sub, ids) : counting->plan.lines;
}

/* The width of the counters in an existing file. Without a readable head it is the width of a new
 * file: the file will be made, or mapped_file_open refuses it. */
static int width_of_file(const struct counting_store *counting, const char *name)
{
	struct mapped_head head = {0};
	owned_fd int fd =
	    openat(counting->folder.fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0 || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
		return counting->bits;
	return head.kind == DEDUP_MAPPED_COUNTS8  ? 8
	       : head.kind == DEDUP_MAPPED_COUNTS ? 4
						  : counting->bits;
}

/* The number of parts that are gone once the window has this number. */
static int count_ended_parts(const struct counting_store *counting, int64_t number)
{
	struct slice_time then = counting->time;
	int gone = 0;
	slice_time_note(&then, number);
	while (gone < counting->count && slice_time_is_gone(&then, counting->parts[gone].number))
		gone++;
	return gone;
}

/* Parts that the number itself ends leave their room to it: otherwise a full window could not move,
 * and so would stay full. */
static bool check_part_room(const struct counting_store *counting, int64_t number, struct err *err)
{
	return slice_time_is_gone(&counting->time, number) ||
	       counting->count - count_ended_parts(counting, number) < BLOOM_FILTERS ||
	       err_set(err, ERR_RETRY,
		   "path=%s has %d slices and sub-slices, which is all it can have: raise ids",
		   counting->folder.path, BLOOM_FILTERS);
}

/* An existing file keeps its size and its width, whatever the plan is now; its room follows from
 * them. */
static bool open_count_part(
    struct counting_store *counting, int64_t number, int sub, int *ret_place, struct err *err)
{
	char name[NAME];
	struct part part = {.number = number, .sub = sub};

	if (!check_part_room(counting, number, err))
		return false;

	name_count_file(number, sub, name);
	int bits = width_of_file(counting, name);
	const struct mapped_head wanted = {
	    .kind = bits == 8 ? DEDUP_MAPPED_COUNTS8 : DEDUP_MAPPED_COUNTS,
	    .bytes = lines_of(counting, sub) * counting_line_bytes(bits),
	    .seed = counting->store.seed,
	    .number = number};
	if (!mapped_file_open(&part.file, counting->folder.fd, name, &wanted, true, err))
		return err_prefix(err, "path=%s", counting->folder.path);

	part.ids =
	    bloom_room(&counting->plan, sub, part.file.head->bytes / counting_line_bytes(bits));
	*ret_place = insert_part(counting, &part, bits);
	counting->folder_dirty = true;
	return true;
}

static void remove_old_parts(struct counting_store *counting)
{
	char name[NAME];
	int gone = count_ended_parts(counting, counting->time.newest);
	for (int i = 0; i < gone; i++) {
		struct part *part = &counting->parts[i];
		mapped_file_close(&part->file);
		name_count_file(part->number, part->sub, name);
		unlinkat(counting->folder.fd, name, 0);
	}

	counting->count -= gone;
	memmove(counting->parts, counting->parts + gone,
	    (size_t)counting->count * sizeof *counting->parts);
	memmove(counting->filters, counting->filters + gone,
	    (size_t)counting->count * sizeof *counting->filters);
}

/* --- life ----------------------------------------------------------------------------------- */

static bool open_count_file(struct counting_store *counting, const char *name, struct err *err)
{
	long long number;
	int sub, place;

	if (!state_file_name_parse(name, "counts", &number, &sub))
		return true;
	if (!open_count_part(counting, number, sub, &place, err))
		return false;
	if (counting->parts[place].file.head->offset > counting->offset)
		counting->offset = counting->parts[place].file.head->offset;

	/* a killed process may have left expired parts in addition to a full window */
	if (counting->count > BLOOM_FILTERS)
		remove_old_parts(counting);
	return true;
}

static struct file_list list_count_files(const struct counting_store *counting)
{
	struct file_list list = {0};
	for (int i = 0; i < counting->count; i++)
		file_list_add(&list, counting->parts[i].number, counting->parts[i].sub);
	return list;
}

static bool open_count_files(struct counting_store *counting, struct err *err)
{
	int copy = openat(counting->folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	bool good = list || state_folder_fail(&counting->folder, "the folder cannot be read", err);
	while (good && (entry = readdir(list)))
		good = open_count_file(counting, entry->d_name, err);
	if (list)
		closedir(list);

	remove_old_parts(counting);
	const struct file_list there = list_count_files(counting);
	return good &&
	       file_list_check(&counting->folder, &there, counting->time.newest, "counts", err);
}

static void close_counting_store(struct dedup_store *store)
{
	struct counting_store *counting = counting_of(store);
	for (int i = 0; i < counting->count; i++)
		mapped_file_close(&counting->parts[i].file);
	state_folder_close(&counting->folder);
	free(counting);
}

static bool check_counting(struct dedup_spec *spec, struct err *err)
{
	struct bloom_plan plan =
	    bloom_plan((uint64_t)spec->ids, spec->rate, (int)spec->slices, COUNTING_PLACES);
	/* the plan has lines of 64 bytes, as counters of 4 bits have */
	uint64_t bytes = plan.filter_bytes / BLOOM_LINE * counting_line_bytes(spec->counter_bits);
	return dedup_spec_check_memory(spec, bytes, true, err);
}

static struct dedup_store *open_counting_store(const struct dedup_spec *spec, struct err *err)
{
	struct counting_store *counting = xcalloc(1, sizeof *counting);
	counting->store.type = spec->type;
	counting->plan =
	    bloom_plan((uint64_t)spec->ids, spec->rate, (int)spec->slices, COUNTING_PLACES);
	counting->bits = spec->counter_bits;
	counting->time = (struct slice_time){dedup_spec_slice_ms(spec), spec->slices, INT64_MIN};
	counting->offset = -1;

	bool good = state_folder_open(&counting->folder, spec->path, "counting", (int)spec->slices,
	    counting->time.slice_ms, 0, err);
	counting->store.seed = counting->folder.head.seed;
	if (good && open_count_files(counting, err))
		return &counting->store;
	close_counting_store(&counting->store);
	return NULL;
}

/* --- use ------------------------------------------------------------------------------------ */

/* The newest part that may have the id; -1: none. */
static int find_counted_part(const struct counting_store *counting, struct fingerprint hash)
{
	int place = counting->count - 1;
	while (place >= 0 && !counting_has(&counting->filters[place], hash))
		place--;
	return place;
}

static bool look_up_counts(struct dedup_store *store, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	const struct counting_store *counting = counting_of(store);
	(void)err;
	for (size_t i = 0; i < count && i < AHEAD; i++)
		counting_prefetch(counting->filters, counting->count, items[i].hash);
	for (size_t i = 0; i < count; i++) {
		if (i + AHEAD < count)
			counting_prefetch(
			    counting->filters, counting->count, items[i + AHEAD].hash);

		ret_states[i] = find_counted_part(counting, items[i].hash) < 0 ? OUTBOX_DEDUP_NEW
									       : OUTBOX_DEDUP_DONE;
	}
	return true;
}

/* Finds the last sub-slice of the slice; if it is full, opens a new one. */
static bool find_part_with_room(
    struct counting_store *counting, int64_t number, int *ret_place, struct err *err)
{
	int place = place_of_part(counting, number + 1, 0) - 1;
	const struct part *last = place < 0 ? NULL : &counting->parts[place];
	bool there = last && last->number == number;
	*ret_place = place;
	return (there && last->file.head->count < last->ids) ||
	       open_count_part(counting, number, there ? last->sub + 1 : 0, ret_place, err);
}

static bool add_counts(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct counting_store *counting = counting_of(store);
	for (size_t i = 0; i < count; i++) {
		int place;
		int64_t before = counting->time.newest;
		if (!find_part_with_room(
			counting, slice_time_place(&counting->time, items[i].time_ms), &place, err))
			return false; /* a repeated call counts ids twice: they stay longer */

		struct mapped_head *head = counting->parts[place].file.head;
		int full = counting_add(&counting->filters[place], items[i].hash);
		head->full += (uint64_t)full;
		head->count++;
		if (counting->time.newest > before)
			remove_old_parts(counting);
	}
	return true;
}

/*
 * The part from which the id may be removed. Removing it from a filter that only seems to have it
 * would remove other ids. So if several parts may have the id, the only one of its record's time is
 * chosen; -1: there is no such part, and the id stays.
 */
static int find_only(const struct counting_store *counting, const struct dedup_item *item)
{
	int64_t number = slice_time_place(&counting->time, item->time_ms);
	int any = -1, of_time = -1, found = 0, found_of_time = 0;
	for (int i = 0; i < counting->count; i++) {
		if (!counting_has(&counting->filters[i], item->hash))
			continue;
		any = i;
		found++;
		if (counting->parts[i].number == number) {
			of_time = i;
			found_of_time++;
		}
	}

	return found == 1 ? any : found_of_time == 1 ? of_time : -1;
}

static bool remove_counts(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct counting_store *counting = counting_of(store);
	(void)err;
	for (size_t i = 0; i < count; i++) {
		int place = find_only(counting, &items[i]);
		if (place < 0)
			continue;
		counting_remove(&counting->filters[place], items[i].hash);
		struct mapped_head *head = counting->parts[place].file.head;
		head->count -= head->count > 0;
	}
	return true;
}

static bool checkpoint_counts(struct dedup_store *store, int64_t offset, struct err *err)
{
	struct counting_store *counting = counting_of(store);
	if (!state_folder_check(&counting->folder, err))
		return false;

	for (int i = 0; i < counting->count; i++)
		if (!mapped_file_sync(&counting->parts[i].file, err))
			return err_prefix(err, "path=%s", counting->folder.path);
	if (counting->count == 0)
		return true;

	const struct file_list there = list_count_files(counting);
	if (counting->folder_dirty && !file_list_write(&counting->folder, &there, err))
		return false;
	counting->folder_dirty = false;

	/* the offset comes last, because it is valid for all files */
	if (!mapped_file_sync_offset(&counting->parts[counting->count - 1].file, offset, err))
		return err_prefix(err, "path=%s", counting->folder.path);
	if (offset > counting->offset)
		counting->offset = offset;
	return true;
}

static void read_counting_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct counting_store *counting = (const struct counting_store *)store;
	double none = 1;
	for (int i = 0; i < counting->count; i++) {
		const struct mapped_head *head = counting->parts[i].file.head;
		stats->ids += head->count;
		stats->saturated += head->full;
		stats->sub_slices += counting->parts[i].sub > 0;
		stats->memory_bytes += MAPPED_HEAD + head->bytes;
		if (head->count)
			/* A new id is taken for a done one if any filter seems to have it. */
			none *=
			    1 - bloom_rate((double)head->count / (double)counting->filters[i].lines,
				    COUNTING_PLACES);
	}

	stats->disk_bytes = stats->memory_bytes;
	stats->slices = counting->count;
	stats->planned_rate = 1 - none;
	stats->offset = counting->offset;
	if (counting->count)
		stats->newest_ms = counting->time.newest * counting->time.slice_ms;
}

const struct dedup_store_type counting_store = {
    .spec = {"counting", dedup_settings,
	DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(RATE) | DEDUP_TAKES(WINDOW) |
	    DEDUP_TAKES(SLICES) | DEDUP_TAKES(COUNTER) | DEDUP_TAKES(PATH),
	DEDUP_TAKES(IDS)},
    .local = true,
    .check = check_counting,
    .folder = "counting",
    .files = 1 << STATE_FILE_COUNTS,
    .inspect = dedup_inspect_mapped,
    .promise = {.store = "counting",
	.lossy = true,
	.releases = true,
	.false_positives = "the setting rate, for the whole window: such a message is lost",
	.false_negatives =
	    "none, for at least the window behind the newest record, unless an id is "
	    "released that was never done, or has left the window, and that the filter has by "
	    "chance",
	.restart =
	    "remembers all ids after kill -9; after a loss of power, ids that a checkpoint made "
	    "durable",
	.scope = "copies that one process sees with one folder: on the same machine and in the "
		 "same partition, while the number of partitions stays the same",
	.memory = "86 bits an id at 1 %, 144 at 0.1 %; with counter=8 twice as much",
	.disk = "the same"},
    .open = open_counting_store,
    .close = close_counting_store,
    .look = look_up_counts,
    .add = add_counts,
    .remove = remove_counts,
    .checkpoint = checkpoint_counts,
    .stats = read_counting_stats,
};
