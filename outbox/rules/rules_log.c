#include "rules_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "state_folder.h"
#include "fault.h"
#include "key_spans.h"
#include "text.h"

enum { MINUTE = 60 * 1000, SPANS = 4 };

struct rules_log {
	struct state_folder folder;
	struct width {
		struct state_folder folder;
		struct key_spans *spans; /* NULL: not read */
		bool stays;
	} widths[RULES_LOG_WIDTHS];
};

static int64_t minutes_of(int width)
{
	return INT64_C(1) << 2 * width;
}

int rules_log_width(int64_t reach_ms)
{
	int width = 0;
	while (width < RULES_LOG_WIDTHS - 1 && minutes_of(width) * MINUTE < reach_ms)
		width++;
	return width;
}

struct rules_log *rules_log_open(const char *path, struct err *err)
{
	struct rules_log *log = xcalloc(1, sizeof *log);
	for (int i = 0; i < RULES_LOG_WIDTHS; i++)
		log->widths[i].folder = (struct state_folder){.fd = -1, .lock = -1};
	if (state_folder_open(&log->folder, path, "rules", 0, 0, 0, err))
		return log;
	rules_log_close(log);
	return NULL;
}

static void close_width(struct width *width)
{
	key_spans_close(width->spans);
	width->spans = NULL;
	state_folder_close(&width->folder);
}

void rules_log_close(struct rules_log *log)
{
	for (int i = 0; log && i < RULES_LOG_WIDTHS; i++)
		close_width(&log->widths[i]);
	if (log)
		state_folder_close(&log->folder);
	free(log);
}

uint64_t rules_log_seed(const struct rules_log *log)
{
	return log->folder.head.seed;
}

static char *width_folder_name(int width)
{
	return xformat("%lldm", (long long)minutes_of(width));
}

bool rules_log_has(const struct rules_log *log, int width)
{
	owned_text char *name = width_folder_name(width);
	return log->widths[width].spans || faccessat(log->folder.fd, name, F_OK, 0) == 0;
}

bool rules_log_read(struct rules_log *log, int width, bool stays,
    void (*see)(void *context, const struct key_entry *entry), void *context, struct err *err)
{
	struct width *place = &log->widths[width];
	owned_text char *name = width_folder_name(width);
	owned_text char *path = xformat("%s/%s", log->folder.path, name);
	int64_t span_ms = minutes_of(width) * MINUTE / SPANS;
	if (!state_folder_open(&place->folder, path, "rules", SPANS, span_ms, 0, err))
		return false;
	place->stays = stays;
	place->spans = key_spans_open(&place->folder, 0, see, context, err);
	return place->spans && state_folder_sync(&log->folder, err);
}

bool rules_log_has_width(const struct rules_log *log, int width)
{
	return log->widths[width].spans;
}

void rules_log_keep(struct rules_log *log, int width, bool stays)
{
	log->widths[width].stays = stays;
}

/* Removes the logs before the head: they have the head's seed, and would be refused without the
 * head. Before the logs it removes the list of required files. */
static void empty_log_folder(int folder)
{
	unlinkat(folder, "files", 0);

	int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	while (list && (entry = readdir(list))) {
		fault_point("within_rules_log_remove");
		if (strstr(entry->d_name, ".log"))
			unlinkat(folder, entry->d_name, 0);
	}
	if (list)
		closedir(list);

	unlinkat(folder, "files.new", 0);
	unlinkat(folder, "window", 0);
	fault_point("within_rules_log_remove");
	unlinkat(folder, "lock", 0);
}

bool rules_log_remove(struct rules_log *log, int width, struct err *err)
{
	owned_text char *name = width_folder_name(width);
	empty_log_folder(log->widths[width].folder.fd);
	close_width(&log->widths[width]);
	return unlinkat(log->folder.fd, name, AT_REMOVEDIR) == 0 ||
	       state_folder_fail(&log->folder, "a folder in it cannot be removed", err);
}

/* --- use ------------------------------------------------------------------------------------ */

bool rules_log_add(struct rules_log *log, int width, const struct key_entry *entry, struct err *err)
{
	return key_spans_add(log->widths[width].spans, entry, err);
}

/* A log that has a file and keeps it. NULL: nothing was recorded yet. */
static struct key_spans *last_of(const struct rules_log *log)
{
	struct key_spans *last = NULL;
	for (int i = 0; i < RULES_LOG_WIDTHS; i++) {
		const struct width *width = &log->widths[i];
		if (width->spans && width->stays && key_spans_bytes(width->spans) > 0)
			last = width->spans;
	}
	return last;
}

/* Writes the offset last, because it is valid for all logs. */
bool rules_log_checkpoint(struct rules_log *log, int64_t offset, struct err *err)
{
	struct key_spans *last = last_of(log);
	if (!state_folder_check(&log->folder, err))
		return false;
	for (int i = 0; i < RULES_LOG_WIDTHS; i++) {
		struct key_spans *spans = log->widths[i].spans;
		if (spans && spans != last && !key_spans_checkpoint(spans, -1, err))
			return false;
	}
	return !last || key_spans_checkpoint(last, offset, err);
}

int64_t rules_log_offset(const struct rules_log *log)
{
	int64_t offset = -1;
	for (int i = 0; i < RULES_LOG_WIDTHS; i++) {
		const struct key_spans *spans = log->widths[i].spans;
		if (spans && key_spans_offset(spans) > offset)
			offset = key_spans_offset(spans);
	}
	return offset;
}

uint64_t rules_log_bytes(const struct rules_log *log)
{
	uint64_t bytes = 0;
	for (int i = 0; i < RULES_LOG_WIDTHS; i++)
		if (log->widths[i].spans)
			bytes += key_spans_bytes(log->widths[i].spans);
	return bytes;
}
