/*
 * Collects the figures of `status`: shards, parked and scheduled messages, look-back, partitions,
 * reasons of waiting, and the metrics of a running relay. Begin at status_report_take.
 */
#include "status_report.h"

#include <inttypes.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "admin_client.h"
#include "deliver_client.h"
#include "clock.h"
#include "partitions.h"
#include "database.h"
#include "sql_files.h"

/* The bound of a report that sets none. */
enum { COUNT_BOUND = 100000 };

enum { ADMIN_MS = 2000, MESSAGES = 0 /* in partition_tables */ };

/* SQLSTATE of a lock_timeout. */
#define LOCK_TIMEOUT "55P03"

/* As text, for a parameter of a query. */
struct bound {
	char text[24];
};
static struct bound count_bound(const struct status_postgres *database)
{
	struct bound bound;

	snprintf(bound.text, sizeof bound.text, "%" PRId64,
	    database->count_bound ? database->count_bound : COUNT_BOUND);
	return bound;
}

/* Columns of status.sql. */
static void read_shard(struct status_shard *shard, const struct pg_result *rows, int i)
{
	*shard = (struct status_shard){
	    .publisher = xstrdup(pg_value(rows, i, 0)),
	    .shard = (int)pg_int(rows, i, 1),
	    .shards = (int)pg_int(rows, i, 2),
	    .split_to = (int)pg_int(rows, i, 3),
	    .n = pg_int(rows, i, 4),
	    .epoch = pg_int(rows, i, 5),
	    .lease_left_ms = pg_int(rows, i, 7),
	    .windows = pg_int(rows, i, 8),
	    .elsewhere = text_equal(pg_value(rows, i, 9), "t"),
	    .unpublished = -1,
	    .estimated = -1,
	    .oldest_age_ms = -1,
	    .rate = -1,
	};

	/* the row keeps the last owner's name; after its lease nobody owns the shard */
	shard->owner = xstrdup(shard->lease_left_ms > 0 ? pg_value(rows, i, 6) : "");
	shard->url =
	    xstrdup(shard->owner[0] && !pg_is_null(rows, i, 12) ? pg_value(rows, i, 12) : "");
	shard->paused_at = xstrdup(pg_is_null(rows, i, 11) ? "" : pg_value(rows, i, 11));
	shard->paused_topics = xstrdup(pg_value(rows, i, 13));
	shard->paused_topics_text = xstrdup(pg_is_null(rows, i, 14) ? "" : pg_value(rows, i, 14));
	shard->identity = xstrdup(pg_value(rows, i, 10));
	shard->unknown = xstrdup("");
}

static bool read_shards(struct pg *pg, struct status_postgres *database, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(pg, database->section, sql_status, NULL, 0, err);

	if (!rows)
		return false;
	database->shards = xcalloc((size_t)pg_rows(rows), sizeof *database->shards);
	for (int i = 0; i < pg_rows(rows); i++)
		if (!database->publisher || text_equal(database->publisher, pg_value(rows, i, 0)))
			read_shard(&database->shards[database->shard_count++], rows, i);
	return true;
}

/* Rows that were carried here keep every publisher of the database from publishing. */
static bool find_carried(struct pg *pg, struct status_postgres *database, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(pg, database->section, sql_status_carried, NULL, 0, err);

	for (int i = 0; row && i < database->shard_count; i++)
		database->shards[i].elsewhere |= text_equal(pg_value(row, 0, 0), "t");
	return row != NULL;
}

/* Columns of backlogs.sql. A shard that came since the shards were read is left out. */
static void read_backlog(struct status_postgres *database, const struct pg_result *rows, int i)
{
	for (int j = 0; j < database->shard_count; j++) {
		struct status_shard *shard = &database->shards[j];

		if (shard->shard != pg_int(rows, i, 6) ||
		    !text_equal(shard->publisher, pg_value(rows, i, 5)))
			continue;
		shard->unpublished = pg_int(rows, i, 0);
		shard->more = text_equal(pg_value(rows, i, 1), "t");
		shard->estimated = pg_int(rows, i, 2);
		shard->oldest_age_ms = pg_int(rows, i, 3);
		shard->newest_id = pg_int(rows, i, 4);
	}
}

/* The settings keep the planner from a sequential scan through all published rows. */
static bool count_shard_backlogs(struct pg *pg, struct status_postgres *database, struct err *err)
{
	const struct bound bound = count_bound(database);
	const struct pg_param params[] = {{database->publisher}, {bound.text}};
	OWNED(owned_pg_result_destroy) struct pg_result *rows = NULL;

	if (!pg_script(pg, sql_backlog_begin, err))
		return false;
	rows = database_query(pg, database->section, sql_backlogs, params, 2, err);
	for (int i = 0; rows && i < pg_rows(rows); i++)
		read_backlog(database, rows, i);
	return rows && pg_script(pg, "commit", err);
}

static bool read_parked_counts(struct pg *pg, struct status_postgres *database, struct err *err)
{
	const struct bound bound = count_bound(database);
	const struct pg_param params[] = {{bound.text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(pg, database->section, sql_parked_states, params, 1, err);

	if (!rows)
		return false;
	database->parked = xcalloc((size_t)pg_rows(rows), sizeof *database->parked);
	database->parked_count = pg_rows(rows);
	for (int i = 0; i < pg_rows(rows); i++)
		database->parked[i] =
		    (struct status_parked){.publisher = xstrdup(pg_value(rows, i, 0)),
			.waiting = pg_int(rows, i, 1),
			.dead = pg_int(rows, i, 2),
			.stalled = pg_int(rows, i, 3),
			.paused = pg_int(rows, i, 4),
			.free = pg_int(rows, i, 5),
			.behind = pg_int(rows, i, 6),
			.more = text_equal(pg_value(rows, i, 7), "t"),
			.oldest_age_ms = pg_int(rows, i, 8)};
	return true;
}

static bool read_scheduled(struct pg *pg, struct status_postgres *database, struct err *err)
{
	const struct bound bound = count_bound(database);
	const struct pg_param params[] = {{bound.text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(pg, database->section, sql_scheduled_states, params, 1, err);

	if (!rows)
		return false;
	database->scheduled = xcalloc((size_t)pg_rows(rows), sizeof *database->scheduled);
	database->scheduled_count = pg_rows(rows);
	for (int i = 0; i < pg_rows(rows); i++)
		database->scheduled[i] =
		    (struct status_scheduled){.publisher = xstrdup(pg_value(rows, i, 0)),
			.rows = pg_int(rows, i, 1),
			.more = text_equal(pg_value(rows, i, 2), "t"),
			.late_ms = pg_int(rows, i, 3),
			.next_ms = pg_int(rows, i, 4)};
	return true;
}

/* Columns of lookback_states.sql. */
static bool read_lookbacks(struct pg *pg, struct status_postgres *database, struct err *err)
{
	const struct bound bound = count_bound(database);
	const struct pg_param params[] = {{bound.text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(pg, database->section, sql_lookback_states, params, 1, err);

	if (!rows)
		return false;
	database->lookbacks = xcalloc((size_t)pg_rows(rows), sizeof *database->lookbacks);
	database->lookback_count = pg_rows(rows);
	for (int i = 0; i < pg_rows(rows); i++)
		database->lookbacks[i] =
		    (struct status_lookback){.section = xstrdup(pg_value(rows, i, 0)),
			.type = xstrdup(pg_value(rows, i, 1)),
			.overdue = pg_int(rows, i, 2),
			.parked = pg_int(rows, i, 3),
			.oldest_age_ms = pg_int(rows, i, 4),
			.conflicts = pg_int(rows, i, 5),
			.unprepared = pg_int(rows, i, 6),
			.more = text_equal(pg_value(rows, i, 7), "t")};
	return true;
}

static bool read_table(struct pg *pg, struct status_postgres *database, int table, struct err *err)
{
	const struct postgres_settings *section = database->section;
	const char *name = partition_tables[table];
	int before = database->partition_count;
	OWNED(partition_list_finish) struct partition_list list = {0};

	if (!partition_list(pg, section->schema, name, section->partition_every_ms, &list, err))
		return false;
	database->partition_count += list.count;
	database->partitions = xrealloc(
	    database->partitions, (size_t)database->partition_count * sizeof *database->partitions);
	for (int i = 0; i < list.count; i++)
		database->partitions[before + i] =
		    (struct status_partition){.name = xstrdup(list.items[i].name),
			.bounded = list.items[i].bounded,
			.from_us = list.items[i].from_us,
			.to_us = list.items[i].to_us,
			.bytes = list.items[i].bytes,
			.rows = list.items[i].rows};
	return partition_default_rows(
	    pg, section->schema, name, &database->default_rows[table], err);
}

static bool read_message_partitions(
    struct pg *pg, struct status_postgres *database, struct err *err)
{
	return read_table(pg, database, MESSAGES, err);
}

static bool read_other_partitions(struct pg *pg, struct status_postgres *database, struct err *err)
{
	bool done = true;

	for (int i = MESSAGES + 1; done && i < PARTITION_TABLES; i++)
		done = read_table(pg, database, i, err);
	return done;
}

/* Columns of message_ids.sql: last_id, kept_id, increment, cache. */
static bool read_message_ids(struct pg *pg, struct status_postgres *database, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *ids =
	    database_query(pg, database->section, sql_message_ids, NULL, 0, err);
	int64_t last, kept, increment, cache;

	if (!ids)
		return false;
	last = pg_int(ids, 0, 0);
	kept = pg_int(ids, 0, 1);
	increment = pg_int(ids, 0, 2);
	cache = pg_int(ids, 0, 3);
	/* with either, a later message of a key may get a smaller id than an earlier one */
	if (increment < 0 || cache > 1)
		database->ids_problem = xformat(
		    "the sequence of message.id has INCREMENT %" PRId64 " and CACHE %" PRId64
		    ": messages of a key may be out of order; alter sequence "
		    "%s.message_id_seq increment by 1 cache 1, and restart the writers",
		    increment, cache, database->section->schema);
	else if (last < kept)
		database->ids_problem = xformat("the sequence of message.id went back to %" PRId64
						", and ids up to %" PRId64
						" are in use; a relay that runs raises it, as does "
						"`outbox-relay migrate up`",
		    last, kept);
	return true;
}

/* Columns of waits_parked.sql: publisher, topic, stalled, rows, error, dead. */
static void add_parked_wait(struct text *waits, const struct pg_result *rows, int i)
{
	OWNED(text_finish) struct text error = {0};
	int64_t stalled = pg_is_null(rows, i, 2) ? INT64_MIN : pg_int(rows, i, 2);

	text_add_line(&error, pg_value(rows, i, 4));
	text_addf(waits, "publisher %s: parked messages of topic %s: %s", pg_value(rows, i, 0),
	    pg_value(rows, i, 1), pg_value(rows, i, 3));
	if (stalled == -1)
		text_add(waits, ", the topic is missing");
	else if (stalled == -2)
		text_add(waits, ", an operator paused the topic");
	else if (stalled >= 0)
		text_addf(waits, ", partition %" PRId64 " is stalled", stalled);
	else
		text_addf(waits, " (dead: %s)", pg_value(rows, i, 5));
	/* the error of a missing or paused topic says the same */
	if (error.length && (stalled >= 0 || stalled == INT64_MIN))
		text_addf(waits, ": %s", error.data);
	text_add(waits, "\n");
}

/* Columns of waits_lookback.sql: section, type, service, ids, error. */
static void add_lookback_wait(struct text *waits, const struct pg_result *rows, int i)
{
	const char *service = pg_value(rows, i, 2);
	OWNED(text_finish) struct text error = {0};

	text_add_line(&error, pg_value(rows, i, 4));
	text_addf(waits, "lookback %s: %s undecided id%s of type %s: %s%s%s\n",
	    pg_value(rows, i, 0), pg_value(rows, i, 3), text_plural(pg_int(rows, i, 3)),
	    pg_value(rows, i, 1), service, *service ? ": " : "", text_string(&error));
}

static bool read_waits(struct pg *pg, struct status_postgres *database, struct err *err)
{
	const struct bound bound = count_bound(database);
	const struct pg_param params[] = {{bound.text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *parked =
	    database_query(pg, database->section, sql_waits_parked, params, 1, err);
	OWNED(owned_pg_result_destroy)
	struct pg_result *lookbacks =
	    parked ? database_query(pg, database->section, sql_waits_lookback, NULL, 0, err) : NULL;

	/* both lists or none: half of the reasons would look like all of them */
	for (int i = 0; lookbacks && i < pg_rows(parked); i++)
		add_parked_wait(&database->waits, parked, i);
	for (int i = 0; lookbacks && i < pg_rows(lookbacks); i++)
		add_lookback_wait(&database->waits, lookbacks, i);
	return lookbacks != NULL;
}

/* A part of the report, in a transaction of its own. */
struct part {
	bool (*read)(struct pg *pg, struct status_postgres *database, struct err *err);
	const char *begin;   /* NULL: it opens its transactions itself */
	bool reads_messages; /* a lock of that table keeps all such parts from being read */
};

/* Those of publishers come first, then that of the look-back. */
static const struct part parts[] = {
    {read_shards, sql_status_begin, false},
    {find_carried, sql_status_begin, true},
    {count_shard_backlogs, NULL, true},
    {read_parked_counts, sql_status_begin, false},
    {read_scheduled, sql_status_begin, false},
    {read_lookbacks, sql_status_begin, false},
    {read_message_partitions, sql_status_begin, true},
    {read_other_partitions, sql_status_begin, false},
    {read_message_ids, sql_status_begin, true},
    {read_waits, sql_status_begin, false},
};
enum { PARTS = sizeof parts / sizeof *parts, PUBLISHER_PARTS = 5, OVERVIEW_PARTS };

static bool read_report_part(
    struct pg *pg, struct status_postgres *database, const struct part *part, struct err *err)
{
	if (!part->begin)
		return part->read(pg, database, err);
	return pg_script(pg, part->begin, err) && part->read(pg, database, err) &&
	       pg_script(pg, "commit", err);
}

/* Notes the table that is locked, once. */
static bool note_lock(struct pg *pg, struct status_postgres *database, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    pg_script(pg, "rollback", err)
		? database_query(pg, database->section, sql_locked_table, NULL, 0, err)
		: NULL;
	owned_text char *line = NULL;

	if (!row)
		return false;
	/* the lock may be gone again */
	line = pg_rows(row)
		   ? xformat("%s.%s is locked\n", database->section->schema, pg_value(row, 0, 0))
		   : xstrdup("a table was locked\n");
	if (!strstr(text_string(&database->unknown), line))
		text_add(&database->unknown, line);
	return true;
}

/* False: nothing more can be read. A part that a lock delays is left out. */
static bool read_report_parts(
    struct pg *pg, struct status_postgres *database, int count, struct err *err)
{
	bool messages_locked = false;

	for (int i = 0; i < count; i++) {
		/* each such part would wait for the same lock again, half a second each */
		if (parts[i].reads_messages && messages_locked)
			continue;
		if (read_report_part(pg, database, &parts[i], err))
			continue;
		database->exit_status = err_exit_status(err);
		/* any other error would most likely stop the other parts as well */
		if (!text_equal(pg_sqlstate(pg), LOCK_TIMEOUT) || !note_lock(pg, database, err))
			return false;
		messages_locked |= parts[i].reads_messages;
	}
	return true;
}

/* Each shard whose rows were not counted says why. */
static void explain_unknown(struct status_postgres *database)
{
	const char *lines = text_string(&database->unknown);

	for (int i = 0; i < database->shard_count; i++) {
		struct status_shard *shard = &database->shards[i];

		if (shard->unpublished >= 0)
			continue;
		free(shard->unknown);
		shard->unknown = xformat("%.*s", (int)strcspn(lines, "\n"), lines);
	}
}

static bool take_parts(struct pg *pg, struct status_postgres *database, int count, struct err *err)
{
	if (!read_report_parts(pg, database, count, err))
		return false;
	explain_unknown(database);
	return true;
}

bool status_publishers_take(struct pg *pg, struct status_postgres *database, struct err *err)
{
	return take_parts(pg, database, PUBLISHER_PARTS, err);
}

bool status_overview_take(struct pg *pg, struct status_postgres *database, struct err *err)
{
	return take_parts(pg, database, OVERVIEW_PARTS, err);
}

static void report_database(
    struct status_postgres *database, const struct postgres_settings *section)
{
	struct err err;
	OWNED(owned_pg_destroy) struct pg *pg = database_connect(section, &err);

	database->section = section;
	for (int i = 0; i < PARTITION_TABLES; i++)
		database->default_rows[i] = -1;
	database->place = xstrdup(pg ? pg_place(pg) : "");
	if (pg && take_parts(pg, database, PARTS, &err)) {
		database->error = xstrdup("");
	} else {
		database->error = xstrdup(err.message);
		database->exit_status = err_exit_status(&err);
	}
}

/* Decisions by source, answers of services, and circuit breakers. */
static const char *const of_lookbacks[] = {"relay_lookback_decisions_total{",
    "relay_lookback_checks_total{", "relay_lookback_breaker{", NULL};
/* Messages by outcome, and those in flight. */
static const char *const of_delivers[] = {"relay_deliver_handled_total{",
    "relay_deliver_duplicates_total{", "relay_deliver_false_positive_rate{",
    "relay_deliver_in_progress{", "relay_deliver_oldest_seconds{", "relay_deliver_retries_total{",
    "relay_deliver_dead_letters_total{", "relay_deliver_rebalances_total{",
    "relay_deliver_breaker{", NULL};

/* Lines of the page that begin with one of these, which NULL ends. */
static char *find_samples(const char *page, const char *const *families)
{
	OWNED(text_finish) struct text found = {0};

	for (const char *at = page; *at;) {
		size_t length = strcspn(at, "\n");

		for (size_t i = 0; families[i]; i++)
			if (text_starts(at, families[i]))
				text_addf(&found, "%.*s\n", (int)length, at);
		at += length + (at[length] == '\n');
	}
	return xstrdup(text_string(&found));
}

static void ask_admin_of_metrics(struct status_report *report)
{
	const struct config *config = report->config;
	const struct admin_place place = admin_place_of_admin(config);
	OWNED(text_finish) struct text body = {0};
	struct err ignored;
	int status = 0;
	const char *page;

	/* without an answer to /readyz the endpoint is not queried again: each try may take 2 s */
	if (config->lookback_count + config->deliver_count > 0 && report->admin_status != 0 &&
	    !admin_get(&place, "/metrics", ADMIN_MS, &status, &body, &ignored))
		text_clear(&body);
	page = status == 200 ? text_string(&body) : "";
	report->admin_lookback = find_samples(page, of_lookbacks);
	report->admin_deliver = find_samples(page, of_delivers);
}

static void ask_admin(struct status_report *report)
{
	const struct admin_place place = admin_place_of_admin(report->config);
	OWNED(text_finish) struct text body = {0};
	struct err err;

	if (report->config->admin_listen[0] == '\0')
		return;
	if (admin_get(&place, "/readyz?verbose", ADMIN_MS, &report->admin_status, &body, &err))
		report->admin_report = xstrdup(text_string(&body));
	else
		report->admin_report = xstrdup(err.message);
}

/* Without a token, or without [api], the metrics of [admin] are the only source. */
static void ask_api_of_delivers(struct status_report *report)
{
	const struct config *config = report->config;
	struct err err = {0};
	json_t *answer = NULL;

	if (config->deliver_count > 0 && config->api.listen[0] == '\0')
		err_set(&err, ERR_CONFIG,
		    "set [api] listen, add a [token] section with the role read, and restart the "
		    "relay");
	else if (config->deliver_count > 0 &&
		 deliver_client_ask(config, "/v1/deliver", NULL, &answer, &err))
		report->deliver = json_incref(json_object_get(answer, "sections"));
	report->deliver_error = xstrdup(config->deliver_count > 0 && !answer ? err.message : "");
	json_decref(answer);
}

void status_report_take(struct status_report *report, const struct config *config)
{
	*report = (struct status_report){.config = config,
	    .taken_ms = clock_ms(),
	    .taken_wall_us = clock_wall_us(),
	    .count = config->postgres_count};
	report->databases = xcalloc((size_t)report->count, sizeof *report->databases);
	for (int i = 0; i < report->count; i++)
		report_database(&report->databases[i], &config->postgres[i]);
	ask_admin(report);
	ask_admin_of_metrics(report);
	ask_api_of_delivers(report);
}

static const struct status_shard *same_shard(
    const struct status_postgres *database, const struct status_shard *shard)
{
	for (int i = 0; i < database->shard_count; i++)
		if (database->shards[i].shard == shard->shard &&
		    database->shards[i].shards == shard->shards &&
		    text_equal(database->shards[i].publisher, shard->publisher))
			return &database->shards[i];
	return NULL;
}

/*
 * The rate of a shard: new ids since the previous report, divided by the number of shards, less the
 * growth of its backlog. Ids of rolled-back transactions count as published.
 */
void status_report_compare(struct status_report *report, const struct status_report *before)
{
	double seconds = (double)(report->taken_ms - before->taken_ms) / 1000;

	for (int i = 0; i < report->count && i < before->count && seconds > 0; i++)
		for (int j = 0; j < report->databases[i].shard_count; j++) {
			struct status_shard *now = &report->databases[i].shards[j];
			const struct status_shard *then = same_shard(&before->databases[i], now);
			double came, left;

			/* a shard that is new or was not counted has no rate, which differs from
			 * a rate of 0 */
			if (!then || now->unpublished < 0 || then->unpublished < 0)
				continue;
			came = (double)(now->newest_id - then->newest_id) / now->shards;
			left = (double)(now->estimated - then->estimated);
			now->rate = came > left ? (came - left) / seconds : 0;
		}
}

const struct status_scheduled *status_scheduled_of(
    const struct status_postgres *database, const char *publisher)
{
	for (int i = 0; i < database->scheduled_count; i++)
		if (text_equal(database->scheduled[i].publisher, publisher))
			return &database->scheduled[i];
	return NULL;
}

void status_postgres_finish(struct status_postgres *database)
{
	text_finish(&database->waits);
	text_finish(&database->unknown);

	for (int i = 0; i < database->shard_count; i++) {
		free(database->shards[i].publisher);
		free(database->shards[i].owner);
		free(database->shards[i].unknown);
		free(database->shards[i].url);
		free(database->shards[i].paused_at);
		free(database->shards[i].paused_topics);
		free(database->shards[i].paused_topics_text);
		free(database->shards[i].identity);
	}
	for (int i = 0; i < database->partition_count; i++)
		free(database->partitions[i].name);
	for (int i = 0; i < database->parked_count; i++)
		free(database->parked[i].publisher);

	free(database->shards);
	free(database->parked);
	for (int i = 0; i < database->scheduled_count; i++)
		free(database->scheduled[i].publisher);
	free(database->scheduled);

	for (int i = 0; i < database->lookback_count; i++) {
		free(database->lookbacks[i].section);
		free(database->lookbacks[i].type);
	}
	free(database->lookbacks);
	free(database->partitions);

	free(database->place);
	free(database->error);
	free(database->ids_problem);
	*database = (struct status_postgres){0};
}

void status_report_finish(struct status_report *report)
{
	for (int i = 0; i < report->count; i++)
		status_postgres_finish(&report->databases[i]);
	free(report->databases);
	text_finish(&report->waits);
	json_decref(report->deliver);
	free(report->deliver_error);
	free(report->admin_report);
	free(report->admin_lookback);
	free(report->admin_deliver);
	*report = (struct status_report){0};
}
