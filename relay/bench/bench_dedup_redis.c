/*
 * The store redis, on one server and on a cluster. One server is compared with the pipelined SETs
 * of redis-benchmark, the cluster with the one server.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench_dedup.h"
#include "cleanup.h"
#include "redis.h"
#include "text.h"

enum { BATCH = BENCH_DEDUP_BATCH, SERVER_MS = 60000 };

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

/* --- servers -------------------------------------------------------------------------------- */

typedef bool use_server(struct redis *redis, void *context, struct err *err);

/* The server of the url, or each node of a cluster that it names. */
static bool for_each_server(const char *url, use_server *use, void *context, struct err *err)
{
	struct redis_address address, node;
	bool good = redis_address_parse(&(struct redis_access){.url = (char *)url}, &address, err);

	for (int i = 0; good && i < address.seed_count; i++) {
		redis_address_copy(&address, address.seeds[i].host, address.seeds[i].port, &node);
		OWNED(owned_redis_destroy)
		struct redis *redis = redis_connect(&node, SERVER_MS, err);
		good = redis && use(redis, context, err);
		redis_address_finish(&node);
	}
	redis_address_finish(&address);
	return good;
}

static void add_number(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	*(int64_t *)context += answer->number;
}

static bool count_keys(struct redis *redis, void *context, struct err *err)
{
	redis_sayf(redis, "DBSIZE");
	return redis_hear(redis, SERVER_MS, add_number, context, err);
}

static void keep_foreign(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	if (answer->kind == REDIS_TEXT)
		*(char **)context = xstrdup(answer->text);
}

/* context: the prefix of the bench's keys. */
static bool empty_server(struct redis *redis, void *context, struct err *err)
{
	/* by ARGV: a key would have to lie in a hash slot of this node */
	static const char script[] =
	    "local cursor = '0' "
	    "repeat "
	    "local page = redis.call('SCAN', cursor, 'COUNT', 1000) "
	    "for _, key in ipairs(page[2]) do "
	    "if key:sub(1, #ARGV[1]) ~= ARGV[1] and not key:match('^key:%d+$') then return key end "
	    "end "
	    "cursor = page[1] "
	    "until cursor == '0' "
	    "redis.call('FLUSHDB') "
	    "return 1";
	owned_text char *foreign = NULL;
	const struct redis_word words[] = {
	    redis_word("EVAL"), redis_word(script), redis_word("0"), redis_word(context)};

	redis_say(redis, words, 4);
	if (!redis_hear(redis, SERVER_MS, keep_foreign, &foreign, err))
		return false;
	return !foreign || err_set(err, ERR_CONFIG,
			       "%s: somebody uses this database, whose key %.60s came after the "
			       "begin: name one that is the bench's own, as …/9",
			       redis_place_of(redis), foreign);
}

static void note_missing(void *context, size_t number, const struct redis_answer *answer)
{
	(void)number;
	*(bool *)context |=
	    answer->kind == REDIS_ERROR && text_starts(answer->text, "ERR unknown command");
}

static bool ask_for_redisbloom(struct redis *redis, void *context, struct err *err)
{
	redis_sayf(redis, "BF.CARD outbox-relay-bench");
	return redis_hear_all(redis, SERVER_MS, note_missing, context, err);
}

/* --- measurements --------------------------------------------------------------------------- */

bool bench_redis_begin(struct bench_redis *server, const char *option, struct err *err)
{
	int64_t keys = 0;

	if (!for_each_server(server->url, count_keys, &keys, err))
		return false;
	server->may_empty = keys == 0;
	if (server->may_empty)
		bench_say(
		    "%s: the database is empty, and is emptied after each measurement", option);
	else
		bench_say("%s: the database has %lld keys and is not emptied between turns, so "
			  "that figures depend on when its tables grow: an empty one (…/9) "
			  "measures better",
		    option, (long long)keys);
	return true;
}

/*
 * A server copies its table when the table grows: so each measurement begins with an empty one.
 * Keys that somebody else has written meanwhile are not removed; they end the measurement.
 */
bool bench_redis_empty(const struct bench_redis *server, struct err *err)
{
	owned_text char *ours = xformat("b%d-", (int)getpid());

	return !server->may_empty || for_each_server(server->url, empty_server, ours, err);
}

struct redis_rates {
	double check[BENCH_MOST_RUNS], done[BENCH_MOST_RUNS], both[BENCH_MOST_RUNS];
	double again[BENCH_MOST_RUNS];
};

/* The forms that are measured. With sets, they are compared with redis-benchmark. */
static const struct {
	const char *name, *settings;
	bool sets;
	bool module; /* needs RedisBloom, and is not measured without it */
} forms[] = {
    {"redis", "window=10m", true, false},
    {"redis form=bitmap", "lossy form=bitmap ids=10M", false, false},
    {"redis form=bitmap window", "lossy form=bitmap ids=10M window=5d", false, false},
    {"redis form=bloom", "lossy form=bloom ids=10M", false, true},
    {"redis form=bloom window", "lossy form=bloom ids=10M window=30d", false, true},
};

static bool measure_server(const struct bench_redis *server, int form, int turn, int64_t ids,
    struct redis_rates *rates, struct err *err)
{
	struct bench_dedup_figures figures;
	/* a name belongs to one form */
	owned_text char *line = xformat("redis %s name=b%d-%d-%d url=%s timeout=1m",
	    forms[form].settings, (int)getpid(), form, turn, server->url);

	if (!bench_redis_empty(server, err) ||
	    !bench_dedup_store(line, IDS_TEXT, ids, &figures, err))
		return false;
	rates->check[turn] = (double)ids * 1e6 / (double)figures.check_us;
	rates->done[turn] = (double)ids * 1e6 / (double)figures.done_us;
	/* check and done send one command each per id */
	rates->both[turn] = 2.0 * (double)ids * 1e6 / (double)(figures.check_us + figures.done_us);
	rates->again[turn] = (double)ids * 1e6 / (double)figures.again_us;
	return true;
}

static void tell_server(
    struct bench *bench, int form, struct redis_rates *rates, double *sets, int runs)
{
	const char *name = forms[form].name;
	owned_text char *again = xformat("%s: copies checked", name);

	if (forms[form].sets) {
		bench_judge_pairs(bench, "redis: new ids checked, beside SETs of redis-benchmark",
		    "ids/s", rates->check, sets, runs, '>', 0.5);
		bench_judge_pairs(bench, "redis: ids made done, beside SETs of redis-benchmark",
		    "ids/s", rates->done, sets, runs, '>', 0.5);
		bench_judge_pairs(bench, "redis: commands of both, beside SETs of redis-benchmark",
		    "commands/s", rates->both, sets, runs, '>', 0.5);
	} else {
		owned_text char *both = xformat("%s: new ids checked and made done", name);
		double half[BENCH_MOST_RUNS];
		for (int i = 0; i < runs; i++)
			half[i] = rates->both[i] / 2;
		bench_tell(bench, both, "ids/s", bench_median(half, runs));
	}
	bench_tell(bench, again, "ids/s", bench_median(rates->again, runs));
}

static void tell_cluster(struct bench *bench, int form, struct redis_rates *cluster,
    struct redis_rates *single, int runs)
{
	owned_text char *both =
	    xformat("%s: commands of both in a cluster, beside one server", forms[form].name);
	owned_text char *again =
	    xformat("%s: copies checked in a cluster, beside one server", forms[form].name);

	bench_judge_pairs(bench, both, "commands/s", cluster->both, single->both, runs, '>', 0.7);
	bench_judge_pairs(bench, again, "ids/s", cluster->again, single->again, runs, '>', 0.7);
}

static bool measure_form(struct bench *bench, int form, const struct bench_redis *single,
    const struct bench_redis *cluster, struct err *err)
{
	struct redis_rates rates, of_cluster;
	double sets[BENCH_MOST_RUNS];
	int64_t ids = bench->options.ids / 10 / BATCH * BATCH;
	int runs = (int)bench->options.pairs;

	for (int turn = 0; turn < runs; turn++) {
		if (forms[form].sets &&
		    (!bench_redis_empty(single, err) ||
			!run_redis_benchmark(single->url, ids, &sets[turn], err)))
			return false;
		if (!measure_server(single, form, turn, ids, &rates, err))
			return false;
		if (cluster->url && !measure_server(cluster, form, turn, ids, &of_cluster, err))
			return false;
	}

	tell_server(bench, form, &rates, sets, runs);
	if (cluster->url)
		tell_cluster(bench, form, &of_cluster, &rates, runs);
	return true;
}

bool bench_dedup_redis(struct bench *bench, struct err *err)
{
	struct bench_redis single = {.url = bench->options.redis};
	struct bench_redis cluster = {.url = bench->options.redis_cluster};
	bool lacks_module = false;
	struct err after;
	bool good = true;

	if (!single.url) {
		bench_say("redis is not measured: name a server with --redis");
		return true;
	}
	if (!bench_redis_begin(&single, "redis", err) ||
	    (cluster.url && !bench_redis_begin(&cluster, "redis-cluster", err)))
		return false;

	good =
	    for_each_server(single.url, ask_for_redisbloom, &lacks_module, err) &&
	    (!cluster.url || for_each_server(cluster.url, ask_for_redisbloom, &lacks_module, err));
	for (int form = 0; good && form < (int)(sizeof forms / sizeof *forms); form++) {
		if (forms[form].module && lacks_module)
			bench_say("%s is not measured: a server lacks the module RedisBloom",
			    forms[form].name);
		else
			good = measure_form(bench, form, &single, &cluster, err);
	}
	/* also after a failure, whose error counts */
	bool emptied = bench_redis_empty(&single, good ? err : &after) &&
		       (!cluster.url || bench_redis_empty(&cluster, good ? err : &after));
	return good && emptied;
}
