/*
 * Messages of outbox-relay, told apart by their positions: at first occurrence these grow along
 * each (publisher, identity, shard, epoch) of a partition, so that only the largest one must be
 * remembered.
 *
 * Each (publisher, identity, shard, epoch) has a line with a watermark, up to which all positions
 * are done. Behind the watermark the line has the positions that were taken in since, in order,
 * each open until it is done. At a checkpoint, or when there are many, the watermark moves over the
 * done positions next to it; at a checkpoint also over all positions whose records are before the
 * checkpoint's offset. So it is never beyond a position that is not done.
 *
 * A smaller position than the last one taken in, but one that was never taken in itself, must have
 * a larger offset: then it is a copy of a record from before this consumer's first one. Otherwise
 * the caller mixes up the order of the records, and the store cannot know whether the position is
 * new: it is refused.
 *
 * Read struct line first, then look_at, make_done and advance_one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cleanup.h"
#include "clock.h"
#include "state_folder.h"
#include "dedup_store.h"
#include "position_prefix.h"
#include "sequence_file.h"
#include "text.h"

enum { MOST_OPEN = 1 << 20, MANY = 1 << 12, EPOCHS = 4 };

struct place {
	int64_t tick, id, offset;
	uint32_t check; /* low bits of the id's hash */
	bool open;
};

struct line {
	struct outbox_position mark; /* tick -1: nothing is done yet */
	struct place *places;        /* positions behind the mark, in order: from first to count */
	size_t first, count, capacity;
	size_t next;    /* index behind the position that was done last, unless places moved */
	int64_t offset; /* offset of the position that was taken in last; -1: not known */
	uint64_t used;  /* when that one was taken in: a larger number is later */
};

struct sequence_store {
	struct dedup_store store;
	struct state_folder folder; /* path NULL: none */
	struct line *lines;
	size_t count, recent; /* recent: the line of the position that was done last */
	uint64_t uses, open;  /* open: places of all lines */
	int64_t offset;
	struct position_memo memo;
	struct text text; /* the marks, as of the last checkpoint */
};

static struct sequence_store *sequence_of(struct dedup_store *store)
{
	return (struct sequence_store *)store;
}

/* --- lines ---------------------------------------------------------------------------------- */

/* Same publisher, identity and shard; the epoch may differ. */
static bool is_of_shard(const struct line *line, const struct outbox_position *position)
{
	return line->mark.shard == position->shard &&
	       strcmp(line->mark.identity, position->identity) == 0 &&
	       strcmp(line->mark.publisher, position->publisher) == 0;
}

static struct line *find_shard_line(
    const struct sequence_store *sequence, const struct outbox_position *position)
{
	for (size_t i = 0; i < sequence->count; i++)
		if (outbox_position_comparable(&sequence->lines[i].mark, position))
			return &sequence->lines[i];
	return NULL;
}

/*
 * The line to reuse for a new epoch of the shard: the least recently used one without open
 * positions. A shard begins a new epoch only after a rare accident, and records of much earlier
 * epochs no longer come. NULL: the shard has fewer than EPOCHS lines, or all are in use.
 */
static struct line *oldest_epoch(
    const struct sequence_store *sequence, const struct outbox_position *position)
{
	struct line *oldest = NULL;
	int epochs = 0;
	for (size_t i = 0; i < sequence->count; i++) {
		struct line *line = &sequence->lines[i];
		if (!is_of_shard(line, position))
			continue;
		epochs++;
		if (line->first == line->count && (!oldest || line->used < oldest->used))
			oldest = line;
	}
	return epochs < EPOCHS ? NULL : oldest;
}

static struct line *make_line(
    struct sequence_store *sequence, const struct outbox_position *position)
{
	struct line *line = oldest_epoch(sequence, position);
	if (!line) {
		sequence->lines =
		    xrealloc(sequence->lines, (sequence->count + 1) * sizeof *sequence->lines);
		line = &sequence->lines[sequence->count++];
		*line = (struct line){0};
	}

	line->mark = *position;
	line->mark.tick = line->mark.id = -1;
	line->first = line->count = 0;
	line->offset = -1;
	return line;
}

static int compare_place(const struct place *place, const struct outbox_position *position)
{
	return outbox_position_compare(
	    &(struct outbox_position){.tick = place->tick, .id = place->id}, position);
}

static struct place *find_line_place(
    const struct line *line, const struct outbox_position *position)
{
	size_t low = line->first, high = line->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (compare_place(&line->places[middle], position) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	bool found = low < line->count && compare_place(&line->places[low], position) == 0;
	return found ? &line->places[low] : NULL;
}

static void add_line_place(struct sequence_store *sequence, struct line *line,
    const struct outbox_position *position, const struct dedup_item *item)
{
	if (line->first == line->count)
		line->first = line->count = 0;

	/* More than half of the room lies in front of the first place: no more memory is needed. */
	if (line->count == line->capacity && line->first > line->capacity / 2) {
		line->count -= line->first;
		memmove(
		    line->places, line->places + line->first, line->count * sizeof *line->places);
		line->first = 0;
	}

	if (line->count == line->capacity) {
		line->capacity = line->capacity ? line->capacity * 2 : 64;
		line->places = xrealloc(line->places, line->capacity * sizeof *line->places);
	}

	line->places[line->count++] = (struct place){
	    position->tick, position->id, item->offset, (uint32_t)item->hash.low, true};
	sequence->open++;
}

/* Moves the mark over the first place if that is done, or if its record is before the offset. */
static bool advance_one(struct sequence_store *sequence, struct line *line, int64_t offset)
{
	if (line->first == line->count)
		return false;
	const struct place *place = &line->places[line->first];
	if (place->open && (place->offset < 0 || place->offset >= offset))
		return false;
	line->mark.tick = place->tick;
	line->mark.id = place->id;
	line->first++;
	sequence->open--;
	return true;
}

/* --- use ------------------------------------------------------------------------------------ */

static bool read_position(struct sequence_store *sequence, const struct dedup_item *item,
    struct outbox_position *ret_position, struct err *err)
{
	int shown = item->length < 60 ? (int)item->length : 60;
	return position_prefix_parse(&sequence->memo, item->id, item->length, ret_position) ||
	       err_set(err, ERR_REJECT,
		   "'%.*s' is no position: 'sequence' is for messages of outbox-relay, by their "
		   "header outbox-position; choose another store for others",
		   shown, (const char *)item->id);
}

static bool is_later(const struct line *line, const struct outbox_position *position)
{
	const struct place *last =
	    line->first < line->count ? &line->places[line->count - 1] : NULL;
	return last ? compare_place(last, position) < 0
		    : outbox_position_compare(&line->mark, position) < 0;
}

static bool admit_position(struct sequence_store *sequence, struct line *line,
    const struct outbox_position *position, const struct dedup_item *item, struct err *err)
{
	if (sequence->open >= MOST_OPEN)
		return err_set(err, ERR_RETRY,
		    "%d positions came since the first that is not done: finish that, and "
		    "checkpoint",
		    MOST_OPEN);
	line->used = ++sequence->uses;
	line->offset = item->offset;
	add_line_place(sequence, line, position, item);
	return true;
}

static bool look_at(struct sequence_store *sequence, const struct dedup_item *item,
    enum outbox_dedup_state *ret_state, struct err *err)
{
	struct outbox_position position;
	if (!read_position(sequence, item, &position, err))
		return false;

	struct line *line = find_shard_line(sequence, &position);
	if (!line)
		line = make_line(sequence, &position);

	*ret_state = OUTBOX_DEDUP_NEW;
	if (is_later(line, &position))
		return admit_position(sequence, line, &position, item, err);

	const struct place *place = find_line_place(line, &position);
	if (!place || !place->open)
		*ret_state = OUTBOX_DEDUP_DONE;
	/* neither taken in nor a copy: the caller mixes up the order */
	return place || item->offset > line->offset ||
	       outbox_position_compare(&line->mark, &position) >= 0 ||
	       err_set(err, ERR_REJECT,
		   "position %.*s came behind a later one: check the records of a partition in the "
		   "order of their offsets, each once",
		   (int)item->length, (const char *)item->id);
}

static bool look_up_positions(struct dedup_store *store, const struct dedup_item *items,
    size_t count, enum outbox_dedup_state *ret_states, struct err *err)
{
	for (size_t i = 0; i < count; i++)
		if (!look_at(sequence_of(store), &items[i], &ret_states[i], err))
			return false;
	return true;
}

/* Is it the position behind the one that was done last? Most are, and need no search. */
static bool is_next(const struct line *line, const struct dedup_item *item)
{
	if (line->next < line->first || line->next >= line->count || item->offset < 0)
		return false;
	const struct place *next = &line->places[line->next];
	return next->offset == item->offset && next->check == (uint32_t)item->hash.low;
}

static bool make_done(
    struct sequence_store *sequence, const struct dedup_item *item, struct err *err)
{
	struct line *line = sequence->count ? &sequence->lines[sequence->recent] : NULL;
	struct outbox_position position;
	if (!line || !is_next(line, item)) {
		if (!read_position(sequence, item, &position, err))
			return false;
		line = find_shard_line(sequence, &position);
		struct place *place = line ? find_line_place(line, &position) : NULL;
		if (!place) /* the mark is beyond it already */
			return true;
		line->next = (size_t)(place - line->places);
		sequence->recent = (size_t)(line - sequence->lines);
	}

	line->places[line->next++].open = false;
	/* without a checkpoint for long, the mark moves here: done places take memory */
	while (line->count - line->first > MANY && advance_one(sequence, line, 0))
		;
	return true;
}

static bool finish_positions(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++)
		if (!make_done(sequence_of(store), &items[i], err))
			return false;
	return true;
}

/* --- the marks as text ---------------------------------------------------------------------- */

static void write_marks(struct sequence_store *sequence)
{
	char position[OUTBOX_POSITION_SIZE];
	text_clear(&sequence->text);
	for (size_t i = 0; i < sequence->count; i++) {
		if (sequence->lines[i].mark.tick < 0)
			continue;
		outbox_position_format(&sequence->lines[i].mark, position);
		text_addf(&sequence->text, "%s%s", sequence->text.length ? " " : "", position);
	}
}

static size_t copy_mark_text(const struct dedup_store *store, char *ret_text, size_t size)
{
	const struct sequence_store *sequence = (const struct sequence_store *)store;
	text_copy(ret_text, size, text_string(&sequence->text));
	return sequence->text.length;
}

static bool resume_marks(struct dedup_store *store, const char *text, struct err *err)
{
	struct sequence_store *sequence = sequence_of(store);
	for (const char *at = text; *at;) {
		struct outbox_position position;
		size_t length = strcspn(at, " ");
		if (!outbox_position_parse(at, length, &position))
			return err_set(err, ERR_REJECT,
			    "'%.60s' is no mark of 'sequence': it has positions, with blanks "
			    "between",
			    at);

		struct line *line = find_shard_line(sequence, &position);
		if (!line)
			line = make_line(sequence, &position);
		/* A mark never moves back: the folder may know more than the text. */
		if (outbox_position_compare(&line->mark, &position) < 0)
			line->mark = position;
		at += length + (at[length] == ' ');
	}

	write_marks(sequence);
	return true;
}

/* --- the file ------------------------------------------------------------------------------- */

static bool read_marks_file(struct sequence_store *sequence, struct err *err)
{
	owned_text char *marks = sequence_file_read(sequence->folder.fd, &sequence->offset);
	if (!marks && errno != EBADMSG)
		return errno == ENOENT ||
		       state_folder_fail(&sequence->folder, "positions cannot be read", err);
	return (marks && resume_marks(&sequence->store, marks, err)) ||
	       err_set(err, ERR_CONFIG,
		   "path=%s: the file positions is damaged: remove it, and what came since the "
		   "offset that is committed may come twice",
		   sequence->folder.path);
}

static bool write_file(const struct sequence_store *sequence, struct err *err)
{
	const struct state_folder *folder = &sequence->folder;
	return state_folder_check(folder, err) &&
	       (sequence_file_write(folder->fd, text_string(&sequence->text), sequence->offset) ||
		   state_folder_fail(folder, "positions cannot be written", err)) &&
	       state_folder_sync(folder, err);
}

static bool checkpoint_sequence(struct dedup_store *store, int64_t offset, struct err *err)
{
	struct sequence_store *sequence = sequence_of(store);
	for (size_t i = 0; i < sequence->count; i++)
		while (advance_one(sequence, &sequence->lines[i], offset))
			;
	if (offset > sequence->offset)
		sequence->offset = offset;
	write_marks(sequence);
	return !sequence->folder.path || write_file(sequence, err);
}

/* --- life ----------------------------------------------------------------------------------- */

static void close_sequence_store(struct dedup_store *store)
{
	struct sequence_store *sequence = sequence_of(store);
	for (size_t i = 0; i < sequence->count; i++)
		free(sequence->lines[i].places);
	if (sequence->folder.path)
		state_folder_close(&sequence->folder);
	text_finish(&sequence->text);
	free(sequence->lines);
	free(sequence);
}

static struct dedup_store *open_sequence_store(const struct dedup_spec *spec, struct err *err)
{
	struct sequence_store *sequence = xcalloc(1, sizeof *sequence);
	sequence->store = (struct dedup_store){spec->type, (uint64_t)clock_random()};
	sequence->offset = -1;
	if (!spec->path ||
	    (state_folder_open(&sequence->folder, spec->path, "sequence", 0, 0, 0, err) &&
		read_marks_file(sequence, err)))
		return &sequence->store;
	close_sequence_store(&sequence->store);
	return NULL;
}

static bool inspect_positions(struct dedup_inspection *inspection, struct err *err)
{
	struct dedup_part *part = &inspection->part;
	struct stat state;

	owned_text char *marks = sequence_file_read(inspection->folder->fd, &part->offset);
	if (!marks && errno != EBADMSG)
		return dedup_inspection_fail_unless_gone(part->file->name, err);
	if (!marks)
		dedup_inspection_report(inspection, part->file->name, DEDUP_WHOLE_FILE, false,
		    "it is not as it was written: the store is refused; remove it, and what came "
		    "since the offset that is committed may come twice");

	if (fstatat(inspection->folder->fd, part->file->name, &state, 0) == 0)
		part->bytes = (uint64_t)state.st_size;
	dedup_inspection_end_part(inspection);
	return true;
}

static void read_sequence_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct sequence_store *sequence = (const struct sequence_store *)store;
	stats->offset = sequence->offset;
	stats->memory_bytes = sequence->count * sizeof *sequence->lines;
	for (size_t i = 0; i < sequence->count; i++)
		stats->memory_bytes += sequence->lines[i].capacity * sizeof(struct place);
	if (sequence->folder.path)
		stats->disk_bytes = sequence->text.length;
}

const struct dedup_store_type sequence_store = {
    .spec = {"sequence", dedup_settings, DEDUP_TAKES_ALWAYS | DEDUP_TAKES(PATH)},
    .by_position = true,
    .folder = "sequence",
    .files = 1 << STATE_FILE_POSITIONS,
    .inspect = inspect_positions,
    .promise = {.store = "sequence",
	.false_positives =
	    "none for messages checked in the order of offsets; other messages are refused",
	.false_negatives = "none, for the last four epochs of each shard",
	.restart = "remembers positions that the last checkpoint made durable: in its folder, or "
		   "in the mark that is committed with the offset",
	.scope = "one partition of messages of outbox-relay, by their header outbox-position",
	.memory =
	    "about 130 bytes for each (publisher, identity, shard, epoch), 32 for each position "
	    "behind the first that is not done, and for at most 4,096 of those that are not "
	    "checkpointed",
	.disk = "about 70 bytes for each (publisher, identity, shard, epoch)"},
    .open = open_sequence_store,
    .close = close_sequence_store,
    .look = look_up_positions,
    .add = finish_positions,
    .mark = copy_mark_text,
    .resume = resume_marks,
    .checkpoint = checkpoint_sequence,
    .stats = read_sequence_stats,
};
