/*
 * The stores, on the same ids, through the public interface: batches of new ids, then the same ids
 * again; redis is compared with the pipelined SETs of redis-benchmark.
 */
#include "bench_dedup.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "dedup.h"
#include "outbox_error.h"
#include "redis.h"
#include "text.h"

enum { BATCH = 1000, DURABLE = 100000, ROOM = 64, DAY_MS = 86400000, SERVER_MS = 60000 };

/* How the ids of a store are written. */
enum ids { IDS_TEXT, IDS_INTEGER, IDS_POSITION };

struct batch {
	char texts[BATCH][ROOM];
	struct outbox_dedup_id ids[BATCH];
	enum outbox_dedup_state states[BATCH];
};

struct figures {
	int64_t check_us, done_us, again_us;
	struct outbox_dedup_stats stats;
};

/*
 * The records' times are spread over the window, so that each slice gets its planned number of ids.
 */
static void name_batch_ids(struct batch *batch, enum ids kind, int64_t first, int64_t ids)
{
	static const char *const forms[] = {
	    "%08llx-d9cb-469f-a165-%012llx", "%llu", "2:main:5eed5eed:0:7:1:%llu"};
	int64_t begin_ms = clock_wall_us() / 1000 - DAY_MS;

	for (int i = 0; i < BATCH; i++) {
		unsigned long long number = (unsigned long long)(first + i);
		int length = kind == IDS_TEXT
				 ? snprintf(batch->texts[i], ROOM, forms[kind],
				       (unsigned long long)(uint32_t)(number * 2654435761U), number)
				 : snprintf(batch->texts[i], ROOM, forms[kind], number);
		batch->ids[i] = (struct outbox_dedup_id){batch->texts[i], (size_t)length,
		    begin_ms + DAY_MS * (first + i) / ids, first + i};
	}
}

static int64_t count_new(const struct batch *batch)
{
	int64_t count = 0;
	for (int i = 0; i < BATCH; i++)
		count += batch->states[i] == OUTBOX_DEDUP_NEW;
	return count;
}

/* A lossy store takes some new ids for done ones, and these cannot be marked as done. */
static size_t keep_new(struct batch *batch)
{
	size_t kept = 0;
	for (size_t i = 0; i < BATCH; i++)
		if (batch->states[i] == OUTBOX_DEDUP_NEW)
			batch->ids[kept++] = batch->ids[i];
	return kept;
}

static bool add_new_ids(struct outbox_dedup *dedup, enum ids kind, int64_t ids,
    struct figures *figures, struct err *err)
{
	static struct batch batch;
	struct outbox_error error;

	for (int64_t first = 0; first < ids; first += BATCH) {
		name_batch_ids(&batch, kind, first, ids);
		int64_t begin = clock_us();
		if (!outbox_dedup_check(dedup, batch.ids, BATCH, batch.states, &error))
			return outbox_error_take(&error, err);
		int64_t middle = clock_us();
		size_t kept = keep_new(&batch);
		if (!outbox_dedup_done(dedup, batch.ids, kept, &error))
			return outbox_error_take(&error, err);
		/* durable now and then, as when a consumer commits; done_us includes it */
		if ((first + BATCH) % DURABLE == 0 &&
		    !outbox_dedup_checkpoint(dedup, first + BATCH, &error))
			return outbox_error_take(&error, err);
		figures->check_us += middle - begin;
		figures->done_us += clock_us() - middle;
		if (!bench_goes_on(err))
			return false;
	}
	return true;
}

static bool check_ids_again(struct outbox_dedup *dedup, enum ids kind, int64_t ids,
    struct figures *figures, struct err *err)
{
	static struct batch batch;
	struct outbox_error error;

	for (int64_t first = 0; first < ids; first += BATCH) {
		name_batch_ids(&batch, kind, first, ids);
		int64_t begin = clock_us();
		if (!outbox_dedup_check(dedup, batch.ids, BATCH, batch.states, &error))
			return outbox_error_take(&error, err);
		figures->again_us += clock_us() - begin;
		/* a store may take a new id for a done one, but never the other way round */
		if (count_new(&batch) > 0)
			return err_set(err, ERR_FATAL, "an id was forgotten");
		if (!bench_goes_on(err))
			return false;
	}
	return true;
}

/* ids: a multiple of BATCH. */
static bool run_store(
    const char *line, enum ids kind, int64_t ids, struct figures *ret_figures, struct err *err)
{
	struct outbox_error error;
	*ret_figures = (struct figures){0};
	struct outbox_dedup *dedup = outbox_dedup_open(line, &error);
	if (!dedup)
		return outbox_error_take(&error, err);
	bool good = add_new_ids(dedup, kind, ids, ret_figures, err) &&
		    check_ids_again(dedup, kind, ids, ret_figures, err);
	outbox_dedup_stats(dedup, &ret_figures->stats);
	outbox_dedup_close(dedup);
	return good;
}

/* --- local stores --------------------------------------------------------------------------- */

static const struct local {
	const char *line; /* ids and path are added */
	enum ids kind;
	double most_bytes; /* maximum bytes of memory per id; 0: not judged */
	const char *name;  /* in the figures; NULL: that of the store */
} locals[] = {
    {"bloom rate=0.1%", IDS_TEXT, 0},
    {"exact", IDS_TEXT, 40},
    {"counting lossy rate=0.1%", IDS_TEXT, 0},
    {"bitmap", IDS_INTEGER, 0},
    {"bitmap window=24h", IDS_INTEGER, 0, "bitmap window=24h"},
    {"bitmap lossy form=hash", IDS_TEXT, 0},
    {"bitmap lossy form=hash window=24h slices=1", IDS_TEXT, 0, "bitmap form=hash window=24h"},
    {"sequence", IDS_POSITION, 0},
};

static void tell_store_figures(
    struct bench *bench, const struct local *local, const struct figures *figures, int64_t ids)
{
	const char *store = local->name ? local->name : figures->stats.store;
	double many = (double)ids, memory = (double)figures->stats.memory_bytes / many;
	char names[4][80];

	snprintf(names[0], sizeof names[0], "%s: a new id, checked and done", store);
	snprintf(names[1], sizeof names[1], "%s: a copy of it, checked", store);
	snprintf(names[2], sizeof names[2], "%s: memory, an id", store);
	snprintf(names[3], sizeof names[3], "%s: disk, an id", store);
	bench_tell(
	    bench, names[0], "ns", (double)(figures->check_us + figures->done_us) * 1000 / many);
	bench_tell(bench, names[1], "ns", (double)figures->again_us * 1000 / many);
	if (local->most_bytes > 0)
		bench_judge(bench, names[2], "bytes", memory, '<', local->most_bytes);
	else
		bench_tell(bench, names[2], "bytes", memory);
	bench_tell(bench, names[3], "bytes", (double)figures->stats.disk_bytes / many);
}

static bool measure_local(struct bench *bench, const struct local *local, struct err *err)
{
	char path[256];
	struct figures figures;
	int64_t ids = bench->options.ids / BATCH * BATCH;

	if (!bench_dedup_folder(path, sizeof path, err))
		return false;

	bool takes_ids = local->kind != IDS_POSITION;
	owned_text char *line =
	    takes_ids ? xformat("%s ids=%lld path=%s", local->line, (long long)ids, path)
		      : xformat("%s path=%s", local->line, path);
	bench_say("%s", line);
	bool good = run_store(line, local->kind, ids, &figures, err);
	if (good)
		tell_store_figures(bench, local, &figures, ids);
	bench_dedup_remove(path);
	return good;
}

/* --- redis ---------------------------------------------------------------------------------- */

static bool read_rate(FILE *output, double *ret_rate)
{
	char line[1000];
	bool found = false;
	while (fgets(line, sizeof line, output))
		found |= sscanf(line, "\"SET\",\"%lf\"", ret_rate) == 1;
	return found;
}

/* Runs redis-benchmark with one connection and pipelines as long as ours. */
static bool run_redis_benchmark(const char *url, int64_t sets, double *ret_rate, struct err *err)
{
	int ends[2];
	owned_text char *count = xformat("%lld", (long long)sets);
	owned_text char *pipeline = xformat("%d", BATCH);

	if (pipe(ends))
		return err_set(err, ERR_RETRY, "no pipe can be made");

	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execlp("redis-benchmark", "redis-benchmark", "-u", url, "-t", "set", "-n", count,
		    "-r", "100000000", "-c", "1", "-P", pipeline, "--csv", NULL);
		_exit(127);
	}
	close(ends[1]);
	owned_file FILE *output = fdopen(ends[0], "r");
	int status = -1;
	/* read to the end before the wait: a full pipe would stop the child */
	bool found = child > 0 && read_rate(output, ret_rate);
	if (child > 0)
		waitpid(child, &status, 0);
	return (found && status == 0) ||
	       err_set(err, ERR_CONFIG,
		   "redis-benchmark did not run: install redis-tools, and give --redis an address "
		   "that it understands");
}

static bool connect_to_redis(const char *url, struct redis **ret_redis, struct err *err)
{
	struct redis_address address;
	*ret_redis = redis_address_parse(&(struct redis_access){.url = (char *)url}, &address, err)
			 ? redis_connect(&address, SERVER_MS, err)
			 : NULL;
	redis_address_finish(&address);
	return *ret_redis;
}

static void keep_number(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	*(int64_t *)context = answer->number;
}

static bool count_keys(const char *url, int64_t *ret_keys, struct err *err)
{
	OWNED(owned_redis_destroy) struct redis *redis = NULL;
	if (!connect_to_redis(url, &redis, err))
		return false;
	redis_sayf(redis, "DBSIZE");
	return redis_hear(redis, SERVER_MS, keep_number, ret_keys, err);
}

struct redis_rates {
	double check[BENCH_MOST_RUNS], done[BENCH_MOST_RUNS], both[BENCH_MOST_RUNS];
	double again[BENCH_MOST_RUNS], sets[BENCH_MOST_RUNS];
};

static void keep_foreign(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	if (answer->kind == REDIS_TEXT)
		*(char **)context = xstrdup(answer->text);
}

/*
 * The server copies its table when the table grows, in both measurements: so each begins with an
 * empty one. Keys that somebody else has written meanwhile are not removed; they end the
 * measurement.
 */
static bool empty_redis(const char *url, bool may, struct err *err)
{
	static const char script[] =
	    "local cursor = '0' "
	    "repeat "
	    "local page = redis.call('SCAN', cursor, 'COUNT', 1000) "
	    "for _, key in ipairs(page[2]) do "
	    "if key:sub(1, #KEYS[1]) ~= KEYS[1] and not key:match('^key:%d+$') then return key end "
	    "end "
	    "cursor = page[1] "
	    "until cursor == '0' "
	    "redis.call('FLUSHDB') "
	    "return 1";
	owned_text char *ours = xformat("b%d-", (int)getpid()), *foreign = NULL;
	OWNED(owned_redis_destroy) struct redis *redis = NULL;
	const struct redis_word words[] = {
	    redis_word("EVAL"), redis_word(script), redis_word("1"), redis_word(ours)};

	/* keys of somebody else were there before: nothing is removed at all */
	if (!may)
		return true;
	if (!connect_to_redis(url, &redis, err))
		return false;

	redis_say(redis, words, 4);
	if (!redis_hear(redis, SERVER_MS, keep_foreign, &foreign, err))
		return false;
	return !foreign || err_set(err, ERR_CONFIG,
			       "--redis: somebody uses this database, whose key %.60s came after "
			       "the begin: name one that is the bench's own, as …/9",
			       foreign);
}

static bool measure_turn(const char *url, bool may_empty, int turn, int64_t ids,
    struct redis_rates *rates, struct err *err)
{
	struct figures figures;
	owned_text char *line =
	    xformat("redis name=b%d-%d window=10m url=%s", (int)getpid(), turn, url);

	if (!empty_redis(url, may_empty, err) ||
	    !run_redis_benchmark(url, ids, &rates->sets[turn], err) ||
	    !empty_redis(url, may_empty, err) || !run_store(line, IDS_TEXT, ids, &figures, err))
		return false;

	rates->check[turn] = (double)ids * 1e6 / (double)figures.check_us;
	rates->done[turn] = (double)ids * 1e6 / (double)figures.done_us;
	/* check and done send one command each per id */
	rates->both[turn] = 2.0 * (double)ids * 1e6 / (double)(figures.check_us + figures.done_us);
	rates->again[turn] = (double)ids * 1e6 / (double)figures.again_us;
	return true;
}

static bool measure_redis(struct bench *bench, const char *url, struct err *err)
{
	struct redis_rates rates;
	struct err after;
	bool good = true;
	int64_t ids = bench->options.ids / 10 / BATCH * BATCH, keys;
	int runs = (int)bench->options.pairs;

	if (!count_keys(url, &keys, err))
		return false;
	if (keys == 0)
		bench_say("redis: the database is empty, and is emptied after each measurement");
	else
		bench_say("redis: the database has %lld keys and is not emptied between turns, so "
			  "that figures depend on when its tables grow: an empty one (…/9) "
			  "measures better",
		    (long long)keys);
	for (int turn = 0; good && turn < runs; turn++)
		good = measure_turn(url, keys == 0, turn, ids, &rates, err);
	if (!empty_redis(url, keys == 0, good ? err : &after) || !good)
		return false;

	bench_judge_pairs(bench, "redis: new ids checked, beside SETs of redis-benchmark", "ids/s",
	    rates.check, rates.sets, runs, '>', 0.5);
	bench_judge_pairs(bench, "redis: ids made done, beside SETs of redis-benchmark", "ids/s",
	    rates.done, rates.sets, runs, '>', 0.5);
	bench_judge_pairs(bench, "redis: commands of both, beside SETs of redis-benchmark",
	    "commands/s", rates.both, rates.sets, runs, '>', 0.5);
	bench_tell(bench, "redis: copies checked", "ids/s", bench_median(rates.again, runs));
	return true;
}

bool bench_dedup_stores(struct bench *bench, struct err *err)
{
	for (size_t i = 0; i < sizeof locals / sizeof *locals; i++)
		if (!measure_local(bench, &locals[i], err))
			return false;
	if (bench->options.redis)
		return measure_redis(bench, bench->options.redis, err);
	bench_say("redis is not measured: name a server with --redis");
	return true;
}
