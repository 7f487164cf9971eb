#include "dedup_inspect.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include "cleanup.h"
#include "dedup_stores.h"
#include "file_list.h"
#include "key_log_format.h"
#include "mapped_file.h"
#include "text.h"

/* NULL: the head of the folder has a fault, or names no known store. */
static const struct dedup_store_type *store_of_folder(const struct state_folder_view *folder)
{
	int i = 0;
	while (dedup_stores[i] && !text_equal(dedup_stores[i]->folder, folder->store))
		i++;
	return folder->fault ? NULL : dedup_stores[i];
}

static bool is_slice(const struct state_file *file)
{
	return file->kind == STATE_FILE_LOG || file->kind == STATE_FILE_COUNTS ||
	       file->kind == STATE_FILE_BITS;
}

/* A process that is killed while it makes a file leaves it blank. */
static bool is_made(const struct state_folder_view *folder, const struct state_file *file)
{
	struct stat state;
	owned_fd int fd = openat(folder->fd, file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fstat(fd, &state) == 0 &&
	       !mapped_file_is_blank(fd, (uint64_t)state.st_size);
}

static bool has_ids(const struct state_folder_view *folder, const struct state_file *file)
{
	struct stat state;
	if (file->kind == STATE_FILE_BITS)
		return is_made(folder, file);
	return file->kind == STATE_FILE_COUNTS ||
	       (file->kind == STATE_FILE_LOG && fstatat(folder->fd, file->name, &state, 0) == 0 &&
		   state.st_size > KEY_LOG_HEAD);
}

static void add_existing(struct file_list *there, const struct state_file *file)
{
	struct file_name *last = there->count ? &there->names[there->count - 1] : NULL;
	if (there->totals && last && last->number == file->number)
		last->sub++;
	else if (there->count < FILE_LIST_MOST)
		file_list_add(there, file->number, there->totals ? 1 : file->sub);
}

/* Reports files that existed at a checkpoint and are missing. While a process has the folder open,
 * a missing file is no damage, because slices end and their files are removed. */
static void inspect_list(struct dedup_inspection *inspection)
{
	const struct state_folder_view *folder = inspection->folder;
	const struct dedup_store_type *store = store_of_folder(folder);
	struct file_list listed, there = {.totals = store && store->files >> STATE_FILE_BITS & 1};
	struct err why;
	int64_t newest = INT64_MIN;

	/* From the newest on, so that the list has room for each slice that is alive. */
	for (size_t i = folder->count; i-- > 0;) {
		const struct state_file *file = &folder->files[i];
		if (store && !(store->files >> file->kind & 1))
			continue;
		if (has_ids(folder, file))
			add_existing(&there, file);
		if (is_slice(file) && file->number > newest)
			newest = file->number;
	}

	if (!file_list_read(folder->fd, folder->head.seed, &listed, &why)) {
		dedup_inspection_report(inspection, "files", 0, false, "%s", why.message);
		return;
	}

	const struct file_name *missing =
	    file_list_missing(&listed, &there, newest, (int)folder->head.slices);
	if (missing && !inspection->live && there.totals)
		dedup_inspection_report(inspection, "files", DEDUP_WHOLE_FILE, false,
		    "of slice %" PRId64 " some of the %" PRId64
		    " files are missing, or empty: ids are lost; use a new folder, and load them "
		    "again",
		    missing->number, missing->sub);
	else if (missing && !inspection->live)
		dedup_inspection_report(inspection, "files", DEDUP_WHOLE_FILE, false,
		    "of slice %" PRId64 ", sub-slice %" PRId64
		    " it knows a file that is missing, or empty: ids are lost; use a new folder, "
		    "and load them again",
		    missing->number, missing->sub);
}

static bool is_map_of(const struct state_file *map, const struct state_file *log)
{
	return log->kind == STATE_FILE_LOG && map->kind == STATE_FILE_MAP &&
	       map->number == log->number && map->sub == log->sub;
}

/*
 * The store that the file belongs to; NULL: no store has such files. If the folder has no valid
 * head, or its head names no known store, the first store with such files is returned.
 */
static const struct dedup_store_type *store_of_file(
    const struct state_folder_view *folder, const struct state_file *file)
{
	bool known = store_of_folder(folder) != NULL;
	for (int i = 0; dedup_stores[i]; i++)
		if (dedup_stores[i]->files >> file->kind & 1 &&
		    (!known || text_equal(dedup_stores[i]->folder, folder->store)))
			return dedup_stores[i];
	return NULL;
}

/* Inspects the file at *at. If it is a log with a map, *at moves to the map, which is inspected
 * with it. */
static bool inspect_file(struct dedup_inspection *inspection, size_t *at, struct err *err)
{
	const struct state_folder_view *folder = inspection->folder;
	const struct state_file *file = &folder->files[*at];
	const struct dedup_store_type *store = store_of_file(folder, file);

	inspection->map = NULL;
	inspection->part = (struct dedup_part){.file = file,
	    .offset = -1,
	    .first_ms = INT64_MAX,
	    .last_ms = INT64_MIN,
	    .false_rate = -1};
	/* Other programs may have files here: they are reported, and do no harm. */
	if (!store) {
		dedup_inspection_report_foreign(inspection);
		return true;
	}

	if (*at + 1 < folder->count && is_map_of(&folder->files[*at + 1], file))
		inspection->map = &folder->files[++*at];
	return store->inspect(inspection, err);
}

bool dedup_inspect(
    const char *path, bool compare, const struct dedup_inspector *inspector, struct err *err)
{
	OWNED(state_folder_view_close) struct state_folder_view folder;
	struct dedup_inspection inspection = {
	    .to = inspector, .folder = &folder, .compare = compare};

	bool good = state_folder_view_open(&folder, path, err);
	/* The process that has the folder open may leave a file unfinished: that is no damage. */
	inspection.live = folder.holder != 0;
	if (!good)
		return false;

	if (inspector->folder)
		inspector->folder(inspector->context, &folder);
	if (folder.fault)
		dedup_inspection_report(&inspection, "window", 0, false,
		    "%s: use a new folder, and load the ids again", folder.fault);
	if (!folder.fault)
		/* Only with a valid head, since the checksum of the list has the head's seed. */
		inspect_list(&inspection);

	for (size_t i = 0; good && i < folder.count; i++)
		good = inspect_file(&inspection, &i, err) || err_prefix(err, "path=%s", path);
	return good;
}
