/*
 * lookback: pairs of prepare and commit, in a table with and without undecided ones. The topic of
 * prepares and decisions is filled before its relay starts, so that the application takes no CPU
 * from the measured relay. The journal shows how far the two records of a pair are apart.
 */
#include "bench_lookback.h"

#include <stdio.h>
#include <string.h>
#include "clock.h"
#include "progress.h"
#include "schema_text.h"
#include "sql_bench.h"
#include "text.h"

enum {
	STILL_MS = 120000, /* timeout without any progress */
	SHORT_PAIRS = 100000,
	FILL = 10000,
	ANSWER_MS = 10000,
};

/* --- the relay and its tables ---------------------------------------------------------------- */

/* A producer does not outlive its topic. */
bool bench_lookback_fresh(struct bench_lookback *look, struct err *err)
{
	bench_talk_destroy(look->talk);
	look->talk = NULL;
	return bench_fresh_topic(&look->source, err) &&
	       (look->talk = bench_talk_create(&look->source, look->bench->topic, err));
}

bool bench_lookback_empty(struct bench *place, struct err *err)
{
	return bench_empty_table(place, err) &&
	       bench_script(place, sql_bench_lookback_empty, err) &&
	       bench_fresh_topic(place, err) && bench_rewind(place, BENCH_BEGINNING, err);
}

static void write_sections(struct bench_lookback *look, const struct bench *place,
    const struct bench_asks *asks, struct text *out)
{
	/* the first of two readers learns of the second before the measurement begins */
	text_add(out, "[kafka \"main\"]\nheartbeat.interval.ms = 300\n");
	text_addf(out,
	    "[lookback \"bench\"]\ntopic = %s\ngroup = %s\ntypes = " BENCH_PAIR ", " BENCH_OVERDUE
	    "\ntopics = %s\ndead_letter = %s-dead\ncheck = bench\ncheck_after = 1d\nreaders = %d\n",
	    look->source.topic, place->schema, place->topic, place->topic, look->readers);
	text_addf(out,
	    "[check \"bench\"]\ntransport = %s\nurl = http://127.0.0.1:%d\n"
	    "networks = 127.0.0.0/8\nbatch = %d\nrate = 0\n",
	    asks && asks->grpc ? "grpc" : "http", asks ? bench_business_port(asks->business) : 9,
	    asks ? asks->batch : 1);
}

bool bench_lookback_run(struct bench_lookback *look, struct bench *place,
    const struct bench_asks *asks, struct bench_child *child, struct err *err)
{
	OWNED(text_finish) struct text sections = {0};

	write_sections(look, place, asks, &sections);
	return bench_child_run(place, child, text_string(&sections), err);
}

bool bench_lookback_ask(struct bench *place, const char *sql, const struct pg_param *params,
    int count, int64_t *ret_value, struct err *err)
{
	owned_text char *text = schema_text(sql, place->schema);
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = pg_query(place->pg, text, params, count, err);

	if (!row)
		return false;

	/* null: a condition of the query does not hold, and a figure would be wrong */
	if (pg_rows(row) != 1 || pg_is_null(row, 0, 0))
		return err_set(
		    err, ERR_FATAL, "not everything was resolved, or not by what was to do it");
	*ret_value = pg_int(row, 0, 0);
	return true;
}

/* --- pairs ----------------------------------------------------------------------------------- */

/* A little more than half of the pairs, because the first ones may be read less than a second
 * apart. */
static bool is_far(int64_t n)
{
	return n % 2 || n % 32 == 0;
}

/*
 * A commit follows its prepare at once or, for the far pairs, after a quarter of all pairs, because
 * the reader may take one partition's records much earlier than another's.
 */
static bool say_pairs(struct bench_talk *talk, int64_t first, int64_t count, struct err *err)
{
	int64_t far = count / 8 * 2;
	struct progress progress;
	bool good = true;

	progress_begin(&progress, "pairs said");
	for (int64_t n = 0; good && n < count + far; n++) {
		if (n < count)
			good = bench_talk_prepare(talk, first + n, err) &&
			       (is_far(n) || bench_talk_commit(talk, first + n, err));
		if (good && n >= far && is_far(n - far))
			good = bench_talk_commit(talk, first + n - far, err);
		good = good && bench_goes_on(err) && bench_talk_step(talk, 0, err);
		progress_step(&progress, n < count ? n : count);
	}
	progress_end(&progress);
	return good && bench_talk_flush(talk, err);
}

/* Waits until that many came, as long as there is progress. */
static bool wait_for_pairs(const struct bench_watch *watch, int64_t count, struct err *err)
{
	for (int64_t seen = 0; seen < count; seen = bench_watch_count(watch)) {
		int64_t next = seen + 1;

		if (!bench_watch_wait(watch, next, STILL_MS, err))
			return false;
		usleep(50000);
	}
	return true;
}

struct passed {
	double rate, peak_kib;
	struct bench_cpu cpu;
};

/* Runs a relay that takes the sent records: that many pairs, up to number `end`. */
static bool pass_pairs(struct bench_lookback *look, struct bench *place, int64_t count, int64_t end,
    struct passed *ret_passed, struct err *err)
{
	struct bench_child child = {0};
	struct bench_watch *watch = NULL;
	struct bench_seen seen;
	bool good = bench_empty_table(place, err) && bench_fresh_topic(place, err) &&
		    bench_rewind(place, BENCH_BEGINNING, err) &&
		    (watch = bench_watch_start(place, end, err)) &&
		    bench_lookback_run(look, place, NULL, &child, err) &&
		    wait_for_pairs(watch, count, err) &&
		    bench_child_cpu(place, &child, &ret_passed->cpu, err);

	bench_child_stop(&child);
	bench_watch_stop(watch);
	if (!good || !bench_read_topic(place, count, &seen, err))
		return false;
	ret_passed->rate = (double)seen.records * 1000 / (double)(seen.last_ms - seen.first_ms + 1);
	ret_passed->peak_kib = child.peak_kib;
	bench_say("%.0f pairs/s, CPU %.2f s and %.2f s of its sessions, %.1f MiB", ret_passed->rate,
	    ret_passed->cpu.relay, ret_passed->cpu.backends, ret_passed->peak_kib / 1024);
	return true;
}

static bool measure_pairs(struct bench_lookback *look, struct err *err)
{
	static const struct pg_param type[] = {{BENCH_PAIR}};
	struct bench *bench = look->bench;
	int64_t count = bench->options.said, apart;
	struct passed passed;

	if (!bench_lookback_fresh(look, err) || !bench_lookback_empty(bench, err) ||
	    !say_pairs(look->talk, 0, count, err) ||
	    !pass_pairs(look, bench, count, count, &passed, err) ||
	    !bench_lookback_ask(bench, sql_bench_lookback_apart, type, 1, &apart, err))
		return false;
	bench_judge(bench, "look-back, prepare and commit", "pairs/s", passed.rate, '>', 10000);
	bench_judge(bench, "of them at least a second apart", "%",
	    100 * (double)apart / (double)count, '>', 50);
	bench_tell(bench, "CPU of it, a million pairs, relay", "s",
	    passed.cpu.relay * 1e6 / (double)count);
	bench_tell(bench, "CPU of it, a million pairs, sessions", "s",
	    passed.cpu.backends * 1e6 / (double)count);
	return true;
}

/* --- undecided ------------------------------------------------------------------------------- */

static bool fill_undecided(struct bench *place, int64_t count, struct err *err)
{
	owned_text char *sql = schema_text(sql_bench_lookback_undecided, place->schema);
	owned_text char *partitions = xformat("%d", BENCH_PARTITIONS);
	struct progress progress;
	bool good = true;

	progress_begin(&progress, "undecided prepares written");
	for (int64_t done = 0; good && done < count; done += FILL) {
		owned_text char *first = xformat("%lld", (long long)done);
		owned_text char *batch =
		    xformat("%lld", (long long)(count - done < FILL ? count - done : FILL));
		const struct pg_param params[] = {
		    {"bench"}, {BENCH_PAIR}, {place->topic}, {first}, {batch}, {partitions}};

		good = bench_goes_on(err) && pg_execute(place->pg, sql, params, 6, err);
		progress_step(&progress, done);
	}
	progress_end(&progress);
	return good;
}

/* Write-back and clean-up happen for both places, outside of their runs. */
static bool settle_places(struct bench *const places[2], struct err *err)
{
	for (int i = 0; i < 2; i++)
		if (!bench_script_alone(places[i], sql_bench_lookback_vacuum, err) ||
		    !bench_settle(places[i], err))
			return false;
	return true;
}

/*
 * Both places read the same topic, each from its own offset, and keep their earlier rows, so they
 * differ only in the undecided prepares. Turn -1 comes first and counts for the memory only; after
 * it both places have been written to alike.
 */
static bool measure_turns(struct bench_lookback *look, struct bench *const places[2], int runs,
    int64_t count, double rates[2][BENCH_MOST_RUNS], double *ret_peak_kib, struct err *err)
{
	*ret_peak_kib = 0;
	for (int run = -1; run < runs; run++) {
		int64_t first = (run + 1) * count;

		if (!say_pairs(look->talk, first, count, err) || !settle_places(places, err))
			return false;
		for (int turn = 0; turn < 2; turn++) {
			int which = turn == (run & 1);
			struct passed passed;

			if (!pass_pairs(look, places[which], count, first + count, &passed, err))
				return false;
			if (run >= 0)
				rates[which][run] = passed.rate;
			if (which == 1 && passed.peak_kib > *ret_peak_kib)
				*ret_peak_kib = passed.peak_kib;
		}
	}
	return true;
}

static bool measure_in(struct bench_lookback *look, struct bench *const places[2], struct err *err)
{
	struct bench *bench = look->bench;
	const struct bench_options *options = &bench->options;
	int64_t count = options->said < SHORT_PAIRS ? options->said : SHORT_PAIRS;
	int runs = (int)options->pairs;
	double rates[2][BENCH_MOST_RUNS], peak_kib;
	char name[80];

	if (!bench_lookback_fresh(look, err) || !bench_lookback_empty(bench, err) ||
	    !bench_script(places[0], sql_bench_still, err) ||
	    !bench_script(places[1], sql_bench_still, err) ||
	    !fill_undecided(places[1], options->undecided, err) ||
	    !measure_turns(look, places, runs, count, rates, &peak_kib, err))
		return false;
	snprintf(
	    name, sizeof name, "beside %lld undecided prepares", (long long)options->undecided);
	bench_judge_pairs(bench, name, "pairs/s", rates[1], rates[0], runs, '>', 0.95);
	bench_judge(bench, "peak memory beside them", "MiB", peak_kib / 1024, '<', 96);
	return true;
}

static bool measure_undecided(struct bench_lookback *look, struct err *err)
{
	struct bench without, with;
	bool good = bench_place_beside(look->bench, 2, &without, err);

	if (good) {
		good = bench_place_beside(look->bench, 3, &with, err) &&
		       measure_in(look, (struct bench *const[]){&without, &with}, err);
		/* also after a failure: bench_place_beside may have made a part of it */
		bench_schema_drop(&with);
	}
	bench_schema_drop(&without);
	return good;
}

/* --- the part -------------------------------------------------------------------------------- */

static void remove_topic(struct bench *source)
{
	struct err err;

	if (!topic_metadata_delete_topic(source->metadata, source->topic, ANSWER_MS, &err) &&
	    err.kind != ERR_REJECT)
		bench_say("topic %s stays behind: %s", source->topic, err.message);
}

bool bench_lookback(struct bench *bench, struct err *err)
{
	struct bench_lookback look = {.bench = bench, .source = *bench, .readers = 2};
	bool good;

	snprintf(
	    look.source.topic, sizeof look.source.topic, "outbox-bench-%d-lookback", (int)getpid());
	look.source.has_topic = false;
	good = measure_pairs(&look, err) && measure_undecided(&look, err) &&
	       bench_lookback_latency(&look, err) && bench_lookback_checks(&look, err);
	bench_talk_destroy(look.talk);
	remove_topic(&look.source);
	return good;
}
