/*
 * Key logs of consecutive spans of time in one folder; old ones are deleted as whole files.
 * [opening] finds and reads them, [use] adds keys, forgets spans and makes them durable.
 */
#include "key_spans.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "fault.h"
#include "file_list.h"
#include "hash_set.h"
#include "slice_time.h"
#include "state_file_name.h"
#include "text.h"

enum { MOST_SPANS = FILE_LIST_MOST, NAME = 64 };

struct span {
	int64_t number;
	struct key_log *log;
};

struct key_spans {
	const struct state_folder *folder;
	uint64_t ids; /* number of ids expected in a span */
	struct slice_time time;
	struct span spans[MOST_SPANS];
	int count;         /* sorted by number */
	bool folder_dirty; /* files were created, and a loss of power may remove them */
	int64_t offset;
};

static void name_span_file(int64_t number, char name[NAME])
{
	snprintf(name, NAME, "%lld.0.log", (long long)number);
}

/* Inserts a span in the order of numbers. */
static struct span *open_span(struct key_spans *spans, int64_t number, struct err *err)
{
	char name[NAME];
	const struct state_folder_head *head = &spans->folder->head;
	const struct key_log_head wanted = {
	    .seed = head->seed, .slice = number, .slice_ms = head->slice_ms};

	name_span_file(number, name);
	struct key_log *log = key_log_open(spans->folder->fd, name, &wanted, spans->ids, err);
	if (!log) {
		err_prefix(err, "path=%s", spans->folder->path);
		return NULL;
	}
	int place = spans->count++;
	for (; place > 0 && spans->spans[place - 1].number > number; place--)
		spans->spans[place] = spans->spans[place - 1];
	spans->spans[place] = (struct span){number, log};
	slice_time_note(&spans->time, number);
	spans->folder_dirty = true;
	return &spans->spans[place];
}

static void remove_old_spans(struct key_spans *spans)
{
	int gone = 0;
	char name[NAME];
	while (gone < spans->count && slice_time_is_gone(&spans->time, spans->spans[gone].number)) {
		key_log_close(spans->spans[gone].log);
		name_span_file(spans->spans[gone++].number, name);
		unlinkat(spans->folder->fd, name, 0);
	}
	spans->count -= gone;
	memmove(spans->spans, spans->spans + gone, (size_t)spans->count * sizeof *spans->spans);
}

/* --- opening -------------------------------------------------------------------------------- */

struct reading {
	uint64_t *units;
	size_t count, capacity;
};

static void note_unit(void *context, uint64_t unit, const struct key_entry *entry)
{
	struct reading *reading = context;
	(void)entry;
	if (reading->count == reading->capacity) {
		reading->capacity = reading->capacity ? reading->capacity * 2 : 1024;
		reading->units =
		    xrealloc(reading->units, reading->capacity * sizeof *reading->units);
	}
	reading->units[reading->count++] = unit;
}

/*
 * Reads from the last entry to the first, so that the releases behind an entry are known before it.
 */
static void show_span_entries(const struct key_log *log, const struct reading *reading,
    void (*see)(void *context, const struct key_entry *entry), void *context)
{
	OWNED(hash_set_finish) struct hash_set released = {0};
	for (size_t i = reading->count; i-- > 0;) {
		const struct key_entry *entry = key_log_at(log, reading->units[i]);
		if (entry->offset == KEY_SPANS_GONE)
			hash_set_add(&released, entry->hash);
		else if (!hash_set_has(&released, entry->hash))
			see(context, entry);
	}
}

static bool read_span(struct key_spans *spans, struct span *span,
    void (*see)(void *context, const struct key_entry *entry), void *context, struct err *err)
{
	struct reading reading = {0};
	bool good = key_log_read(span->log, KEY_FIRST_UNIT, -1, note_unit, &reading, err);
	if (good)
		show_span_entries(span->log, &reading, see, context);
	else
		err_prefix(err, "path=%s", spans->folder->path);
	free(reading.units);
	if (good && key_log_offset(span->log) > spans->offset)
		spans->offset = key_log_offset(span->log);
	return good;
}

static bool open_span_file(struct key_spans *spans, const char *name, struct err *err)
{
	long long number;
	int sub;

	if (!state_file_name_parse(name, "log", &number, &sub) || sub != 0)
		return true;
	return spans->count < MOST_SPANS ? open_span(spans, number, err) != NULL
					 : err_set(err, ERR_CONFIG,
					       "path=%s has more logs than a window has: use a new "
					       "folder, and load the ids again",
					       spans->folder->path);
}

static bool open_span_files(struct key_spans *spans, struct err *err)
{
	int copy = openat(spans->folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	bool good = list || state_folder_fail(spans->folder, "the folder cannot be read", err);
	while (good && (entry = readdir(list)))
		good = open_span_file(spans, entry->d_name, err);
	if (list)
		closedir(list);
	return good;
}

static struct file_list list_span_files(const struct key_spans *spans)
{
	struct file_list list = {0};
	for (int i = 0; i < spans->count; i++)
		if (key_log_written(spans->spans[i].log) > KEY_FIRST_UNIT)
			file_list_add(&list, spans->spans[i].number, 0);
	return list;
}

struct key_spans *key_spans_open(const struct state_folder *folder, uint64_t ids,
    void (*see)(void *context, const struct key_entry *entry), void *context, struct err *err)
{
	struct key_spans *spans = xcalloc(1, sizeof *spans);

	spans->folder = folder;
	spans->ids = ids / folder->head.slices + 1;
	spans->time = (struct slice_time){folder->head.slice_ms, folder->head.slices, INT64_MIN};
	spans->offset = -1;
	bool good = open_span_files(spans, err);
	/* Expired spans are removed before they would be read. */
	if (good && spans->count)
		remove_old_spans(spans);
	for (int i = 0; good && i < spans->count; i++)
		good = read_span(spans, &spans->spans[i], see, context, err);
	const struct file_list there = list_span_files(spans);
	if (good && file_list_check(folder, &there, spans->time.newest, "log", err))
		return spans;

	key_spans_close(spans);
	return NULL;
}

void key_spans_close(struct key_spans *spans)
{
	for (int i = 0; spans && i < spans->count; i++)
		key_log_close(spans->spans[i].log);
	free(spans);
}

/* --- use ------------------------------------------------------------------------------------ */

static struct span *find_span(struct key_spans *spans, int64_t number)
{
	for (int i = spans->count; i-- > 0;)
		if (spans->spans[i].number == number)
			return &spans->spans[i];
	return NULL;
}

bool key_spans_add(struct key_spans *spans, const struct key_entry *entry, struct err *err)
{
	int64_t number = slice_time_place(&spans->time, entry->time_ms);
	struct span *span = find_span(spans, number);

	if (!span) {
		span = open_span(spans, number, err);
		if (!span)
			return false;
		/* Before the removal, which moves the spans in their array. */
		key_log_add(span->log, entry);
		remove_old_spans(spans);
		return true;
	}
	key_log_add(span->log, entry);
	return true;
}

void key_spans_release(struct key_spans *spans, struct fingerprint hash, int64_t now_ms)
{
	const struct key_entry gone = {hash, KEY_SPANS_GONE, now_ms};
	for (int i = 0; i < spans->count; i++)
		key_log_add(spans->spans[i].log, &gone);
}

static bool make_span_durable(
    struct key_spans *spans, struct key_log *log, int64_t offset, struct err *err)
{
	return (key_log_write(log, offset, err) && key_log_sync(log, err)) ||
	       err_prefix(err, "path=%s", spans->folder->path);
}

bool key_spans_flush(struct key_spans *spans, struct err *err)
{
	for (int i = 0; i < spans->count; i++)
		if (!key_log_write(spans->spans[i].log, -1, err))
			return err_prefix(err, "path=%s", spans->folder->path);
	return true;
}

/* Writes the offset last, because it is valid for all logs. */
static bool write_spans(struct key_spans *spans, int64_t offset, struct err *err)
{
	for (int i = 0; i < spans->count - 1; i++)
		if (!make_span_durable(spans, spans->spans[i].log, -1, err))
			return false;
	if (spans->folder_dirty && !state_folder_sync(spans->folder, err))
		return false;
	fault_point("before_dedup_offset");
	return !spans->count ||
	       make_span_durable(spans, spans->spans[spans->count - 1].log, offset, err);
}

bool key_spans_checkpoint(struct key_spans *spans, int64_t offset, struct err *err)
{
	if (!state_folder_check(spans->folder, err) || !write_spans(spans, offset, err))
		return false;
	const struct file_list there = list_span_files(spans);
	if (spans->folder_dirty && !file_list_write(spans->folder, &there, err))
		return false;
	spans->folder_dirty = false;
	if (spans->count && offset > spans->offset)
		spans->offset = offset;
	return true;
}

int64_t key_spans_offset(const struct key_spans *spans)
{
	return spans->offset;
}

uint64_t key_spans_bytes(const struct key_spans *spans)
{
	uint64_t units = 0;
	for (int i = 0; i < spans->count; i++)
		units += key_log_written(spans->spans[i].log);
	return units * KEY_UNIT;
}
