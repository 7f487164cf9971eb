/*
 * The checks of `doctor` and of the start for publishers: server and schema, cluster, topics and
 * tails. Findings go into a preflight report; checks_verdict decides whether one is fatal.
 */
#include "checks.h"

#include <inttypes.h>
#include <stdlib.h>
#include "migrate.h"
#include "pg.h"
#include "schema_query.h"
#include "sql_files.h"
#include "text.h"

enum { POSTGRES_MS = 10000, KAFKA_MS = 5000 };

void checks_init(struct checks *checks, const struct config *config)
{
	*checks = (struct checks){.config = config,
	    .publishers = xcalloc((size_t)config->publisher_count, sizeof *checks->publishers)};
	for (int i = 0; i < config->publisher_count; i++)
		checks->publishers[i].section = &config->publishers[i];
}

void checks_finish(struct checks *checks)
{
	for (int i = 0; checks->publishers && i < checks->config->publisher_count; i++) {
		for (int j = 0; j < checks->publishers[i].topic_count; j++)
			free(checks->publishers[i].topics[j]);
		free(checks->publishers[i].topics);
	}
	free(checks->publishers);
	preflight_finish(&checks->report);
}

/* --- Postgres ------------------------------------------------------------------------------- */

static void judge_publisher(struct checks *checks, struct checks_publisher *publisher)
{
	const struct config_publisher *section = publisher->section;
	owned_text char *place =
	    xformat("publisher %s (%s)", section->settings.name, section->origin);
	owned_text char *cure = NULL;

	if (publisher->shards == 0) {
		cure = xformat("run `outbox-relay publisher create %s`", section->settings.name);
		preflight_add(&checks->report, PREFLIGHT_FAIL, place, cure,
		    "the database of postgres %s has no such publisher",
		    section->settings.postgres->name);
	} else if (section->shards != 0 && section->shards != publisher->shards) {
		cure = xformat(
		    "set shards = %d, or 0; or run `outbox-relay publisher split %s --shards "
		    "%" PRId64 "`",
		    publisher->shards, section->settings.name, section->shards);
		preflight_add(&checks->report, PREFLIGHT_FAIL, place, cure,
		    "it has %d shards, not %" PRId64, publisher->shards, section->shards);
	}
}

/* A refused publisher waits for its rebase; other publishers go on. */
static bool check_origin(
    struct checks *checks, const struct checks_publisher *publisher, struct pg *pg, struct err *err)
{
	const struct pg_param params[] = {{publisher->section->settings.name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = schema_query(
	    pg, publisher->section->settings.postgres->schema, sql_elsewhere, params, 1, err);
	owned_text char *place = xformat(
	    "publisher %s (%s)", publisher->section->settings.name, publisher->section->origin);

	if (row && text_equal(pg_value(row, 0, 0), "t"))
		preflight_add(&checks->report, checks->starting ? PREFLIGHT_WARN : PREFLIGHT_FAIL,
		    place, "run `outbox-relay publisher rebase --all`",
		    "its rows were carried here from another database cluster: they are not "
		    "published");
	return row != NULL;
}

static bool read_topics(struct checks_publisher *publisher, struct pg *pg, struct err *err)
{
	const struct pg_param params[] = {{publisher->section->settings.name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *topics = schema_query(
	    pg, publisher->section->settings.postgres->schema, sql_topics, params, 1, err);

	if (!topics)
		return false;
	publisher->topics = xcalloc((size_t)pg_rows(topics), sizeof *publisher->topics);
	publisher->topic_count = pg_rows(topics);
	for (int i = 0; i < publisher->topic_count; i++)
		publisher->topics[i] = xstrdup(pg_value(topics, i, 0));
	return true;
}

/* Some rows of each shard: the oldest are among those that are read first. */
static bool read_oldest(struct checks_publisher *publisher, struct pg *pg, struct err *err)
{
	enum { AGE_MS = 3 };
	const struct pg_param params[] = {{publisher->section->settings.name}, {"100"}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = schema_query(
	    pg, publisher->section->settings.postgres->schema, sql_backlogs, params, 2, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (pg_int(rows, i, AGE_MS) > publisher->oldest_age_ms)
			publisher->oldest_age_ms = pg_int(rows, i, AGE_MS);
	return rows != NULL;
}

static bool check_publishers(
    struct checks *checks, struct pg *pg, const struct postgres_settings *postgres, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *known = schema_query(pg, postgres->schema, sql_publishers, NULL, 0, err);

	if (!known || !pg_script(pg, sql_backlog_begin, err))
		return false;
	for (int i = 0; i < checks->config->publisher_count; i++) {
		struct checks_publisher *publisher = &checks->publishers[i];

		if (publisher->section->settings.postgres != postgres)
			continue;
		publisher->shards =
		    schema_publisher_shards(known, publisher->section->settings.name);
		judge_publisher(checks, publisher);
		/* The database knows nothing else of a publisher that it does not have. */
		if (publisher->shards > 0 &&
		    !(check_origin(checks, publisher, pg, err) && read_topics(publisher, pg, err) &&
			read_oldest(publisher, pg, err)))
			return false;
	}
	return pg_script(pg, "commit", err);
}

static bool check_database_schema(
    struct checks *checks, struct pg *pg, const struct postgres_settings *postgres, struct err *err)
{
	owned_text char *place = xformat("postgres %s", postgres->name);
	struct err unfit;

	if (migrate_check(pg, postgres->schema, &unfit))
		return check_publishers(checks, pg, postgres, err);
	/* The database is away: that says nothing about the schema. */
	if (unfit.kind == ERR_RETRY)
		return err_set(err, ERR_RETRY, "%s", unfit.message);
	preflight_add(&checks->report, PREFLIGHT_FAIL, place, NULL, "%s", unfit.message)->kind =
	    unfit.kind;
	return true;
}

bool checks_postgres(
    struct checks *checks, const struct postgres_settings *postgres, struct err *err)
{
	OWNED(owned_pg_destroy)
	struct pg *pg = pg_connect(postgres->dsn, "outbox-relay doctor", POSTGRES_MS, err);
	bool usable = false;

	return pg && preflight_postgres(&checks->report, pg, postgres, &usable, err) &&
	       (!usable || check_database_schema(checks, pg, postgres, err));
}

/* --- Kafka ---------------------------------------------------------------------------------- */

bool checks_kafka(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err)
{
	return preflight_cluster(&checks->report, metadata, kafka, KAFKA_MS, err);
}

/* Has a publisher before this one the same topic on the same cluster? */
static bool is_checked_before(const struct checks *checks, int publisher, const char *topic)
{
	for (int i = 0; i < publisher; i++)
		for (int j = 0; checks->publishers[i].section->settings.kafka ==
				    checks->publishers[publisher].section->settings.kafka &&
				j < checks->publishers[i].topic_count;
		     j++)
			if (text_equal(checks->publishers[i].topics[j], topic))
				return true;
	return false;
}

/* Reports topics without headers: consumers must not expect headers there. */
static void tell_headers(struct checks *checks, const char *topic)
{
	owned_text char *place = xformat("topic %s", topic);

	if (config_topic_headers(checks->config, topic) == TOPIC_HEADERS_NONE)
		preflight_add(&checks->report, PREFLIGHT_INFO, place, NULL,
		    "headers = none: records have neither outbox-id nor outbox-position, a restart "
		    "may repeat some, and verify does not judge the topic");
}

/* Topics are known from the log and from rows, so an empty table has none to check. */
static void tell_unknown_topics(struct checks *checks, const struct checks_publisher *publisher)
{
	owned_text char *place = xformat("publisher %s", publisher->section->settings.name);

	preflight_add(&checks->report, PREFLIGHT_INFO, place, NULL,
	    "no topic is known yet: doctor checks a topic from its first message on");
}

bool checks_topics(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err)
{
	for (int i = 0; i < checks->config->publisher_count; i++) {
		const struct checks_publisher *publisher = &checks->publishers[i];
		/* A record with the time of its row may be older than the topic's retention. */
		int64_t age = publisher->section->settings.timestamp == TIMESTAMP_CREATED
				  ? publisher->oldest_age_ms
				  : 0;

		if (publisher->section->settings.kafka == kafka && publisher->topic_count == 0)
			tell_unknown_topics(checks, publisher);
		for (int j = 0;
		     publisher->section->settings.kafka == kafka && j < publisher->topic_count;
		     j++) {
			if (is_checked_before(checks, i, publisher->topics[j]))
				continue;
			if (!preflight_leaders(
				&checks->report, metadata, publisher->topics[j], KAFKA_MS, err) ||
			    !preflight_topic(&checks->report, metadata, kafka, publisher->topics[j],
				age, KAFKA_MS, err))
				return false;
			tell_headers(checks, publisher->topics[j]);
		}
	}
	return true;
}

static bool is_among(const char *const *topics, int count, const char *topic)
{
	for (int i = 0; i < count; i++)
		if (text_equal(topics[i], topic))
			return true;
	return false;
}

void checks_tails(struct checks *checks, const struct kafka_settings *kafka)
{
	const char **topics = NULL;
	int count = 0;

	for (int i = 0; i < checks->config->publisher_count; i++) {
		const struct checks_publisher *publisher = &checks->publishers[i];
		bool reads = publisher->section->settings.kafka == kafka &&
			     publisher->section->settings.resume == RESUME_TAIL;

		for (int j = 0; reads && j < publisher->topic_count; j++) {
			if (is_among(topics, count, publisher->topics[j]))
				continue;
			topics = xrealloc(topics, (size_t)(count + 1) * sizeof *topics);
			topics[count++] = publisher->topics[j];
		}
	}
	if (count > 0)
		preflight_tails(&checks->report, kafka, topics, count, KAFKA_MS);
	free(topics);
}

/* --- the verdict ---------------------------------------------------------------------------- */

enum safety checks_safety(const struct config *config, const struct kafka_settings *kafka)
{
	for (int i = 0; i < config->publisher_count; i++)
		if (config->publishers[i].settings.kafka == kafka &&
		    config->publishers[i].settings.safety == SAFETY_STRICT)
			return SAFETY_STRICT;
	return SAFETY_WARN;
}

bool checks_verdict(const struct checks *checks, int first, enum safety safety, struct err *err)
{
	for (int i = first; i < checks->report.count; i++) {
		const struct preflight_finding *finding = &checks->report.findings[i];

		if (preflight_is_fatal(finding->severity, safety))
			return err_set(err, finding->kind, "%s: %s%s%s%s", finding->place,
			    finding->what, finding->cure[0] ? "; " : "", finding->cure,
			    finding->severity == PREFLIGHT_UNSAFE
				? " (safety = strict refuses such a cluster)"
				: "");
	}
	return true;
}
