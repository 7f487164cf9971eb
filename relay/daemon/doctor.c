#include "doctor.h"

#include <string.h>
#include "checks_archive.h"
#include "checks_deliver.h"
#include "checks_fold.h"
#include "checks_lookback.h"
#include "cleanup.h"
#include "kafka_conf.h"
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

int doctor_check(struct checks *checks)
{
	const struct config *config = checks->config;
	int status = 0;

	for (int i = 0; i < config->postgres_count; i++)
		check_postgres(checks, &config->postgres[i], &status);
	for (int i = 0; i < config->kafka_count; i++)
		check_kafka(checks, &config->kafka[i], &status);
	checks_lookback_services(checks);
	checks_deliver(checks);
	checks_fold(&checks->report);
	return status;
}

bool doctor_is_failed(const struct checks *checks)
{
	enum safety safety = SAFETY_WARN;
	struct err err;

	for (int i = 0; i < checks->config->kafka_count; i++)
		if (checks_safety(checks->config, &checks->config->kafka[i]) == SAFETY_STRICT)
			safety = SAFETY_STRICT;
	return !checks_verdict(checks, 0, safety, &err);
}

json_t *doctor_findings_json(const struct checks *checks)
{
	json_t *list = json_array();

	for (int i = 0; i < checks->report.count; i++) {
		const struct preflight_finding *finding = &checks->report.findings[i];

		json_array_append_new(
		    list, json_pack("{s:s, s:s, s:s, s:s}", "severity",
			      preflight_severity_names[finding->severity], "place", finding->place,
			      "finding", finding->what, "cure", finding->cure));
	}
	return list;
}

json_t *doctor_report_json(const struct config *config)
{
	OWNED(checks_finish) struct checks checks = {0};
	int status;

	checks_init(&checks, config);
	status = doctor_check(&checks);
	return json_pack("{s:b, s:b, s:o}", "failed", status != 0 || doctor_is_failed(&checks),
	    "complete", status == 0, "findings", doctor_findings_json(&checks));
}
