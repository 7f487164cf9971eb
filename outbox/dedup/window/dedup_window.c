/*
 * The window is an array of slices in the order of time. Their filters are in a second array, so
 * that one look goes through all of them. A record of a later time moves the window
 * (advance_window): expired slices are removed, and the next slice is made ready in a thread
 * (dedup_ahead.h). An added id waits in its slice's log and in the set `unwritten`; a flush or a
 * checkpoint writes it, and brings it into the slice's map. An alarm (end_stretch) puts all filters
 * in doubt, and repair_window measures and repairs them.
 *
 * Read struct dedup_window first, then begin_slice and advance_window, then the opening, then
 * dedup_window_has, dedup_window_add and dedup_window_checkpoint.
 */
#include "dedup_window.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bloom_size.h"
#include "cleanup.h"
#include "clock.h"
#include "dedup_ahead.h"
#include "state_folder.h"
#include "dedup_hot.h"
#include "dedup_slice.h"
#include "fault.h"
#include "file_list.h"
#include "filter_repair.h"
#include "hash_set.h"
#include "key_index.h"
#include "slice_time.h"
#include "state_file_name.h"
#include "text.h"

enum { STRETCH = 1 << 16 }; /* looks */
enum { REPAIR_MS = 100 };   /* of a checkpoint; the repair of one slice may take longer */
_Static_assert((int)FILE_LIST_MOST >= (int)BLOOM_FILTERS, "a list has room for all slices");

struct dedup_window {
	struct state_folder folder;
	bool folder_dirty;              /* files were created, and the folder was not synced */
	struct bloom_plan plan, target; /* target: for repairs; its rate is at most `alarm` */
	const struct bloom_code *code;
	struct slice_time time; /* newest: that of the slices, INT64_MIN: none yet */
	/* sorted by slice and sub-slice; filters[i] is a copy of slices[i].filter. A slice that
	 * moves the window is there before the expired ones are removed, hence one more. */
	struct dedup_slice slices[BLOOM_FILTERS + 1];
	struct bloom_filter filters[BLOOM_FILTERS + 1];
	int count;                         /* at most BLOOM_FILTERS in a look */
	struct dedup_ahead next, next_sub; /* the next slice; the newest slice's next sub-slice */
	struct dedup_hot hot;              /* until: the last `newest` with which an id is alive */
	struct hash_set unwritten;         /* added ids that are not written yet */
	bool proving;                      /* some filters have lines to prove before a look */
	struct err broken;                 /* has a message if a slice is unusable */
	double alarm;
	uint64_t repairs_before; /* figures.repairs when the alarm put the filters in doubt */
	int64_t incurable;       /* `newest` when no repair ended the alarm; none is tried again
				  * until it changes */
	struct stretch {
		uint64_t looks, false_hits; /* looks at ids that were new, and their false hits */
	} stretch;
	struct dedup_window_figures figures;
};

/* --- slices --------------------------------------------------------------------------------- */

static int place_of_slice(const struct dedup_window *window, int64_t number, int sub)
{
	int place = 0;
	while (place < window->count && (window->slices[place].plan.head.slice < number ||
					    (window->slices[place].plan.head.slice == number &&
						window->slices[place].plan.head.sub < sub)))
		place++;
	return place;
}

/* Each sub-slice is twice as large as the one before, so that there are never many. least: the
 * number of ids that it has room for at least. */
static struct dedup_slice_plan plan_of(
    const struct dedup_window *window, int64_t number, int sub, uint64_t least)
{
	struct dedup_slice_plan plan = {
	    .head = {.sub = sub,
		.seed = window->folder.head.seed,
		.slice = number,
		.slice_ms = window->folder.head.slice_ms},
	    .ids = window->plan.ids,
	    .lines = window->plan.lines,
	};

	for (int i = 1; i < sub; i++)
		plan.ids *= 2;
	if (plan.ids < least)
		plan.ids = least;

	if (sub > 0)
		plan.lines = bloom_sub_lines(&window->plan, sub, plan.ids);
	else if (plan.ids > window->plan.ids)
		plan.lines = (uint64_t)ceil(
		    (double)plan.ids / (double)window->plan.ids * (double)window->plan.lines);
	return plan;
}

/*
 * The ids that a slice of the window needs room for, so that after a slice with sub-slices the next
 * ones have one filter each: a quarter more than came into the newest slice or the one before it.
 * An older one counts no longer, since old ids may have been loaded into it. Bounded, since one
 * peak must not take all memory.
 */
static uint64_t needed_room(const struct dedup_window *window)
{
	uint64_t most = 0, ids = 0, bound = window->plan.ids * FILTER_MOST_GROWTH;
	for (int i = 0; i < window->count; i++) {
		const struct dedup_slice *slice = &window->slices[i];
		if (slice->plan.head.slice < window->time.newest - 1)
			continue;
		ids = (slice->plan.head.sub ? ids : 0) + dedup_slice_ids(slice);
		most = ids > most ? ids : most;
	}

	if (most <= window->plan.ids)
		return window->plan.ids;
	return most + most / 4 < bound ? most + most / 4 : bound;
}

/*
 * Takes the slice that was made ready. The next slice can also become a later one, if no record of
 * its own time came; it cannot become an older one, because it is still needed itself.
 */
static bool take_ready_slice(
    struct dedup_window *window, const struct dedup_slice_plan *plan, struct dedup_slice *ret_slice)
{
	const struct key_log_head *head = &plan->head;
	if (head->sub)
		return dedup_ahead_take(&window->next_sub, head->slice, head->sub, ret_slice);
	return head->slice > window->time.newest &&
	       dedup_ahead_take(&window->next, head->slice, 0, ret_slice);
}

static bool get_slice(struct dedup_window *window, const struct dedup_slice_plan *plan,
    struct dedup_slice *ret_slice, struct err *err)
{
	return take_ready_slice(window, plan, ret_slice) ||
	       dedup_slice_open(ret_slice, window->folder.fd, plan, err) ||
	       err_prefix(err, "path=%s", window->folder.path);
}

/* Inserts the slice in order, and returns its place. */
static int insert_slice(struct dedup_window *window, const struct dedup_slice *slice)
{
	int64_t number = slice->plan.head.slice;
	int place = place_of_slice(window, number, slice->plan.head.sub);
	int behind = window->count++ - place;
	memmove(&window->slices[place + 1], &window->slices[place], (size_t)behind * sizeof *slice);
	memmove(&window->filters[place + 1], &window->filters[place],
	    (size_t)behind * sizeof slice->filter);
	window->slices[place] = *slice;
	window->filters[place] = slice->filter;
	slice_time_note(&window->time, number);
	return place;
}

/* The number of slices that are gone once the window has this number. */
static int count_ended_slices(const struct dedup_window *window, int64_t number)
{
	struct slice_time then = window->time;
	int gone = 0;
	slice_time_note(&then, number);
	while (
	    gone < window->count && slice_time_is_gone(&then, window->slices[gone].plan.head.slice))
		gone++;
	return gone;
}

/* The first `gone` slices are no longer the window's. */
static void take_out_slices(struct dedup_window *window, int gone)
{
	window->count -= gone;
	memmove(
	    window->slices, window->slices + gone, (size_t)window->count * sizeof *window->slices);
	memmove(window->filters, window->filters + gone,
	    (size_t)window->count * sizeof *window->filters);
}

/* Slices that the number itself ends leave their room to it: otherwise a full window could not
 * move, and so would stay full. */
static bool check_room(const struct dedup_window *window, int64_t number, struct err *err)
{
	return slice_time_is_gone(&window->time, number) ||
	       window->count - count_ended_slices(window, number) < BLOOM_FILTERS ||
	       err_set(err, ERR_RETRY,
		   "path=%s has %d slices and sub-slices, which is all it can have: raise ids",
		   window->folder.path, BLOOM_FILTERS);
}

static bool begin_slice(
    struct dedup_window *window, int64_t number, int sub, int *ret_place, struct err *err)
{
	struct dedup_slice slice;
	const struct dedup_slice_plan plan = plan_of(window, number, sub, 0);
	const struct dedup_slice_plan larger =
	    plan_of(window, number, sub, sub ? 0 : needed_room(window));
	if (!check_room(window, number, err))
		return false;

	/* where the disk has no room for the larger one, the planned one may still fit */
	if (!get_slice(window, &larger, &slice, err) &&
	    (larger.ids == plan.ids || !get_slice(window, &plan, &slice, err)))
		return false;
	window->folder_dirty = true;
	*ret_place = insert_slice(window, &slice);
	return true;
}

/* Makes the set of unwritten ids anew, without those of the first `gone` slices. */
static void forget_unwritten(struct dedup_window *window, int gone)
{
	hash_set_clear(&window->unwritten);
	for (int i = gone; i < window->count; i++) {
		const struct key_log *log = window->slices[i].log;
		for (uint64_t j = 0; j < key_log_added(log); j++)
			hash_set_add(&window->unwritten, key_log_added_at(log, j)->hash);
	}
}

/* Begins to make the next slice ready, and to remove the expired ones. */
static void advance_window(struct dedup_window *window)
{
	int gone = count_ended_slices(window, window->time.newest);
	uint64_t unwritten = 0;
	for (int i = 0; i < gone; i++)
		unwritten += key_log_added(window->slices[i].log);

	if (unwritten)
		forget_unwritten(window, gone);

	const struct dedup_slice_plan next =
	    plan_of(window, window->time.newest + 1, 0, needed_room(window));
	dedup_ahead_begin(&window->next, &next, window->slices, gone);
	take_out_slices(window, gone);
}

/* --- opening -------------------------------------------------------------------------------- */

static struct filter_state measure_slice(const struct dedup_slice *slice)
{
	return filter_measure(&slice->filter, dedup_slice_ids(slice));
}

static void count_origin(struct dedup_window *window, enum dedup_slice_origin origin)
{
	window->figures.rebuilt += origin == SLICE_REBUILT;
	window->figures.mapped += origin != SLICE_REBUILT;
}

/* A map that is larger than planned stays so: it was made for more ids, or by a repair, and would
 * exceed its rate again if the settings alone gave its size. */
static void keep_larger_map(const struct dedup_window *window, struct dedup_slice_plan *plan)
{
	uint64_t lines, buckets;
	owned_text char *name = xformat("%lld.%d.map", (long long)plan->head.slice, plan->head.sub);
	if (!dedup_map_sizes(window->folder.fd, name, plan->head.seed, &lines, &buckets))
		return;

	/* far beyond the settings it is of other settings, and would keep memory that they release
	 */
	if (lines < plan->lines || buckets < key_index_buckets(plan->ids) ||
	    lines > plan->lines * FILTER_MOST_GROWTH)
		return;

	plan->lines = lines;
	if (buckets > key_index_buckets(plan->ids))
		plan->ids = (buckets - 1) * KEY_BUCKET_PLANNED;
}

static bool insert_opened_slice(
    struct dedup_window *window, struct dedup_slice *slice, struct err *err)
{
	if (!check_room(window, slice->plan.head.slice, err)) {
		dedup_slice_close(slice);
		return false;
	}

	count_origin(window, slice->origin);
	window->proving |= slice->pieces.left > 0;
	insert_slice(window, slice);

	/* a killed process may have left expired slices in addition to a full window */
	int gone =
	    window->count > BLOOM_FILTERS ? count_ended_slices(window, window->time.newest) : 0;
	for (int i = 0; i < gone; i++)
		dedup_slice_remove(&window->slices[i], window->folder.fd);
	take_out_slices(window, gone);
	return true;
}

struct window_files {
	int64_t newest; /* the newest number of all logs, including empty ones */
	struct file_name *empty;
	size_t empty_count;
};

static void window_files_finish(struct window_files *files)
{
	free(files->empty);
}

static void note_empty_slice(struct window_files *files, int64_t number, int sub)
{
	files->empty = xrealloc(files->empty, (files->empty_count + 1) * sizeof *files->empty);
	files->empty[files->empty_count++] = (struct file_name){number, sub};
}

/* A slice with an empty log was made ready by a process that was killed before it needed the slice:
 * it is noted, and removed later. */
static bool open_window_file(
    struct dedup_window *window, const char *name, struct window_files *files, struct err *err)
{
	long long number;
	struct stat state;
	struct dedup_slice slice;
	int sub;

	if (!state_file_name_parse(name, "log", &number, &sub))
		return true;

	files->newest = number > files->newest ? number : files->newest;
	if (fstatat(window->folder.fd, name, &state, 0))
		return state_folder_fail(&window->folder, "a key log cannot be looked at", err);

	struct dedup_slice_plan plan = plan_of(window, number, sub, 0);
	uint64_t units = (uint64_t)state.st_size / KEY_UNIT;
	/* an existing log may be of a larger plan; not all of its units are ids */
	if (plan.ids + plan.ids / 4 < units)
		plan = plan_of(window, number, sub, units);
	keep_larger_map(window, &plan);
	if (!dedup_slice_open(&slice, window->folder.fd, &plan, err))
		return err_prefix(err, "path=%s", window->folder.path);

	if (key_log_written(slice.log) == KEY_FIRST_UNIT) {
		dedup_slice_close(&slice);
		note_empty_slice(files, number, sub);
		return true;
	}
	return insert_opened_slice(window, &slice, err);
}

static bool window_file_exists(const struct dedup_window *window, const char *name)
{
	struct stat state;
	return fstatat(window->folder.fd, name, &state, 0) == 0;
}

static bool check_map(const struct dedup_window *window, const char *name, struct err *err)
{
	owned_text char *log = xformat("%.*slog", (int)strlen(name) - 3, name);
	if (window_file_exists(window, log) || !window_file_exists(window, name))
		return true;
	if (dedup_map_is_empty(window->folder.fd, name, window->folder.head.seed)) {
		unlinkat(window->folder.fd, name, 0);
		return true;
	}
	return err_set(err, ERR_CONFIG,
	    "path=%s: %s is there without its key log: ids are lost; use a new folder, and load "
	    "them again",
	    window->folder.path, name);
}

static bool open_window_files(
    struct dedup_window *window, struct window_files *files, struct err *err)
{
	int copy = openat(window->folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	bool good = list || state_folder_fail(&window->folder, "the folder cannot be read", err);

	while (good && (entry = readdir(list))) {
		size_t length = strlen(entry->d_name);
		bool map = length > 4 && text_equal(entry->d_name + length - 4, ".map");
		good = map ? check_map(window, entry->d_name, err)
			   : open_window_file(window, entry->d_name, files, err);
	}

	if (list)
		closedir(list);
	return good;
}

static struct file_list list_window_files(const struct dedup_window *window)
{
	struct file_list list = {0};
	for (int i = 0; i < window->count; i++) {
		const struct dedup_slice *slice = &window->slices[i];
		if (key_log_written(slice->log) > KEY_FIRST_UNIT)
			file_list_add(&list, slice->plan.head.slice, slice->plan.head.sub);
	}
	return list;
}

static void remove_empty_slices(const struct dedup_window *window, const struct window_files *files)
{
	for (size_t i = 0; i < files->empty_count; i++) {
		const struct file_name *name = &files->empty[i];
		struct dedup_slice slice = {
		    .plan.head = {.slice = name->number, .sub = (int)name->sub}};
		dedup_slice_remove(&slice, window->folder.fd);
	}
}

static bool open_window_folder(struct dedup_window *window, struct err *err)
{
	OWNED(window_files_finish) struct window_files files = {.newest = INT64_MIN};
	if (!open_window_files(window, &files, err))
		return false;

	const struct file_list there = list_window_files(window);
	if (!file_list_check(&window->folder, &there, files.newest, "log", err))
		return false;
	if (files.newest > window->time.newest &&
	    !file_list_drop_missing(&window->folder, &there, err))
		return false;
	remove_empty_slices(window, &files);
	return true;
}

struct dedup_window *dedup_window_open(
    const struct dedup_window_settings *settings, struct err *err)
{
	struct dedup_window *window = xcalloc(1, sizeof *window);
	window->alarm = settings->alarm;
	dedup_hot_init(&window->hot, settings->hot);
	window->time = (struct slice_time){settings->slice_ms, settings->slices, INT64_MIN};
	window->incurable = INT64_MIN;
	window->figures.offset = -1;
	window->code = *bloom_codes();
	window->plan = bloom_plan(settings->ids, settings->rate, settings->slices, BLOOM_PLACES);
	window->target = window->plan;
	if (settings->alarm > 0 && settings->alarm < settings->rate)
		window->target =
		    bloom_plan(settings->ids, settings->alarm, settings->slices, BLOOM_PLACES);

	bool good = state_folder_open(
	    &window->folder, settings->path, "bloom", settings->slices, settings->slice_ms, 0, err);
	dedup_ahead_init(&window->next, window->folder.fd);
	dedup_ahead_init(&window->next_sub, window->folder.fd);
	if (!good || !open_window_folder(window, err)) {
		dedup_window_close(window);
		return NULL;
	}

	/* an empty window makes the present slice ready: most records are of now */
	if (!window->count)
		window->time.newest = slice_time_number(&window->time, clock_wall_us() / 1000) - 1;
	advance_window(window);
	if (!window->count)
		window->time.newest = INT64_MIN;

	for (int i = 0; i < window->count; i++)
		if (dedup_slice_offset(&window->slices[i]) > window->figures.offset)
			window->figures.offset = dedup_slice_offset(&window->slices[i]);
	return window;
}

void dedup_window_close(struct dedup_window *window)
{
	if (!window)
		return;
	dedup_ahead_finish(&window->next);
	dedup_ahead_finish(&window->next_sub);

	for (int i = 0; i < window->count; i++) {
		struct err err; /* ignored: an unsealed map is rebuilt after a restart */
		if (window->figures.alarm && measure_slice(&window->slices[i]).damaged)
			/* a seal would make the next start believe these bits */
			dedup_slice_distrust(&window->slices[i]);
		else
			(void)!dedup_slice_seal(&window->slices[i], &err);
		dedup_slice_close(&window->slices[i]);
	}

	state_folder_close(&window->folder);
	dedup_hot_finish(&window->hot);
	hash_set_finish(&window->unwritten);
	free(window);
}

/* --- use ------------------------------------------------------------------------------------ */

uint64_t dedup_window_seed(const struct dedup_window *window)
{
	return window->folder.head.seed;
}

struct fingerprint dedup_window_hash(
    const struct dedup_window *window, const void *id, size_t length)
{
	return fingerprint_of(id, length, window->folder.head.seed);
}

void dedup_window_prefetch(const struct dedup_window *window, struct fingerprint hash)
{
	dedup_hot_prefetch(&window->hot, hash);
	hash_set_prefetch(&window->unwritten, hash);
	bloom_prefetch(window->filters, window->count, hash);
}

static void note_hot_hash(struct dedup_window *window, struct fingerprint hash, int64_t number)
{
	dedup_hot_put(&window->hot, hash, number + window->time.slices);
}

/* After the ERR_FATAL of one slice each call fails with it: the filter may be empty, and a look
 * would call its ids new. */
static bool fail_window(struct dedup_window *window, struct err *err)
{
	err_prefix(err, "path=%s", window->folder.path);
	if (err->kind == ERR_FATAL)
		window->broken = *err;
	return false;
}

static bool check_whole(const struct dedup_window *window, struct err *err)
{
	return !window->broken.message[0] ||
	       err_set(err, window->broken.kind, "%s", window->broken.message);
}

static bool note_rebuilt(
    struct dedup_window *window, const struct dedup_slice *slice, enum dedup_slice_origin before)
{
	window->figures.rebuilt += slice->origin == SLICE_REBUILT && before != SLICE_REBUILT;
	return true;
}

static bool prove_lines(struct dedup_window *window, struct fingerprint hash, struct err *err)
{
	window->proving = false;
	for (int i = 0; i < window->count; i++) {
		struct dedup_slice *slice = &window->slices[i];
		enum dedup_slice_origin before = slice->origin;
		if (!dedup_slice_prove(slice, hash, err))
			return fail_window(window, err);
		note_rebuilt(window, slice, before);
		window->proving |= slice->pieces.left > 0;
	}
	return true;
}

bool dedup_window_may_have(
    struct dedup_window *window, struct fingerprint hash, uint64_t *ret_found, struct err *err)
{
	if (!check_whole(window, err) || (window->proving && !prove_lines(window, hash, err)))
		return false;
	*ret_found = window->code->look(window->filters, window->count, hash);
	if (!*ret_found && hash_set_has(&window->unwritten, hash))
		*ret_found = UINT64_C(1) << (window->count - 1); /* no filter has it yet */
	window->figures.looks++;
	window->figures.hits += (uint64_t)__builtin_popcountll(*ret_found);
	return true;
}

static bool has_doubts(const struct dedup_window *window)
{
	for (int i = 0; i < window->count; i++)
		if (window->slices[i].doubted)
			return true;
	return false;
}

/* A stretch has so many looks that the observed rate is not a matter of chance. */
static void end_stretch(struct dedup_window *window)
{
	struct stretch *stretch = &window->stretch;
	if (++stretch->looks < STRETCH)
		return;

	bool before = window->figures.alarm;
	window->figures.observed_rate = (double)stretch->false_hits / (double)stretch->looks;
	window->figures.alarm = window->alarm > 0 && stretch->false_hits >= 10 &&
				window->figures.observed_rate > window->alarm;
	window->figures.alarms += window->figures.alarm && !before;
	if (window->figures.alarm)
		window->figures.alarm_rate = window->figures.observed_rate;
	*stretch = (struct stretch){0};

	/* A measurement reads the whole filter: it is left out where it found no cure before. One
	 * that is under way goes on: begun anew by each stretch, it would never reach the last
	 * slices of a large window. */
	if (window->figures.alarm && window->time.newest != window->incurable &&
	    !has_doubts(window)) {
		window->repairs_before = window->figures.repairs;
		for (int i = 0; i < window->count; i++)
			window->slices[i].doubted = true;
	}
}

bool dedup_window_is_hot(const struct dedup_window *window, struct fingerprint hash)
{
	return dedup_hot_has(&window->hot, hash, window->time.newest);
}

void dedup_window_judge(
    struct dedup_window *window, struct fingerprint hash, uint64_t found, bool there)
{
	if (found && there) {
		note_hot_hash(window, hash, window->slices[__builtin_ctzll(found)].plan.head.slice);
		return;
	}
	window->figures.false_hits += (uint64_t)__builtin_popcountll(found);
	window->stretch.false_hits += (uint64_t)__builtin_popcountll(found);
	end_stretch(window);
}

static bool slice_has(struct dedup_window *window, struct dedup_slice *slice,
    struct fingerprint hash, bool *ret_there, struct err *err)
{
	enum dedup_slice_origin before = slice->origin;
	return dedup_slice_has(slice, hash, ret_there, err) ? note_rebuilt(window, slice, before)
							    : fail_window(window, err);
}

bool dedup_window_has(
    struct dedup_window *window, struct fingerprint hash, bool *ret_there, struct err *err)
{
	uint64_t found = 0;
	*ret_there = dedup_window_is_hot(window, hash) || hash_set_has(&window->unwritten, hash);
	if (*ret_there)
		return true;

	if (!dedup_window_may_have(window, hash, &found, err))
		return false;

	for (; found; found &= found - 1) {
		struct dedup_slice *slice = &window->slices[__builtin_ctzll(found)];
		if (!slice_has(window, slice, hash, ret_there, err))
			return false;
		if (*ret_there) {
			note_hot_hash(window, hash, slice->plan.head.slice);
			return true;
		}
		window->figures.false_hits++;
		window->stretch.false_hits++;
	}

	end_stretch(window);
	return true;
}

/* Finds the last sub-slice of the slice; if it is full, begins a new one. */
static bool find_slice_with_room(
    struct dedup_window *window, int64_t number, struct dedup_slice **ret_slice, struct err *err)
{
	int place = place_of_slice(window, number + 1, 0) - 1, sub = 0;
	struct dedup_slice *last = place < 0 ? NULL : &window->slices[place];
	if (last && last->plan.head.slice == number) {
		*ret_slice = last;
		if (dedup_slice_ids(last) < last->plan.ids && !dedup_slice_is_full(last))
			return true;
		sub = last->plan.head.sub + 1;
	}

	if (!begin_slice(window, number, sub, &place, err))
		return false;
	*ret_slice = &window->slices[place];
	return true;
}

static bool is_nearly_full(const struct dedup_slice *slice)
{
	return dedup_slice_ids(slice) >= slice->plan.ids - slice->plan.ids / 4;
}

/* Far more ids come than planned, and the next slice was made ready with too little room. A
 * sub-slice holds as many ids as all before it, so that twice as many may come. A small excess
 * waits for advance_window: to make a slice ready at the end of another one could delay the
 * rotation. */
static void enlarge_next(struct dedup_window *window)
{
	uint64_t room = 2 * needed_room(window), bound = window->plan.ids * FILTER_MOST_GROWTH;
	const struct dedup_slice_plan next =
	    plan_of(window, window->time.newest + 1, 0, room < bound ? room : bound);
	if (next.ids > dedup_ahead_ids(&window->next))
		dedup_ahead_begin(&window->next, &next, NULL, 0);
}

static void prepare_sub(struct dedup_window *window, const struct dedup_slice *last)
{
	const struct key_log_head *head = &last->plan.head;
	if (dedup_ahead_has(&window->next_sub, head->slice, head->sub + 1))
		return;
	const struct dedup_slice_plan plan = plan_of(window, head->slice, head->sub + 1, 0);
	dedup_ahead_begin(&window->next_sub, &plan, NULL, 0);
	if (head->sub)
		enlarge_next(window);
}

bool dedup_window_add(struct dedup_window *window, struct fingerprint hash, int64_t offset,
    int64_t time_ms, int64_t now_ms, struct err *err)
{
	int64_t number = slice_time_place(&window->time, time_ms < now_ms ? time_ms : now_ms);
	struct dedup_slice *slice;

	bool later = number > window->time.newest;
	if (!check_whole(window, err) || !find_slice_with_room(window, number, &slice, err))
		return false;

	const struct key_entry entry = {hash, offset, time_ms};
	dedup_slice_add(slice, &entry);
	hash_set_add(&window->unwritten, hash);
	note_hot_hash(window, hash, number);

	if (later)
		advance_window(window);
	else if (number == window->time.newest && is_nearly_full(slice))
		prepare_sub(window, slice);
	return true;
}

static bool make_slice_durable(
    struct dedup_window *window, struct dedup_slice *slice, int64_t offset, struct err *err)
{
	return (dedup_slice_write(slice, offset, err) && dedup_slice_sync(slice, err)) ||
	       fail_window(window, err);
}

bool dedup_window_flush(struct dedup_window *window, struct err *err)
{
	if (!check_whole(window, err))
		return false;
	for (int i = 0; i < window->count; i++)
		if (!dedup_slice_write(&window->slices[i], -1, err))
			return fail_window(window, err);
	hash_set_clear(&window->unwritten);
	return true;
}

/* The offset is written last, because it is valid for all slices. */
static bool write_window_slices(struct dedup_window *window, int64_t offset, struct err *err)
{
	for (int i = 0; i < window->count - 1; i++)
		if (!make_slice_durable(window, &window->slices[i], -1, err))
			return false;
	if (window->folder_dirty && !state_folder_sync(&window->folder, err))
		return false;
	fault_point("before_dedup_offset");
	return !window->count ||
	       make_slice_durable(window, &window->slices[window->count - 1], offset, err);
}

/* --- repair --------------------------------------------------------------------------------- */

static bool remake_slice(struct dedup_window *window, int place, uint64_t lines, struct err *err)
{
	struct dedup_slice *slice = &window->slices[place];
	bool good = dedup_slice_remake(slice, lines, err);

	/* also after a failure: the old filter's memory may be gone */
	window->filters[place] = slice->filter;
	if (!good)
		return false;
	window->figures.repairs++;
	slice->bits_rate = measure_slice(slice).rate;
	return true;
}

/* Measures the slice's filter, and makes it anew if that helps. */
static bool repair_slice(struct dedup_window *window, int place, struct err *err)
{
	struct dedup_slice *slice = &window->slices[place];
	const struct filter_state state = measure_slice(slice);
	const struct key_log_head *head = &slice->plan.head;
	uint64_t ids = dedup_slice_ids(slice);
	uint64_t planned = plan_of(window, head->slice, head->sub, ids).lines;

	slice->doubted = false;
	slice->bits_rate = state.rate;
	/* the newest slice gets more ids */
	if (ids < slice->plan.ids)
		ids = slice->plan.ids;

	uint64_t lines = filter_repair_lines(
	    &state, &window->target, head->sub, ids, slice->filter.lines, planned);
	return !lines || remake_slice(window, place, lines, err);
}

static void end_doubts(struct dedup_window *window)
{
	for (int i = 0; i < window->count; i++)
		window->slices[i].doubted = false;
}

/* All filters were measured. If a repair ended the alarm, it need not last until the next stretch,
 * because the measured rate is exact. */
static void judge_repairs(struct dedup_window *window)
{
	double none = 1;
	for (int i = 0; i < window->count; i++)
		none *= 1 - window->slices[i].bits_rate;

	/* without a repair the false hits have another cause, such as ids without a row in the
	 * query of confirm=sql */
	if (window->figures.repairs > window->repairs_before && 1 - none <= window->alarm) {
		window->figures.observed_rate = 1 - none;
		window->figures.alarm = false;
		window->stretch = (struct stretch){0};
	} else
		window->incurable = window->time.newest;
}

/*
 * Measures the filters that an alarm has put in doubt, and repairs those that need it. Once this
 * has taken REPAIR_MS, the rest is left to the next checkpoints, so that none takes long. If the
 * disk has no room, the next stretch tries again.
 */
static bool repair_window(struct dedup_window *window, struct err *err)
{
	int64_t until = clock_ms() + REPAIR_MS;
	if (!has_doubts(window))
		return true;

	for (int place = 0; place < window->count; place++) {
		if (!window->slices[place].doubted)
			continue;
		if (!repair_slice(window, place, err)) {
			end_doubts(window);
			return err->kind != ERR_FATAL || fail_window(window, err);
		}
		if (clock_ms() >= until)
			break;
	}

	if (!has_doubts(window))
		judge_repairs(window);
	return true;
}

bool dedup_window_checkpoint(struct dedup_window *window, int64_t offset, struct err *err)
{
	if (!check_whole(window, err) || !state_folder_check(&window->folder, err) ||
	    !write_window_slices(window, offset, err))
		return false;
	const struct file_list there = list_window_files(window);
	if (window->folder_dirty && !file_list_write(&window->folder, &there, err))
		return false;
	window->folder_dirty = false;
	hash_set_clear(&window->unwritten);
	if (window->count && offset > window->figures.offset)
		window->figures.offset = offset;
	return repair_window(window, err); /* last: the ids are durable, whatever becomes of it */
}

void dedup_window_figures(
    const struct dedup_window *window, struct dedup_window_figures *ret_figures)
{
	double none = 1;
	*ret_figures = window->figures;
	ret_figures->slices = window->count;
	ret_figures->repairing = has_doubts(window);
	ret_figures->memory_bytes = (window->hot.mask + 1) * sizeof *window->hot.places +
				    window->unwritten.capacity * sizeof *window->unwritten.places;
	ret_figures->newest_ms = window->time.newest == INT64_MIN
				     ? INT64_MIN
				     : window->time.newest * window->time.slice_ms;

	for (int i = 0; i < window->count; i++) {
		const struct dedup_slice *slice = &window->slices[i];
		ret_figures->ids += dedup_slice_ids(slice);
		ret_figures->sub_slices += slice->plan.head.sub > 0;
		ret_figures->bytes += dedup_slice_bytes(slice);
		ret_figures->memory_bytes += slice->filter.lines * BLOOM_LINE;
		if (dedup_slice_ids(slice))
			none *= 1 - bloom_rate((double)dedup_slice_ids(slice) /
						   (double)slice->filter.lines,
					BLOOM_PLACES);
	}

	ret_figures->planned_rate = 1 - none;
}
