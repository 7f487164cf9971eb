/*
 * `dedup load`: reads ids by a query and stores the unknown ones. Begin at run_dedup_load;
 * store_all reads a page of rows at a time, and store_page makes it durable.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "commands.h"
#include "dedup.h"
#include "dedup_source.h"
#include "dedup_stores.h"
#include "fault.h"
#include "hex.h"
#include "outbox_error.h"
#include "session.h"
#include "text.h"

enum { BATCH = 10000, MOST_BATCH = 1000000, TURN = 1000, TOLD_MS = 1000 };

struct load {
	struct outbox_dedup *dedup;
	bool timed;
	int turn; /* ids per call of the store, which may limit the pending ids */
	struct outbox_dedup_id ids[TURN], fresh[TURN];
	enum outbox_dedup_state states[TURN];
	uint8_t bytes[TURN][OUTBOX_DEDUP_ID_MAX];
	int64_t rows, loaded, there, held;
	int64_t began_ms, told_ms;
};

/* --- rows ----------------------------------------------------------------------------------- */

static bool refuse_load_row(const struct load *load, const char *what, struct err *err)
{
	return err_set(err, ERR_REJECT, "--sql: row %" PRId64 ": %s", load->rows + 1, what);
}

static bool take_id(
    const struct load *load, const char *hex, size_t length, uint8_t *bytes, struct err *err)
{
	if (length == 0)
		return refuse_load_row(
		    load, "its id is empty: leave such rows out, as where id <> ''", err);

	/* consumers cannot ask about a longer id, and one that is cut would match nothing */
	if (length > OUTBOX_DEDUP_ID_MAX) {
		owned_text char *what =
		    xformat("its id has %zu bytes, and at most are %d: load what consumers ask "
			    "for, as sha256(id::bytea)",
			length, OUTBOX_DEDUP_ID_MAX);
		return refuse_load_row(load, what, err);
	}
	return hex_read(hex, length, bytes) || refuse_load_row(load, "its id is no bytea", err);
}

static bool take_load_row(
    struct load *load, const struct pg_result *page, int row, int place, struct err *err)
{
	size_t length = ((size_t)pg_length(page, row, 0) - 2) / 2; /* behind \x */

	/* an id that is left out quietly would be a false negative later */
	if (pg_is_null(page, row, 0))
		return refuse_load_row(
		    load, "its id is null: leave such rows out, as where id is not null", err);

	/* the time chooses the slice, and with it when the id is forgotten */
	if (load->timed && pg_is_null(page, row, 1))
		return refuse_load_row(load,
		    "its time is null or infinite: leave such rows out, or give them one, as "
		    "coalesce(created_at, now())",
		    err);
	if (!take_id(load, pg_value(page, row, 0) + 2, length, load->bytes[place], err))
		return false;

	load->ids[place] = (struct outbox_dedup_id){.id = load->bytes[place],
	    .length = length,
	    .time_ms = load->timed ? pg_int(page, row, 1) : -1,
	    .offset = -1};
	load->rows++;
	return true;
}

/* --- into the store ------------------------------------------------------------------------- */

static size_t choose_new(struct load *load, size_t count)
{
	size_t fresh = 0;
	for (size_t i = 0; i < count; i++) {
		if (load->states[i] == OUTBOX_DEDUP_NEW)
			load->fresh[fresh++] = load->ids[i];
		load->there += load->states[i] == OUTBOX_DEDUP_DONE;
		/* a second occurrence in the same turn is pending until the first one is done */
		load->held += load->states[i] == OUTBOX_DEDUP_PENDING;
	}
	return fresh;
}

static bool store_turn(struct load *load, size_t count, struct err *err)
{
	struct outbox_error error;
	if (!outbox_dedup_check(load->dedup, load->ids, count, load->states, &error))
		return outbox_error_take(&error, err);
	size_t fresh = choose_new(load, count);
	/* ids that were there are not stored again, so a repeated call adds nothing */
	if (fresh && !outbox_dedup_done(load->dedup, load->fresh, fresh, &error))
		return outbox_error_take(&error, err);
	load->loaded += (int64_t)fresh;
	return true;
}

static bool store_rows(
    struct load *load, const struct pg_result *page, int from, int to, struct err *err)
{
	int64_t first = load->rows + 1;
	for (int row = from; row < to; row++)
		if (!take_load_row(load, page, row, row - from, err))
			return false;
	return store_turn(load, (size_t)(to - from), err) ||
	       err_prefix(err, "rows %" PRId64 " to %" PRId64 " of --sql", first, load->rows);
}

static bool checkpoint_load(struct load *load, struct err *err)
{
	struct outbox_error error;
	return outbox_dedup_checkpoint(load->dedup, -1, &error) || outbox_error_take(&error, err);
}

static void tell_load_progress(struct load *load)
{
	int64_t now = clock_ms(), spent = now - load->began_ms;
	if (now - load->told_ms < TOLD_MS)
		return;
	load->told_ms = now;
	fprintf(stderr, "ids: %" PRId64 ", %" PRId64 "/s, elapsed %" PRId64 " s\n", load->rows,
	    load->rows * 1000 / spent, spent / 1000);
}

static bool store_page(struct load *load, const struct pg_result *page, struct err *err)
{
	int count = pg_rows(page);
	for (int from = 0; from < count; from += load->turn) {
		int to = from + load->turn < count ? from + load->turn : count;
		if (!store_rows(load, page, from, to, err))
			return false;
		tell_load_progress(load);
	}
	/* durable before the next page is read: a crash repeats one page at most */
	return checkpoint_load(load, err);
}

static bool store_all(struct load *load, struct dedup_source *source, struct err *err)
{
	bool more = true;

	while (more) {
		OWNED(owned_pg_result_destroy)
		struct pg_result *page = dedup_source_next(source, err);
		if (!page)
			return false;
		more = pg_rows(page) > 0;
		if (more && !store_page(load, page, err))
			return false;
		fault_point("after_dedup_load_batch");
	}
	return true;
}

/* --- the command ---------------------------------------------------------------------------- */

static bool read_line(struct load *load, const char *line, struct err *err)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec;
	if (!dedup_spec_parse(line, &spec, err))
		return false;

	/* the store refuses more pending ids than its line allows */
	load->turn = spec.pending < TURN ? (int)spec.pending : TURN;
	return !spec.type->in_memory || spec.path ||
	       err_set(err, ERR_CONFIG,
		   "path is missing: without one the ids are forgotten when this command ends");
}

static bool open_source(
    const struct call *call, struct dedup_source *source, const char *query, struct err *err)
{
	OWNED(owned_config_destroy) struct config *config = NULL;
	const struct postgres_settings *postgres = NULL;
	const char *dsn = call_text(call, "dsn", NULL);

	/* with --dsn no configuration is needed: the ids may be in a database of the application */
	if (!dsn) {
		config = session_config(call, err);
		postgres = config ? session_postgres(call, config, err) : NULL;
		if (!postgres)
			return false;
		dsn = postgres->dsn;
	}
	return dedup_source_open(source, dsn, query, call_number(call, "batch", BATCH), err);
}

static bool open_loaded_store(struct load *load, const char *line, struct err *err)
{
	struct outbox_error error;
	load->dedup = outbox_dedup_open(line, &error);
	return load->dedup || outbox_error_take(&error, err);
}

/* Ids that were loaded before a failure stay, as far as the store can still be written. */
static bool run_load(struct load *load, struct dedup_source *source, struct err *err)
{
	struct err again;
	load->began_ms = load->told_ms = clock_ms();
	if (store_all(load, source, err))
		return true;

	if (checkpoint_load(load, &again))
		fprintf(stderr,
		    "outbox-relay: %" PRId64 " new ids were loaded before, and stay; the same call "
		    "goes on\n",
		    load->loaded);
	return false;
}

static void print_result(const struct load *load)
{
	printf("loaded %" PRId64 " new ids of %" PRId64 " rows in %.1f s; %" PRId64
	       " were there, %" PRId64 " came twice or are being handled\n",
	    load->loaded, load->rows, (double)(clock_ms() - load->began_ms) / 1000, load->there,
	    load->held);
}

/*
 * Warns that the filter grew: it needs more room and more lookups than planned, but has no more
 * false positives. Warns that it had more of them than the setting `alarm` allows.
 */
static void tell_growth(const struct load *load)
{
	struct outbox_dedup_stats stats;
	outbox_dedup_stats(load->dedup, &stats);

	if (stats.sub_slices)
		fprintf(stderr,
		    "outbox-relay: more ids came than are planned, and the store has grown by %d "
		    "sub-slices: raise ids\n",
		    stats.sub_slices);

	if (stats.alarms)
		fprintf(stderr,
		    "outbox-relay: the filter had more false positives than alarm allows, and "
		    "%" PRIu64
		    " filters were made anew%s: raise ids or alarm; answers stay right\n",
		    stats.repairs, stats.alarm ? ", which was not enough" : "");
}

static int load_all(const struct call *call, const char *query)
{
	struct err err;
	const char *line = call->arguments[0];
	OWNED(dedup_source_close) struct dedup_source source = {0};
	OWNED(cleanup_free) struct load *load = xcalloc(1, sizeof *load);
	bool good = read_line(load, line, &err) && open_source(call, &source, query, &err) &&
		    open_loaded_store(load, line, &err);

	load->timed = source.timed;
	good = good && run_load(load, &source, &err);
	if (good)
		tell_growth(load);
	outbox_dedup_close(load->dedup);
	if (!good)
		return session_failed(&err);

	print_result(load);
	return 0;
}

static int run_dedup_load(const struct call *call)
{
	const char *query = call_text(call, "sql", NULL);
	if (query)
		return load_all(call, query);
	fputs("outbox-relay: --sql is missing: the query whose ids are loaded, as --sql \"select "
	      "id, created_at from orders\"\n",
	    stderr);
	return EXIT_USAGE;
}

static const struct command_option dedup_load_options[] = {
    {"sql", "QUERY",
	"A query with one or two columns: the id (text, bytea, uuid or a whole number), and the "
	"time of its record (timestamptz; default: now). Required."},
    {"dsn", "DSN",
	"Connection string of the database, in libpq's form (default: that of the configuration)."},
    SESSION_POSTGRES_OPTION,
    {"batch", "N", "Number of rows per batch (default 10000).", 1, MOST_BATCH},
    {0},
};

const struct command command_dedup_load = {
    .name = "dedup load",
    .arguments = "LINE",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Loads the ids that a query returns into a dedup store.",
    .description =
	"Use it before a first start, and after a folder was lost. LINE is the line with which "
	"the application opens the store, such as \"bloom ids=50M path=/var/lib/billing/dedup\". "
	"No process may have its folder open.\n"
	"An id is the bytes of its text, or the bytes of a bytea: the same bytes that consumers "
	"ask for. Ids older than the window occupy it until the oldest slice ends, so leave them "
	"out, for example with: where created_at > current_timestamp - interval '24 hours'.\n"
	"The command reads the rows through a cursor in one read-only transaction. It has one "
	"batch in memory, and makes it durable in the store before it reads the next one. It "
	"does not load an id twice, so the same call may be repeated and continues after a "
	"failure. It prints its progress to stderr each second.\n",
    .options = dedup_load_options,
    .example = "outbox-relay dedup load \"bloom ids=9M path=/ids\" --sql \"select id from jobs\"",
    .no_server = "it writes the store of this machine; call it on the host of the store",
    .run = run_dedup_load,
};
