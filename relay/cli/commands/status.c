/*
 * `status`: takes a report, asks Kafka for the reason if messages wait, and prints it once or, with
 * --watch, again and again. Begin at run_status; relay/ops/status_report.c collects the figures.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checks.h"
#include "clock.h"
#include "commands.h"
#include "kafka_conf.h"
#include "logging.h"
#include "session.h"
#include "status_report_print.h"
#include "status_server.h"

DEFINE_OWNED(struct topic_metadata, topic_metadata_destroy)

/* WAIT_MS: an older unpublished message waits for something, so Kafka is queried for the reason. */
enum { COLUMNS = 100, CONTINUED = 19, WAIT_MS = 10000 };

/* --- output ---------------------------------------------------------------------------------- */

static bool has_colours(void)
{
	const char *no_color = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && !(no_color && no_color[0]);
}

/* How many bytes of a line fit; the line is cut behind a blank, and never within a number. */
static size_t fitting_bytes(const char *line, size_t length, size_t columns)
{
	size_t cut = 0, column = 0;

	for (size_t i = 0; i < length; i++) {
		column += (line[i] & 0xC0) != 0x80; /* a character begins */
		if (column > columns)
			return cut ? cut : length;
		if (i > CONTINUED && line[i] == ' ' && line[i - 1] != ' ')
			cut = i + 1;
	}
	return length;
}

static void print_line(const char *line, size_t length, bool colours)
{
	bool heading = line[0] != ' ', trouble = strncmp(line, "  " STATUS_TROUBLE, 4) == 0;
	const char *colour = !colours ? "" : heading ? "\033[1m" : trouble ? "\033[31m" : "";
	size_t part = fitting_bytes(line, length, COLUMNS);

	fputs(colour, stdout);
	while (part < length) {
		/* without the blank at which the line was cut */
		printf("%.*s\n%*s", (int)part - 1, line, CONTINUED, "");
		line += part;
		length -= part;
		part = fitting_bytes(line, length, COLUMNS - CONTINUED);
	}
	printf("%.*s%s\n", (int)length, line, *colour ? "\033[0m" : "");
}

static void print_text(const struct status_report *report)
{
	OWNED(text_finish) struct text out = {0};
	bool colours = has_colours();

	status_report_print(report, &out);
	for (const char *at = text_string(&out); *at;) {
		size_t length = strcspn(at, "\n");

		print_line(at, length, colours);
		at += length + (at[length] == '\n');
	}
}

static void print_json(const struct status_report *report)
{
	OWNED(text_finish) struct text out = {0};

	status_report_print_json(report, &out);
	fputs(text_string(&out), stdout);
}

static void print_report(const struct status_report *report, bool json)
{
	if (json)
		print_json(report);
	else
		print_text(report);
}

/* --- why Kafka takes no message --------------------------------------------------------------- */

static bool is_waiting(const struct status_postgres *database)
{
	for (int i = 0; i < database->shard_count; i++)
		if (database->shards[i].oldest_age_ms > WAIT_MS)
			return true;
	return false;
}

/* cure: "" or NULL: none is known */
static void add_wait(
    struct status_report *report, const char *place, const char *what, const char *cure)
{
	OWNED(text_finish) struct text line = {0};

	text_add_line(&line, what);
	if (cure && *cure) {
		text_add(&line, "; cure: ");
		text_add_line(&line, cure);
	}
	text_addf(&report->waits, "%s: %s\n", place, text_string(&line));
}

static void explain_waiting_cluster(
    struct status_report *report, struct checks *checks, const struct kafka_settings *kafka)
{
	owned_text char *place = xformat("kafka %s", kafka->name);
	OWNED(owned_topic_metadata_destroy) struct topic_metadata *metadata = NULL;
	struct err err;

	if (kafka_conf_check(kafka, config_has_transactions(report->config, kafka), &err))
		metadata = topic_metadata_create(kafka, &err);
	if (!metadata || !checks_kafka(checks, kafka, metadata, &err) ||
	    !checks_topics(checks, kafka, metadata, &err))
		add_wait(report, place, err.message, NULL);
}

/* Queries Kafka, as `doctor` does, only while something waits. */
static void explain_waiting(struct status_report *report)
{
	OWNED(checks_finish) struct checks checks = {0};
	struct err ignored;
	bool waiting = false;

	checks_init(&checks, report->config);
	for (int i = 0; i < report->count; i++)
		if (is_waiting(&report->databases[i]))
			waiting |= checks_postgres(&checks, &report->config->postgres[i], &ignored);
	for (int i = 0; waiting && i < report->config->kafka_count; i++)
		explain_waiting_cluster(report, &checks, &report->config->kafka[i]);
	for (int i = 0; i < checks.report.count; i++)
		if (checks.report.findings[i].severity == PREFLIGHT_FAIL)
			add_wait(report, checks.report.findings[i].place,
			    checks.report.findings[i].what, checks.report.findings[i].cure);
}

static void take_report(struct status_report *report, const struct config *config)
{
	status_report_take(report, config);
	explain_waiting(report);
}

static int worst_exit_status(const struct status_report *report)
{
	for (int i = 0; i < report->count; i++)
		if (report->databases[i].exit_status)
			return report->databases[i].exit_status;
	return 0;
}

/* A round prints the status once. */
struct watch {
	const struct call *call;
	const struct config *config;
	struct status_report before;
	int64_t interval_s;
	int status; /* exit status of the last round */
};

static void print_watch_header(const struct watch *watch, int64_t wall_us)
{
	char at[MOMENT_SIZE];

	if (watch->interval_s == 0 || call_flag(watch->call, "json"))
		return;
	moment_format(wall_us, at);
	if (isatty(STDOUT_FILENO))
		fputs("\033[H\033[2J", stdout);
	printf("outbox-relay status  %s  every %lld s\n\n", at, (long long)watch->interval_s);
}

static void print_database_round(struct watch *watch)
{
	struct status_report report;

	take_report(&report, watch->config);
	status_report_compare(&report, &watch->before);
	print_watch_header(watch, report.taken_wall_us);
	print_report(&report, call_flag(watch->call, "json"));
	watch->status = worst_exit_status(&report);
	status_report_finish(&watch->before);
	watch->before = report;
}

static void print_server_round(struct watch *watch)
{
	struct err err;

	print_watch_header(watch, clock_wall_us());
	watch->status = status_server_print(watch->call, &err) ? 0 : session_failed(&err);
}

/* Runs until a signal, or until the reader of the output is gone. */
static void watch_status(struct watch *watch, void (*print_round)(struct watch *watch))
{
	const struct timespec pause = {.tv_sec = (time_t)watch->interval_s};
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	do {
		print_round(watch);
		if (!call_flag(watch->call, "json") && !isatty(STDOUT_FILENO))
			putchar('\n');
		fflush(stdout);
	} while (!ferror(stdout) && sigtimedwait(&ends, NULL, &pause) < 0);
	watch->status = 0;
}

static int print_status(struct watch *watch, void (*print_round)(struct watch *watch))
{
	if (watch->interval_s > 0)
		watch_status(watch, print_round);
	else
		print_round(watch);
	status_report_finish(&watch->before);
	return watch->status;
}

static int run_status(const struct call *call)
{
	struct watch watch = {.call = call,
	    .interval_s = call_flag(call, "watch") ? call_number(call, "interval", 2) : 0};
	struct err err;

	if (server_is_used(call))
		return print_status(&watch, print_server_round);

	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);

	if (!config)
		return session_failed(&err);
	/* the report names unreachable brokers itself; librdkafka's warnings would break its
	 * lines */
	log_configure(LOG_LEVEL_ERROR, config->log_format);
	watch.config = config;
	return print_status(&watch, print_database_round);
}

static const struct command_option status_options[] = {
    {"json", NULL, "Prints one JSON object per line; 64-bit numbers are strings."},
    {"watch", NULL,
	"Repeats, with the time and each shard's rate; in colours on a terminal, unless NO_COLOR "
	"is set."},
    {"interval", "SECONDS", "Pause between two rounds of --watch (default 2).", 1, 3600},
    SERVER_OPTIONS,
    {0},
};

const struct command command_status = {
    .name = "status",
    .arguments = "",
    .summary = "Shows publishers, lag, leases and partitions.",
    .description =
	"For each shard it shows the owner and the rest of its lease, the number of unpublished "
	"rows (counted up to 100,000, or 400,000 of a publisher, estimated from ids beyond that), "
	"the age of the oldest of them, and the number, epoch and open windows of the newest log "
	"row. For each publisher it shows how many parked messages are in each state (counted up "
	"to 100,000) and since "
	"when, and how many messages are scheduled and when the first is due. For the look-back, "
	"by section and business type, it shows how many ids are overdue and parked, since when "
	"the oldest is prepared, the conflicts within `retain`, and the decisions of a minute "
	"ago or earlier that still have no prepare. For each partition it shows range and size.\n"
	"A line that begins with `!` says why something waits: errors of parked messages, "
	"stalled partitions, missing topics, and the last errors of services that the look-back "
	"calls. These come from the database. If a message waits for more than 10 s, the command "
	"queries Kafka as `doctor` does, and names a missing topic or a partition without a "
	"leader before `stall_after` has passed. The state, the circuit breaker and the last "
	"error of each [deliver] section come from the address of [api], if the section exists.\n"
	"An unknown number is `unknown`, and null in JSON. `status` waits for a locked table for "
	"500 ms; then the numbers that need it are unknown, and it names the table (`unknown` in "
	"JSON) and ends with 69.\n"
	"If `[admin] listen` is configured, the command also shows the checks of the relay that "
	"listens there, which name the record that stopped a publisher and the reason. The "
	"metrics since the start of that relay follow: sources of look-back decisions, answers "
	"of businesses, circuit breakers of their hosts, and the figures of each [deliver] "
	"section.\n"
	"With --server, the command prints the overview of that relay: publishers, look-back, "
	"[deliver] sections and alerts in some lines each. --json then prints GET /v1/overview.\n",
    .options = status_options,
    .example = "outbox-relay status --watch --interval 5",
    .run = run_status,
};
