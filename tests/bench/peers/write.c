#include "load.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CONNECTIONS = 64, PAYLOAD = 300, LATE_US = 5000000 };

struct session {
	PGconn *pg;
	int64_t index; /* of the message under way; -1: none */
};

struct writing {
	const struct load_options *options;
	struct written *written;
	struct session sessions[MOST_CONNECTIONS];
	int64_t began_us, last_us, started, committed;
	bool told_warm;
};

/* --- statements ------------------------------------------------------------------------------ */

static void check(PGresult *result, PGconn *pg)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		load_die("%s", PQerrorMessage(pg));
	PQclear(result);
}

static void open_sessions(struct writing *writing)
{
	for (int i = 0; i < writing->options->connections; i++) {
		PGconn *pg = PQconnectdb(writing->options->dsn);

		if (PQstatus(pg) != CONNECTION_OK)
			load_die("%s", PQerrorMessage(pg));
		check(PQprepare(pg, "write", writing->options->sql, 3, NULL), pg);
		writing->sessions[i] = (struct session){.pg = pg, .index = -1};
	}
}

static void close_sessions(struct writing *writing)
{
	for (int i = 0; i < writing->options->connections; i++)
		PQfinish(writing->sessions[i].pg);
}

/* As the SQL of the fill makes it, but that hexadecimal digits come from a cheaper generator. */
static void make_payload(char *payload, int64_t number, int64_t now_us)
{
	uint64_t state = (uint64_t)number * 0x9e3779b97f4a7c15u + 1;
	int length = snprintf(payload, PAYLOAD,
	    "{\"n\":%lld,\"t\":%lld,\"customer\":\"customer-%lld\",\"note\":\"", (long long)number,
	    (long long)now_us, (long long)(number % LOAD_KEYS));

	while (length < PAYLOAD - 3) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		payload[length++] = "0123456789abcdef"[state & 15];
	}
	memcpy(payload + length, "\"}", 3);
}

static void start(struct writing *writing, struct session *session)
{
	int64_t number = writing->options->first + writing->started;
	char key[32], payload[PAYLOAD + 1];
	const char *const values[] = {writing->options->topic, key, payload};

	session->index = writing->started++;
	snprintf(key, sizeof key, "customer-%lld", (long long)(number % LOAD_KEYS));
	make_payload(payload, number, load_clock_us());
	if (!PQsendQueryPrepared(session->pg, "write", 3, values, NULL, NULL, 0))
		load_die("%s", PQerrorMessage(session->pg));
}

static void take_answer(struct writing *writing, struct session *session)
{
	PGresult *result;

	if (!PQconsumeInput(session->pg))
		load_die("%s", PQerrorMessage(session->pg));
	while (!PQisBusy(session->pg)) {
		result = PQgetResult(session->pg);
		if (result) {
			check(result, session->pg);
			continue;
		}
		writing->last_us = load_clock_us();
		writing->written->committed_us[session->index] = writing->last_us;
		writing->committed++;
		session->index = -1;
		return;
	}
}

/* --- the rate -------------------------------------------------------------------------------- */

static int64_t due_us(const struct writing *writing)
{
	return writing->began_us + writing->started * 1000000 / writing->options->rate;
}

/* A late transaction still comes, for a while: what is not held shows in `held`. */
static bool is_open(const struct writing *writing, int64_t now_us)
{
	const struct load_options *options = writing->options;
	int64_t end_us = writing->began_us + (options->warm + options->seconds) * 1000000;

	return due_us(writing) < end_us && now_us < end_us + LATE_US &&
	       writing->started < options->count;
}

static void note_warm(struct writing *writing, int64_t now_us)
{
	if (writing->told_warm || now_us < writing->began_us + writing->options->warm * 1000000)
		return;
	writing->told_warm = true;
	writing->written->warm = writing->started;
	puts("{\"event\": \"warm\"}");
}

static void start_due(struct writing *writing)
{
	for (int i = 0; i < writing->options->connections; i++) {
		int64_t now_us = load_clock_us();

		note_warm(writing, now_us);
		if (!is_open(writing, now_us) || due_us(writing) > now_us)
			return;
		if (writing->sessions[i].index < 0)
			start(writing, &writing->sessions[i]);
	}
}

/* Until an answer comes or the next transaction is due; a free session is the condition of it. */
static void wait_and_take(struct writing *writing)
{
	struct pollfd polls[MOST_CONNECTIONS];
	int64_t left_us = due_us(writing) - load_clock_us();
	bool is_free = writing->started - writing->committed < writing->options->connections;
	struct timespec timeout = {.tv_nsec = 100000000};

	if (is_free && left_us < 100000)
		timeout.tv_nsec = left_us > 0 ? left_us * 1000 : 0;
	for (int i = 0; i < writing->options->connections; i++)
		polls[i] = (struct pollfd){
		    .fd = writing->sessions[i].index < 0 ? -1 : PQsocket(writing->sessions[i].pg),
		    .events = POLLIN};
	if (ppoll(polls, (nfds_t)writing->options->connections, &timeout, NULL) <= 0)
		return;
	for (int i = 0; i < writing->options->connections; i++)
		if (polls[i].revents)
			take_answer(writing, &writing->sessions[i]);
}

void write_at_rate(const struct load_options *options, struct written *ret_written)
{
	struct writing writing = {.options = options, .written = ret_written};

	if (options->connections < 1 || options->connections > MOST_CONNECTIONS)
		load_die("--connections is from 1 to %d", MOST_CONNECTIONS);
	*ret_written = (struct written){
	    .committed_us = calloc((size_t)options->count, sizeof *ret_written->committed_us)};
	if (!ret_written->committed_us)
		load_die("out of memory");
	open_sessions(&writing);
	writing.began_us = load_clock_us();
	while (is_open(&writing, load_clock_us()) || writing.committed < writing.started) {
		start_due(&writing);
		wait_and_take(&writing);
	}
	close_sessions(&writing);
	ret_written->count = writing.committed;
	/* the last is due one step before the end */
	ret_written->held = (double)writing.committed / (double)options->rate * 1e6 /
			    (double)(writing.last_us - writing.began_us);
	if (ret_written->held > 1)
		ret_written->held = 1;
}
