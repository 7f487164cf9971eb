/*
 * Calls the SQL functions that list, create, empty, drop and detach partitions, and reads their
 * results. The rules are in sql/migrations/0004_partitions.sql.
 */
#include "partitions.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "schema_query.h"
#include "sql_files.h"
#include "upkeep_metrics.h"

/* So many at once: a wrong setting must not fill the system catalogs. */
enum { MOST_MADE_AT_ONCE = 64 };

const char *const partition_tables[PARTITION_TABLES] = {
    "message", "lookback", "processed", "unique_ledger"};

static const char *const outcome_names[PARTITION_OUTCOMES] = {
    [PARTITION_MADE] = "made",
    [PARTITION_EXISTS] = "exists",
    [PARTITION_OVERLAPS] = "overlaps",
    [PARTITION_DEFAULT_NOT_EMPTY] = "default_not_empty",
    [PARTITION_NAME_TAKEN] = "name_taken",
    [PARTITION_EMPTIED] = "emptied",
    [PARTITION_HELD] = "held",
    [PARTITION_DROPPED] = "dropped",
    [PARTITION_NOT_EMPTY] = "not_empty",
    [PARTITION_DETACHED] = "detached",
    [PARTITION_MOVED] = "moved",
    [PARTITION_EMPTY] = "empty",
    [PARTITION_MISSING] = "missing",
    [PARTITION_BUSY] = "busy",
};

const char *partition_outcome_name(enum partition_outcome outcome)
{
	return outcome_names[outcome];
}

void partition_count(
    const char *database, const char *table, enum partition_outcome outcome, int times)
{
	metric_add(
	    METRIC_LABELLED(upkeep_metrics()->changes, database, table, outcome_names[outcome]),
	    times);
}

static bool read_outcome(struct pg *pg, const struct pg_result *result,
    enum partition_outcome *ret_outcome, struct err *err)
{
	const char *text = pg_value(result, 0, 0);

	for (int i = 0; i < PARTITION_OUTCOMES; i++) {
		if (!text_equal(text, outcome_names[i]))
			continue;
		*ret_outcome = (enum partition_outcome)i;
		return true;
	}
	return err_set(
	    err, ERR_FATAL, "%s: a partition function answered \"%s\"", pg_place(pg), text);
}

static bool call_partition_function(struct pg *pg, const char *schema, const char *sql,
    const struct pg_param *params, int count, enum partition_outcome *ret_outcome, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql, params, count, err);

	return result && read_outcome(pg, result, ret_outcome, err);
}

static bool call_by_name(struct pg *pg, const char *schema, const char *sql, const char *name,
    enum partition_outcome *ret_outcome, struct err *err)
{
	const struct pg_param params[] = {{name}};
	return call_partition_function(pg, schema, sql, params, 1, ret_outcome, err);
}

bool partition_list(struct pg *pg, const char *schema, const char *table, int64_t every_ms,
    struct partition_list *ret_list, struct err *err)
{
	owned_text char *width = xformat("%" PRId64, every_ms);
	const struct pg_param params[] = {{table}, {width}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql_partitions, params, 2, err);

	if (!result)
		return false;

	int count = pg_rows(result);
	*ret_list = (struct partition_list){
	    .items = xcalloc((size_t)count, sizeof *ret_list->items),
	    .count = count,
	    .now_us = count ? pg_int(result, 0, 5) : 0,
	    .period_us = count ? pg_int(result, 0, 6) : 0,
	};
	for (int i = 0; i < count; i++)
		ret_list->items[i] = (struct partition){
		    .name = xstrdup(pg_value(result, i, 0)),
		    .bounded = !pg_is_null(result, i, 1) && !pg_is_null(result, i, 2),
		    .from_us = pg_int(result, i, 1),
		    .to_us = pg_int(result, i, 2),
		    .bytes = pg_int(result, i, 3),
		    .rows = pg_is_null(result, i, 4) ? -1 : pg_int(result, i, 4),
		    .kept_until_us = pg_int(result, i, 7),
		};
	return true;
}

void partition_list_finish(struct partition_list *list)
{
	for (int i = 0; i < list->count; i++)
		free(list->items[i].name);
	free(list->items);
	*list = (struct partition_list){0};
}

bool partition_make(struct pg *pg, const char *schema, const char *table, int64_t from_us,
    int64_t to_us, enum partition_outcome *ret_outcome, struct err *err)
{
	owned_text char *from = xformat("%" PRId64, from_us);
	owned_text char *to = xformat("%" PRId64, to_us);
	const struct pg_param params[] = {{table}, {from}, {to}};
	return call_partition_function(pg, schema, sql_partition_make, params, 3, ret_outcome, err);
}

bool partition_empty(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err)
{
	return call_by_name(pg, schema, sql_partition_empty, name, ret_outcome, err);
}

bool partition_drop(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err)
{
	return call_by_name(pg, schema, sql_partition_drop, name, ret_outcome, err);
}

bool partition_detach(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err)
{
	return call_by_name(pg, schema, sql_partition_detach, name, ret_outcome, err);
}

bool partition_archive(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err)
{
	return call_by_name(pg, schema, sql_archive_detach, name, ret_outcome, err);
}

bool partition_is_archived(const char *table)
{
	return text_equal(table, "message") || text_equal(table, "lookback");
}

bool partition_retire(struct pg *pg, const char *schema, struct partition_request *request,
    enum partition_outcome *ret_outcome, struct err *err)
{
	const struct pg_param params[] = {{request->name}, {request->force},
	    {request->held_too ? "t" : "f"}, {request->reason}, {request->caller}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema,
	    request->detach ? sql_partition_detach_asked : sql_partition_empty_asked, params, 5,
	    err);

	if (!result)
		return false;
	request->audit = pg_is_null(result, 0, 1) ? 0 : pg_int(result, 0, 1);
	return read_outcome(pg, result, ret_outcome, err);
}

bool partition_count_rows(struct pg *pg, const char *schema, const char *table,
    const struct partition *partition, int64_t *ret_rows, struct err *err)
{
	owned_text char *from = xformat("%" PRId64, partition->from_us);
	owned_text char *to = xformat("%" PRId64, partition->to_us);
	owned_text char *bound = xformat("%d", COUNTED_ROWS);
	const struct pg_param params[] = {{table}, {from}, {to}, {bound}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql_partition_count, params, 4, err);

	if (!result)
		return false;
	*ret_rows = pg_int(result, 0, 0);
	return true;
}

bool partition_holder(struct pg *pg, const char *schema, const char *name, char *ret_holder,
    size_t size, struct err *err)
{
	const struct pg_param params[] = {{name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql_partition_holder, params, 1, err);
	if (!result)
		return false;
	snprintf(ret_holder, size, "%s", pg_is_null(result, 0, 0) ? "" : pg_value(result, 0, 0));
	return true;
}

bool partition_default_rows(
    struct pg *pg, const char *schema, const char *table, int64_t *ret_rows, struct err *err)
{
	const struct pg_param params[] = {{table}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql_partition_default, params, 1, err);
	if (!result)
		return false;
	*ret_rows = pg_int(result, 0, 0);
	return true;
}

bool partition_rehome(struct pg *pg, const char *schema, const char *table, int64_t every_ms,
    enum partition_outcome *ret_outcome, struct err *err)
{
	owned_text char *width = xformat("%" PRId64, every_ms);
	const struct pg_param params[] = {{table}, {width}};
	return call_partition_function(
	    pg, schema, sql_partition_rehome, params, 2, ret_outcome, err);
}

/* Where the next one begins: behind the last, but not before the present period. */
static int64_t next_from(const struct partition_list *list)
{
	int64_t from_us = list->period_us;
	for (int i = 0; i < list->count; i++)
		if (list->items[i].bounded && list->items[i].to_us > from_us)
			from_us = list->items[i].to_us;
	return from_us;
}

bool partition_make_ahead(struct pg *pg, const struct postgres_settings *postgres,
    const char *table, const struct partition_list *list,
    void (*made)(void *context, int64_t from_us), void *context,
    enum partition_outcome *ret_outcome, struct err *err)
{
	int64_t every_us = postgres->partition_every_ms * 1000;
	int64_t until_us = list->now_us + postgres->partitions_ahead * every_us;
	int64_t from_us = next_from(list);

	*ret_outcome = PARTITION_EXISTS;
	for (int i = 0; from_us < until_us && i < MOST_MADE_AT_ONCE; i++) {
		/* To the end of its period: a first one that begins within a period is shorter. */
		int64_t to_us = from_us - from_us % every_us + every_us;
		if (!partition_make(pg, postgres->schema, table, from_us, to_us, ret_outcome, err))
			return false;
		/* A gap before a later partition would send its rows to the default one. */
		if (*ret_outcome != PARTITION_MADE && *ret_outcome != PARTITION_EXISTS)
			return true;
		if (*ret_outcome == PARTITION_MADE && made)
			made(context, from_us);
		from_us = to_us;
	}
	return true;
}

bool partition_log_upkeep(
    struct pg *pg, const char *schema, int ret_changes[static PARTITION_OUTCOMES], struct err *err)
{
	memset(ret_changes, 0, PARTITION_OUTCOMES * sizeof *ret_changes);
	OWNED(owned_pg_result_destroy)
	struct pg_result *due = schema_query(pg, schema, sql_log_partitions_due, NULL, 0, err);
	if (!due)
		return false;

	bool all = true;
	for (int i = 0; i < pg_rows(due) && pg_state(pg) == PG_IDLE; i++) {
		bool makes = text_equal(pg_value(due, i, 0), "make");
		const struct pg_param params[] = {
		    {pg_value(due, i, 1)}, {pg_value(due, i, 2)}, {pg_value(due, i, 3)}};
		enum partition_outcome outcome;
		struct err later;
		/* A failure stops no other: a publisher is blocked where its last one ends. */
		if (call_partition_function(pg, schema,
			makes ? sql_log_partition_make : sql_log_partition_drop, params, 3,
			&outcome, all ? err : &later))
			ret_changes[outcome]++;
		else
			all = false;
	}
	return all;
}
