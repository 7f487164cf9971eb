/*
 * The sidecar in its own process, which posts the topic to a server of the bench, and the same
 * requests from a bare loop of libcurl.
 */
#include "bench_inbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "clock.h"
#include "http_bare.h"
#include "text.h"

enum {
	CONNECTIONS = 32,
	BATCH = 100,
	MOST_SINGLE = 100000,
	LOOK_US = 2000,
	STILL_MS = 60000,
};

static void write_section(
    const struct bench *bench, int port, int run, bool batch, struct text *out)
{
	text_addf(out,
	    "[deliver \"bench\"]\ntopics = %s\ngroup = outbox_bench_%d_%d_%d\n"
	    "url = http://127.0.0.1:%d/\nnetworks = 127.0.0.0/8\nconnections = %d\n"
	    "concurrency = %d\nform = %s\nbatch = %d\n",
	    bench->topic, (int)getpid(), run, batch, port, CONNECTIONS, 2 * CONNECTIONS * BATCH,
	    batch ? "batch" : "single", BATCH);
}

/* Waits until that many came, as long as there is progress. */
static bool wait_until_taken(
    const struct bench_business *sink, int64_t count, int64_t *ret_span_us, struct err *err)
{
	int64_t seen = 0, until = clock_ms() + STILL_MS;

	for (int64_t taken; (taken = bench_business_taken(sink, ret_span_us)) < count;
	     seen = taken) {
		usleep(LOOK_US);
		if (!bench_goes_on(err))
			return false;
		/* the limit is for silence: a long topic may take longer */
		if (taken > seen)
			until = clock_ms() + STILL_MS;
		else if (clock_ms() > until)
			return err_set(err, ERR_RETRY, "%lld of %lld messages were posted",
			    (long long)taken, (long long)count);
	}
	return true;
}

static bool measure_sidecar(struct bench *bench, const struct bench_business *sink, int run,
    bool batch, int64_t count, double *ret_rate, struct err *err)
{
	OWNED(text_finish) struct text section = {0};
	struct bench_child child = {0};
	int64_t span_us;

	write_section(bench, bench_business_port(sink), run, batch, &section);

	bool good = bench_child_run(bench, &child, text_string(&section), err) &&
		    wait_until_taken(sink, count, &span_us, err);

	bench_child_stop(&child);
	if (!good)
		return false;
	*ret_rate = (double)count * 1e6 / (double)span_us;
	bench_say("sidecar, %s: %.0f messages/s", batch ? "batches" : "single", *ret_rate);
	return true;
}

/* As long as the requests of the sidecar. */
static const char *const posted_headers[] = {"Content-Type: application/json",
    "Expect:", "User-Agent: outbox-relay/0.1.0", "ce-specversion: 1.0",
    "ce-id: 0000002a-0000-7000-8000-000000000000", "ce-source: /topics/outbox-bench-12345",
    "ce-type: outbox-bench-12345", "ce-subject: customer-42", "ce-time: 2026-01-01T00:00:00.000Z",
    "ce-outboxtopic: outbox-bench-12345", "ce-outboxpartition: 0", "ce-outboxoffset: 123456",
    "ce-outboxattempt: 1", NULL};

static bool post_bare(
    const struct bench_business *sink, int64_t count, double *ret_rate, struct err *err)
{
	owned_text char *url = xformat("http://127.0.0.1:%d/", bench_business_port(sink));
	OWNED(text_finish) struct text body = {0};
	int64_t span_us;

	bench_payload(&body, 0, BENCH_SMALL);
	if (!http_bare_post(url, posted_headers, text_string(&body), body.length, CONNECTIONS,
		count, &span_us, err))
		return false;
	*ret_rate = (double)count * 1e6 / (double)span_us;
	bench_say("bare libcurl: %.0f requests/s", *ret_rate);
	return true;
}

/* Each way has its own counting server. way 0: bare; 1: single; 2: batches. */
static bool measure_way(struct bench *bench, int run, int way, double *ret_rate, struct err *err)
{
	int64_t all = bench->options.messages, some = all < MOST_SINGLE ? all : MOST_SINGLE;
	struct bench_business *sink = bench_business_start(&bench_business_sink, false, err);
	bool good = sink && (way == 0 ? post_bare(sink, some, ret_rate, err)
				      : measure_sidecar(bench, sink, run, way == 2,
					    way == 2 ? all : some, ret_rate, err));

	bench_business_stop(sink);
	return good;
}

/* --- a load generator ------------------------------------------------------------------------ */

static bool read_ab(FILE *output, double *ret_rate)
{
	char line[1000];
	bool found = false;

	while (output && fgets(line, sizeof line, output))
		found |= sscanf(line, "Requests per second: %lf", ret_rate) == 1;
	return found;
}

/* False: ab is not installed. */
static bool run_ab(const struct bench_business *sink, double *ret_rate)
{
	OWNED(text_finish) struct text body = {0};
	owned_fd int file = memfd_create("outbox-bench", 0);
	int status = -1;

	bench_payload(&body, 0, BENCH_SMALL);
	if (file < 0 || write(file, body.data, body.length) != (ssize_t)body.length)
		return false;
	owned_text char *command =
	    xformat("ab -q -k -c %d -n %d -p /proc/%d/fd/%d -T application/json "
		    "http://127.0.0.1:%d/ 2>/dev/null",
		CONNECTIONS, MOST_SINGLE, (int)getpid(), file, bench_business_port(sink));
	FILE *output = popen(command, "re");
	bool found = read_ab(output, ret_rate);

	if (output)
		status = pclose(output);
	return found && status == 0;
}

static bool tell_ab(struct bench *bench, struct err *err)
{
	struct bench_business *sink = bench_business_start(&bench_business_sink, false, err);
	double rate;

	if (!sink)
		return false;

	/* a second opinion about the server: without it the comparison is still complete */
	if (run_ab(sink, &rate))
		bench_tell(bench, "ab, against the same server", "requests/s", rate);
	else
		bench_say("ab is not installed (apache2-utils), and has no figure");
	bench_business_stop(sink);
	return true;
}

bool bench_inbox_sidecar(struct bench *bench, struct err *err)
{
	double rates[3][BENCH_MOST_RUNS];
	int runs = (int)bench->options.runs;

	for (int run = 0; run < runs; run++)
		for (int way = 0; way < 3; way++)
			if (!measure_way(bench, run, way, &rates[way][run], err))
				return false;
	bench_judge_pairs(bench, "sidecar, beside a bare loop of libcurl", "messages/s", rates[1],
	    rates[0], runs, '>', 0.75);
	bench_judge_pairs(bench, "sidecar in batches of 100, beside single messages", "messages/s",
	    rates[2], rates[1], runs, '>', 5);
	return tell_ab(bench, err);
}
