/*
 * The periodic work on partitions: create them ahead, empty the default one, and drop, detach or
 * archive old ones (the files of archives: archiver.c). Begin at upkeep_step, which tends each
 * table in turn.
 */
#include "upkeep.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "backoff.h"
#include "clock.h"
#include "schema_query.h"
#include "sql_files.h"
#include "upkeep_lock.h"
#include "upkeep_metrics.h"

enum {
	CONNECT_TIMEOUT_MS = 5000,
	BUSY_RETRY_MS = 5000, /* each try keeps writers waiting for 15 ms at most */
};

struct upkeep {
	const struct postgres_settings *postgres; /* name, dsn, schema */
	struct postgres_settings settings;        /* the reloadable numbers are read from here */
	struct pg *pg;                            /* NULL: not connected */
	struct backoff backoff;
	struct upkeep_lock lock;
	struct upkeep_status status;
};

/* One table in one step. */
struct table {
	const char *name;
	struct pg *pg;
	const struct postgres_settings *settings;
	struct upkeep_table *status;
	bool busy; /* a lock was not free */
	bool made; /* a partition */
};

static void set_table_gauge(const struct table *table, const struct metric *metric, double value)
{
	metric_set(METRIC_LABELLED(metric, table->settings->name, table->name), value);
}

/* Counts an outcome, and logs a change of the database. */
static void note_partition_outcome(
    struct table *table, const char *partition, enum partition_outcome outcome)
{
	partition_count(table->settings->name, table->name, outcome, 1);
	table->busy |= outcome == PARTITION_BUSY;

	if (outcome == PARTITION_DROPPED || outcome == PARTITION_DETACHED ||
	    outcome == PARTITION_EMPTIED)
		log_info("partition_changed", {"database", LOG_TEXT(table->settings->name)},
		    {"table", LOG_TEXT(table->name)}, {"partition", LOG_TEXT(partition)},
		    {"outcome", LOG_TEXT(partition_outcome_name(outcome))});

	if (outcome == PARTITION_NAME_TAKEN || outcome == PARTITION_OVERLAPS)
		log_warn("partition_not_made", {"database", LOG_TEXT(table->settings->name)},
		    {"table", LOG_TEXT(table->name)}, {"partition", LOG_TEXT(partition)},
		    {"outcome", LOG_TEXT(partition_outcome_name(outcome))},
		    {"cure", LOG_TEXT("rename or drop the table in its place")});
}

static void note_made(void *context, int64_t from_us)
{
	struct table *table = context;
	table->made = true;
	time_t from_s = from_us / 1000000;
	struct tm utc;
	char from[32] = "";
	if (gmtime_r(&from_s, &utc))
		strftime(from, sizeof from, "%Y-%m-%dT%H:%M:%SZ", &utc);
	partition_count(table->settings->name, table->name, PARTITION_MADE, 1);
	log_info("partition_made", {"database", LOG_TEXT(table->settings->name)},
	    {"table", LOG_TEXT(table->name)}, {"from", LOG_TEXT(from)});
}

/* --- ahead -------------------------------------------------------------------------------- */

static bool watch_default(struct table *table, struct err *err)
{
	int64_t rows;

	if (!partition_default_rows(table->pg, table->settings->schema, table->name, &rows, err))
		return false;
	if (rows && !table->status->default_rows)
		log_warn("default_partition_not_empty",
		    {"database", LOG_TEXT(table->settings->name)}, {"table", LOG_TEXT(table->name)},
		    {"rows", LOG_INT(rows)},
		    {"consequence",
			LOG_TEXT("rows are read as any others, and moved when locks allow")});
	table->status->default_rows = rows;
	set_table_gauge(table, upkeep_metrics()->default_rows, (double)rows);
	return true;
}

static bool empty_default(struct table *table, struct err *err)
{
	if (!watch_default(table, err))
		return false;
	if (!table->status->default_rows)
		return true;

	enum partition_outcome outcome;
	if (!partition_rehome(table->pg, table->settings->schema, table->name,
		table->settings->partition_every_ms, &outcome, err))
		return false;

	owned_text char *name = xformat("%s_default", table->name);
	note_partition_outcome(table, name, outcome);
	if (outcome != PARTITION_MOVED)
		return true;

	log_info("default_partition_moved", {"database", LOG_TEXT(table->settings->name)},
	    {"table", LOG_TEXT(table->name)}, {"rows", LOG_INT(table->status->default_rows)});
	return watch_default(table, err); /* a row that no partition takes is still there */
}

static bool read_partition_list(
    const struct table *table, struct partition_list *ret_list, struct err *err)
{
	return partition_list(table->pg, table->settings->schema, table->name,
	    table->settings->partition_every_ms, ret_list, err);
}

static bool make_partitions_ahead(
    struct table *table, const struct partition_list *list, struct err *err)
{
	enum partition_outcome outcome;

	if (!partition_make_ahead(
		table->pg, table->settings, table->name, list, note_made, table, &outcome, err))
		return false;

	if (outcome != PARTITION_MADE && outcome != PARTITION_EXISTS)
		note_partition_outcome(table, table->name, outcome);
	/* Counts as busy: the rows are moved soon, and then the partition can be made. */
	table->busy |= outcome == PARTITION_DEFAULT_NOT_EMPTY;
	return true;
}

/* --- behind ------------------------------------------------------------------------------- */

/* Reports who keeps a partition, once for each; "" for both: nothing is kept. */
static void report_held(struct table *table, const char *partition, const char *holder)
{
	struct upkeep_table *status = table->status;
	bool news = !text_equal(status->held, partition) || !text_equal(status->holder, holder);

	set_table_gauge(table, upkeep_metrics()->held, *partition != '\0');
	if (!news)
		return;

	snprintf(status->held, sizeof status->held, "%s", partition);
	snprintf(status->holder, sizeof status->holder, "%s", holder);
	if (*partition)
		log_warn("partition_held", {"database", LOG_TEXT(table->settings->name)},
		    {"table", LOG_TEXT(table->name)}, {"partition", LOG_TEXT(partition)},
		    {"holder", LOG_TEXT(holder)},
		    {"consequence", LOG_TEXT("it stays until its rows are needed no more")});
	else
		log_info("partition_held_over", {"database", LOG_TEXT(table->settings->name)},
		    {"table", LOG_TEXT(table->name)});
}

/* The ledger of unique keys: a row that no key needs has no use, and each partition slows down
 * writers of keys. */
static bool is_ledger(const struct table *table)
{
	return text_equal(table->name, "unique_ledger");
}

/*
 * *ret_outcome BUSY: it may be held or not. An emptied one is held by nobody, also while it cannot
 * be dropped.
 */
static bool retire_partition(struct table *table, const char *name, bool *parent_busy,
    enum partition_outcome *ret_outcome, struct err *err)
{
	const char *schema = table->settings->schema;

	enum retention retention = table->settings->retention;
	bool archives = retention == RETENTION_ARCHIVE && partition_is_archived(table->name);

	if ((retention == RETENTION_DETACH && !is_ledger(table)) || archives) {
		*ret_outcome = PARTITION_BUSY;
		if (*parent_busy) /* one try a step: the parent's lock is what writers need */
			return true;
		if (!(archives ? partition_archive : partition_detach)(
			table->pg, schema, name, ret_outcome, err))
			return false;
		note_partition_outcome(table, name, *ret_outcome);
		*parent_busy = *ret_outcome == PARTITION_BUSY;
		return true;
	}

	if (!partition_empty(table->pg, schema, name, ret_outcome, err))
		return false;
	/* Only an emptied partition may be dropped; this one is held, missing or locked. */
	if (*ret_outcome != PARTITION_EMPTIED) {
		note_partition_outcome(table, name, *ret_outcome);
		return true;
	}
	/* One try a step: the parent's lock is what writers need. */
	if (*parent_busy)
		return true;

	enum partition_outcome dropped;
	if (!partition_drop(table->pg, schema, name, &dropped, err))
		return false;

	note_partition_outcome(table, name, dropped);
	*parent_busy = dropped == PARTITION_BUSY;
	return true;
}

/*
 * A publisher that is behind in one partition is behind in those that follow; in another table, a
 * row that holds a partition holds only that one.
 */
static bool keeps_what_follows(const struct table *table)
{
	return text_equal(table->name, "message");
}

static bool tell_holder(struct table *table, const char *partition, struct err *err)
{
	char holder[sizeof table->status->holder];
	if (!partition_holder(
		table->pg, table->settings->schema, partition, holder, sizeof holder, err))
		return false;
	report_held(table, partition, holder);
	return true;
}

static bool drop_behind(struct table *table, const struct partition_list *list, struct err *err)
{
	int64_t retained_us = list->now_us - table->settings->retain_ms * 1000;
	int64_t horizon_us = is_ledger(table) ? list->now_us : retained_us;
	bool parent_busy = false, unknown = false, held = false;

	for (int i = 0; i < list->count; i++) {
		const struct partition *partition = &list->items[i];
		enum partition_outcome outcome;

		/* Neither the default partition nor one without an end is ever retired. */
		if (!partition->bounded || partition->to_us > horizon_us)
			continue;
		/* A restored one is older than the retention, and wanted for now. */
		if (partition->kept_until_us > list->now_us)
			continue;
		if (!retire_partition(table, partition->name, &parent_busy, &outcome, err))
			return false;
		unknown |= outcome == PARTITION_BUSY;
		if (outcome != PARTITION_HELD)
			continue;
		/* The oldest held partition is the one to report. A younger one of the ledger is
		 * held by usual windows, which is no news. */
		if (!held && partition->to_us <= retained_us) {
			if (!tell_holder(table, partition->name, err))
				return false;
			held = true;
		}
		if (keeps_what_follows(table))
			break;
	}

	/* If a partition could not be checked, the holder that was reported last still counts. */
	if (!held && !unknown)
		report_held(table, "", "");
	return true;
}

/* --- the step ----------------------------------------------------------------------------- */

static void show_partitions(struct table *table, const struct partition_list *list)
{
	int64_t end_us = list->now_us;
	table->status->partitions = 0;
	for (int i = 0; i < list->count; i++) {
		if (!list->items[i].bounded)
			continue;
		end_us = list->items[i].to_us; /* in order: the last one's */
		table->status->partitions++;
	}
	table->status->ahead_s = (end_us - list->now_us) / 1000000;

	set_table_gauge(table, upkeep_metrics()->partitions, table->status->partitions);
	set_table_gauge(table, upkeep_metrics()->ahead, (double)table->status->ahead_s);
	set_table_gauge(
	    table, upkeep_metrics()->every, (double)table->settings->partition_every_ms / 1000);
}

static bool tend_table(struct table *table, struct err *err)
{
	OWNED(partition_list_finish) struct partition_list list = {0};

	/* In this order: a partition is not made over rows in the default one. */
	if (!empty_default(table, err) || !read_partition_list(table, &list, err) ||
	    !make_partitions_ahead(table, &list, err))
		return false;

	if (table->made) {
		partition_list_finish(&list);
		if (!read_partition_list(table, &list, err))
			return false;
	}
	show_partitions(table, &list);
	return drop_behind(table, &list, err);
}

/* busy becomes true when another relay does the upkeep now. */
static bool tidy_small_tables(struct upkeep *upkeep, bool *busy, struct err *err)
{
	owned_text char *retain_ms = xformat("%" PRId64, upkeep->settings.retain_ms);
	OWNED(owned_pg_result_destroy)
	struct pg_result *done = schema_query(upkeep->pg, upkeep->settings.schema, sql_upkeep_tidy,
	    (const struct pg_param[]){{retain_ms}}, 1, err);
	*busy |= done && !text_equal(pg_value(done, 0, 0), "t");
	return done != NULL;
}

/* *err has the first failure. The failure of one table does not stop the next one. */
static bool tend_all(struct upkeep *upkeep, bool *ret_busy, struct err *err)
{
	bool all = true;

	*ret_busy = false;
	if (!upkeep->pg)
		upkeep->pg = pg_connect(
		    upkeep->postgres->dsn, "outbox-relay upkeep", CONNECT_TIMEOUT_MS, err);
	if (!upkeep->pg)
		return false;

	/* A lost connection ends the step: each further table would only fail as well. */
	for (int i = 0; i < PARTITION_TABLES && pg_state(upkeep->pg) == PG_IDLE; i++) {
		struct table table = {.name = partition_tables[i],
		    .pg = upkeep->pg,
		    .settings = &upkeep->settings,
		    .status = &upkeep->status.tables[i]};
		struct err later;
		all &= tend_table(&table, all ? err : &later);
		*ret_busy |= table.busy;
	}
	struct err later;
	return pg_state(upkeep->pg) == PG_IDLE &&
	       tidy_small_tables(upkeep, ret_busy, all ? err : &later) && all;
}

static void note_upkeep_problem(const struct upkeep *upkeep)
{
	upkeep_metrics_problem(
	    upkeep->postgres->name, "tables", upkeep->status.problem, upkeep->status.lock_holder);
}

static int64_t note_upkeep_failure(struct upkeep *upkeep, const struct err *err, int64_t now_ms)
{
	/* The same failure is logged once, not at each try. */
	if (!text_equal(upkeep->status.problem, err->message))
		log_warn("upkeep_failed", {"database", LOG_TEXT(upkeep->postgres->name)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("partitions stay as they are; tried again")});
	snprintf(upkeep->status.problem, sizeof upkeep->status.problem, "%s", err->message);
	note_upkeep_problem(upkeep);
	pg_destroy(upkeep->pg);
	upkeep->pg = NULL;
	return now_ms + backoff_next_ms(&upkeep->backoff);
}

int64_t upkeep_step(struct upkeep *upkeep, int64_t now_ms)
{
	struct err err;
	int64_t interval = upkeep->settings.upkeep_interval_ms;
	bool busy;
	if (!tend_all(upkeep, &busy, &err) ||
	    !upkeep_lock_look(&upkeep->lock, upkeep->pg, &upkeep->settings, busy, &err))
		return note_upkeep_failure(upkeep, &err, now_ms);

	if (*upkeep->status.problem)
		log_info("upkeep_recovered", {"database", LOG_TEXT(upkeep->postgres->name)});
	*upkeep->status.problem = '\0';
	note_upkeep_problem(upkeep);
	backoff_reset(&upkeep->backoff);
	return now_ms + (busy && BUSY_RETRY_MS < interval ? BUSY_RETRY_MS : interval);
}

struct upkeep *upkeep_start(const struct postgres_settings *postgres)
{
	struct upkeep *upkeep = xcalloc(1, sizeof *upkeep);
	upkeep->postgres = postgres;
	upkeep->status.lock_holder = upkeep->lock.holder;
	upkeep->backoff =
	    (struct backoff){.first_ms = 1000, .jitter = 0.2, .seed = (uint64_t)clock_random()};
	upkeep_reload(upkeep, postgres);
	/* A counter that is there from the start: its first change shows as one. */
	for (int i = 0; i < PARTITION_OUTCOMES * PARTITION_TABLES; i++)
		partition_count(postgres->name, partition_tables[i % PARTITION_TABLES],
		    (enum partition_outcome)(i / PARTITION_TABLES), 0);
	return upkeep;
}

void upkeep_reload(struct upkeep *upkeep, const struct postgres_settings *postgres)
{
	upkeep->settings = *postgres;
	upkeep->settings.name = upkeep->postgres->name;
	upkeep->settings.dsn = upkeep->postgres->dsn;
	upkeep->settings.schema = upkeep->postgres->schema;
	upkeep->settings.archive_path = upkeep->postgres->archive_path;
	upkeep->backoff.cap_ms = postgres->upkeep_interval_ms;
}

void upkeep_stop(struct upkeep *upkeep)
{
	if (!upkeep)
		return;
	pg_destroy(upkeep->pg);
	free(upkeep);
}

const struct upkeep_status *upkeep_status(const struct upkeep *upkeep)
{
	return &upkeep->status;
}
