#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "commands.h"
#include "doctor.h"
#include "field.h"
#include "server.h"
#include "session.h"
#include "text.h"

/* findings: as doctor_findings_json makes them; taken over. */
static void print_findings(const struct call *call, json_t *findings)
{
	const json_t *finding;
	size_t i;

	if (call_flag(call, "json"))
		return field_print_json("", findings, JSON_INDENT(1), "\n");
	json_array_foreach(findings, i, finding)
	{
		const char *severity = field_member(finding, "severity");
		const char *cure = json_string_value(json_object_get(finding, "cure"));

		printf("[%s]%*s %s: %s\n", severity, 6 - (int)strlen(severity), "",
		    field_member(finding, "place"), field_member(finding, "finding"));
		if (cure && cure[0])
			printf("%9scure: %s\n", "", cure);
	}
	json_decref(findings);
}

/* The relay makes the checks, from its machine and with its configuration. */
static int run_doctor_over_server(const struct call *call)
{
	json_t *answer = NULL;
	struct err err;
	int status;

	if (!server_ask(call, "/v1/preflight", NULL, &answer, &err))
		return session_failed(&err);
	print_findings(call, json_incref(json_object_get(answer, "findings")));
	status = json_is_true(json_object_get(answer, "failed")) ? EXIT_FOUND : 0;
	json_decref(answer);
	return status;
}

static int run_doctor(const struct call *call)
{
	if (server_is_used(call))
		return run_doctor_over_server(call);

	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	OWNED(checks_finish) struct checks checks = {0};
	int status;

	if (!config)
		return session_failed(&err);
	/* Findings report the log messages of librdkafka. */
	log_configure(LOG_LEVEL_ERROR, config->log_format);
	checks_init(&checks, config);
	status = doctor_check(&checks);
	print_findings(call, doctor_findings_json(&checks));

	/* a check that could not be made comes before a finding: the report is incomplete */
	return status ? status : doctor_is_failed(&checks) ? EXIT_FOUND : 0;
}

static const struct command_option doctor_options[] = {
    {"json", NULL, "Prints a JSON array of objects {severity, place, finding, cure}."},
    SERVER_OPTIONS,
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
