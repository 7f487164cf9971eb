/*
 * The steps of an archive. Begin at archive_waiting_tables, which takes each one in turn through
 * write_archive: begin, copy, rename, check, finish. Between two steps a crash leaves the rows in
 * the table and at most a file that the next try removes.
 */
#include "archiver.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include "archives.h"
#include "backoff.h"
#include "clock.h"
#include "fault.h"
#include "logging.h"
#include "schema_query.h"
#include "schema_text.h"
#include "script.h"
#include "sql_files.h"
#include "text.h"
#include "upkeep_metrics.h"

enum { CONNECT_TIMEOUT_MS = 5000, BUSY_AGAIN_MS = 5000 };

struct archiver {
	const struct postgres_settings *postgres;
	int stop_fd;
	struct pg *pg; /* NULL: not connected */
	struct backoff backoff;
	char problem[1024];
	bool busy; /* a lock was not free in this step */
	/* The archive that failed last. A step begins behind it, so that it keeps no other waiting.
	 */
	int64_t failed_id;
};

/* A try to write one archive. */
struct archive_try {
	const struct archive *archive;
	char *id, *file, *path, *part; /* part: the path while it is written */
	char *table, *columns, *header;
};

static void finish_archive_try(struct archive_try *attempt)
{
	free(attempt->id);
	free(attempt->file);
	free(attempt->path);
	free(attempt->part);
	free(attempt->table);
	free(attempt->columns);
	free(attempt->header);
}

static struct pg_result *ask_archiver_database(struct archiver *archiver, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	return schema_query(archiver->pg, archiver->postgres->schema, sql, params, count, err);
}

/* --- the end of an archive ------------------------------------------------------------------ */

static void report_archived(struct archiver *archiver, const struct archive *archive,
    const struct archive_totals *totals, const char *path)
{
	const char *database = archiver->postgres->name;

	metric_add(
	    METRIC_LABELLED(upkeep_metrics()->archived_bytes, database), (double)totals->bytes);
	log_info("partition_archived", {"database", LOG_TEXT(database)},
	    {"table", LOG_TEXT(archive->table)}, {"partition", LOG_TEXT(archive->name)},
	    {"rows", LOG_INT(totals->rows)}, {"bytes", LOG_INT(totals->bytes)},
	    {"file_bytes", LOG_INT(totals->file_bytes)}, {"file", LOG_TEXT(path)});
}

/* The table is dropped, or it is known what keeps it. */
static bool judge_archive_outcome(struct archiver *archiver, const struct archive *archive,
    const struct archive_totals *totals, const char *path, const char *outcome, struct err *err)
{
	if (text_equal(outcome, "archived")) {
		fault_point("archive_dropped");
		report_archived(archiver, archive, totals, path);
		return true;
	}

	/* somebody reads the table, such as a dump; the checked file stays */
	if (text_equal(outcome, "busy")) {
		archiver->busy = true;
		return true;
	}
	/* another relay went on with it: this file is of no use */
	if (text_equal(outcome, "missing"))
		return true;
	return err_set(err, ERR_RETRY,
	    "%s: the table has another number of rows than its file %s (%" PRId64
	    " rows): was it changed by hand? It is written again",
	    archive->leaf, path, totals->rows);
}

/* --- writing -------------------------------------------------------------------------------- */

static void remove_old_file(const struct archiver *archiver, const char *file)
{
	owned_text char *path = xformat("%s/%s", archiver->postgres->archive_path, file);
	owned_text char *part = xformat("%s.part", path);

	/* they exist only if the try ended early */
	(void)unlink(path);
	(void)unlink(part);
}

/* *ret_begun false: another relay has it. */
static bool begin_archive(
    struct archiver *archiver, struct archive_try *attempt, bool *ret_begun, struct err *err)
{
	const char *folder = archiver->postgres->archive_path;
	char host[256];

	archive_host(host, sizeof host);
	const struct pg_param params[] = {{attempt->id}, {host}, {folder}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = ask_archiver_database(archiver, sql_archive_begin, params, 3, err);

	if (!row)
		return false;
	*ret_begun = text_equal(pg_value(row, 0, 0), "begun");
	archiver->busy |= text_equal(pg_value(row, 0, 0), "busy");
	if (!*ret_begun)
		return true;

	if (!pg_is_null(row, 0, 2))
		remove_old_file(archiver, pg_value(row, 0, 2));
	attempt->file = xstrdup(pg_value(row, 0, 1));
	attempt->path = xformat("%s/%s", folder, attempt->file);
	attempt->part = xformat("%s.part", attempt->path);
	attempt->header = xstrdup(pg_value(row, 0, 3));
	attempt->table = xstrdup(pg_value(row, 0, 4));
	attempt->columns = xstrdup(pg_value(row, 0, 5));
	return true;
}

/* The server's errors do not name the table. */
static bool fail_to_read(const struct archive_try *attempt, struct err *err)
{
	return err_prefix(err, "the table %s cannot be read", attempt->table);
}

static bool copy_rows(struct archiver *archiver, const struct archive_try *attempt,
    struct archive_writer *writer, const char *script, struct err *err)
{
	char *row;
	int length;

	if (!pg_send_copy(archiver->pg, script, err))
		return fail_to_read(attempt, err);
	for (;;) {
		bool written;

		if (!pg_copy_take(archiver->pg, &row, &length, err))
			return fail_to_read(attempt, err);
		if (!row)
			return true;
		written = archive_writer_put(writer, row, (size_t)length, err);
		pg_free_row(row);
		if (!written)
			return false;
	}
}

static bool write_archive_file(struct archiver *archiver, const struct archive_try *attempt,
    struct archive_totals *ret_totals, struct err *err)
{
	const struct script_place places[] = {
	    {"table", attempt->table, true}, {"columns", attempt->columns, true}, {0}};
	owned_text char *sql = schema_text(sql_archive_copy, archiver->postgres->schema);
	owned_text char *script = script_fill(sql, places);
	owned_text char *label = xformat(
	    "the archive of %s in %s", attempt->archive->name, archiver->postgres->archive_path);
	struct archive_writer *writer =
	    archive_writer_open(attempt->part, label, attempt->header, err);
	bool done = writer && copy_rows(archiver, attempt, writer, script, err) &&
		    archive_writer_end(writer, ret_totals, err);

	archive_writer_close(writer);
	return done;
}

/* The database stores the totals that were read from the file under its final name. */
static bool check_written_file(struct archiver *archiver, const struct archive_try *attempt,
    const struct archive_totals *written, struct err *err)
{
	owned_text char *part = xformat("%s.part", attempt->file);
	struct archive_totals found;

	if (!archive_file_keep(archiver->postgres->archive_path, part, attempt->file, err))
		return false;
	fault_point("archive_renamed");
	if (!archive_file_check(attempt->path, archiver->stop_fd, &found, err))
		return false;
	return archive_totals_equal(written, &found) ||
	       err_set(err, ERR_RETRY, "%s: the file is not the one that was written: %s, not %s",
		   attempt->path, found.checksum, written->checksum);
}

static bool finish_archive(struct archiver *archiver, const struct archive_try *attempt,
    const struct archive_totals *totals, struct err *err)
{
	owned_text char *rows = xformat("%" PRId64, totals->rows);
	owned_text char *bytes = xformat("%" PRId64, totals->bytes);
	owned_text char *file_bytes = xformat("%" PRId64, totals->file_bytes);
	const struct pg_param params[] = {
	    {attempt->id}, {attempt->file}, {rows}, {bytes}, {file_bytes}, {totals->checksum}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *finished =
	    ask_archiver_database(archiver, sql_archive_finish, params, 6, err);

	if (!finished || !pg_script(archiver->pg, "commit", err))
		return false;
	/* the rows are in the table of another relay, or in that relay's file */
	if (text_equal(pg_value(finished, 0, 0), "missing"))
		(void)unlink(attempt->path);
	return judge_archive_outcome(
	    archiver, attempt->archive, totals, attempt->path, pg_value(finished, 0, 0), err);
}

/* One transaction, whose lock keeps every other relay away from the table. */
static bool copy_check_finish(
    struct archiver *archiver, const struct archive_try *attempt, struct err *err)
{
	const struct pg_param params[] = {{attempt->id}, {attempt->file}};
	struct archive_totals totals;
	OWNED(owned_pg_result_destroy) struct pg_result *locked = NULL;

	if (!pg_script(archiver->pg, "begin", err))
		return false;
	locked = ask_archiver_database(archiver, sql_archive_lock, params, 2, err);
	if (!locked)
		return false;
	if (!text_equal(pg_value(locked, 0, 0), "locked")) {
		archiver->busy = true;
		return pg_script(archiver->pg, "rollback", err);
	}

	if (!write_archive_file(archiver, attempt, &totals, err))
		return false;
	fault_point("archive_written");
	if (!check_written_file(archiver, attempt, &totals, err)) {
		(void)unlink(attempt->path);
		(void)unlink(attempt->part);
		return false;
	}
	fault_point("archive_checked");
	return finish_archive(archiver, attempt, &totals, err);
}

static bool write_archive(struct archiver *archiver, const struct archive *archive, struct err *err)
{
	OWNED(finish_archive_try)
	struct archive_try attempt = {.archive = archive, .id = xformat("%" PRId64, archive->id)};
	bool begun;

	if (!begin_archive(archiver, &attempt, &begun, err))
		return false;
	fault_point("archive_begun");
	return !begun || copy_check_finish(archiver, &attempt, err);
}

/* --- a file that was checked before ---------------------------------------------------------- */

static bool drop_archived_table(
    struct archiver *archiver, const struct archive *archive, const char *path, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, archive->id);
	const struct pg_param params[] = {{id}, {archive->file}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *dropped =
	    ask_archiver_database(archiver, sql_archive_drop, params, 2, err);

	return dropped && judge_archive_outcome(archiver, archive, &archive->totals, path,
			      pg_value(dropped, 0, 0), err);
}

/* The table could not be dropped at once. Is the file still whole? */
static bool finish_written(
    struct archiver *archiver, const struct archive *archive, struct err *err)
{
	owned_text char *path = xformat("%s/%s", archive->folder, archive->file);
	struct archive_totals found;
	char host[256];
	struct err why;
	bool whole = archive_file_check(path, archiver->stop_fd, &found, &why);

	if (whole && archive_totals_equal(&found, &archive->totals))
		return drop_archived_table(archiver, archive, path, err);

	archive_host(host, sizeof host);
	/* it lies on the host that wrote it, whose relay drops the table */
	if (!text_equal(host, archive->host)) {
		archiver->busy = true;
		return true;
	}
	/* a stop or a disk error says nothing against the file, which a new try would remove */
	if (!whole && why.kind != ERR_REJECT) {
		*err = why;
		return false;
	}
	return write_archive(archiver, archive, err);
}

/* --- the step ------------------------------------------------------------------------------- */

/* The first archive behind the failed one. */
static int find_first_archive(const struct archiver *archiver, const struct archive_list *list)
{
	for (int i = 0; archiver->failed_id && i < list->count; i++)
		if (list->items[i].id == archiver->failed_id)
			return i + 1;
	return 0;
}

static bool archive_waiting_tables(struct archiver *archiver, struct err *err)
{
	struct metric *gauge =
	    METRIC_LABELLED(upkeep_metrics()->archive_waiting, archiver->postgres->name);
	OWNED(archive_list_finish) struct archive_list list = {0};
	int waiting = 0;

	if (!archiver->pg)
		archiver->pg = pg_connect(
		    archiver->postgres->dsn, "outbox-relay archiver", CONNECT_TIMEOUT_MS, err);
	if (!archiver->pg ||
	    !archive_list(archiver->pg, archiver->postgres->schema, "", &list, err))
		return false;
	for (int i = 0; i < list.count; i++)
		waiting += archive_is_waiting(&list.items[i]);
	metric_set(gauge, waiting);

	for (int i = 0, first = find_first_archive(archiver, &list); i < list.count; i++) {
		const struct archive *archive = &list.items[(first + i) % list.count];

		if (!archive_is_waiting(archive))
			continue;
		archiver->failed_id = archive->id;
		if (!(text_equal(archive->state, "written")
			    ? finish_written(archiver, archive, err)
			    : write_archive(archiver, archive, err)))
			return false;
		archiver->failed_id = 0;
		waiting -= !archiver->busy;
		metric_set(gauge, waiting);
	}
	return true;
}

static int64_t note_archive_failure(
    struct archiver *archiver, const struct err *err, int64_t now_ms)
{
	struct pollfd stop = {.fd = archiver->stop_fd, .events = POLLIN};

	/* The same failure is logged once, not at each try; and a stop is none. */
	if (poll(&stop, 1, 0) == 0 && !text_equal(archiver->problem, err->message))
		log_error("archive_failed", {"database", LOG_TEXT(archiver->postgres->name)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence",
			LOG_TEXT("nothing is lost: the rows stay in their detached table; tried "
				 "again")});
	text_copy(archiver->problem, sizeof archiver->problem, err->message);
	upkeep_metrics_problem(archiver->postgres->name, "archive", archiver->problem, NULL);
	pg_destroy(archiver->pg);
	archiver->pg = NULL;
	return now_ms + backoff_next_ms(&archiver->backoff);
}

int64_t archiver_step(struct archiver *archiver, int64_t now_ms, int64_t interval_ms)
{
	struct err err;

	if (!archiver->postgres->archive_path || !archiver->postgres->archive_path[0])
		return now_ms + interval_ms;
	archiver->busy = false;
	archiver->backoff.cap_ms = interval_ms;
	if (!archive_waiting_tables(archiver, &err))
		return note_archive_failure(archiver, &err, now_ms);

	if (archiver->problem[0])
		log_info("archive_works_again", {"database", LOG_TEXT(archiver->postgres->name)});
	archiver->problem[0] = '\0';
	upkeep_metrics_problem(archiver->postgres->name, "archive", "", NULL);
	backoff_reset(&archiver->backoff);
	/* the step may have taken long: count from its end */
	now_ms = clock_ms();
	return now_ms +
	       (archiver->busy && BUSY_AGAIN_MS < interval_ms ? BUSY_AGAIN_MS : interval_ms);
}

struct archiver *archiver_start(const struct postgres_settings *postgres, int stop_fd)
{
	struct archiver *archiver = xcalloc(1, sizeof *archiver);

	archiver->postgres = postgres;
	archiver->stop_fd = stop_fd;
	archiver->backoff = (struct backoff){
	    .first_ms = 1000, .cap_ms = 60000, .jitter = 0.2, .seed = (uint64_t)clock_random()};
	/* Metrics that are there from the start: their first change shows as one. */
	METRIC_LABELLED(upkeep_metrics()->archive_waiting, postgres->name);
	METRIC_LABELLED(upkeep_metrics()->archived_bytes, postgres->name);
	return archiver;
}

void archiver_stop(struct archiver *archiver)
{
	if (!archiver)
		return;
	pg_destroy(archiver->pg);
	free(archiver);
}

const char *archiver_problem(const struct archiver *archiver)
{
	return archiver->problem;
}
