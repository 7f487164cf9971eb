/*
 * All on one page: the process, each database, publisher, look-back type and [deliver] section in
 * one line, and the alarms. The databases say the same in every process; rates, alarms and
 * [deliver] sections are of this one.
 */
#include <inttypes.h>
#include <math.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_watch.h"
#include "api_worker.h"
#include "cleanup.h"
#include "clock.h"
#include "moment.h"
#include "status_json.h"

/* Rows and ids that are counted one by one: a page of a browser asks every few seconds. */
enum { OVERVIEW_COUNTED = 10000 };

/* --- the process ----------------------------------------------------------------------------- */

static json_t *roles_json(const struct api *api)
{
	const struct config *config = api_config(api);
	json_t *roles = json_array();

	if (config->publisher_count > 0)
		json_array_append_new(roles, json_string("publisher"));
	if (config->lookback_count > 0)
		json_array_append_new(roles, json_string("lookback"));
	if (api_parts_of(api)->delivers)
		json_array_append_new(roles, json_string("deliver"));
	return roles;
}

/*
 * `checks` has the lines of /readyz?verbose: "[+] …" is well, "[-] …" keeps the process unready.
 * They are about all publishers and sections, so that a token with a limit does not get them.
 */
static json_t *process_json(const struct api_call *call)
{
	const struct api *api = call->api;
	const struct api_parts *parts = api_parts_of(api);
	OWNED(text_finish) struct text report = {0};
	bool ready = parts->ready(parts->context, &report);
	int64_t started_us = api_started_us(api);
	char started[MOMENT_SIZE];

	moment_format(started_us, started);
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:b, s:o}", "name", parts->process, "version",
	    RELAY_VERSION, "started", started, "uptime_s",
	    status_int64_json((clock_wall_us() - started_us) / 1000000), "roles", roles_json(api),
	    "ready", ready, "checks",
	    api_is_limited(call) ? json_null() : status_lines_json(text_string(&report)));
}

/* --- one line each --------------------------------------------------------------------------- */

struct shard_sum {
	int shards, owned;
	bool elsewhere, exact;
	int64_t unpublished, oldest_age_ms; /* -1: unknown */
	json_t *owners;
};

static void add_shard(struct shard_sum *sum, const struct status_shard *shard)
{
	bool known = shard->unpublished >= 0 && sum->unpublished >= 0;

	sum->shards++;
	sum->elsewhere |= shard->elsewhere;
	sum->exact &= known && !shard->more;
	sum->unpublished = known ? sum->unpublished + shard->unpublished : -1;
	if (shard->oldest_age_ms > sum->oldest_age_ms)
		sum->oldest_age_ms = shard->oldest_age_ms;
	if (!shard->owner[0])
		return;
	sum->owned++;
	for (size_t i = 0; i < json_array_size(sum->owners); i++)
		if (text_equal(
			json_string_value(json_object_get(json_array_get(sum->owners, i), "name")),
			shard->owner))
			return;
	json_array_append_new(sum->owners, json_pack("{s:s, s:s?}", "name", shard->owner, "url",
					       shard->url[0] ? shard->url : NULL));
}

static struct shard_sum sum_shards(const struct status_postgres *database, const char *publisher)
{
	struct shard_sum sum = {.exact = true, .oldest_age_ms = -1, .owners = json_array()};

	for (int i = 0; i < database->shard_count; i++)
		if (text_equal(database->shards[i].publisher, publisher))
			add_shard(&sum, &database->shards[i]);
	return sum;
}

static json_t *rate_json(const struct api *api, const char *publisher)
{
	double rate = history_newest(
	    api_watch_history(api_watch_of(api)), "relay_published_total", publisher);

	return isnan(rate) ? json_null() : json_real(rate);
}

static json_t *publisher_line(const struct api *api, const struct status_postgres *database,
    const struct status_parked *parked)
{
	const char *name = parked->publisher;
	const struct status_scheduled *scheduled = status_scheduled_of(database, name);
	struct shard_sum sum = sum_shards(database, name);

	return json_pack("{s:s, s:s, s:s, s:i, s:i, s:o, s:b, s:o, s:b, s:o, s:o, s:o, s:o}",
	    "name", name, "postgres", database->section->name, "source", "database", "shards",
	    sum.shards, "owned", sum.owned, "owners", sum.owners, "elsewhere", sum.elsewhere,
	    "unpublished", status_known_json(sum.unpublished), "unpublished_exact", sum.exact,
	    "oldest_age_ms", status_known_json(sum.oldest_age_ms), "parked",
	    status_parked_json(parked), "scheduled",
	    scheduled ? status_scheduled_json(scheduled) : json_null(), "published_per_s",
	    rate_json(api, name));
}

struct overview {
	struct api_call *call;
	json_t *postgres, *publishers, *lookback, *alerts;
};

/* A shard that nobody owns: no metric of a single process shows it. */
static void add_ownerless(const struct overview *overview, const struct status_shard *shard)
{
	owned_text char *text = xformat(
	    "no process publishes shard %d of publisher %s", shard->shard, shard->publisher);
	owned_text char *number = xformat("%d", shard->shard);

	json_array_insert_new(overview->alerts, 0,
	    alarm_json("OutboxPublisherWithoutOwner", "critical", clock_wall_us(),
		json_pack("{s:s, s:s}", "publisher", shard->publisher, "shard", number), 0, text));
}

/*
 * No rule of alerts.yml: a pause is no fault, but it explains what the operator sees. labels: taken
 * over. since: as moment_format writes it.
 */
static void add_pause(const struct overview *overview, const char *name, json_t *labels,
    const char *since, const char *text)
{
	json_t *alert = alarm_json(name, "info", 0, labels, 1, text);

	json_object_set_new(alert, "since", json_string(since));
	json_array_append_new(overview->alerts, alert);
}

/* The pauses of the shard's publisher: that of the publisher, and those of its topics. */
static void add_pauses(const struct overview *overview, const struct status_shard *shard)
{
	const char *publisher = shard->publisher, *topic;
	owned_text char *words = xformat("an operator paused publisher %s", publisher);
	json_t *topics = json_loads(shard->paused_topics, 0, NULL), *since;

	if (shard->paused_at[0])
		add_pause(overview, "OutboxPublisherPaused",
		    json_pack("{s:s}", "publisher", publisher), shard->paused_at, words);
	json_object_foreach(topics, topic, since)
	{
		owned_text char *text =
		    xformat("an operator paused topic %s of publisher %s", topic, publisher);

		add_pause(overview, "OutboxTopicPaused",
		    json_pack("{s:s, s:s}", "publisher", publisher, "topic", topic),
		    json_string_value(since), text);
	}
	json_decref(topics);
}

static void add_overview_shards(
    const struct overview *overview, const struct status_postgres *database)
{
	const struct status_shard *shard = database->shards;

	for (int i = 0; i < database->shard_count; i++, shard++) {
		/* the shards of a publisher follow each other, and each has the pauses of all */
		bool first = i == 0 || !text_equal(shard->publisher, shard[-1].publisher);

		if (!api_may_see_publisher(overview->call, shard->publisher))
			continue;
		if (!shard->owner[0])
			add_ownerless(overview, shard);
		if (first)
			add_pauses(overview, shard);
	}
}

static void add_overview_database(
    const struct overview *overview, const struct status_postgres *database)
{
	const struct api_call *call = overview->call;

	for (int i = 0; i < database->parked_count; i++)
		if (api_may_see_publisher(call, database->parked[i].publisher))
			json_array_append_new(overview->publishers,
			    publisher_line(call->api, database, &database->parked[i]));
	add_overview_shards(overview, database);
	for (int i = 0; i < database->lookback_count; i++) {
		const struct status_lookback *lookback = &database->lookbacks[i];

		if (config_token_has_type(&call->caller->token, lookback->section, lookback->type))
			json_array_append_new(overview->lookback, status_lookback_json(lookback));
	}
}

/* --- the call -------------------------------------------------------------------------------- */

static bool read_overview(struct pg *pg, void *context, struct err *err)
{
	struct status_postgres *database = context;
	const struct status_postgres asked = {
	    .section = database->section, .count_bound = database->count_bound};

	if (status_overview_take(pg, database, err))
		return true;
	status_postgres_finish(database);
	*database = asked;
	return false;
}

static void ask_for_overview(
    struct overview *overview, struct api_worker *worker, const struct postgres_settings *section)
{
	OWNED(status_postgres_finish)
	struct status_postgres database = {.section = section, .count_bound = OVERVIEW_COUNTED};
	struct err err;
	bool done = api_worker_query(worker, section, read_overview, &database, &err);

	if (done)
		add_overview_database(overview, &database);
	else
		api_log_database_error(overview->call, &err);
	json_array_append_new(
	    overview->postgres, api_postgres_json(&database, done ? NULL : API_DATABASE_AWAY));
}

static void run_overview(struct api_call *call, struct api_worker *worker)
{
	const struct config *config = api_config(call->api);
	struct overview overview = {.call = call,
	    .postgres = json_array(),
	    .publishers = json_array(),
	    .lookback = json_array(),
	    .alerts =
		alarms_json(api_watch_alarms(api_watch_of(call->api)), api_may_see_labels, call)};

	for (int i = 0; i < config->postgres_count; i++)
		ask_for_overview(&overview, worker, &config->postgres[i]);
	api_answer(call, 200,
	    json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "process", process_json(call), "postgres",
		overview.postgres, "publishers", overview.publishers, "lookback", overview.lookback,
		"deliver", api_deliver_sections(call), "alerts", overview.alerts));
}

void api_overview_begin(struct api_call *call)
{
	if (api_arguments_check(call, NULL, 0))
		api_worker_run(call, run_overview);
}
