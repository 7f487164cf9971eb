/*
 * inbox: the cost of the library for a consumer. Each run is a separate process, so that it leaves
 * nothing for the next one. Its memory is the part that is not file-backed (the logs and filters of
 * dedup are).
 */
#include "bench_inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "clock.h"
#include "partitioner.h"
#include "position.h"
#include "producer.h"
#include "progress.h"
#include "text.h"

enum {
	QUEUE_BYTES = 64 << 20,
	QUEUE_MESSAGES = 50000,
	REPORTS = 1024,
	KNOWN_MS = 10000,
	STILL_MS = 60000,
	FULL_MS = 100,
	PAYLOADS = 10000,
	A_TICK = 100 /* messages of a transaction */
};
#define MOST_MIB 64

/* --- the topic ------------------------------------------------------------------------------- */

struct filling {
	struct bench *bench;
	struct producer *producer;
	struct producer_topic *topic;
	struct text payloads[PAYLOADS];
	int64_t in_flight;
};

static bool take_filling_reports(struct filling *filling, int wait_ms, struct err *err)
{
	struct pollfd fd = {.fd = producer_fd(filling->producer), .events = POLLIN};
	struct producer_report reports[REPORTS];
	int count;

	if (wait_ms > 0)
		poll(&fd, 1, wait_ms);
	do {
		count = producer_poll(filling->producer, reports, REPORTS);
		for (int i = 0; i < count; i++)
			if (reports[i].error)
				return err_set(err, ERR_FATAL, "a record was refused: %s",
				    producer_error_text(reports[i].error));
		filling->in_flight -= count;
	} while (count == REPORTS);
	return bench_goes_on(err);
}

/* Waits while the queue is full. */
static bool send_filling_record(struct filling *filling, int64_t number, struct err *err)
{
	const struct text *payload = &filling->payloads[number % PAYLOADS];
	char key[32], id[40], position[OUTBOX_POSITION_SIZE];
	int key_length =
	    snprintf(key, sizeof key, "customer-%lld", (long long)(number % BENCH_KEYS));
	int id_length =
	    snprintf(id, sizeof id, "%08llx-0000-7000-8000-000000000000", (long long)number);
	const struct outbox_position at = {
	    "main", "5eed5eed", 0, 1, 1000000 + number / A_TICK, number};
	size_t position_length = outbox_position_format(&at, position);
	const struct producer_header headers[] = {
	    {"outbox-id", sizeof "outbox-id" - 1, id, id_length},
	    {"outbox-position", sizeof "outbox-position" - 1, position, (int32_t)position_length}};
	const struct producer_record record = {.topic = filling->topic,
	    .partition = partitioner_of_key(key, (size_t)key_length, filling->bench->destinations),
	    .key = key,
	    .key_length = (size_t)key_length,
	    .payload = payload->data,
	    .payload_length = payload->length,
	    .headers = headers,
	    .header_count = 2};

	while (!producer_send(filling->producer, &record, err))
		/* ERR_RETRY: the queue is full; with nothing in flight it would never become
		 * empty */
		if (err->kind != ERR_RETRY || filling->in_flight == 0 ||
		    !take_filling_reports(filling, FULL_MS, err))
			return false;
	filling->in_flight++;
	return number % REPORTS || take_filling_reports(filling, 0, err);
}

static bool flush_filling(struct filling *filling, struct err *err)
{
	int64_t until = clock_ms() + STILL_MS;

	while (filling->in_flight > 0)
		if (!take_filling_reports(filling, FULL_MS, err) ||
		    (clock_ms() > until && !err_set(err, ERR_RETRY, "Kafka acknowledges nothing")))
			return false;
	return true;
}

static bool open_filling_producer(struct filling *filling, struct err *err)
{
	const struct bench *bench = filling->bench;

	filling->producer =
	    producer_create(bench->kafka, NULL, QUEUE_BYTES, QUEUE_MESSAGES, 1, err);
	filling->topic =
	    filling->producer ? producer_topic(filling->producer, bench->topic, err) : NULL;
	return filling->topic &&
	       (producer_knows(filling->producer, filling->topic, bench->destinations, KNOWN_MS) ||
		   err_set(err, ERR_RETRY, "the topic %s is not known yet", bench->topic));
}

bool bench_inbox_fill(struct bench *bench, int64_t count, struct err *err)
{
	struct filling *filling = xcalloc(1, sizeof *filling);
	struct progress progress;
	bool good = bench_fresh_topic(bench, err);

	filling->bench = bench;
	for (int i = 0; i < PAYLOADS; i++)
		bench_payload(&filling->payloads[i], i, BENCH_SMALL);
	good = good && open_filling_producer(filling, err);
	progress_begin(&progress, "messages produced");
	for (int64_t number = 0; good && number < count; number++) {
		good = send_filling_record(filling, number, err);
		progress_step(&progress, number);
	}
	progress_end(&progress);
	good = good && flush_filling(filling, err);
	producer_destroy(filling->producer, 1000); /* the producer uses the payloads until then */
	for (int i = 0; i < PAYLOADS; i++)
		text_finish(&filling->payloads[i]);
	free(filling);
	return good;
}

/* --- consumers ------------------------------------------------------------------------------- */

struct consumed {
	double rate, mib;
};

static bool consume_in_child(struct bench *bench, const char *kind, int64_t count,
    struct consumed *ret_consumed, struct err *err)
{
	owned_text char *messages = xformat("%lld", (long long)count);
	const char *const arguments[] = {
	    "consume", kind, "--topic", bench->topic, "--messages", messages, NULL};
	struct bench_child child = {0};
	struct rusage usage;
	double span_us;

	if (!bench_child_tells(bench, &child, arguments, &usage, &span_us, err))
		return false;
	*ret_consumed = (struct consumed){(double)count * 1e6 / span_us, child.own_kib / 1024};
	bench_say("%s: %.0f messages/s, CPU %.2f s, %.1f MiB", kind, ret_consumed->rate,
	    bench_cpu_of_usage(&usage), ret_consumed->mib);
	return true;
}

static const struct way {
	const char *kind, *name;
	double bound;
} ways[] = {
    {"bare", NULL, 0},
    {"none", "inbox without dedup, beside a bare consumer", 0.9},
    {"bloom", "inbox with bloom, beside a bare consumer", 0.7},
    {"sequence", "inbox with sequence, beside a bare consumer", 0.8},
};
enum { WAYS = sizeof ways / sizeof *ways };

static bool measure_ways(struct bench *bench, double *most_mib, struct err *err)
{
	double rates[WAYS][BENCH_MOST_RUNS];
	int runs = (int)bench->options.pairs;
	struct consumed consumed;

	for (int run = 0; run < runs; run++)
		for (int turn = 0; turn < WAYS; turn++) {
			/* forwards and backwards in turn, so that no way always follows the same
			 * other one */
			int i = run % 2 ? WAYS - 1 - turn : turn;

			if (!consume_in_child(
				bench, ways[i].kind, bench->options.messages, &consumed, err))
				return false;
			rates[i][run] = consumed.rate;
			if (i > 0 && consumed.mib > *most_mib)
				*most_mib = consumed.mib;
		}
	for (int i = 1; i < WAYS; i++)
		bench_judge_pairs(bench, ways[i].name, "messages/s", rates[i], rates[0], runs, '>',
		    ways[i].bound);
	return true;
}

static bool measure_slow(struct bench *bench, double *most_mib, struct err *err)
{
	enum { SECONDS = 5 };
	double ideal = BENCH_SLOW_AT_ONCE * 1e6 / BENCH_SLOW_US, rates[BENCH_MOST_RUNS];
	int64_t all = bench->options.messages, count = (int64_t)ideal * SECONDS;
	int runs = (int)bench->options.runs;
	struct consumed consumed;

	for (int run = 0; run < runs; run++) {
		if (!consume_in_child(bench, "slow", count < all ? count : all, &consumed, err))
			return false;
		rates[run] = consumed.rate;
		*most_mib = consumed.mib > *most_mib ? consumed.mib : *most_mib;
	}
	bench_judge_ratio(bench, "handlers of 5 ms, 256 at once, beside what is possible",
	    "messages/s", bench_median(rates, runs), ideal, '>', 0.9);
	return true;
}

bool bench_inbox(struct bench *bench, struct err *err)
{
	struct bench place = *bench; /* without a database */
	double most_mib = 0;

	/* with a schema the child would connect to the database, which this kind does not need */
	place.schema[0] = '\0';
	if (!bench_inbox_fill(&place, bench->options.messages, err))
		return false;

	bool good = measure_ways(&place, &most_mib, err) && measure_slow(&place, &most_mib, err);

	if (good)
		bench_judge(&place, "memory of an inbox, besides its files", "MiB", most_mib, '<',
		    MOST_MIB);
	good = good && bench_inbox_claims(&place, err) && bench_inbox_sidecar(&place, err);
	/* figures were added to the copy, and the array may have moved */
	bench->figures = place.figures;
	bench->figure_count = place.figure_count;
	bench->has_topic = place.has_topic;
	return good;
}
