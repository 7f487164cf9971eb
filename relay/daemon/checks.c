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
	*checks = (struct checks){
	    .config = config, .slots = xcalloc((size_t)config->slot_count, sizeof *checks->slots)};
	for (int i = 0; i < config->slot_count; i++)
		checks->slots[i].slot = &config->slots[i];
}

void checks_finish(struct checks *checks)
{
	for (int i = 0; checks->slots && i < checks->config->slot_count; i++) {
		for (int j = 0; j < checks->slots[i].topic_count; j++)
			free(checks->slots[i].topics[j]);
		free(checks->slots[i].topics);
	}
	free(checks->slots);
	preflight_finish(&checks->report);
}

/* --- Postgres ------------------------------------------------------------------------------- */

static void judge_slot(struct checks *checks, struct checks_slot *slot)
{
	const struct config_slot *config = slot->slot;
	owned_text char *place = xformat("slot %s (%s)", config->name, config->origin);
	owned_text char *cure = NULL;

	if (slot->shards == 0) {
		cure = xformat("run `outbox-relay slot create %s`", config->name);
		preflight_add(&checks->report, PREFLIGHT_FAIL, place, cure,
		    "the database of postgres %s has no such slot", config->postgres->name);
	} else if (config->shards != 0 && config->shards != slot->shards) {
		cure = xformat("set shards = %d, or 0; or run `outbox-relay slot split %s --shards "
			       "%" PRId64 "`",
		    slot->shards, config->name, config->shards);
		preflight_add(&checks->report, PREFLIGHT_FAIL, place, cure,
		    "it has %d shards, not %" PRId64, slot->shards, config->shards);
	}
}

/* A slot that is refused waits for its rebase; others go on. */
static bool check_origin(
    struct checks *checks, const struct checks_slot *slot, struct pg *pg, struct err *err)
{
	const struct pg_param params[] = {{slot->slot->name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    schema_query(pg, slot->slot->postgres->schema, sql_elsewhere, params, 1, err);
	owned_text char *place = xformat("slot %s (%s)", slot->slot->name, slot->slot->origin);

	if (row && text_equal(pg_value(row, 0, 0), "t"))
		preflight_add(&checks->report, checks->starting ? PREFLIGHT_WARN : PREFLIGHT_FAIL,
		    place, "run `outbox-relay slot rebase --all`",
		    "its rows were carried here from another database cluster: they are not "
		    "published");
	return row != NULL;
}

static bool read_topics(struct checks_slot *slot, struct pg *pg, struct err *err)
{
	const struct pg_param params[] = {{slot->slot->name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *topics =
	    schema_query(pg, slot->slot->postgres->schema, sql_topics, params, 1, err);

	if (!topics)
		return false;
	slot->topics = xcalloc((size_t)pg_rows(topics), sizeof *slot->topics);
	slot->topic_count = pg_rows(topics);
	for (int i = 0; i < slot->topic_count; i++)
		slot->topics[i] = xstrdup(pg_value(topics, i, 0));
	return true;
}

static bool read_oldest(struct checks_slot *slot, struct pg *pg, struct err *err)
{
	for (int i = 0; i < slot->shards; i++) {
		owned_text char *shard = xformat("%d", i);
		const struct pg_param params[] = {{slot->slot->name}, {shard}, {"100"}};
		OWNED(owned_pg_result_destroy)
		struct pg_result *row =
		    schema_query(pg, slot->slot->postgres->schema, sql_backlog, params, 3, err);

		if (!row)
			return false;
		if (pg_rows(row) == 1 && pg_int(row, 0, 3) > slot->oldest_age_ms)
			slot->oldest_age_ms = pg_int(row, 0, 3);
	}
	return true;
}

static bool check_slots(
    struct checks *checks, struct pg *pg, const struct config_postgres *postgres, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *known = schema_query(pg, postgres->schema, sql_slots, NULL, 0, err);

	if (!known || !pg_script(pg, sql_backlog_begin, err))
		return false;
	for (int i = 0; i < checks->config->slot_count; i++) {
		struct checks_slot *slot = &checks->slots[i];

		if (slot->slot->postgres != postgres)
			continue;
		slot->shards = schema_slot_shards(known, slot->slot->name);
		judge_slot(checks, slot);
		if (slot->shards > 0 &&
		    !(check_origin(checks, slot, pg, err) && read_topics(slot, pg, err) &&
			read_oldest(slot, pg, err)))
			return false;
	}
	return pg_script(pg, "commit", err);
}

static bool check_schema(
    struct checks *checks, struct pg *pg, const struct config_postgres *postgres, struct err *err)
{
	owned_text char *place = xformat("postgres %s", postgres->name);
	struct err unfit;

	if (migrate_check(pg, postgres->schema, &unfit))
		return check_slots(checks, pg, postgres, err);
	if (unfit.kind == ERR_RETRY)
		return err_set(err, ERR_RETRY, "%s", unfit.message);
	preflight_add(&checks->report, PREFLIGHT_FAIL, place, NULL, "%s", unfit.message)->kind =
	    unfit.kind;
	return true;
}

bool checks_postgres(struct checks *checks, const struct config_postgres *postgres, struct err *err)
{
	OWNED(owned_pg_destroy)
	struct pg *pg = pg_connect(postgres->dsn, "outbox-relay doctor", POSTGRES_MS, err);
	bool usable = false;

	return pg && preflight_postgres(&checks->report, pg, postgres, &usable, err) &&
	       (!usable || check_schema(checks, pg, postgres, err));
}

/* --- Kafka ---------------------------------------------------------------------------------- */

bool checks_kafka(struct checks *checks, const struct config_kafka *kafka, struct catalog *catalog,
    struct err *err)
{
	return preflight_cluster(&checks->report, catalog, kafka, KAFKA_MS, err);
}

/* Has a slot before this one the same topic on the same cluster? */
static bool is_checked(const struct checks *checks, int slot, const char *topic)
{
	for (int i = 0; i < slot; i++)
		for (int j = 0; checks->slots[i].slot->kafka == checks->slots[slot].slot->kafka &&
				j < checks->slots[i].topic_count;
		     j++)
			if (text_equal(checks->slots[i].topics[j], topic))
				return true;
	return false;
}

bool checks_topics(struct checks *checks, const struct config_kafka *kafka, struct catalog *catalog,
    struct err *err)
{
	for (int i = 0; i < checks->config->slot_count; i++) {
		const struct checks_slot *slot = &checks->slots[i];
		int64_t age = slot->slot->timestamp == TIMESTAMP_CREATED ? slot->oldest_age_ms : 0;

		for (int j = 0; slot->slot->kafka == kafka && j < slot->topic_count; j++)
			if (!is_checked(checks, i, slot->topics[j]) &&
			    !preflight_topic(&checks->report, catalog, kafka, slot->topics[j], age,
				KAFKA_MS, err))
				return false;
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

void checks_tails(struct checks *checks, const struct config_kafka *kafka)
{
	const char **topics = NULL;
	int count = 0;

	for (int i = 0; i < checks->config->slot_count; i++) {
		const struct checks_slot *slot = &checks->slots[i];
		bool reads = slot->slot->kafka == kafka && slot->slot->resume == RESUME_TAIL;

		for (int j = 0; reads && j < slot->topic_count; j++) {
			if (is_among(topics, count, slot->topics[j]))
				continue;
			topics = xrealloc(topics, (size_t)(count + 1) * sizeof *topics);
			topics[count++] = slot->topics[j];
		}
	}
	if (count > 0)
		preflight_tails(&checks->report, kafka, topics, count, KAFKA_MS);
	free(topics);
}

/* --- the verdict ---------------------------------------------------------------------------- */

enum safety checks_safety(const struct config *config, const struct config_kafka *kafka)
{
	for (int i = 0; i < config->slot_count; i++)
		if (config->slots[i].kafka == kafka && config->slots[i].safety == SAFETY_STRICT)
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
