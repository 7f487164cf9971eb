#include <signal.h>
#include <stdio.h>
#include <pthread.h>
#include <unistd.h>
#include "commands.h"
#include "session.h"
#include "status_report_print.h"

static void print_status(const struct status_report *report, bool json, bool watched)
{
	OWNED(text_finish) struct text out = {0};

	if (json)
		status_report_print_json(report, &out);
	else
		status_report_print(report, &out);
	if (watched && !json && isatty(STDOUT_FILENO))
		fputs("\033[H\033[2J", stdout);
	fputs(text_string(&out), stdout);
	if (watched && !json && !isatty(STDOUT_FILENO))
		putchar('\n');
	fflush(stdout);
}

static int worst_exit_status(const struct status_report *report)
{
	for (int i = 0; i < report->count; i++)
		if (report->databases[i].exit_status)
			return report->databases[i].exit_status;
	return 0;
}

/* Until a signal, or until nobody reads any more. */
static int watch_status(const struct config *config, bool json, int64_t interval_s)
{
	const struct timespec pause = {.tv_sec = (time_t)interval_s};
	struct status_report before = {0}, report;
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	do {
		status_report_take(&report, config);
		status_report_compare(&report, &before);
		print_status(&report, json, true);
		status_report_finish(&before);
		before = report;
	} while (!ferror(stdout) && sigtimedwait(&ends, NULL, &pause) < 0);
	status_report_finish(&before);
	return 0;
}

static int run_status(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	struct status_report report;
	int status;

	if (!config)
		return session_failed(&err);
	if (call_flag(call, "watch"))
		return watch_status(
		    config, call_flag(call, "json"), call_number(call, "interval", 2));
	status_report_take(&report, config);
	print_status(&report, call_flag(call, "json"), false);
	status = worst_exit_status(&report);
	status_report_finish(&report);
	return status;
}

static const struct command_option status_options[] = {
    {"json", NULL, "One JSON object a line; 64-bit numbers are strings."},
    {"watch", NULL, "Repeat, with the rate at which each shard publishes."},
    {"interval", "SECONDS", "Between two rounds of --watch; 2 unless given.", 1, 3600},
    {0},
};

const struct command command_status = {
    .name = "status",
    .arguments = "",
    .summary = "Shows publishers, lag, leases and partitions.",
    .description =
	"Of every shard: who owns it and how long its lease runs, the rows that it has not "
	"published "
	"(counted up to 100,000, beyond that estimated by ids), the age of the oldest of them, the "
	"newest log row's number, its epoch and open windows. Of every publisher with parked "
	"messages: "
	"how many are in each state (counted up to 100,000) and since when. Of every publisher "
	"with "
	"scheduled ones: how many, and when the first is due. Of the look-back, by section and "
	"business type: how many ids are overdue and parked, since when the oldest is prepared, "
	"and "
	"the conflicts of the last `retain`, and the decisions that came a minute ago or "
	"earlier and whose prepare did not. Of every partition: its range and size.\n"
	"All of it comes from the database; Kafka is not asked. When `[admin] listen` is "
	"configured, "
	"the checks of the relay that listens there are shown too: they say which record stopped a "
	"publisher, and why. And, as its metrics have them since its start, what brought decisions "
	"of "
	"the "
	"look-back, what businesses answered, and the breakers of their hosts; of each section "
	"that delivers the messages that its application did, the copies, the false positives of "
	"dedup, what is being delivered, the age of the oldest message, retries, dead letters, how "
	"often partitions were given to the process, and its breaker.\n",
    .options = status_options,
    .example = "outbox-relay status --watch --interval 5",
    .run = run_status,
};
