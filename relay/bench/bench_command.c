/*
 * The command line of `outbox-relay-bench` and its help, from which docs/reference/bench.md is
 * written. The program has one command, so that no word on the command line names it.
 */
#include "bench.h"

#include <assert.h>
#include <stddef.h>
#include "call.h"

static const struct command_option options[] = {
    {"rows", "N", "Rows of a drain (default 3000000). Drains of 4 KB have a fifteenth of them.",
	1000, 1000000000},
    {"payload", "BYTES", "Drains only rows of this size, instead of 300 and 4096.", 250, 900000},
    {"rate", "N",
	"Measures only this rate of messages per second, instead of 1, 4, 20, 100, 1000, 5000 and "
	"20000.",
	1, 1000000},
    {"seconds", "N",
	"Length of a run of latency, and half the length of a run of steady (default 10, and at "
	"a low rate as long as 300 messages take), and of a run of writer and doorbell (default "
	"1).",
	1, 3600},
    {"idle-seconds", "N", "Length of each of the two idle stretches (default 60).", 1, 3600},
    {"connections", "N", "Connections of `burst` (default 500).", 1, 500},
    {"published", "N", "Published rows in front of the drain of `table` (default 5000000).", 1,
	1000000000},
    {"parked", "N",
	"Parked messages during the drain of `table` (default 100000); also the number that "
	"`growth` skips, retries and recovers (default 200000).",
	1, 10000000},
    {"scheduled", "N", "Scheduled messages during the drain of `table` (default 500000).", 1,
	100000000},
    {"topics", "N", "Topics that the publisher of `growth` knows (default 2000).", 50, 1000000},
    {"open-topics", "N",
	"Topics that `growth` creates and publishes to (default 500). With --full there are "
	"5000, and then 1000 with 12 partitions each.",
	1, 100000},
    {"pairs", "N", "Pairs of prepare and commit of `lookback` (default 1000000).", 1000, 100000000},
    {"overdue", "N", "Overdue prepares that `lookback` resolves (default 100000).", 100, 10000000},
    {"undecided", "N", "Undecided prepares in the table of `lookback` (default 1000000).", 1,
	100000000},
    {"messages", "N",
	"Messages that a consumer of `inbox` reads (default 3000000). The sidecar and the slow "
	"handler read fewer.",
	1000, 1000000000},
    {"ids", "N",
	"Ids of each store of `dedup` (default 10000000). The store redis gets a tenth of them, "
	"and `rules` judge a hundredth as many messages.",
	100000, 1000000000},
    {"redis", "URL",
	"A Redis server for `dedup` and `rules`, and for the claims of `inbox`. `dedup` and "
	"`rules` "
	"empty a database that had no keys."},
    {"redis-cluster", "URL",
	"All masters of a Redis Cluster for `dedup`, which is compared with the server of "
	"`redis`, and for `rules`."},
    {"dsn", "DSN",
	"A database for `dedup` and `rules`, and for claims and reports of `inbox`; the bench "
	"creates a schema of its own there."},
    {"runs", "N",
	"Runs whose median counts. Default: 3; 9 for drains, for consumers that do nothing, for "
	"`redis`, with undecided prepares, and for `writer`, `doorbell` and `burst`; 15 for "
	"`table` and for `doorbell` while no relay sleeps; 1 for latency below 100 messages per "
	"second. memory and idle have a number of "
	"their own.",
	1, BENCH_MOST_RUNS},
    {"full", NULL,
	"5000000 rows, 50000000 published rows, 5000000 scheduled rows, 20000 topics, 10000000 "
	"messages, 100000000 ids: takes hours and 40 GB."},
    {"topic", "NAME", "The topic of the kinds limit, consume and open."},
    {"bare", NULL, "The kind limit leaves out the relay's headers."},
    {"claims", "LINE", "The line of claims of the kind consume."},
    {"report", "LINE", "The line of reports of the kind consume."},
    {"relay", "PROGRAM",
	"The outbox-relay to measure. Default: outbox-relay in the folder of outbox-relay-bench, "
	"else the one on PATH."},
    {"before", "PROGRAM",
	"Another outbox-relay that `pace` measures too. It must know the schema of this version; "
	"it "
	"gets no setting of the pace."},
    {"json", NULL, "Prints one JSON object."},
    {"markdown", NULL, "Prints this help as a page of documentation."},
    {"man", NULL, "Prints this help as a manual page."},
    {"version", NULL, "Prints the version."},
    {0},
};
static_assert(sizeof options / sizeof *options - 1 <= CALL_OPTIONS, "a call has room for each");

static const struct command command_bench = {
    .name = "bench",
    .arguments = "[KIND…|all]",
    .most_arguments = 22,
    .summary = "Measures outbox-relay on your Postgres and Kafka, compared with their limits.",
    .description =
	"Creates a schema and a topic of its own with 6 partitions, fills them with JSON of "
	"10,000 keys, runs outbox-relay as a child process, and removes everything again. The "
	"role must be allowed to create a schema, and the broker to create topics. Other work on "
	"the machine falsifies the figures. Runs that are compared take turns, and a ratio of "
	"rates or looks is the median of the ratios of consecutive runs. Without a kind it "
	"measures all of "
	"these:\n"
	"drain: outbox-relay publishes a table that is full: rows per second and CPU, in turns "
	"with two limits: a program that only reads the same rows by a bare COPY BINARY and hands "
	"them to librdkafka, once as the same records, and once as bare records, without the "
	"relay's own headers (the kind limit, which the bench starts itself). The same with two "
	"headers of an application in each row, and with headers = none, compared with bare "
	"records. The broker's timestamps give the rate: the number of records divided by the "
	"time between the first and the last append. For the whole process it is divided by the "
	"time from the start of the process to its end.\n"
	"exactly-once: drain with delivery = exactly-once, and its latency at 1,000 messages per "
	"second "
	"to a consumer of committed records.\n"
	"held: the drain of rows that are written and published while one session holds a "
	"snapshot and another one has a write open, in turns with the same drain without these "
	"sessions.\n"
	"spread: the drain to 1 and 48 partitions of the topic, in turns with 6 partitions. It "
	"drains a million rows at most.\n"
	"shards: the drain in 4 and 16 shards of one process, in turns with 1 shard. It drains a "
	"million rows at most.\n"
	"codec: the drain with each codec, in turns with none: rows per second, CPU of "
	"outbox-relay, and bytes of a record on the broker, as a consumer receives them. It "
	"drains a million rows at most.\n"
	"memory: the largest resident set of outbox-relay during drains, and during one "
	"transaction of a million rows.\n"
	"latency: from the return of COMMIT to a consumer, compared with an application that "
	"produces to the topic itself after its commit. A rate is saturated if the writer does "
	"not reach 0.98 of it in both.\n"
	"writer: transactions that change a row and call outbox.publish, compared with the same "
	"transactions that insert the row into a plain table with a primary key. Then with a "
	"function that takes no unique key, and with unique keys.\n"
	"doorbell: the transactions of writer with 1, 8 and 64 connections, with the trigger that "
	"wakes a sleeping relay, compared with the same transactions without it: while no relay "
	"sleeps, and while one sleeps and is never woken up.\n"
	"burst: one message from each of 500 warm connections at the same moment onto a relay that "
	"sleeps, compared with a relay that has doorbell = off: the time until COMMIT returns.\n"
	"steady, idle: CPU of outbox-relay and its sessions at 1,000 messages per second and at "
	"rest, with doorbell = off and with doorbell = on, and the latency of the first message "
	"after the rest.\n"
	"pace: at 20, 100, 500, 1,000 and 2,000 messages per second (or --rate), for each value of "
	"[publisher] pace: the latency of `latency`, compared with the application that produces "
	"itself, and the CPU seconds a million messages of outbox-relay, its sessions and the "
	"brokers, if they run on this machine.\n"
	"path: only if it is named, as it needs an outbox-relay with fault points (--relay): where "
	"the time from the return of COMMIT to a consumer goes, at 100, 1,000 and 5,000 messages "
	"per second (or --rate).\n"
	"table: the drain of a million rows at most with something in its way, in turns with the "
	"same drain without it: published rows in front, parked messages, scheduled messages, 50 "
	"open transactions of writers, 12 partitions of the message table instead of 4. Then, "
	"from call to answer, a look for new rows that finds none, and a look that also asks "
	"which parked or scheduled message is due: medians over 0.3 s.\n"
	"growth: the same figure without and with much of one kind, in turns, each in a schema "
	"of its own. With many topics known: the time in the server of a take-over and of ticks "
	"that note progress in 41 topics. Behind 20,000 scheduled rows of the far future, and "
	"with parked keys of 8,192 bytes instead of short ones: the rate at which due rows are "
	"listed and deleted. While the relay carries out `parked skip --all`, `parked retry "
	"--all` and the recovery of a topic that was missing: the latency of 1,000 messages per "
	"second. With as many messages parked: the time from the start of a relay to its first "
	"message, and its peak memory in half of --seconds after that. With keys of 8,192 random "
	"bytes instead of 16: the messages that the relay parks per second. Last, the peak "
	"memory of a relay that takes over and publishes to each of many topics, compared with a "
	"bare producer of librdkafka (the kind open, which is of no use alone).\n"
	"archive: a partition of a million rows at most is written to a compressed file below "
	"TMPDIR, read again and checked, and its table dropped, as `retention = archive` does "
	"it: bytes of payload per second. The bound is 100 MB/s, or the rate at which the disk "
	"makes plain bytes durable, if that is lower. Then the partition is restored.\n"
	"lookback: pairs of prepare and commit per second, half of them at least a second apart, "
	"from their topic (filled before, with 6 partitions) through Postgres to the topic of "
	"messages, by the broker's timestamps, and CPU. With undecided prepares in the table: "
	"100,000 pairs at most, in turns with the same without them, after a first turn that "
	"does not count, and the largest resident set of outbox-relay. At 1,000 pairs per second "
	"of an application whose producer lingers for 5 ms: the latency from the broker's "
	"acknowledgement of a commit to a consumer, compared with the latency of the outbox. "
	"With rate = 0: overdue prepares that are resolved per second, from the first decision "
	"to the last, by an HTTP endpoint of the bench that answers commit in 5 ms, singly and "
	"100 in a request. Last, the relay's CPU for a million look-backs over gRPC, in turns "
	"with HTTP, answered with rollback.\n"
	"inbox: without Postgres. A topic of JSON with the relay's headers is read by a bare "
	"consumer of librdkafka and, in turns with it, by the library with a handler that does "
	"nothing, without dedup and with the stores bloom and sequence, each in a process of its "
	"own (the kind consume). Then by a handler that sleeps for 5 ms, 256 of them at once. "
	"With --redis or --dsn: the same handlers, and 16 of them at once, with claims on the "
	"ids of messages in progress, compared with those without claims; with --dsn also "
	"with each message reported as done. Last, "
	"by the sidecar, which posts to a server of the bench, singly and in batches of 100, "
	"compared with the same requests by a bare loop of libcurl with as many connections, and "
	"by ab if that is installed. The rate is from the first message to the last.\n"
	"dedup: without Postgres and Kafka. Lookups in filters in memory are compared with bare "
	"reads of one cache line at random places of the same memory, each of which waits for "
	"the one before. A window on disk below TMPDIR is asked for each id and takes it; the "
	"figures include the cost of a rotation, and how soon the window is there again, from "
	"its files as they were and from its logs. The stores handle the same ids, through the "
	"library. With --redis: ids claimed and done are compared with the SETs of "
	"redis-benchmark, which must be installed, over one connection with pipelines of 1,000, "
	"each on an empty database, unless the database has other keys; with --redis-cluster the "
	"same "
	"ids on a cluster are compared with those on the one server. With --dsn: ids taken in "
	"transactions are compared with a bare insert into a table with a unique index.\n"
	"rules: without Kafka. Messages of many users are judged by the two rules of a push "
	"platform, in batches of 100: at most one of the same content in 300 seconds, and five a "
	"day; half of them are refused. With the records in a folder, and with --redis, "
	"--redis-cluster and --dsn on these servers: messages judged per second by one process.\n"
	"The output shows the bound of each figure that has one, which is the worst value that "
	"is accepted. The exit status is 1 when a figure is beyond its bound.\n",
    .options = options,
    .example = "outbox-relay-bench drain latency --rows 1000000",
    .run = bench_run,
};

const char program_name[] = "outbox-relay-bench";
const struct command *const commands[] = {&command_bench, NULL};
const struct command_heading command_headings[] = {{0}};
