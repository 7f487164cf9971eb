/*
 * Writers that send transactions at a given rate over several connections, without threads.
 * [parameters] makes the statements, [transactions] runs them; begin at bench_load_run.
 */
#include "bench_load.h"

#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include "clock.h"
#include "pg_array.h"
#include "schema_text.h"
#include "text.h"

enum {
	MOST_CONNECTIONS = BENCH_CONNECTIONS,
	MOST_STEPS = 8,
	LONGEST_US = 100000,
	WAIT_FOR_LAST_US = 5000000
};

struct writer {
	struct pg *pg;
	int step;      /* current statement; -1: none */
	int64_t first; /* the number of the transaction's first row */
};

struct loading {
	struct bench *bench;
	const struct bench_load *load;
	char *statements[MOST_STEPS];
	struct writer writers[MOST_CONNECTIONS];
	int busy;
	int64_t began_us, last_us, started, committed;
	struct pg_array numbers, payloads;
	struct text payload;
};

/* --- parameters ------------------------------------------------------------------------------ */

static void make_payload(struct loading *loading, int64_t number)
{
	text_clear(&loading->payload);
	bench_payload(&loading->payload, number, BENCH_SMALL);
}

static bool send_load_rows(
    struct loading *loading, struct writer *writer, const char *sql, struct err *err)
{
	char keys[16];

	pg_array_clear(&loading->numbers);
	pg_array_clear(&loading->payloads);
	for (int64_t n = writer->first; n < writer->first + loading->load->rows; n++) {
		make_payload(loading, n);
		pg_array_add_int(&loading->numbers, n);
		pg_array_add_text(&loading->payloads, text_string(&loading->payload));
	}
	snprintf(keys, sizeof keys, "%d", BENCH_KEYS);

	const struct pg_param params[] = {{loading->bench->topic},
	    {pg_array_end(&loading->numbers)}, {pg_array_end(&loading->payloads)}, {keys}};

	return pg_send(writer->pg, sql, params, 4, err);
}

static bool send_row(
    struct loading *loading, struct writer *writer, const char *sql, struct err *err)
{
	char key[32];

	make_payload(loading, writer->first);
	snprintf(key, sizeof key, "customer-%lld", (long long)(writer->first % BENCH_KEYS));

	const struct pg_param params[] = {
	    {loading->bench->topic}, {key}, {text_string(&loading->payload)}};

	return pg_send(writer->pg, sql, params, 3, err);
}

static bool send_order(struct writer *writer, const char *sql, struct err *err)
{
	char id[24];
	const struct pg_param params[] = {{id}};

	snprintf(id, sizeof id, "%lld", (long long)(writer->first % BENCH_KEYS));
	return pg_send(writer->pg, sql, params, 1, err);
}

static bool send_step(struct loading *loading, struct writer *writer, struct err *err)
{
	const char *sql = loading->statements[writer->step];

	switch (loading->load->steps[writer->step].takes) {
	case BENCH_TAKES_ROWS:
		return send_load_rows(loading, writer, sql, err);
	case BENCH_TAKES_ROW:
		return send_row(loading, writer, sql, err);
	case BENCH_TAKES_ORDER:
		return send_order(writer, sql, err);
	default:
		return pg_send(writer->pg, sql, NULL, 0, err);
	}
}

/* --- transactions ---------------------------------------------------------------------------- */

/* When the next transaction should begin. */
static int64_t due_us(const struct loading *loading)
{
	return loading->began_us + (loading->load->rate > 0 ? (int64_t)((double)loading->started *
									1e6 / loading->load->rate)
							    : 0);
}

/* Late transactions still run, for a while; `held` shows the part of the rate that was missed. */
static bool is_load_open(const struct loading *loading, int64_t now)
{
	const struct bench_load *load = loading->load;
	int64_t end = loading->began_us + load->duration_us;

	if (bench_interrupted())
		return false;

	/* with a rate, all due transactions run; without one, the time alone ends the load */
	if (load->rate > 0)
		return due_us(loading) < end && now < end + WAIT_FOR_LAST_US;
	return now < end;
}

static bool start_writer(struct loading *loading, struct writer *writer, struct err *err)
{
	writer->step = 0;
	writer->first = loading->load->first + loading->started++ * loading->load->rows;
	loading->busy++;
	return send_step(loading, writer, err);
}

static bool start_due(struct loading *loading, struct err *err)
{
	for (int i = 0; i < loading->load->connections; i++) {
		int64_t now = clock_us();

		if (!is_load_open(loading, now) || due_us(loading) > now)
			return true;
		if (loading->writers[i].step < 0 &&
		    !start_writer(loading, &loading->writers[i], err))
			return false;
	}
	return true;
}

static void note_committed_rows(struct loading *loading, struct writer *writer)
{
	loading->last_us = clock_us();
	loading->committed++;
	loading->busy--;
	writer->step = -1;
	if (loading->load->committed)
		loading->load->committed(
		    loading->load->context, writer->first, loading->load->rows, loading->last_us);
}

static bool step_writer(struct loading *loading, struct writer *writer, struct err *err)
{
	OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
	bool done;

	if (!pg_step(writer->pg, err) || !pg_receive(writer->pg, &done, &result, err))
		return false;
	if (!done)
		return true;
	if (loading->statements[++writer->step])
		return send_step(loading, writer, err);
	note_committed_rows(loading, writer);
	return true;
}

/* Waits until a connection answers, the producer reports, or the next transaction is due. */
static bool wait_and_step(struct loading *loading, struct err *err)
{
	const struct bench_load *load = loading->load;
	struct pollfd fds[MOST_CONNECTIONS + 1];
	struct writer *asked[MOST_CONNECTIONS];
	int64_t now = clock_us(), wait = LONGEST_US, until_due = due_us(loading) - now;
	int count = 0;

	/* with all connections busy, only an answer can let the next transaction begin */
	if (loading->busy < load->connections && is_load_open(loading, now) && until_due < wait)
		wait = until_due > 0 ? until_due : 0;
	for (int i = 0; i < load->connections; i++)
		if (loading->writers[i].step >= 0) {
			asked[count] = &loading->writers[i];
			fds[count++] = (struct pollfd){.fd = pg_fd(loading->writers[i].pg),
			    .events = pg_events(loading->writers[i].pg)};
		}
	fds[count] =
	    (struct pollfd){.fd = load->fd ? load->fd(load->context) : -1, .events = POLLIN};

	const struct timespec timeout = {
	    .tv_sec = wait / 1000000, .tv_nsec = wait % 1000000 * 1000};

	if (ppoll(fds, (nfds_t)count + 1, &timeout, NULL) < 0)
		return true; /* EINTR: the loop tries again */
	for (int i = 0; i < count; i++)
		if (fds[i].revents && !step_writer(loading, asked[i], err))
			return false;
	return true;
}

static bool run_writers(struct loading *loading, struct err *err)
{
	const struct bench_load *load = loading->load;

	loading->began_us = loading->last_us = clock_us();
	do {
		if (!start_due(loading, err) || !wait_and_step(loading, err) ||
		    (load->turn && !load->turn(load->context, err)))
			return false;
	} while (loading->busy > 0 || is_load_open(loading, clock_us()));
	return bench_goes_on(err);
}

static struct bench_load_done done_of(const struct loading *loading)
{
	double seconds = (double)(loading->last_us - loading->began_us) / 1e6;
	double rate = seconds > 0 ? (double)loading->committed / seconds : 0;
	double wanted = loading->load->rate;

	return (struct bench_load_done){.transactions = loading->committed,
	    .began_us = loading->began_us,
	    .rate = rate,
	    .held = wanted > 0 ? rate / wanted : 1};
}

static bool connect_all(struct loading *loading, struct err *err)
{
	owned_text char *warm =
	    loading->load->warm ? schema_text(loading->load->warm, loading->bench->schema) : NULL;

	for (int i = 0; i < loading->load->connections; i++) {
		loading->writers[i].step = -1;
		loading->writers[i].pg = bench_connect(loading->bench->postgres, err);
		if (!loading->writers[i].pg ||
		    (warm && !pg_script(loading->writers[i].pg, warm, err)))
			return false;
	}
	return true;
}

bool bench_load_run(struct bench *bench, const struct bench_load *load,
    struct bench_load_done *ret_done, struct err *err)
{
	struct loading loading = {.bench = bench, .load = load};
	bool good;

	for (int i = 0; load->steps[i].sql; i++)
		loading.statements[i] = schema_text(load->steps[i].sql, bench->schema);
	good = connect_all(&loading, err) && run_writers(&loading, err);
	*ret_done = done_of(&loading);
	for (int i = 0; i < load->connections; i++)
		pg_destroy(loading.writers[i].pg);
	for (int i = 0; i < MOST_STEPS; i++)
		free(loading.statements[i]);
	pg_array_finish(&loading.numbers);
	pg_array_finish(&loading.payloads);
	text_finish(&loading.payload);
	return good;
}
