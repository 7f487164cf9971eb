/*
 * The checks of `doctor` for the look-back: figures in the database, topics, and each service of a
 * [check] section. The last section has the order.
 */
#include "checks_lookback.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "checks_reach.h"
#include "service_url.h"
#include "http_guard.h"
#include "http_sign.h"
#include "pg.h"
#include "schema_query.h"
#include "sql_files.h"
#include "text.h"

enum { SERVICE_MS = 10000, KAFKA_MS = 5000 };

/* --- the database ---------------------------------------------------------------------------- */

static bool has_publisher(const struct checks *checks, const struct postgres_settings *postgres)
{
	for (int i = 0; i < checks->config->publisher_count; i++)
		if (checks->publishers[i].section->settings.postgres == postgres)
			return true;
	return false;
}

/* Another process may run the publisher: so its absence here is a risk, not a failure. */
void checks_lookback_publishers(struct checks *checks, const struct postgres_settings *postgres)
{
	for (int i = 0; i < checks->config->lookback_count; i++) {
		const struct config_lookback *lookback = &checks->config->lookbacks[i];
		owned_text char *place =
		    xformat("lookback %s (%s)", lookback->name, lookback->origin);

		if (lookback->postgres == postgres && !has_publisher(checks, postgres))
			preflight_add(&checks->report, PREFLIGHT_WARN, place,
			    "add a [publisher] section with this postgres, unless another process "
			    "has "
			    "one",
			    "no publisher of this configuration publishes what it commits into the "
			    "outbox of postgres %s",
			    postgres->name);
	}
}

static void add_type_finding(struct checks *checks, enum preflight_severity severity,
    const struct pg_result *rows, int row, const char *cure, const char *what)
{
	owned_text char *place = xformat("lookback %s", pg_value(rows, row, 0));

	preflight_add(
	    &checks->report, severity, place, cure, "type %s: %s", pg_value(rows, row, 1), what);
}

/* Columns of lookback_states.sql. */
static void find_states(struct checks *checks, const struct pg_result *rows, int row)
{
	int64_t parked = pg_int(rows, row, 3), unprepared = pg_int(rows, row, 6);
	owned_text char *late =
	    xformat("%s%" PRId64 " overdue, %" PRId64 " parked, the oldest prepared %" PRId64
		    " s ago; %" PRId64 " conflict%s",
		text_equal(pg_value(rows, row, 7), "t") ? "at least " : "", pg_int(rows, row, 2),
		parked, pg_int(rows, row, 4) / 1000, pg_int(rows, row, 5),
		text_plural(pg_int(rows, row, 5)));
	owned_text char *lost = xformat(
	    "%" PRId64 " decision%s came without a prepare", unprepared, text_plural(unprepared));

	add_type_finding(checks, parked > 0 ? PREFLIGHT_WARN : PREFLIGHT_INFO, rows, row,
	    parked > 0 ? "outbox-relay lookback list --state parked, and then commit, rollback or "
			 "retry"
		       : NULL,
	    late);
	if (unprepared > 0)
		add_type_finding(checks, PREFLIGHT_WARN, rows, row,
		    "look for their prepares among the dead letters: nothing is published for a "
		    "commit without one",
		    lost);
}

/* Columns of lookback_recent.sql. */
static void find_recent(struct checks *checks, const struct pg_result *rows, int row)
{
	owned_text char *recent = xformat("decided lately: %s by messages, %s by answers, %s by "
					  "operators; undecided: %s, the oldest for %" PRId64 " s",
	    pg_value(rows, row, 2), pg_value(rows, row, 3), pg_value(rows, row, 4),
	    pg_value(rows, row, 5), pg_int(rows, row, 6) / 1000);

	add_type_finding(checks, PREFLIGHT_INFO, rows, row, NULL, recent);
}

static bool ask_figures(
    struct checks *checks, const struct postgres_settings *postgres, struct err *err)
{
	const struct pg_param bound[] = {{"100000"}};
	OWNED(owned_pg_destroy)
	struct pg *pg = pg_connect(postgres->dsn, "outbox-relay doctor", SERVICE_MS, err);
	OWNED(owned_pg_result_destroy)
	struct pg_result *states =
	    pg ? schema_query(pg, postgres->schema, sql_lookback_states, bound, 1, err) : NULL;
	OWNED(owned_pg_result_destroy)
	struct pg_result *recent =
	    states ? schema_query(pg, postgres->schema, sql_lookback_recent, NULL, 0, err) : NULL;

	for (int i = 0; recent && i < pg_rows(states); i++)
		find_states(checks, states, i);
	for (int i = 0; recent && i < pg_rows(recent); i++)
		find_recent(checks, recent, i);
	return recent != NULL;
}

void checks_lookback_figures(struct checks *checks, const struct postgres_settings *postgres)
{
	owned_text char *place = xformat("postgres %s", postgres->name);
	bool uses = false;
	struct err err;

	for (int i = 0; i < checks->config->lookback_count; i++)
		uses |= checks->config->lookbacks[i].postgres == postgres;
	if (uses && !ask_figures(checks, postgres, &err))
		preflight_add(&checks->report, PREFLIGHT_INFO, place, NULL,
		    "the look-back's figures cannot be read: %s", err.message);
}

/* --- the cluster ----------------------------------------------------------------------------- */

/* Topics of one cluster, each once; the names are the configuration's. */
struct topics {
	struct checks *checks;
	const struct kafka_settings *kafka;
	struct topic_metadata *metadata;
	const char **names;
	int count;
};

static bool is_checked_topic(const struct topics *topics, const char *topic)
{
	for (int i = 0; i < topics->count; i++)
		if (text_equal(topics->names[i], topic))
			return true;
	/* checks_topics has reported the topics of publishers. */
	for (int i = 0; i < topics->checks->config->publisher_count; i++) {
		const struct checks_publisher *publisher = &topics->checks->publishers[i];

		for (int k = 0; publisher->section->settings.kafka == topics->kafka &&
				k < publisher->topic_count;
		     k++)
			if (text_equal(publisher->topics[k], topic))
				return true;
	}
	return false;
}

static bool check_lookback_topic(struct topics *topics, const char *topic, struct err *err)
{
	if (is_checked_topic(topics, topic))
		return true;
	topics->names =
	    xrealloc(topics->names, (size_t)(topics->count + 1) * sizeof *topics->names);
	topics->names[topics->count++] = topic;
	return preflight_topic(
	    &topics->checks->report, topics->metadata, topics->kafka, topic, 0, KAFKA_MS, err);
}

/*
 * The look-back writes messages to the outbox; the publishers of that outbox send them to their
 * cluster.
 */
static bool is_published_to(const struct checks *checks, const struct config_lookback *lookback,
    const struct kafka_settings *kafka)
{
	for (int i = 0; i < checks->config->publisher_count; i++)
		if (checks->publishers[i].section->settings.postgres == lookback->postgres &&
		    checks->publishers[i].section->settings.kafka == kafka)
			return true;
	return false;
}

static bool check_targets(
    struct topics *topics, const struct config_lookback *lookback, struct err *err)
{
	bool done = check_lookback_topic(topics, lookback->dead_letter, err);

	/* A pattern names no topic that could be looked up. */
	for (int i = 0; done && i < lookback->topics.count; i++)
		if (!strchr(lookback->topics.items[i], '*'))
			done = check_lookback_topic(topics, lookback->topics.items[i], err);
	return done;
}

bool checks_lookback_topics(struct checks *checks, const struct kafka_settings *kafka,
    struct topic_metadata *metadata, struct err *err)
{
	struct topics topics = {.checks = checks, .kafka = kafka, .metadata = metadata};
	bool done = true;

	for (int i = 0; done && i < checks->config->lookback_count; i++) {
		const struct config_lookback *lookback = &checks->config->lookbacks[i];

		if (lookback->kafka == kafka)
			done = check_lookback_topic(&topics, lookback->topic, err);
		if (done && is_published_to(checks, lookback, kafka))
			done = check_targets(&topics, lookback, err);
	}
	free(topics.names);
	return done;
}

/* --- services -------------------------------------------------------------------------------- */

/* A [check] section and where its findings go. */
struct service {
	struct preflight *report;
	const struct config_check *check;
	const char *place;
};

static void add_service_finding(const struct service *service, enum preflight_severity severity,
    const char *cure, const char *what)
{
	preflight_add(service->report, severity, service->place, cure, "%s", what);
}

static void add_service_failure(
    const struct service *service, const char *key, const struct err *err)
{
	preflight_add(
	    service->report, PREFLIGHT_FAIL, service->place, NULL, "%s: %s", key, err->message);
}

static void check_service_url(const struct service *service)
{
	const char *url = service->check->url;
	struct refusal refusal;

	if (!*url && !*service->check->allow)
		add_service_finding(service, PREFLIGHT_FAIL,
		    "set url, or in allow the destinations that messages may bring",
		    "no service can be called: neither url nor allow is set");
	if (service_url_is(url))
		checks_reach_service(service->report, service->place, url,
		    service->check->name_servers, service->check->networks);
	else if (*url && !http_guard_form(url, &refusal))
		preflight_add(
		    service->report, PREFLIGHT_FAIL, service->place, NULL, "url: %s", refusal.text);
	else if (*url && service->check->transport != CHECK_SQL)
		checks_reach(service->report, service->place, url, service->check->networks);
	if (strncasecmp(url, "http:", 5) == 0 || strncasecmp(url, "grpc:", 5) == 0 ||
	    strcasestr(service->check->allow, "http:"))
		add_service_finding(service, PREFLIGHT_WARN,
		    "ask at https:// or grpcs://, or within a network that is trusted",
		    "what decides goes over the network without TLS: whoever is between can "
		    "decide");
}

static void check_destinations(const struct service *service)
{
	struct http_destinations destinations = {0};
	struct http_networks networks = {0};
	struct err err;

	if (!http_destinations_parse(service->check->allow, &destinations, &err))
		add_service_failure(service, "allow", &err);
	if (!http_networks_parse(service->check->networks, &networks, &err))
		add_service_failure(service, "networks", &err);
	http_destinations_finish(&destinations);
	http_networks_finish(&networks);
}

static void check_secret(const struct service *service, const char *key, const char *text)
{
	struct http_secret secret = {0};
	struct err err;

	if (*text && !http_secret_parse(text, &secret, &err))
		add_service_failure(service, key, &err);
	http_secret_finish(&secret);
}

static void check_secrets(const struct service *service)
{
	const struct config_check *check = service->check;

	check_secret(service, "secret", check->secret);
	check_secret(service, "old_secret", check->old_secret);
	if (!*check->secret && *check->old_secret)
		add_service_finding(service, PREFLIGHT_FAIL, "name it secret",
		    "old_secret is set, and secret is not");
	else if (!*check->secret)
		add_service_finding(service, PREFLIGHT_WARN, "set secret_file",
		    "requests are not signed: the service cannot tell who asks");
}

static void check_file(const struct service *service, const char *key, const char *path)
{
	if (*path && access(path, R_OK) != 0)
		preflight_add(service->report, PREFLIGHT_FAIL, service->place, NULL,
		    "%s: %s cannot be read", key, path);
}

static void check_requests(const struct service *service)
{
	const struct config_check *check = service->check;

	check_service_url(service);
	check_destinations(service);
	check_secrets(service);
	checks_credentials(service->report, service->place, "check", check->name,
	    &check->credentials, check->networks);
	check_file(service, "tls_ca", check->tls_ca);
	check_file(service, "tls_certificate", check->tls_certificate);
	check_file(service, "tls_key", check->tls_key);
	if (!*check->tls_certificate != !*check->tls_key)
		add_service_finding(service, PREFLIGHT_FAIL, "set both, or none",
		    "tls_certificate and tls_key go together, and one of them is set");
	if (check->connect_timeout_ms > check->timeout_ms)
		add_service_finding(service, PREFLIGHT_WARN, "set connect_timeout below timeout",
		    "connect_timeout is longer than timeout, which ends the request before");
}

/* Looks the function up as it will be called: by the login of the dsn, in its search path. */
static bool ask_function(const struct service *service, struct err *err)
{
	const struct config_check *check = service->check;
	const struct pg_param params[] = {{check->function}};
	OWNED(owned_pg_destroy)
	struct pg *pg = pg_connect_plain(check->dsn, "outbox-relay doctor", SERVICE_MS, err);
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = pg ? pg_query(pg, sql_check_function, params, 1, err) : NULL;

	if (!row)
		return false;
	if (pg_rows(row) == 0)
		preflight_add(service->report, PREFLIGHT_FAIL, service->place,
		    "run sql/barrier/postgres.sql there, or set function",
		    "%s has no function %s(text, text[])", pg_place(pg), check->function);
	else if (!text_equal(pg_value(row, 0, 0), "t"))
		preflight_add(service->report, PREFLIGHT_FAIL, service->place,
		    "grant execute on it to the login of the dsn", "%s: %s may not be called",
		    pg_place(pg), check->function);
	else if (check->read_only && text_equal(pg_value(row, 0, 1), "t"))
		preflight_add(service->report, PREFLIGHT_WARN, service->place,
		    "set read_only = no if it writes, as that of sql/barrier/postgres.sql does; "
		    "else "
		    "declare it stable",
		    "%s: %s is volatile; if it writes, read_only = yes makes each answer an error, "
		    "and nothing is decided",
		    pg_place(pg), check->function);
	return true;
}

static void check_database(const struct service *service)
{
	struct err err;

	if (!*service->check->dsn)
		add_service_finding(service, PREFLIGHT_FAIL, "set dsn_file, or dsn",
		    "no service can be called: transport = sql needs a dsn");
	else if (!ask_function(service, &err))
		add_service_failure(service, "dsn", &err);
}

static void check_service(struct checks *checks, const struct config_check *check)
{
	owned_text char *place = xformat("check %s (%s)", check->name, check->origin);
	struct service service = {&checks->report, check, place};

	if (check->transport == CHECK_SQL)
		check_database(&service);
	else
		check_requests(&service);
}

/* --- sections -------------------------------------------------------------------------------- */

/*
 * The section's service must serve all types of the section; without a service each message names
 * its own.
 */
static void check_lookback_section(struct checks *checks, const struct config_lookback *lookback)
{
	owned_text char *place = xformat("lookback %s (%s)", lookback->name, lookback->origin);
	const struct config_list *allowed = lookback->check ? &lookback->check->types : NULL;

	if (!lookback->check)
		preflight_add(&checks->report, PREFLIGHT_INFO, place, NULL,
		    "check is not set: prepares that name no service are refused");
	for (int i = 0; allowed && allowed->count > 0 && i < lookback->types.count; i++)
		if (!config_list_has(allowed, lookback->types.items[i]))
			preflight_add(&checks->report, PREFLIGHT_FAIL, place,
			    "add it to the types of that section",
			    "messages of type %s may not ask at [check \"%s\"]",
			    lookback->types.items[i], lookback->check->name);
}

void checks_lookback_services(struct checks *checks)
{
	for (int i = 0; i < checks->config->lookback_count; i++)
		check_lookback_section(checks, &checks->config->lookbacks[i]);
	for (int i = 0; i < checks->config->check_count; i++)
		check_service(checks, &checks->config->checks[i]);
}
