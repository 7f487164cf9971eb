/*
 * path: where the time of a message goes, from the return of COMMIT in the writer to a consumer. A
 * relay that was built with fault points writes the time of each step (trace.h); its clock is that
 * of this process. [trace] reads the steps, [stages] turns them into the stages of each message.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum stage { WAIT, TICK, HAND_OVER, ACKNOWLEDGE, SETTLE, COMMIT, FETCH, WHOLE, STAGES };

static const char *const stage_names[STAGES] = {
    [WAIT] = "commit to the next tick",
    [TICK] = "tick, with its commit",
    [HAND_OVER] = "rows to the Kafka client",
    [ACKNOWLEDGE] = "client to acknowledgement",
    [SETTLE] = "acknowledgement to commit",
    [COMMIT] = "commit of the transaction",
    [FETCH] = "client to consumer",
    [WHOLE] = "commit to consumer",
};

/* The steps of one record, in microseconds; 0: not in the trace. */
struct steps {
	int64_t id, asked, answered, sent, acknowledged, committing, committed;
};

struct path {
	struct bench *bench;
	struct steps *steps; /* by sequence */
	size_t count;
	double *spans[STAGES];
	int64_t spanned;
	int64_t rate;
	/* state of the reader of the trace */
	int64_t asked, committing;
	int64_t uncommitted, last, sent; /* sequences; the commit in flight ends with last */
};

/* --- the trace ------------------------------------------------------------------------------- */

static struct steps *steps_at(struct path *path, int64_t sequence)
{
	if ((size_t)sequence >= path->count) {
		size_t count = (size_t)sequence * 2 + 1024;

		path->steps = xrealloc(path->steps, count * sizeof *path->steps);
		memset(path->steps + path->count, 0, (count - path->count) * sizeof *path->steps);
		path->count = count;
	}
	return &path->steps[sequence];
}

static void take_trace_commit(struct path *path, int64_t now)
{
	for (; path->uncommitted <= path->last; path->uncommitted++) {
		steps_at(path, path->uncommitted)->committing = path->committing;
		steps_at(path, path->uncommitted)->committed = now;
	}
}

static void take_trace_step(
    struct path *path, const char *name, int64_t number, int64_t other, int64_t now)
{
	if (text_equal(name, "asked"))
		path->asked = now;
	if (text_equal(name, "committing")) {
		path->committing = now;
		path->last = path->sent;
	}
	if (text_equal(name, "committed"))
		take_trace_commit(path, now);

	for (int64_t n = number; text_equal(name, "answered") && n < other; n++) {
		steps_at(path, n)->asked = path->asked;
		steps_at(path, n)->answered = now;
	}

	if (text_equal(name, "sent")) {
		steps_at(path, number)->sent = now;
		steps_at(path, number)->id = other;
		path->sent = number;
	}
	if (text_equal(name, "acknowledged"))
		steps_at(path, number)->acknowledged = now;
}

static bool read_trace(struct path *path, struct err *err)
{
	owned_file FILE *file = fopen(path->bench->trace, "re");
	char line[128], name[16];
	int count = 0;

	while (file && fgets(line, sizeof line, file)) {
		long long number, other, now;

		if (sscanf(line, "%15s %lld %lld %lld", name, &number, &other, &now) != 4 ||
		    number < 0)
			continue;
		take_trace_step(path, name, number, other, now);
		count++;
	}
	return count > 0 || err_set(err, ERR_REJECT,
				"%s writes no trace: build it with -Dfault_points=true, and name "
				"it with --relay",
				path->bench->relay);
}

/* --- stages ---------------------------------------------------------------------------------- */

/* The number of each id; *ret_most: the highest id. */
static bool read_numbers(
    struct path *path, int64_t **ret_numbers, int64_t *ret_most, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_numbers, path->bench->schema);
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = pg_query(path->bench->pg, sql, NULL, 0, err);

	if (!rows)
		return false;
	*ret_most = pg_rows(rows) ? pg_int(rows, 0, 0) : 0;
	*ret_numbers = xcalloc((size_t)*ret_most + 1, sizeof **ret_numbers);
	for (int row = 0; row < pg_rows(rows); row++)
		(*ret_numbers)[pg_int(rows, row, 0)] = pg_int(rows, row, 1);
	return true;
}

static void add_span(struct path *path, enum stage stage, int64_t from, int64_t to)
{
	/* a tick may begin, and a record arrive, before COMMIT has returned to the writer */
	path->spans[stage][path->spanned] = to > from ? (double)(to - from) / 1000 : 0;
}

static void add_traced_message(
    struct path *path, const struct steps *steps, int64_t committed, int64_t seen)
{
	add_span(path, WAIT, committed, steps->asked);
	add_span(path, TICK, steps->asked, steps->answered);
	add_span(path, HAND_OVER, steps->answered, steps->sent);
	add_span(path, ACKNOWLEDGE, steps->sent, steps->acknowledged);
	add_span(path, SETTLE, steps->acknowledged, steps->committing);
	add_span(path, COMMIT, steps->committing, steps->committed);
	add_span(path, FETCH, steps->sent, seen);
	add_span(path, WHOLE, committed, seen);
	path->spanned++;
}

struct visit {
	struct path *path;
	bool good;
	struct err err;
};

static void visit_times(
    void *context, const struct bench_watch *watch, const int64_t *committed_us, int64_t numbers)
{
	struct visit *visit = context;
	struct path *path = visit->path;
	int64_t *numbers_by_id = NULL, most = 0, warm = committed_us[1] + 1000000;

	visit->good =
	    read_trace(path, &visit->err) && read_numbers(path, &numbers_by_id, &most, &visit->err);
	for (size_t stage = 0; visit->good && stage < STAGES; stage++)
		path->spans[stage] = xcalloc((size_t)numbers, sizeof **path->spans);
	for (size_t i = 0; visit->good && i < path->count; i++) {
		const struct steps *steps = &path->steps[i];
		int64_t number = steps->id > 0 && steps->id <= most ? numbers_by_id[steps->id] : 0;
		int64_t seen = number > 0 && number < numbers ? bench_watch_seen(watch, number) : 0;

		/* rows that were read by pages have no answer of a tick */
		if (seen && steps->answered && steps->acknowledged && committed_us[number] >= warm)
			add_traced_message(path, steps, committed_us[number], seen);
	}
	free(numbers_by_id);
}

static void tell_stages(struct path *path)
{
	int64_t count = path->spanned;

	for (int stage = 0; stage < STAGES; stage++) {
		bool exact = path->bench->delivery == DELIVERY_EXACTLY_ONCE;
		const char *prefix = exact ? "exactly-once, " : "";
		char name[80];
		double *spans = path->spans[stage];

		if (!exact && (stage == SETTLE || stage == COMMIT))
			continue;

		bench_median(spans, (int)count); /* sorts them */
		snprintf(name, sizeof name, "%s%s at %lld/s, p50", prefix, stage_names[stage],
		    (long long)path->rate);
		bench_tell(path->bench, name, "ms", spans[count / 2]);
		snprintf(name, sizeof name, "%s%s at %lld/s, p99", prefix, stage_names[stage],
		    (long long)path->rate);
		bench_tell(path->bench, name, "ms", spans[count * 99 / 100]);
	}
}

static bool measure_path(struct bench *bench, int64_t rate, struct err *err)
{
	static const struct bench_side side = {.name = "relay"};
	struct path path = {.bench = bench, .rate = rate};
	struct visit visit = {.path = &path};
	struct bench_latency latency;
	bool good = bench_visit_latency(bench, &side, rate, 1, &latency, visit_times, &visit, err);

	unlink(bench->trace);
	if (good && !visit.good)
		*err = visit.err;
	good = good && visit.good;
	if (good && path.spanned == 0)
		good = err_set(err, ERR_FATAL, "no message of the trace was seen");
	if (good)
		tell_stages(&path);
	for (int stage = 0; stage < STAGES; stage++)
		free(path.spans[stage]);
	free(path.steps);
	return good;
}

bool bench_path(struct bench *bench, struct err *err)
{
	static const int64_t rates[] = {100, 1000, 5000};
	const char *folder = getenv("TMPDIR");
	owned_text char *file =
	    xformat("%s/outbox-bench-%d.trace", folder ? folder : "/tmp", (int)getpid());
	bool good = true;

	bench->trace = file;
	if (bench->options.rate)
		good = measure_path(bench, bench->options.rate, err);
	for (size_t i = 0; !bench->options.rate && good && i < sizeof rates / sizeof *rates; i++)
		good = measure_path(bench, rates[i], err);

	bench->delivery = DELIVERY_EXACTLY_ONCE;
	good = good && measure_path(bench, bench->options.rate ? bench->options.rate : 1000, err);
	/* in any case, since later kinds use the same bench */
	bench->delivery = DELIVERY_AT_LEAST_ONCE;
	bench->trace = NULL;
	return good;
}
