/*
 * The command line of outbox-relay-bench: which parts run and with which options, and the hidden
 * words by which the bench runs itself as a child (run_compared). Begin at bench_run; each part is
 * in a file bench_*.c.
 */
#include "bench.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "call.h"
#include "help.h"
#include "manual.h"
#include "session.h"

static volatile sig_atomic_t interrupted;

static void note_interruption(int number)
{
	interrupted = number;
}

bool bench_interrupted(void)
{
	return interrupted;
}

bool bench_goes_on(struct err *err)
{
	return !interrupted || err_set(err, ERR_RETRY, "interrupted");
}

int64_t bench_short_rows(const struct bench *bench)
{
	return bench->options.rows < 1000000 ? bench->options.rows : 1000000;
}

void bench_say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "%s: ", program_name);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

static const struct part {
	const char *name;
	bool (*run)(struct bench *bench, struct err *err);
	enum { BOTH, KAFKA, NOTHING } needs; /* required servers, of Postgres and Kafka */
	bool named; /* runs only if it is named: it needs a relay with fault points */
} parts[] = {
    {"drain", bench_drain},
    {"exactly-once", bench_exactly_once},
    {"held", bench_held},
    {"spread", bench_spread},
    {"shards", bench_shards},
    {"codec", bench_codec},
    {"memory", bench_memory},
    {"latency", bench_latency},
    {"writer", bench_writer},
    {"doorbell", bench_doorbell},
    {"burst", bench_burst},
    {"steady", bench_steady},
    {"idle", bench_idle},
    {"pace", bench_pace},
    {"path", bench_path, .named = true},
    {"table", bench_table},
    {"growth", bench_growth},
    {"archive", bench_archive},
    {"lookback", bench_lookback},
    {"inbox", bench_inbox, .needs = KAFKA},
    {"dedup", bench_dedup, .needs = NOTHING},
    {"rules", bench_rules, .needs = NOTHING},
};

static bool is_part_wanted(const struct call *call, const struct part *part)
{
	if (call->argument_count == 0)
		return !part->named;
	for (int i = 0; i < call->argument_count; i++)
		if (text_equal(call->arguments[i], part->name) ||
		    (!part->named && text_equal(call->arguments[i], "all")))
			return true;
	return false;
}

static bool check_parts(const struct call *call, struct err *err)
{
	for (int i = 0; i < call->argument_count; i++) {
		bool known = text_equal(call->arguments[i], "all");
		struct suggestion nearest = suggestion_begin(call->arguments[i]);

		for (size_t part = 0; part < sizeof parts / sizeof *parts; part++) {
			known |= text_equal(call->arguments[i], parts[part].name);
			suggestion_offer(&nearest, parts[part].name, parts[part].name);
		}
		if (!known)
			return err_set(err, ERR_REJECT,
			    "there is no kind '%.40s'%s; see `outbox-relay-bench --help`",
			    call->arguments[i], nearest.note);
	}
	return true;
}

static int needs_of(const struct call *call)
{
	int needs = NOTHING;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (is_part_wanted(call, &parts[i]) && (int)parts[i].needs < needs)
			needs = parts[i].needs;
	return needs;
}

static bool make_place(struct bench *bench, int needs, struct err *err)
{
	return needs == NOTHING ||
	       (needs == KAFKA ? bench_cluster_make(bench, err) : bench_place_make(bench, err));
}

static bool run_parts(struct bench *bench, const struct call *call, struct err *err)
{
	bool good = make_place(bench, needs_of(call), err);

	for (size_t i = 0; good && i < sizeof parts / sizeof *parts; i++)
		if (is_part_wanted(call, &parts[i])) {
			bench_say("%s", parts[i].name);
			/* an interruption ends the bench between two kinds as well */
			good = bench_goes_on(err) && parts[i].run(bench, err);
		}
	return good;
}

static struct bench_options options_of(const struct call *call)
{
	bool full = call_flag(call, "full");
	int64_t rows = call_number(call, "rows", full ? 5000000 : 3000000);
	int64_t runs = call_number(call, "runs", 0);

	return (struct bench_options){.rows = rows,
	    .large_rows = rows / 15 > 1000 ? rows / 15 : 1000,
	    .payload = call_number(call, "payload", 0),
	    .rate = call_number(call, "rate", 0),
	    .runs = runs ? runs : 3,
	    .few_runs = runs ? runs : 1,
	    .pairs = runs ? runs : BENCH_PAIRS,
	    .turns = runs ? runs : BENCH_TURNS,
	    .seconds = call_number(call, "seconds", 10),
	    .seconds_said = call_number(call, "seconds", 0),
	    .connections = call_number(call, "connections", 500),
	    .idle_seconds = call_number(call, "idle-seconds", 60),
	    .published = call_number(call, "published", full ? 50000000 : 5000000),
	    .parked = call_number(call, "parked", 100000),
	    .skipped = call_number(call, "parked", full ? 3000000 : 200000),
	    .scheduled = call_number(call, "scheduled", full ? 5000000 : 500000),
	    .topics = call_number(call, "topics", full ? 20000 : 2000),
	    .open_topics = call_number(call, "open-topics", full ? 5000 : 500),
	    .wide_topics = full ? 1000 : 0,
	    .said = call_number(call, "pairs", 1000000),
	    .overdue = call_number(call, "overdue", 100000),
	    .undecided = call_number(call, "undecided", 1000000),
	    .messages = call_number(call, "messages", full ? 10000000 : 3000000),
	    .ids = call_number(call, "ids", full ? 100000000 : 10000000),
	    .redis = call_text(call, "redis", NULL),
	    .redis_cluster = call_text(call, "redis-cluster", NULL),
	    .dsn = call_text(call, "dsn", NULL),
	    .before = call_text(call, "before", NULL),
	    .json = call_flag(call, "json")};
}

static bool check_publisher(const struct publisher_settings *publisher, struct err *err)
{
	return publisher || err_set(err, ERR_CONFIG,
				"this configuration only delivers: without a [publisher] section "
				"the bench measures only inbox and dedup");
}

/* publisher NULL: the configuration has none. */
static int measure_and_print(const struct call *call, const struct publisher_settings *publisher,
    const struct kafka_settings *kafka)
{
	const struct sigaction action = {.sa_handler = note_interruption};
	struct bench bench = {.options = options_of(call),
	    .publisher = publisher,
	    .postgres = publisher ? publisher->postgres : NULL,
	    .kafka = kafka};
	struct err err;
	owned_text char *relay = NULL;
	bool good;
	int status;

	/* before the servers are needed: a misspelt kind must not cost the time of those before
	 * it */
	if (!check_parts(call, &err) ||
	    (needs_of(call) == BOTH && !check_publisher(publisher, &err)))
		return session_failed(&err);

	/* `dedup` alone starts no relay, so it runs where none is installed */
	if (needs_of(call) != NOTHING) {
		bench.relay = relay = bench_relay_find(call_text(call, "relay", NULL), &err);
		if (!relay)
			return session_failed(&err);
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	/* if the caller ignored it, no child would have an exit status */
	signal(SIGCHLD, SIG_DFL);
	good = run_parts(&bench, call, &err);
	/* the results before a failure are worth keeping */
	if (bench.figure_count > 0 && bench.options.json)
		bench_print_json(&bench);
	else if (bench.figure_count > 0)
		bench_print(&bench);
	status = !good ? session_failed(&err) : bench_is_good(&bench) ? 0 : EXIT_FOUND;
	if (needs_of(call) != NOTHING)
		bench_place_remove(&bench);
	free(bench.figures);
	return status;
}

/* Runs a child of the bench, which other ways are compared with. *ret_known false: the word names
 * no child. */
static bool run_compared(const struct call *call, const struct publisher_settings *publisher,
    const struct kafka_settings *kafka, bool *ret_known, struct err *err)
{
	const char *kind = call->argument_count > 0 ? call->arguments[0] : "all";
	const char *topic = call_text(call, "topic", "");

	*ret_known = true;
	if (call->argument_count == 1 && text_equal(kind, "limit"))
		return check_publisher(publisher, err) &&
		       bench_limit(publisher, topic, call_flag(call, "bare"), err);
	if (call->argument_count == 2 && text_equal(kind, "consume"))
		return bench_consume(kafka,
		    &(struct bench_consumption){.kind = call->arguments[1],
			.topic = topic,
			.claims = call_text(call, "claims", NULL),
			.report = call_text(call, "report", NULL),
			.messages = call_number(call, "messages", 1)},
		    err);
	if (call->argument_count == 2 && text_equal(kind, "open"))
		return bench_open(
		    kafka, call->arguments[1], topic, call_number(call, "topics", 1), err);
	*ret_known = false;
	return true;
}

static int run_bench(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	const struct config_publisher *section;
	const struct publisher_settings *publisher;
	const struct kafka_settings *kafka;
	bool known;

	if (!config)
		return session_failed(&err);

	/* the variables of a child set the section "main", so this one is measured */
	section = config_find_publisher(config, "main");
	if (!section && config->publisher_count > 0)
		section = &config->publishers[0];
	publisher = section ? &section->settings : NULL;
	/* a configuration without a publisher has a section that delivers */
	kafka = publisher ? publisher->kafka : config->delivers[0].kafka;

	if (!run_compared(call, publisher, kafka, &known, &err))
		return session_failed(&err);
	return known ? 0 : measure_and_print(call, publisher, kafka);
}

static int print_bench_page(void)
{
	OWNED(text_finish) struct text page = {0};

	text_addf(
	    &page, "# %s\n\n<!-- Written by `%s --markdown`. -->\n\n", program_name, program_name);
	help_markdown_command(commands[0], &page);
	text_add(&page,
	    "The configuration is the file that `--config` or `OUTBOX_RELAY_CONFIG` names, and "
	    "the environment ([configuration](configuration.md)).\n");
	fputs(page.data, stdout);
	return 0;
}

static int print_bench_manual(void)
{
	OWNED(text_finish) struct text page = {0};

	manual_command(commands[0], &page);
	fputs(page.data, stdout);
	return 0;
}

int bench_run(const struct call *call)
{
	if (call_flag(call, "markdown"))
		return print_bench_page();
	if (call_flag(call, "man"))
		return print_bench_manual();
	if (!call_flag(call, "version"))
		return run_bench(call);
	printf("%s " RELAY_VERSION "\n", program_name);
	return 0;
}
