/*
 * Lists archives, and restores one: find_archive_file, then the file is checked, restore_begin
 * makes a table, load_file fills it, and attach_restored makes it a partition.
 */
#include "archives.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "clock.h"
#include "fault.h"
#include "schema_query.h"
#include "schema_text.h"
#include "script.h"
#include "sql_files.h"
#include "text.h"

enum { ATTACH_MS = 10000, PAUSE_MS = 50 };

/* --- the list ------------------------------------------------------------------------------- */

/* Columns of archives.sql. */
enum {
	ID,
	TABLE,
	NAME,
	STATE,
	LEAF,
	HOST,
	FOLDER,
	FILE_NAME,
	FROM_US,
	TO_US,
	ROWS,
	BYTES,
	FILE_BYTES,
	CHECKSUM
};

static struct archive read_archive(const struct pg_result *rows, int i)
{
	struct archive archive = {
	    .id = pg_int(rows, i, ID),
	    .table = xstrdup(pg_value(rows, i, TABLE)),
	    .name = xstrdup(pg_value(rows, i, NAME)),
	    .state = xstrdup(pg_value(rows, i, STATE)),
	    .leaf = xstrdup(pg_value(rows, i, LEAF)),
	    .host = xstrdup(pg_value(rows, i, HOST)),
	    .folder = xstrdup(pg_value(rows, i, FOLDER)),
	    .file = xstrdup(pg_value(rows, i, FILE_NAME)),
	    .from_us = pg_int(rows, i, FROM_US),
	    .to_us = pg_int(rows, i, TO_US),
	    .has_totals = !pg_is_null(rows, i, ROWS),
	    .totals = {.rows = pg_int(rows, i, ROWS),
		.bytes = pg_int(rows, i, BYTES),
		.file_bytes = pg_int(rows, i, FILE_BYTES)},
	};

	text_copy(
	    archive.totals.checksum, sizeof archive.totals.checksum, pg_value(rows, i, CHECKSUM));
	return archive;
}

bool archive_list(struct pg *pg, const char *schema, const char *table,
    struct archive_list *ret_list, struct err *err)
{
	const struct pg_param params[] = {{table}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = schema_query(pg, schema, sql_archives, params, 1, err);

	if (!rows)
		return false;
	*ret_list =
	    (struct archive_list){.items = xcalloc((size_t)pg_rows(rows), sizeof *ret_list->items),
		.count = pg_rows(rows)};
	for (int i = 0; i < ret_list->count; i++)
		ret_list->items[i] = read_archive(rows, i);
	return true;
}

void archive_list_finish(struct archive_list *list)
{
	for (int i = 0; i < list->count; i++) {
		struct archive *archive = &list->items[i];

		free(archive->table);
		free(archive->name);
		free(archive->state);
		free(archive->leaf);
		free(archive->host);
		free(archive->folder);
		free(archive->file);
	}
	free(list->items);
	*list = (struct archive_list){0};
}

bool archive_is_waiting(const struct archive *archive)
{
	return text_equal(archive->state, "waiting") || text_equal(archive->state, "written");
}

void archive_host(char *ret_host, size_t size)
{
	if (gethostname(ret_host, size) != 0)
		ret_host[0] = '\0';
	ret_host[size - 1] = '\0';
}

char *archive_place(const struct archive *archive)
{
	char host[256];
	bool here;

	archive_host(host, sizeof host);
	here = text_equal(host, archive->host);
	return xformat("%s%s%s/%s", here ? "" : archive->host, here ? "" : ":", archive->folder,
	    archive->file);
}

/* --- the file of a restore ------------------------------------------------------------------ */

/* The file to restore, and the archive that it is of; archive NULL: the database knows none. */
struct restore_source {
	char *path, *folder, *file;
	const struct archive *archive;
};

static void finish_restore_source(struct restore_source *source)
{
	free(source->path);
	free(source->folder);
	free(source->file);
}

static void set_source_file(struct restore_source *source, const char *folder, const char *file)
{
	source->path = xformat("%s/%s", folder, file);
	source->folder = xstrdup(folder);
	source->file = xstrdup(file);
}

/* A path is taken as it is; a mere file name is one of the folder. */
static bool name_given_file(
    const struct restore_request *request, struct restore_source *source, struct err *err)
{
	const char *slash = strrchr(request->name, '/');
	const char *folder = request->folder ? request->folder : request->archive_path;
	owned_text char *given =
	    slash ? xformat("%.*s", (int)(slash - request->name), request->name) : NULL;

	if (!slash && !folder[0])
		return err_set(
		    err, ERR_REJECT, "in which folder is %s? Name it with --folder", request->name);
	/* "/x" is in the root, whose name is the slash itself */
	set_source_file(
	    source, given ? (given[0] ? given : "/") : folder, slash ? slash + 1 : request->name);
	return true;
}

static const char *source_folder(
    const struct restore_request *request, const struct archive *archive)
{
	owned_text char *recorded = xformat("%s/%s", archive->folder, archive->file);

	if (request->folder)
		return request->folder;
	/* another host wrote the file, which may have been copied to the folder of this one */
	if (access(recorded, F_OK) != 0 && request->archive_path[0])
		return request->archive_path;
	return archive->folder;
}

static bool find_archive_file(const struct restore_request *request,
    const struct archive_list *list, struct restore_source *source, struct err *err)
{
	size_t length = strlen(request->name);
	bool is_file = strchr(request->name, '/') ||
		       (length > 4 && text_equal(request->name + length - 4, ".zst"));

	for (int i = 0; i < list->count; i++) {
		const struct archive *archive = &list->items[i];

		if (!text_equal(archive->name, request->name) || is_file)
			continue;
		/* late rows of its time were archived separately: the operator says which */
		if (source->archive)
			return err_set(err, ERR_REJECT,
			    "%s was archived more than once: name one of the files, such as %s or "
			    "%s",
			    request->name, source->archive->file, archive->file);
		source->archive = archive;
	}
	if (is_file)
		return name_given_file(request, source, err);
	if (!source->archive)
		return err_set(err, ERR_REJECT,
		    "%s was not archived from this database; `outbox-relay partition list` shows "
		    "what was, and a file is restored by its path",
		    request->name);
	if (archive_is_waiting(source->archive))
		return err_set(err, ERR_REJECT,
		    "%s has no checked file yet: its rows are in the table %s", request->name,
		    source->archive->leaf);
	set_source_file(source, source_folder(request, source->archive), source->archive->file);
	return true;
}

/* Reads the whole file; another archive under the name of this one is refused. */
static bool check_restore_source(
    const struct restore_source *source, struct archive_totals *ret_totals, struct err *err)
{
	if (!archive_file_check(source->path, -1, ret_totals, err))
		return false;
	return !source->archive ||
	       text_equal(source->archive->totals.checksum, ret_totals->checksum) ||
	       err_set(err, ERR_REJECT,
		   "%s has the checksum %s, and the archived partition had %s: it is another file",
		   source->path, ret_totals->checksum, source->archive->totals.checksum);
}

/* --- the steps of a restore ----------------------------------------------------------------- */

/* The table that restore_begin made. */
struct restore_target {
	int64_t id;
	char *table, *columns;
	const char *schema;
};

static bool judge_restore_begin(
    const struct restore_source *source, const char *outcome, const char *detail, struct err *err)
{
	const char *path = source->path;

	if (text_equal(outcome, "begun"))
		return true;
	if (text_equal(outcome, "there"))
		return err_set(
		    err, ERR_REJECT, "%s: its rows are in the partition %s already", path, detail);
	if (text_equal(outcome, "waiting"))
		return err_set(
		    err, ERR_REJECT, "%s: its rows are still in the table %s", path, detail);
	if (text_equal(outcome, "overlaps"))
		return err_set(err, ERR_REJECT,
		    "%s: the partition %s covers a part of its time; `outbox-relay partition drop` "
		    "removes that one if nobody needs it",
		    path, detail);
	if (text_equal(outcome, "table"))
		return err_set(err, ERR_REJECT,
		    "%s: \"%s\" is no table whose partitions are archived", path, detail);
	if (text_equal(outcome, "column"))
		return err_set(err, ERR_CONFIG,
		    "%s: this schema does not have the column %s; run `outbox-relay migrate up`, "
		    "or restore it into a database of the schema that wrote it",
		    path, detail);
	return err_set(err, ERR_RETRY, "%s: another restore of it is running; try again", path);
}

static bool begin_restore(struct pg *pg, const struct restore_source *source,
    const struct archive_totals *totals, struct restore_target *target, struct err *err)
{
	struct archive_reader *reader = archive_reader_open(source->path, err);
	owned_text char *rows = xformat("%" PRId64, totals->rows);
	owned_text char *bytes = xformat("%" PRId64, totals->bytes);
	owned_text char *file_bytes = xformat("%" PRId64, totals->file_bytes);
	char host[256];
	OWNED(owned_pg_result_destroy) struct pg_result *begun = NULL;

	archive_host(host, sizeof host);
	if (reader) {
		const struct pg_param params[] = {{archive_reader_header(reader)}, {rows}, {bytes},
		    {file_bytes}, {totals->checksum}, {host}, {source->folder}, {source->file}};

		begun = schema_query(pg, target->schema, sql_restore_begin, params, 8, err);
	}
	archive_reader_close(reader);
	if (!begun ||
	    !judge_restore_begin(source, pg_value(begun, 0, 0), pg_value(begun, 0, 1), err))
		return false;
	target->id = pg_int(begun, 0, 2);
	target->table = xstrdup(pg_value(begun, 0, 3));
	target->columns = xstrdup(pg_value(begun, 0, 4));
	return true;
}

static bool send_file(struct pg *pg, struct archive_reader *reader, struct err *err)
{
	const void *data;
	size_t length;

	do {
		if (!archive_reader_next(reader, &data, &length, err))
			return false;
		if (length > 0 && !pg_load_put(pg, data, length, err))
			return false;
	} while (length > 0);
	return pg_load_end(pg, err);
}

static bool refuse_replaced(const struct restore_source *source, struct err *err)
{
	return err_set(err, ERR_RETRY,
	    "%s: another restore of it has begun since, and this one ends; "
	    "`outbox-relay partition list` shows how far it is",
	    source->path);
}

static bool copy_file(struct pg *pg, const struct restore_source *source,
    const struct restore_target *target, struct err *err)
{
	const struct script_place places[] = {
	    {"table", target->table, true}, {"columns", target->columns, true}, {0}};
	owned_text char *sql = schema_text(sql_restore_copy, target->schema);
	owned_text char *script = script_fill(sql, places);
	struct archive_reader *reader = archive_reader_open(source->path, err);
	bool done = reader && pg_load_begin(pg, script, err) && send_file(pg, reader, err);

	archive_reader_close(reader);
	/* the next restore has dropped the table */
	if (!done && text_equal(pg_sqlstate(pg), "42P01"))
		return refuse_replaced(source, err);
	return done;
}

/* One transaction: the rows and their count. */
static bool load_file(struct pg *pg, const struct restore_source *source,
    const struct restore_target *target, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, target->id);
	const struct pg_param params[] = {{id}, {target->table}};
	OWNED(owned_pg_result_destroy) struct pg_result *checked = NULL;

	if (!pg_script(pg, "begin", err) || !copy_file(pg, source, target, err))
		return false;
	fault_point("restore_copied");
	checked = schema_query(pg, target->schema, sql_restore_check, params, 2, err);
	if (!checked)
		return false;
	if (!text_equal(pg_value(checked, 0, 0), "t"))
		return err_set(err, ERR_RETRY,
		    "%s: the table does not have the rows of the file; was it restored twice at "
		    "once? Try again",
		    source->path);
	return pg_script(pg, "commit", err);
}

static bool judge_restore_end(
    const struct restore_source *source, const char *outcome, struct err *err)
{
	if (text_equal(outcome, "restored"))
		return true;

	if (text_equal(outcome, "busy"))
		return err_set(err, ERR_RETRY,
		    "%s: a lock was not to be had without making writers wait; try again",
		    source->path);
	if (text_equal(outcome, "default_not_empty"))
		return err_set(err, ERR_RETRY,
		    "%s: the default partition holds rows of its time, which `outbox-relay run` "
		    "moves first",
		    source->path);
	if (text_equal(outcome, "missing"))
		return refuse_replaced(source, err);
	return err_set(
	    err, ERR_REJECT, "%s: it was not made a partition: %s", source->path, outcome);
}

static bool attach_restored(struct pg *pg, const struct restore_source *source,
    const struct restore_target *target, int64_t keep_ms, struct err *err)
{
	const struct timespec pause = {0, PAUSE_MS * 1000000L};
	owned_text char *id = xformat("%" PRId64, target->id);
	owned_text char *keep = xformat("%" PRId64, keep_ms);
	const struct pg_param params[] = {{id}, {target->table}, {keep}};
	int64_t until = clock_ms() + ATTACH_MS;

	for (;;) {
		OWNED(owned_pg_result_destroy)
		struct pg_result *ended =
		    schema_query(pg, target->schema, sql_restore_end, params, 3, err);

		if (!ended)
			return false;
		if (!text_equal(pg_value(ended, 0, 0), "busy") || clock_ms() > until)
			return judge_restore_end(source, pg_value(ended, 0, 0), err);
		nanosleep(&pause, NULL);
	}
}

static bool find_restored(
    struct pg *pg, const struct restore_target *target, struct restored *ret, struct err *err)
{
	OWNED(archive_list_finish) struct archive_list list = {0};

	if (!archive_list(pg, target->schema, "", &list, err))
		return false;
	for (int i = 0; i < list.count; i++) {
		if (list.items[i].id != target->id)
			continue;
		text_copy(ret->partition, sizeof ret->partition, list.items[i].leaf);
		text_copy(ret->table, sizeof ret->table, list.items[i].table);
	}
	return true;
}

static bool restore_source(struct pg *pg, const struct restore_source *source,
    struct restore_target *target, int64_t keep_ms, struct restored *ret, struct err *err)
{
	struct archive_totals totals;

	if (!check_restore_source(source, &totals, err) ||
	    !begin_restore(pg, source, &totals, target, err))
		return false;
	fault_point("restore_begun");
	if (!load_file(pg, source, target, err))
		return false;
	fault_point("restore_loaded");
	if (!attach_restored(pg, source, target, keep_ms, err))
		return false;
	fault_point("restore_attached");
	ret->rows = totals.rows;
	return find_restored(pg, target, ret, err);
}

bool archive_restore(struct pg *pg, const char *schema, const struct restore_request *request,
    struct restored *ret_restored, struct err *err)
{
	OWNED(archive_list_finish) struct archive_list list = {0};
	OWNED(finish_restore_source) struct restore_source source = {0};
	struct restore_target target = {.schema = schema};
	bool done = archive_list(pg, schema, "", &list, err) &&
		    find_archive_file(request, &list, &source, err) &&
		    restore_source(pg, &source, &target, request->keep_ms, ret_restored, err);

	free(target.table);
	free(target.columns);
	return done;
}
