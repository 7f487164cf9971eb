#include "load.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/*
 * After the last number, in case one more comes twice; without a record at a rate; and in a drain,
 * where a system may have to start and to find out that its former self is dead.
 */
enum { QUIET_US = 1000000, GIVE_UP_US = 30000000, PATIENCE_US = 180000000 };

void load_die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("peers-load: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

int64_t load_clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* --- read: until every number was seen ------------------------------------------------------- */

static void read_all(const struct load_options *options)
{
	struct watch *watch = watch_create(options);
	int64_t last_us = load_clock_us();

	puts("{\"event\": \"ready\"}");
	while (watch_distinct(watch) < options->count || load_clock_us() < last_us + QUIET_US) {
		if (watch_step(watch, 100))
			last_us = load_clock_us();
		if (load_clock_us() > last_us + PATIENCE_US)
			load_die("%lld of %lld records came", (long long)watch_distinct(watch),
			    (long long)options->count);
	}
	printf("{\"event\": \"done\", \"span_us\": %lld, \"twice\": %lld, \"backwards\": %lld}\n",
	    (long long)watch_span_us(watch), (long long)watch_twice(watch),
	    (long long)watch_backwards(watch));
	watch_destroy(watch);
}

/* --- write: at a rate, with the consumer in a thread beside it -------------------------------- */

struct consuming {
	struct watch *watch;
	atomic_int_fast64_t expected; /* -1: not known yet */
};

static void *consume(void *context)
{
	struct consuming *consuming = context;
	int64_t last_us = load_clock_us();

	for (;;) {
		int64_t expected = atomic_load(&consuming->expected);

		if (watch_step(consuming->watch, 100) || expected < 0)
			last_us = load_clock_us();
		if (expected >= 0 && watch_distinct(consuming->watch) >= expected)
			return NULL;
		if (load_clock_us() > last_us + GIVE_UP_US)
			load_die("%lld of %lld records came",
			    (long long)watch_distinct(consuming->watch), (long long)expected);
	}
}

static int compare(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static double percentile_ms(const int64_t *sorted, int64_t count, int percent)
{
	return count ? (double)sorted[count * percent / 100] / 1000 : 0;
}

static void tell(
    const struct load_options *options, const struct watch *watch, const struct written *written)
{
	int64_t count = written->count - written->warm;
	int64_t *commit = calloc((size_t)count + 1, sizeof *commit),
		*sent = calloc((size_t)count + 1, sizeof *sent);

	if (!commit || !sent)
		load_die("out of memory");
	for (int64_t i = 0; i < count; i++) {
		int64_t number = options->first + written->warm + i;
		int64_t span =
		    watch_seen_us(watch, number) - written->committed_us[written->warm + i];

		/* a reader may be faster than COMMIT's way back to the writer */
		commit[i] = span > 0 ? span : 0;
		sent[i] = watch_seen_us(watch, number) - watch_sent_us(watch, number);
	}
	qsort(commit, (size_t)count, sizeof *commit, compare);
	qsort(sent, (size_t)count, sizeof *sent, compare);
	printf("{\"event\": \"done\", \"messages\": %lld, \"held\": %.4f, \"p50\": %.3f, "
	       "\"p99\": %.3f, \"stamp_p50\": %.3f, \"stamp_p99\": %.3f}\n",
	    (long long)count, written->held, percentile_ms(commit, count, 50),
	    percentile_ms(commit, count, 99), percentile_ms(sent, count, 50),
	    percentile_ms(sent, count, 99));
	free(commit);
	free(sent);
}

static void write_and_read(const struct load_options *options)
{
	struct consuming consuming = {.watch = watch_create(options)};
	struct written written;
	pthread_t thread;

	atomic_store(&consuming.expected, -1);
	if (pthread_create(&thread, NULL, consume, &consuming) != 0)
		load_die("no thread can be started");
	puts("{\"event\": \"ready\"}");
	write_at_rate(options, &written);
	atomic_store(&consuming.expected, written.count);
	pthread_join(thread, NULL);
	tell(options, consuming.watch, &written);
	watch_destroy(consuming.watch);
	free(written.committed_us);
}

/* --- the command line --------------------------------------------------------------------------
 */

static void usage(void)
{
	puts("usage: peers-load read --brokers B --topic T --count N [--first N] [--at N]\n"
	     "       peers-load write --brokers B --topic T --dsn D --sql STATEMENT --rate N "
	     "[--warm S] [--seconds S]\n"
	     "STATEMENT takes $1 topic, $2 key, $3 payload. See tests/bench/peers/README.md.");
	exit(2);
}

static int64_t number_of(const char *text)
{
	char *end;
	long long value = strtoll(text, &end, 10);

	if (!*text || *end || value < 0)
		load_die("'%s' is no number", text);
	return value;
}

static void read_options(int argc, char **argv, struct load_options *options)
{
	const char **const texts[] = {
	    &options->brokers, &options->topic, &options->dsn, &options->sql};
	int64_t *const numbers[] = {&options->partitions, &options->first, &options->count,
	    &options->at, &options->rate, &options->warm, &options->seconds, &options->connections};
	static const struct option names[] = {{"brokers", 1, NULL, 'a'}, {"topic", 1, NULL, 'b'},
	    {"dsn", 1, NULL, 'c'}, {"sql", 1, NULL, 'd'}, {"partitions", 1, NULL, 'A'},
	    {"first", 1, NULL, 'B'}, {"count", 1, NULL, 'C'}, {"at", 1, NULL, 'D'},
	    {"rate", 1, NULL, 'E'}, {"warm", 1, NULL, 'F'}, {"seconds", 1, NULL, 'G'},
	    {"connections", 1, NULL, 'H'}, {0}};

	for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		if (name >= 'a' && name <= 'd')
			*texts[name - 'a'] = optarg;
		else if (name >= 'A' && name <= 'H')
			*numbers[name - 'A'] = number_of(optarg);
		else
			usage();
	}
	if (!options->brokers || !options->topic)
		usage();
}

int main(int argc, char **argv)
{
	struct load_options options = {
	    .partitions = 6, .connections = 16, .warm = 1, .seconds = 10};

	/* the comparison's end is ours, even when it is killed */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setlinebuf(stdout);
	if (argc < 2)
		usage();
	read_options(argc - 1, argv + 1, &options);
	if (strcmp(argv[1], "read") == 0 && options.count > 0) {
		read_all(&options);
	} else if (strcmp(argv[1], "write") == 0 && options.rate > 0 && options.dsn &&
		   options.sql) {
		/* one more a connection may be begun at the very end */
		options.count =
		    options.rate * (options.warm + options.seconds) + options.connections;
		write_and_read(&options);
	} else {
		usage();
	}
	return 0;
}
