#include "bench.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "commands.h"
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
	fputs("bench: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

static const struct part {
	const char *name;
	bool (*run)(struct bench *bench, struct err *err);
	enum { BOTH, KAFKA, NOTHING } needs; /* of Postgres and Kafka */
} parts[] = {
    {"drain", bench_drain},
    {"exactly-once", bench_exactly_once},
    {"held", bench_held},
    {"spread", bench_spread},
    {"memory", bench_memory},
    {"latency", bench_latency},
    {"writer", bench_writer},
    {"steady", bench_steady},
    {"idle", bench_idle},
    {"table", bench_table},
    {"growth", bench_growth},
    {"lookback", bench_lookback},
    {"inbox", bench_inbox, .needs = KAFKA},
    {"dedup", bench_dedup, .needs = NOTHING},
};

static bool is_part_wanted(const struct call *call, const char *name)
{
	if (call->argument_count == 0)
		return true;
	for (int i = 0; i < call->argument_count; i++)
		if (text_equal(call->arguments[i], name) || text_equal(call->arguments[i], "all"))
			return true;
	return false;
}

static bool check_parts(const struct call *call, struct err *err)
{
	for (int i = 0; i < call->argument_count; i++) {
		bool known = text_equal(call->arguments[i], "all");

		for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
			known |= text_equal(call->arguments[i], parts[part].name);
		if (!known)
			return err_set(err, ERR_REJECT,
			    "bench has no part '%.40s'; see "
			    "`outbox-relay help bench`",
			    call->arguments[i]);
	}
	return true;
}

static int needs_of(const struct call *call)
{
	int needs = NOTHING;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (is_part_wanted(call, parts[i].name) && (int)parts[i].needs < needs)
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
		if (is_part_wanted(call, parts[i].name)) {
			bench_say("%s", parts[i].name);
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
	    .pairs = runs ? runs : BENCH_PAIRS,
	    .turns = runs ? runs : BENCH_TURNS,
	    .seconds = call_number(call, "seconds", 10),
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
	    .dsn = call_text(call, "dsn", NULL),
	    .json = call_flag(call, "json")};
}

static int measure_and_print(const struct call *call, const struct config_publisher *publisher)
{
	const struct sigaction action = {.sa_handler = note_interruption};
	struct bench bench = {.options = options_of(call),
	    .publisher = publisher,
	    .postgres = publisher->postgres,
	    .kafka = publisher->kafka};
	struct err err;
	bool good;
	int status;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	good = run_parts(&bench, call, &err);
	/* what was measured before a failure is worth its time */
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

static int run_bench(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	const struct config_publisher *publisher =
	    config ? config_find_publisher(config, "main") : NULL;

	if (!config)
		return session_failed(&err);
	if (!publisher)
		publisher = &config->publishers[0];
	if (call->argument_count == 1 && text_equal(call->arguments[0], "limit"))
		return bench_limit(publisher, call_text(call, "topic", ""), &err)
			   ? 0
			   : session_failed(&err);
	if (call->argument_count == 2 && text_equal(call->arguments[0], "consume"))
		return bench_consume(publisher->kafka, call->arguments[1],
			   call_text(call, "topic", ""), call_number(call, "messages", 1), &err)
			   ? 0
			   : session_failed(&err);
	if (call->argument_count == 2 && text_equal(call->arguments[0], "open"))
		return bench_open(publisher->kafka, call->arguments[1],
			   call_text(call, "topic", ""), call_number(call, "topics", 1), &err)
			   ? 0
			   : session_failed(&err);
	return check_parts(call, &err) ? measure_and_print(call, publisher) : session_failed(&err);
}

static const struct command_option bench_command_options[] = {
    {"rows", "N", "Rows of a drain; 3000000 unless given. Drains of 4 KB have a fifteenth.", 1000,
	1000000000},
    {"payload", "BYTES", "Only drains of this size, instead of 300 and 4096.", 250, 900000},
    {"rate", "N", "Only this rate of messages a second, instead of 1000, 5000 and 20000.", 10,
	1000000},
    {"seconds", "N", "The length of a run of latency, half of one of steady; 10 unless given.", 2,
	3600},
    {"idle-seconds", "N", "The length of the idle stretch; 60 unless given.", 1, 3600},
    {"published", "N", "Published rows in front of the drain of `table`; 5000000 unless given.", 1,
	1000000000},
    {"parked", "N",
	"Parked messages beside the drain of `table`, 100000 unless given, and those that `growth` "
	"skips, retries and recovers, 200000.",
	1, 10000000},
    {"scheduled", "N", "Scheduled messages beside the drain of `table`; 500000 unless given.", 1,
	100000000},
    {"topics", "N", "Topics that the publisher of `growth` knows; 2000 unless given.", 50, 1000000},
    {"open-topics", "N",
	"Topics that `growth` makes and publishes to; 500 unless given. With --full there are "
	"5000, and then 1000 with 12 partitions each.",
	1, 100000},
    {"pairs", "N", "Pairs of prepare and commit of `lookback`; 1000000 unless given.", 1000,
	100000000},
    {"overdue", "N", "Overdue prepares that `lookback` resolves; 100000 unless given.", 100,
	10000000},
    {"undecided", "N", "Undecided prepares in the table of `lookback`; 1000000 unless given.", 1,
	100000000},
    {"messages", "N",
	"Messages that a consumer of `inbox` reads; 3000000 unless given. Of the sidecar and of "
	"the slow handler it is less.",
	1000, 1000000000},
    {"ids", "N", "Ids of each store of `dedup`, a tenth of them of redis; 10000000 unless given.",
	100000, 1000000000},
    {"redis", "URL", "A server of Redis for `dedup`; a database without keys is emptied again."},
    {"dsn", "DSN", "A database for `dedup`, which makes a schema of its own there."},
    {"runs", "N",
	"Runs of which the median counts: 3 unless given; 9 of drains, of consumers that do "
	"nothing, of `redis` and beside undecided prepares; 15 of `table`. writer, memory and "
	"idle have a number of their own.",
	1, BENCH_MOST_RUNS},
    {"full", NULL,
	"5000000 rows, 50000000 published ones, 5000000 scheduled, 20000 topics, 10000000 "
	"messages, 100000000 "
	"ids: takes hours and "
	"40 GB."},
    {"topic", "NAME", "Of `bench limit`, `bench consume` and `bench open` only."},
    {"json", NULL, "One JSON object."},
    {0},
};

const struct command command_bench = {
    .name = "bench",
    .arguments = "[KIND…|all]",
    .most_arguments = 14,
    .summary = "Measures this program on your Postgres and Kafka, beside what is possible there.",
    .description =
	"Makes a schema and a topic of its own with 6 partitions, fills them with JSON of 10,000 "
	"keys, "
	"runs the relay as a child process, and removes everything again. The role must be allowed "
	"to "
	"make a schema, and the broker to make topics. The more that runs beside it, the less the "
	"figures say. What is compared runs in turns; a ratio of rates or looks is the median of "
	"those of runs that followed each other. The kinds, all of them unless some are named:\n"
	"drain: rows a second and CPU, in turns with the limit: the same rows by a bare COPY "
	"BINARY "
	"handed to librdkafka as the same records (`bench limit`, which is of no use alone). The "
	"rate "
	"is the broker's: records by the time between the first and the last append.\n"
	"exactly-once: the same with that delivery, and its latency at 1,000 messages a second to "
	"a "
	"consumer of committed records.\n"
	"held: the drain of rows that are written and published while one session holds a snapshot "
	"and another has a write open, in turns with the same without them.\n"
	"spread: the drain to 1 and 48 partitions of the topic and in 4 and 16 shards, in turns "
	"with "
	"6 partitions and 1 shard; of a million rows at most.\n"
	"memory: the relay's largest resident set through drains, and one transaction of a million "
	"rows.\n"
	"latency: from the return of COMMIT to a consumer, beside an application that produces to "
	"the "
	"topic itself after its commit. A rate that the writer does not hold to 0.98 in both is "
	"saturated.\n"
	"writer: transactions that change a row and call outbox.publish, beside the same ones that "
	"put the row into a plain table with a primary key.\n"
	"steady, idle: CPU of the relay and its sessions at 1,000 messages a second and at rest, "
	"and "
	"how soon the first message after the rest arrives.\n"
	"table: the drain of a million rows at most, with something in its way, in turns with the "
	"same without: published rows in front, parked messages, scheduled ones, 50 open "
	"transactions of "
	"writers, "
	"12 partitions of the message table instead of 4. And what a look for new rows costs then "
	"that finds none, from call to answer, and one that asks which parked or scheduled message "
	"is due: "
	"medians over 0.3 s.\n"
	"growth: the same figure without and with much of one kind, in turns, each in a schema of "
	"its own: the time in the server of a take-over and of ticks that note progress in 41 "
	"topics, with many topics known; the rate at which due rows are listed and deleted, "
	"behind 20,000 scheduled rows of the far future, and with parked keys of 8,192 bytes "
	"instead of a few; the latency of 1,000 messages a second while the relay carries out "
	"`parked skip --all`, `parked retry --all` and the recovery of a topic that was missing; "
	"from the start of a relay to its first message, and its peak memory "
	"in half of --seconds after that, with as many messages parked; messages that the relay "
	"parks in a second, with keys of 8,192 random bytes instead of 16. Last, the peak memory "
	"of "
	"a relay that takes over and publishes to each of many topics, beside that of a bare "
	"producer of librdkafka (`bench open`, which is of no use alone).\n"
	"lookback: pairs of prepare and commit a second, half of them at least a second apart, "
	"from their topic (filled before, with 6 partitions) through Postgres to the topic of "
	"messages, at the broker's time, and CPU; 100,000 pairs at most with undecided prepares in "
	"the table, in turns with the same without them, after a first turn that does not count, "
	"and the relay's largest resident set; from "
	"the broker's acknowledgement of a commit to a consumer, at 1,000 pairs a second of an "
	"application whose producer lingers for 5 ms, beside the latency of the "
	"outbox; overdue prepares that are resolved a second, from the first decision to the last, "
	"by an HTTP endpoint of the bench that answers commit in 5 ms, singly and 100 in a "
	"request, "
	"with rate = 0; the relay's CPU for a million look-backs over gRPC, in turns with HTTP, "
	"answered with rollback.\n"
	"inbox: without Postgres. A topic of JSON with the relay's headers is read by a bare "
	"consumer of librdkafka and, in turns with it, by the library with a handler that does "
	"nothing, without dedup, with the stores bloom and sequence, each in a process of its own "
	"(`bench consume`); by a handler that sleeps for 5 ms, 256 of them at once; and by the "
	"sidecar, which posts to a server of the bench, singly and in batches of 100, beside the "
	"same requests by a bare loop of libcurl with as many connections, and by ab, where that "
	"is installed. The rate is from the first message to the last.\n"
	"dedup: without Postgres and Kafka. Looks at filters in memory beside bare reads of one "
	"cache line at random places of the same memory, each of which waits for the one before; a "
	"window on disk below TMPDIR that is asked for each id and takes it, what a rotation "
	"costs, and how soon the window is there again, as it was and from its logs; the stores on "
	"the same ids, through the library; with --redis, ids claimed and done beside the SETs of "
	"redis-benchmark, which has to be installed, over one connection with pipelines of 1,000, "
	"each on an empty database, unless it has keys of others; "
	"with --dsn, ids taken in transactions beside the bare insert into a table with a unique "
	"index.\n"
	"The exit status is 1 when a figure is beyond its bound.\n",
    .options = bench_command_options,
    .run = run_bench,
};
