#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "checks.h"
#include "checks_archive.h"
#include "checks_deliver.h"
#include "checks_fold.h"
#include "checks_lookback.h"
#include "commands.h"
#include "field.h"
#include "kafka_conf.h"
#include "session.h"
#include "text.h"

DEFINE_OWNED(struct topic_metadata, topic_metadata_destroy)

/* A check that could not be made is a failure of its own, with the exit status of its error. */
static void add_check_failure(
    struct checks *checks, const char *place, const char *cure, const struct err *err, int *status)
{
	preflight_add(&checks->report, PREFLIGHT_FAIL, place, cure, "%s", err->message)->kind =
	    err->kind;

	/* the first failure decides: later ones may follow from it */
	*status = *status ? *status : err_exit_status(err);
}

static void check_postgres(
    struct checks *checks, const struct postgres_settings *postgres, int *status)
{
	owned_text char *place = xformat("postgres %s", postgres->name);
	struct err err;

	checks_archive(checks, postgres);
	if (!checks_postgres(checks, postgres, &err)) {
		add_check_failure(checks, place, NULL, &err, status);
	} else {
		checks_lookback_publishers(checks, postgres);
		checks_lookback_figures(checks, postgres);
	}
}

/* The longest default of the publishers that use the section. */
static int64_t longest_linger(const struct config *config, const struct kafka_settings *kafka)
{
	int64_t longest = 0;

	for (int i = 0; i < config->publisher_count; i++) {
		const struct publisher_settings *publisher = &config->publishers[i].settings;
		int64_t linger = publisher_paces[publisher->pace].linger_ms;

		longest = publisher->kafka == kafka && linger > longest ? linger : longest;
	}
	return longest;
}

/* The properties that the program sets, with the values that the section gives them. */
static void tell_producer_settings(
    struct checks *checks, const char *place, const struct kafka_settings *kafka, bool transactions)
{
	struct err err;
	owned_text char *settings =
	    kafka_conf_in_force(kafka, transactions, longest_linger(checks->config, kafka), &err);

	preflight_add(&checks->report, settings ? PREFLIGHT_INFO : PREFLIGHT_WARN, place, NULL,
	    "producer: %s", settings ? settings : err.message);
}

/* The cure has a line of its own. */
static const char *take_cure(struct topic_metadata *metadata, struct err *err)
{
	bool logged;
	const char *cure = metadata ? topic_metadata_cure(metadata, &logged) : NULL;
	char *in_message = cure ? strstr(err->message, cure) : NULL;

	if (in_message && in_message - 2 > err->message)
		in_message[-2] = '\0';
	if (in_message)
		return cure;
	return err->kind == ERR_RETRY
		   ? "check bootstrap.servers, the firewall and security.protocol from this machine"
		   : NULL;
}

static void check_kafka(struct checks *checks, const struct kafka_settings *kafka, int *status)
{
	owned_text char *place = xformat("kafka %s", kafka->name);
	OWNED(owned_topic_metadata_destroy) struct topic_metadata *metadata = NULL;
	bool transactions = config_has_transactions(checks->config, kafka);
	struct err err;

	/* wrong properties would only fail later, with a vaguer message */
	if (kafka_conf_check(kafka, transactions, &err)) {
		tell_producer_settings(checks, place, kafka, transactions);
		metadata = topic_metadata_create(kafka, &err);
	}
	if (!metadata || !checks_kafka(checks, kafka, metadata, &err)) {
		const char *cure = take_cure(metadata, &err);
		add_check_failure(checks, place, cure, &err, status);
	} else if (!checks_topics(checks, kafka, metadata, &err) ||
		   !checks_lookback_topics(checks, kafka, metadata, &err) ||
		   !checks_deliver_topics(checks, kafka, metadata, &err))
		preflight_add(&checks->report, PREFLIGHT_UNSAFE, place, NULL,
		    "the settings of topics cannot be read: %s", err.message);
	else
		checks_tails(checks, kafka);
}

static void print_findings_text(const struct checks *checks)
{
	for (int i = 0; i < checks->report.count; i++) {
		const struct preflight_finding *finding = &checks->report.findings[i];

		printf("[%s]%*s %s: %s\n", preflight_severity_names[finding->severity],
		    6 - (int)strlen(preflight_severity_names[finding->severity]), "",
		    finding->place, finding->what);
		if (finding->cure[0])
			printf("%9scure: %s\n", "", finding->cure);
	}
}

static void print_findings_json(const struct checks *checks)
{
	json_t *list = json_array();

	for (int i = 0; i < checks->report.count; i++) {
		const struct preflight_finding *finding = &checks->report.findings[i];

		json_array_append_new(
		    list, json_pack("{s:s, s:s, s:s, s:s}", "severity",
			      preflight_severity_names[finding->severity], "place", finding->place,
			      "finding", finding->what, "cure", finding->cure));
	}
	field_print_json("", list, JSON_INDENT(1), "\n");
}

/* If one publisher is strict, a finding that can lose data is a failure. */
static bool is_failed(const struct checks *checks)
{
	enum safety safety = SAFETY_WARN;
	struct err err;

	for (int i = 0; i < checks->config->kafka_count; i++)
		if (checks_safety(checks->config, &checks->config->kafka[i]) == SAFETY_STRICT)
			safety = SAFETY_STRICT;
	return !checks_verdict(checks, 0, safety, &err);
}

static int run_doctor(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	OWNED(checks_finish) struct checks checks = {0};
	int status = 0;

	if (!config)
		return session_failed(&err);
	/* Findings report the log messages of librdkafka. */
	log_configure(LOG_LEVEL_ERROR, config->log_format);
	checks_init(&checks, config);
	for (int i = 0; i < config->postgres_count; i++)
		check_postgres(&checks, &config->postgres[i], &status);
	for (int i = 0; i < config->kafka_count; i++)
		check_kafka(&checks, &config->kafka[i], &status);
	checks_lookback_services(&checks);
	checks_deliver(&checks);
	checks_fold(&checks.report);
	if (call_flag(call, "json"))
		print_findings_json(&checks);
	else
		print_findings_text(&checks);

	/* a check that could not be made comes before a finding: the report is incomplete */
	return status ? status : is_failed(&checks) ? EXIT_FOUND : 0;
}

static const struct command_option doctor_options[] = {
    {"json", NULL, "Prints a JSON array of objects {severity, place, finding, cure}."},
    {0},
};

const struct command command_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "Checks everything that publishing depends on, and suggests fixes.",
    .description =
	"Makes the checks that `run` makes at its start and at the first use of a topic, and "
	"checks that topics may be read (resume = tail). The severities ok, info and warn are no "
	"failures. `unsafe` is a cluster that can lose acknowledged records; with safety = "
	"strict it is a failure. `fail` keeps the relay from working. Exits with 1 if a check "
	"failed, and with 69 or 77 if Postgres or Kafka could not be queried.\n"
	"Findings with the same cure share a line: three missing topics have one command.\n"
	"It checks the topics that the publishers have published to, the topics of the newest "
	"10,000 rows, those that [lookback] sections name, and those that [deliver] sections "
	"read and write. For a topic that is only read, it checks only that the topic exists. A "
	"configuration that only delivers needs no database.\n"
	"It resolves and connects to each URL of a [deliver] or [check] section. A private "
	"address needs a line in `networks`, which the cure names.\n"
	"For the look-back it also checks that a publisher publishes the committed messages, and "
	"that the settings of each [check] section can work; it looks for the function of a "
	"service that is a database. It reports figures by section and business type: overdue "
	"and parked ids (a warning), conflicts, decisions without a prepare (a warning), and, "
	"for the newest 100,000 rows of the journal, the sources of decisions and the number of "
	"undecided ids.\n",
    .options = doctor_options,
    .example = "outbox-relay doctor --config relay.ini",
    .run = run_doctor,
};
