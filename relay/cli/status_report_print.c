/*
 * Prints a status report (relay/ops/status_report.h) for people and as JSON. Each half ends with
 * its public function, which calls the parts above it.
 */
#include "status_report_print.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "deliver_call.h"
#include "moment.h"
#include "status_json.h"

/* --- for people ---------------------------------------------------------------------------- */

static const char *age_text(int64_t ms, char text[32])
{
	if (ms < 60000)
		snprintf(text, 32, "%.1f s", (double)ms / 1000);
	else if (ms < 7200000)
		snprintf(text, 32, "%" PRId64 " min", ms / 60000);
	else
		snprintf(text, 32, "%" PRId64 " h", ms / 3600000);
	return text;
}

static const char *size_text(int64_t bytes, char text[32])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

/* "unpublished 3, oldest 0.1 s", or "unpublished unknown (outbox.message is locked), …". */
static void print_backlog(const struct status_shard *shard, struct text *out)
{
	char oldest[32];

	/* 0 would read as no backlog: an unknown number is never printed as one */
	if (shard->unpublished < 0 && shard->unknown[0])
		text_addf(out, "unpublished unknown (%s), oldest unknown", shard->unknown);
	else if (shard->unpublished < 0)
		text_add(out, "unpublished unknown, oldest unknown");
	else if (shard->more)
		text_addf(out, "unpublished ≥%" PRId64 ", about %" PRId64 ", oldest %s",
		    shard->unpublished, shard->estimated, age_text(shard->oldest_age_ms, oldest));
	else
		text_addf(out, "unpublished %" PRId64 ", oldest %s", shard->unpublished,
		    age_text(shard->oldest_age_ms, oldest));
	if (shard->rate >= 0)
		text_addf(out, "  %.0f/s", shard->rate);
}

static void print_shard(const struct status_shard *shard, struct text *out)
{
	char name[64], lease[32];

	snprintf(name, sizeof name, "%s/%d", shard->publisher, shard->shard);
	text_addf(out, "  %-16s ", name);
	print_backlog(shard, out);
	text_add(out, "\n");
	if (shard->elsewhere)
		text_addf(out,
		    "  %-16s not published: its rows were carried here from another database "
		    "cluster; run `outbox-relay publisher rebase --all`\n",
		    "");
	if (shard->owner[0])
		text_addf(out, "  %-16s owner %s%s%s, lease %s", "", shard->owner,
		    shard->url[0] ? " at " : "", shard->url, age_text(shard->lease_left_ms, lease));
	else
		text_addf(out, "  %-16s nobody owns it", "");
	text_addf(out, ", open windows %" PRId64 ", n %" PRId64 ", epoch %" PRId64, shard->windows,
	    shard->n, shard->epoch);
	if (shard->split_to)
		text_addf(out, ", being split to %d", shard->split_to);
	if (shard->paused_at[0])
		text_addf(out, ", paused since %s", shard->paused_at);
	text_add(out, "\n");
}

/* Publishers without parked rows have no line. */
static void print_parked(const struct status_parked *parked, struct text *out)
{
	int64_t total =
	    parked->waiting + parked->dead + parked->stalled + parked->free + parked->behind;
	char oldest[32];

	if (total > 0)
		text_addf(out,
		    "  %-16s parked %s%" PRId64 " (%" PRId64 " waiting, %" PRId64 " dead, %" PRId64
		    " stalled, %" PRId64 " free, %" PRId64 " behind), the oldest for %s\n",
		    parked->publisher, parked->more ? "≥" : "", total, parked->waiting,
		    parked->dead, parked->stalled, parked->free, parked->behind,
		    age_text(parked->oldest_age_ms, oldest));
}

static void print_scheduled(const struct status_scheduled *scheduled, struct text *out)
{
	bool late = scheduled->late_ms > 0;
	char first[32];

	if (scheduled->rows > 0)
		text_addf(out, "  %-16s scheduled %s%" PRId64 ", the first %s %s\n",
		    scheduled->publisher, scheduled->more ? "≥" : "", scheduled->rows,
		    late ? "due for" : "in",
		    age_text(late ? scheduled->late_ms : scheduled->next_ms, first));
}

static void print_lookback(const struct status_lookback *lookback, struct text *out)
{
	owned_text char *name = xformat("%s/%s", lookback->section, lookback->type);
	char oldest[32];

	text_addf(out, "  %-16s %soverdue %" PRId64 ", parked %" PRId64, name,
	    lookback->more ? "at least " : "", lookback->overdue, lookback->parked);
	if (lookback->overdue + lookback->parked > 0)
		text_addf(out, ", the oldest for %s", age_text(lookback->oldest_age_ms, oldest));
	if (lookback->conflicts > 0)
		text_addf(out, ", %" PRId64 " conflict%s", lookback->conflicts,
		    text_plural(lookback->conflicts));
	if (lookback->unprepared > 0)
		text_addf(out, ", %" PRId64 " decision%s without a prepare", lookback->unprepared,
		    text_plural(lookback->unprepared));
	text_add(out, "\n");
}

static void print_bounded_partition(const struct status_partition *partition, struct text *out)
{
	char from[MOMENT_SIZE], to[MOMENT_SIZE], bytes[32], rows[48] = "rows unknown";

	/* the default partition has no bounds; print_database reports it if it has rows */
	if (!partition->bounded)
		return;
	moment_format(partition->from_us, from);
	moment_format(partition->to_us, to);
	if (partition->rows >= 0)
		snprintf(rows, sizeof rows, "about %" PRId64 " row%s", partition->rows,
		    text_plural(partition->rows));
	text_addf(out, "  %-24s %s … %s  %s, %s\n", partition->name, from, to,
	    size_text(partition->bytes, bytes), rows);
}

/* Lines with an indentation and a mark. */
static void print_lines(const char *lines, const char *mark, struct text *out)
{
	for (const char *at = lines; *at;) {
		size_t length = strcspn(at, "\n");

		text_addf(out, "  %s%.*s\n", mark, (int)length, at);
		at += length + (at[length] == '\n');
	}
}

static void print_unknown(const char *reasons, struct text *out)
{
	for (const char *at = reasons; *at;) {
		size_t length = strcspn(at, "\n");

		text_addf(out, "  " STATUS_TROUBLE "%.*s: the numbers that need it are unknown\n",
		    (int)length, at);
		at += length + (at[length] == '\n');
	}
}

static void print_database(const struct status_postgres *database, struct text *out)
{
	text_addf(out, "postgres %s%s%s\n", database->section->name, database->place[0] ? "  " : "",
	    database->place);
	print_lines(database->error, STATUS_TROUBLE, out);
	print_unknown(text_string(&database->unknown), out);
	print_lines(text_string(&database->waits), STATUS_TROUBLE, out);

	for (int i = 0; i < database->shard_count; i++)
		print_shard(&database->shards[i], out);
	for (int i = 0; i < database->parked_count; i++)
		print_parked(&database->parked[i], out);
	for (int i = 0; i < database->scheduled_count; i++)
		print_scheduled(&database->scheduled[i], out);
	for (int i = 0; i < database->lookback_count; i++)
		print_lookback(&database->lookbacks[i], out);

	for (int i = 0; i < database->partition_count; i++)
		print_bounded_partition(&database->partitions[i], out);
	for (int i = 0; i < PARTITION_TABLES; i++)
		if (database->default_rows[i] > 0)
			text_addf(out,
			    "  %s_default holds %" PRId64 " row%s: partitions were missing\n",
			    partition_tables[i], database->default_rows[i],
			    text_plural(database->default_rows[i]));

	if (database->ids_problem)
		text_addf(out, "  %s\n", database->ids_problem);
}

static void print_admin(const struct status_report *report, struct text *out)
{
	if (!report->admin_report)
		return;
	text_addf(out, "relay at %s\n", report->config->admin_listen);
	/* a heading alone would look like a relay without troubles */
	if (report->admin_report[0] == '\0')
		text_addf(out, "  " STATUS_TROUBLE "it answers with status %d and no report\n",
		    report->admin_status);
	print_lines(report->admin_report, "", out);
	print_lines(report->admin_lookback, "", out);
	print_lines(report->admin_deliver, "", out);
}

/* NULL: the process does not run the section. */
static const json_t *deliver_section_named(const json_t *sections, const char *name)
{
	const json_t *section;
	size_t index;

	json_array_foreach(sections, index, section)
	{
		if (text_equal(json_string_value(json_object_get(section, "section")), name))
			return section;
	}
	return NULL;
}

static void print_delivers(const struct status_report *report, struct text *out)
{
	const struct config *config = report->config;

	for (int i = 0; i < config->deliver_count; i++) {
		const struct config_deliver *deliver = &config->delivers[i];
		const json_t *section = deliver_section_named(report->deliver, deliver->name);

		text_addf(out, "deliver %s  %s%s to %s\n", deliver->name, deliver->topics.items[0],
		    deliver->topics.count > 1 ? ", …" : "", deliver->url);
		/* three cases that need different actions: it runs, it runs elsewhere, nobody
		 * answers */
		if (section)
			deliver_call_add_section(out, section);
		else if (report->deliver)
			text_addf(out,
			    "  " STATUS_TROUBLE "the relay at %s does not run this section\n",
			    config->api.listen);
		else
			text_addf(out, "  " STATUS_TROUBLE "its state is unknown: %s\n",
			    report->deliver_error);
	}
}

void status_report_print(const struct status_report *report, struct text *out)
{
	/* first, since it explains the unpublished rows below */
	if (report->waits.length > 0)
		text_add(out, "kafka\n");
	print_lines(text_string(&report->waits), STATUS_TROUBLE, out);
	for (int i = 0; i < report->count; i++)
		print_database(&report->databases[i], out);
	print_delivers(report, out);
	print_admin(report, out);
}

/* --- for programs --------------------------------------------------------------------------- */

/* NULL: it is unknown. */
static json_t *known_list(const void *items, json_t *list)
{
	if (items)
		return list;
	json_decref(list);
	return json_null();
}

static json_t *moment_json(int64_t us)
{
	char text[MOMENT_SIZE];

	moment_format(us, text);
	return json_string(text);
}

static json_t *shard_with_rate_json(const struct status_shard *shard)
{
	json_t *object = status_shard_json(shard);

	json_object_set_new(
	    object, "published_per_second", shard->rate < 0 ? json_null() : json_real(shard->rate));
	return object;
}

static json_t *partition_json(const struct status_partition *partition)
{
	json_t *object = json_object();

	json_object_set_new(object, "name", json_string(partition->name));
	json_object_set_new(
	    object, "from", partition->bounded ? moment_json(partition->from_us) : json_null());
	json_object_set_new(
	    object, "to", partition->bounded ? moment_json(partition->to_us) : json_null());
	json_object_set_new(object, "bytes", status_int64_json(partition->bytes));
	json_object_set_new(object, "rows_estimated", status_known_json(partition->rows));
	return object;
}

/* null unless all tables were read: the partitions of some would look like all. */
static json_t *partitions_json(const struct status_postgres *database)
{
	json_t *list = json_array();
	bool known = true;

	for (int i = 0; i < PARTITION_TABLES; i++)
		known &= database->default_rows[i] >= 0;
	for (int i = 0; i < database->partition_count; i++)
		json_array_append_new(list, partition_json(&database->partitions[i]));
	return known_list(known ? list : NULL, list);
}

static json_t *database_json(const struct status_postgres *database)
{
	json_t *object = json_object(), *shards = json_array();
	json_t *parked = json_array(), *scheduled = json_array(), *default_rows = json_object();
	json_t *lookbacks = json_array();

	for (int i = 0; i < database->shard_count; i++)
		json_array_append_new(shards, shard_with_rate_json(&database->shards[i]));
	for (int i = 0; i < database->parked_count; i++)
		json_array_append_new(parked, status_parked_json(&database->parked[i]));
	for (int i = 0; i < database->scheduled_count; i++)
		json_array_append_new(scheduled, status_scheduled_json(&database->scheduled[i]));
	for (int i = 0; i < database->lookback_count; i++)
		json_array_append_new(lookbacks, status_lookback_json(&database->lookbacks[i]));
	json_object_set_new(object, "name", json_string(database->section->name));
	json_object_set_new(object, "place", json_string(database->place));
	json_object_set_new(
	    object, "error", database->error[0] ? json_string(database->error) : json_null());
	json_object_set_new(object, "unknown", status_lines_json(text_string(&database->unknown)));
	json_object_set_new(object, "waits", status_lines_json(text_string(&database->waits)));
	json_object_set_new(object, "shards", known_list(database->shards, shards));
	json_object_set_new(object, "parked", known_list(database->parked, parked));
	json_object_set_new(object, "scheduled", known_list(database->scheduled, scheduled));
	json_object_set_new(object, "lookback", known_list(database->lookbacks, lookbacks));
	json_object_set_new(object, "partitions", partitions_json(database));
	for (int i = 0; i < PARTITION_TABLES; i++)
		json_object_set_new(default_rows, partition_tables[i],
		    status_known_json(database->default_rows[i]));
	json_object_set_new(object, "default_rows", default_rows);
	json_object_set_new(
	    object, "ids_problem", json_string(database->ids_problem ? database->ids_problem : ""));
	return object;
}

static json_t *admin_json(const struct status_report *report)
{
	json_t *object;

	/* no [admin] listen: that differs from an endpoint that does not answer */
	if (!report->admin_report)
		return json_null();
	object = json_object();
	json_object_set_new(object, "listen", json_string(report->config->admin_listen));
	json_object_set_new(object, "answers", json_boolean(report->admin_status != 0));
	json_object_set_new(object, "ready", json_boolean(report->admin_status == 200));
	json_object_set_new(object, "report", status_lines_json(report->admin_report));
	json_object_set_new(object, "lookback", status_lines_json(report->admin_lookback));
	json_object_set_new(object, "deliver", status_lines_json(report->admin_deliver));
	return object;
}

void status_report_print_json(const struct status_report *report, struct text *out)
{
	json_t *object = json_object(), *databases = json_array();
	char *text;

	for (int i = 0; i < report->count; i++)
		json_array_append_new(databases, database_json(&report->databases[i]));
	json_object_set_new(object, "time", moment_json(report->taken_wall_us));
	json_object_set_new(object, "postgres", databases);
	json_object_set_new(object, "waits", status_lines_json(text_string(&report->waits)));
	json_object_set_new(
	    object, "deliver", report->deliver ? json_incref(report->deliver) : json_null());
	json_object_set_new(object, "deliver_error", json_string(report->deliver_error));
	json_object_set_new(object, "relay", admin_json(report));
	text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
	text_addf(out, "%s\n", text ? text : "{}");
	free(text);
	json_decref(object);
}
