#pragma once
/*
 * The parts of outbox-relay-bench share a schema, a topic, figures and child processes. They run in
 * one thread, except for the consumer of bench_watch.c.
 */
#include <sys/resource.h>
#include <sys/types.h>
#include "topic_metadata.h"
#include "config.h"
#include "pg.h"

enum {
	BENCH_KEYS = 10000,
	BENCH_PARTITIONS = 6, /* partitions of the topic, unless a part sets another number */
	BENCH_PAIRS = 9,      /* pairs of short runs in turns */
	BENCH_TURNS = 15,     /* turns of shorter runs */
	BENCH_MOST_RUNS = 99,
	BENCH_SMALL = 300,  /* bytes of a payload */
	BENCH_LARGE = 4096, /* the same */
	BENCH_NUMBER_AT = 5 /* payloads begin with {"n":1000000000 */
};
#define BENCH_PUBLISHER "main"
#define BENCH_BEGINNING "3:3:" /* a snapshot in which nothing is visible */

struct bench_options {
	int64_t messages, rows, large_rows, payload /* 0: both */, rate /* 0: all of them */, runs,
	    few_runs /* of what takes minutes */, pairs, turns, seconds,
	    seconds_said /* 0: not given */, connections /* of a burst */, idle_seconds, published,
	    parked, scheduled, topics /* that `growth` knows */,
	    open_topics /* and publishes to, with a partition */,
	    wide_topics /* with 12; 0: none */, skipped, said /* pairs of prepare and commit */,
	    overdue, undecided, ids;
	const char *redis, *redis_cluster, *dsn; /* servers of `dedup`; NULL: not given */
	const char *before;                      /* another outbox-relay for `pace`; NULL: none */
	bool json;
};

enum bench_verdict { BENCH_TOLD /* not judged */, BENCH_OK, BENCH_NOT, BENCH_SATURATED };

struct bench_figure {
	char name[80], unit[16];
	double value, reference; /* reference NAN: there is none */
	double judged;           /* NAN: nothing is */
	const char *judged_as;   /* "ratio", "difference" or "value" */
	char relation;           /* '<' at most, '>' at least, 0: no bound */
	double bound;
	enum bench_verdict verdict;
};

struct bench {
	struct bench_options options;
	const struct postgres_settings *postgres; /* NULL: no part that runs uses it */
	const struct kafka_settings *kafka;
	const struct publisher_settings *publisher; /* its settings are the relay's; NULL, too */
	const char *relay; /* the program to measure; NULL: no part that runs starts it */
	const char *trace; /* file for the steps of a relay with fault points; NULL: none */
	char schema[41] /* "": no database is used */, topic[64];
	struct pg *pg;
	struct topic_metadata *metadata;
	bool has_topic;
	enum delivery_mode delivery; /* of the relay */
	const char *doorbell;        /* the relay's setting; NULL: its default */
	int shards;                  /* of the publisher */
	int destinations;            /* partitions of the topic */
	bool has_headers; /* bench_fill writes two headers of an application in each row */
	int days;         /* partitions of the message table that rows are spread over, in order */
	struct bench_figure *figures;
	int figure_count;
	double peak_kib[2]; /* of drains: small and large payloads; 0: not measured */
	int64_t drained[2]; /* rows of these drains */
};

/* --- bench.c: the parts, one after the other ------------------------------------------------- */

struct call;
/* Runs the command line of bench_command.c; its exit status. */
int bench_run(const struct call *call);

/* True once SIGINT or SIGTERM came: every loop checks this and ends, and all created objects are
 * removed. */
bool bench_interrupted(void);
/* The same as an error: false with "interrupted". */
bool bench_goes_on(struct err *err);
/* The number of rows of one drain among many. */
int64_t bench_short_rows(const struct bench *bench);
/* Prints a line about the current work on stderr. */
void bench_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- bench_figures.c ------------------------------------------------------------------------- */

void bench_tell(struct bench *bench, const char *name, const char *unit, double value);
void bench_tell_beside(
    struct bench *bench, const char *name, const char *unit, double value, double reference);
/* Adds a figure, and judges value / reference, or value - reference, against the bound. */
void bench_judge_ratio(struct bench *bench, const char *name, const char *unit, double value,
    double reference, char relation, double bound);
/* Adds a figure without a bound. */
void bench_tell_ratio(
    struct bench *bench, const char *name, const char *unit, double value, double reference);
void bench_judge_difference(struct bench *bench, const char *name, const char *unit, double value,
    double reference, double most, bool saturated);
void bench_tell_difference(
    struct bench *bench, const char *name, const char *unit, double value, double reference);
void bench_judge(struct bench *bench, const char *name, const char *unit, double value,
    char relation, double bound);
/* Adds the figures of runs in turns: the two medians, and as the ratio the median of the pairs'
 * ratios. */
void bench_judge_pairs(struct bench *bench, const char *name, const char *unit,
    const double *values, const double *references, int count, char relation, double bound);
/* The same, but judges the median of the values and only shows the ratio. */
void bench_judge_beside(struct bench *bench, const char *name, const char *unit,
    const double *values, const double *references, int count, char relation, double bound);
double bench_median(double *values, int count); /* sorts the values */
/* The median of at most BENCH_MOST_RUNS values, which it does not sort. */
double bench_median_of(const double *values, int count);
void bench_print(struct bench *bench);
void bench_print_json(struct bench *bench);
/*
 * The value of the first line "name: value" in a file of /proc; "unknown" if there is no such line.
 */
void bench_proc_value(const char *path, const char *name, char *value, size_t size);
/* True if no figure is beyond its bound. */
bool bench_is_good(const struct bench *bench);

/* --- bench_place.c: the schema and the topic ------------------------------------------------- */

bool bench_place_make(struct bench *bench, struct err *err) MUST_CHECK;
/* Prepares the cluster alone: a name for the topic, and the client that creates it. */
bool bench_cluster_make(struct bench *bench, struct err *err) MUST_CHECK;
void bench_place_remove(struct bench *bench); /* removes everything that was created */
/*
 * Makes a second place with its own schema, which shares the connections and the topic of `bench`.
 * number: from 2 on. The caller must drop the schema even if this fails.
 */
bool bench_place_beside(
    struct bench *bench, int number, struct bench *ret_place, struct err *err) MUST_CHECK;
/* Gives its message table this many partitions, the default one included; at least 3. */
bool bench_partition(struct bench *place, int count, struct err *err) MUST_CHECK;
/* Drops everything that it has in Postgres. */
void bench_schema_drop(struct bench *bench);
/* Makes an empty topic with the same name. The broker sets the timestamps when it appends. */
bool bench_fresh_topic(struct bench *bench, struct err *err) MUST_CHECK;
/* Empties the table. */
bool bench_empty_table(struct bench *bench, struct err *err) MUST_CHECK;
/* Writes the messages with numbers first to first + count - 1, in transactions of 10,000, or in
 * one. */
bool bench_fill(struct bench *bench, int64_t first, int64_t count, int64_t payload,
    bool one_transaction, struct err *err) MUST_CHECK;
/* Called after a fill: makes statistics, hints and a checkpoint, which would cost the first reader
 * time. */
bool bench_settle(struct bench *bench, struct err *err) MUST_CHECK;
/*
 * Makes the publisher begin again behind a snapshot; behind BENCH_BEGINNING it publishes the whole
 * table. Parked and scheduled messages stay.
 */
bool bench_rewind(struct bench *bench, const char *snapshot, struct err *err) MUST_CHECK;
/* The current snapshot, malloc'ed; NULL on error. */
char *bench_snapshot(struct bench *bench, struct err *err);
/* Opens a connection of the bench. */
struct pg *bench_connect(const struct postgres_settings *postgres, struct err *err);
/* Runs a script of sql/queries in the bench's schema. */
bool bench_script(struct bench *bench, const char *sql, struct err *err) MUST_CHECK;
/* The same for one statement that must not run inside a transaction, such as VACUUM. */
bool bench_script_alone(struct bench *bench, const char *sql, struct err *err) MUST_CHECK;

/* --- bench_payload.c ------------------------------------------------------------------------- */

struct text;
/*
 * JSON of about that many bytes, always the same for a number: {"n":1000000007,"seq":…; seq counts
 * up with each message of the number's key.
 */
void bench_payload(struct text *out, int64_t number, int64_t bytes);
/* The number of a payload; -1: the bench did not write it. */
int64_t bench_number(const void *payload, size_t length);

/* --- bench_relay.c: the program to measure --------------------------------------------------- */

/*
 * The path of the program that --relay names (NULL: the option is not given), malloc'ed. Default:
 * outbox-relay in the folder of this program, else on PATH. NULL on error.
 */
char *bench_relay_find(const char *named, struct err *err);

/* --- bench_child.c: the relay, or a second bench, as a child --------------------------------- */

struct bench_child {
	bool is_bench;        /* it runs this program, not the relay */
	const char *sections; /* more of the relay's configuration (INI); NULL: none */
	pid_t pid;            /* 0: none */
	int output;           /* descriptor of its standard output; 0: the same as ours */
	double peak_kib;      /* its largest resident set */
	double own_kib;       /* peak of its memory that is not file-backed */
};
/*
 * arguments: "run", "--drain", NULL. Its publisher, schema and cluster are the bench's; without a
 * schema it has the cluster only.
 */
bool bench_child_start(struct bench *bench, struct bench_child *child, const char *const *arguments,
    struct err *err) MUST_CHECK;
/* Starts `outbox-relay run`. sections: as in the child. */
bool bench_child_run(struct bench *bench, struct bench_child *child, const char *sections,
    struct err *err) MUST_CHECK;
/* Waits until it ends by itself, with status 0. */
bool bench_child_wait(
    struct bench_child *child, struct rusage *ret_usage, struct err *err) MUST_CHECK;
/* Starts a second bench, which prints a number above 0, and waits until it ends. */
bool bench_child_tells(struct bench *bench, struct bench_child *child, const char *const *arguments,
    struct rusage *ret_usage, double *ret_number, struct err *err) MUST_CHECK;
/* Stops it and waits. */
void bench_child_stop(struct bench_child *child);
double bench_cpu_of_usage(const struct rusage *usage); /* seconds */
/* CPU seconds so far of a process on this machine; below 0: none of that number and name. */
double bench_process_cpu(pid_t pid, const char *name);
/*
 * CPU seconds so far of the child, of the relay's sessions, and of the brokers that listen on the
 * ports of bootstrap.servers. Servers on another machine count as 0, and so does a child that was
 * not started.
 */
struct bench_cpu {
	double relay, backends, broker;
};
bool bench_child_cpu(struct bench *bench, const struct bench_child *child,
    struct bench_cpu *ret_cpu, struct err *err) MUST_CHECK;

/* --- bench_broker.c: the processes of the brokers --------------------------------------------- */

/* CPU seconds so far of those on this machine. */
double bench_broker_cpu(const struct kafka_settings *kafka);

/* --- bench_watch.c: a consumer --------------------------------------------------------------- */

/* Reads the topic, which should have that many records, to its end. Returns their number, and the
 * broker's time from the first to the last. */
struct bench_seen {
	int64_t records, bytes, first_ms, last_ms;
	int64_t stored; /* bytes as stored and sent by the broker */
};
bool bench_read_topic(
    struct bench *bench, int64_t records, struct bench_seen *ret_seen, struct err *err) MUST_CHECK;

/* Starts a consumer in its own thread. seen_us[n]: when number n came; 0: not yet. */
struct bench_watch;
struct bench_watch *bench_watch_start(struct bench *bench, int64_t numbers, struct err *err);
/* When number n came (clock_us); 0: not yet. */
int64_t bench_watch_seen(const struct bench_watch *watch, int64_t number);
int64_t bench_watch_count(const struct bench_watch *watch);
/* Waits until that many have come; ERR_RETRY after the time. */
bool bench_watch_wait(
    const struct bench_watch *watch, int64_t count, int timeout_ms, struct err *err) MUST_CHECK;
void bench_watch_stop(struct bench_watch *watch);

/* --- bench_latency.c ------------------------------------------------------------------------- */

struct bench_latency {
	double p50, p99;      /* milliseconds */
	double held;          /* part of the wanted rate that the writer held */
	struct bench_cpu cpu; /* seconds a million messages */
};
/* A way to publish the messages of a run: an application, or a relay with some pace. */
struct bench_side {
	const char *name;         /* for the lines of progress */
	bool direct;              /* the application itself; without a relay */
	const char *program;      /* NULL: the relay of the bench, with its settings */
	enum publisher_pace pace; /* the pace of `program` */
};
bool bench_measure_latency(struct bench *bench, const struct bench_side *side, int64_t rate,
    int rows, struct bench_latency *ret_latency, struct err *err) MUST_CHECK;
/* The same; visit is called with the times of each message: see bench_latency_of. */
typedef void bench_visit_times(
    void *context, const struct bench_watch *watch, const int64_t *committed_us, int64_t numbers);
bool bench_visit_latency(struct bench *bench, const struct bench_side *side, int64_t rate, int rows,
    struct bench_latency *ret_latency, bench_visit_times *visit, void *context,
    struct err *err) MUST_CHECK;
/* Uses numbers that began (since_us[n]; 0: did not begin) a second after number 1 or later. */
void bench_latency_of(const struct bench_watch *watch, const int64_t *since_us, int64_t numbers,
    struct bench_latency *ret_latency);
/* The latency from COMMIT to a consumer, from one run. */
bool bench_latency_of_relay(struct bench *bench, int64_t rate, struct bench_latency *ret_latency,
    struct err *err) MUST_CHECK;

/* --- bench_hold.c: sessions in the middle of a transaction ------------------------------------ */

struct bench_hold {
	const char *sql; /* a script of sql/queries that begins one; NULL ends a list */
	int sessions;
};
extern const struct bench_hold bench_hold_writers[]; /* has BENCH_WRITERS entries */
extern const struct bench_hold bench_hold_reader[];  /* a reader with a snapshot, and a writer */
extern const struct bench_hold bench_hold_bell[];    /* a relay that sleeps for ever */
enum { BENCH_WRITERS = 50 };

/* holds NULL: none. NULL on error. */
struct bench_held *bench_hold(
    struct bench *bench, const struct bench_hold *holds, struct err *err) MUST_CHECK;
/* Rolls back. False: a transaction had already ended. NULL is fine. */
bool bench_release(struct bench_held *held, struct err *err) MUST_CHECK;

/* --- bench_turns.c: drains in turns ---------------------------------------------------------- */

/* A way to drain the same number of rows, and its results in each run. */
struct bench_way {
	char name[40];                  /* for the lines of progress */
	struct bench place;             /* the rows and the settings */
	const char *snapshot;           /* drains the rows behind it; default BENCH_BEGINNING */
	const struct bench_hold *holds; /* sessions that exist while it drains; NULL: none */
	enum {
		BENCH_RELAY,
		BENCH_RELAY_HEADERLESS, /* with headers = none */
		BENCH_LIMIT,            /* bench_limit: the same records as the relay's */
		BENCH_LIMIT_BARE        /* the same without the relay's headers */
	} program;
	bool writes;  /* each run's rows are also written while these sessions exist */
	bool gathers; /* publishes nothing before all shards are taken */
	double rates[BENCH_MOST_RUNS], cpus[BENCH_MOST_RUNS]; /* rows/s; seconds */
	double walls[BENCH_MOST_RUNS]; /* rows/s, from the start of the process to its end */
	double
	    stored[BENCH_MOST_RUNS]; /* bytes of a record on the broker, batch headers included */
	double peak_kib;
};
/* Adds a way, with a copy of the current bench. */
struct bench_way bench_way(const struct bench *bench, const char *name);
/* rows: the number of rows behind the snapshot. */
bool bench_turns(
    struct bench_way *ways, int count, int runs, int64_t rows, struct err *err) MUST_CHECK;
/* The median CPU time, in seconds for a million of these rows. */
double bench_way_cpu(const struct bench_way *way, int runs, int64_t rows);

/* --- bench_look.c ---------------------------------------------------------------------------- */

/*
 * The time of a search for new rows that finds none, from call to answer: the median of many, in
 * microseconds. lists: the search also asks whether anything parked is due.
 */
bool bench_look(struct bench *place, bool lists, double *ret_us, struct err *err) MUST_CHECK;

/* --- bench_business.c: the business, or another application ---------------------------------- */

/*
 * A server on 127.0.0.1, in its own thread. It uses little CPU, and understands only the relay's
 * clients and ids of digits. http and grpc answer each question after 5 ms, with commit or
 * rollback. sink answers 200 to every POST at once, and counts the messages: one per request, or
 * the events of a batch.
 */
struct bench_business;
struct bench_dialect;
extern const struct bench_dialect bench_business_http, bench_business_grpc, bench_business_sink;
struct bench_business *bench_business_start(
    const struct bench_dialect *dialect, bool commits, struct err *err);
int bench_business_port(const struct bench_business *business);
/* The number of messages that sink took so far, and the time from the first to the last. */
int64_t bench_business_taken(const struct bench_business *business, int64_t *ret_span_us);
void bench_business_stop(struct bench_business *business); /* NULL is fine */

/* --- the parts ------------------------------------------------------------------------------- */

bool bench_drain(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_exactly_once(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_codec(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_held(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_spread(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_shards(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_latency(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_lookback(struct bench *bench, struct err *err) MUST_CHECK;
/* Measures at one rate. */
bool bench_latency_at(struct bench *bench, int64_t rate, struct err *err) MUST_CHECK;
bool bench_writer(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_doorbell(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_burst(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_memory(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_steady(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_idle(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_pace(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_path(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_table(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_archive(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_growth(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_dedup(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_rules(struct bench *bench, struct err *err) MUST_CHECK;
bool bench_inbox(struct bench *bench, struct err *err) MUST_CHECK;
/* `outbox-relay-bench consume KIND`: a consumer that the part inbox measures as a child process. */
struct bench_consumption {
	const char *kind, *topic;
	const char *claims, *report; /* lines, as in inbox.h; NULL: none */
	int64_t messages;
};
bool bench_consume(const struct kafka_settings *kafka, const struct bench_consumption *what,
    struct err *err) MUST_CHECK;
/* `outbox-relay-bench open`: a bare producer to topics PREFIX-0, PREFIX-1 and so on; prints its
 * memory in bytes. */
bool bench_open(const struct kafka_settings *kafka, const char *partitions, const char *prefix,
    int64_t topics, struct err *err) MUST_CHECK;
/*
 * No part of the bench, but the limit that drain is compared with: publishes the table's rows and
 * ends. bare: without the relay's headers.
 */
bool bench_limit(const struct publisher_settings *publisher, const char *topic, bool bare,
    struct err *err) MUST_CHECK;
