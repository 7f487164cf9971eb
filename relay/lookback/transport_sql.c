/*
 * sql: a function in the business's own database (docs/reference/lookback-check.md), asked over a
 * few connections, each of them one question at a time:
 *
 *   closed -> connecting -> free -> begins -> asks -> ends -> free
 *
 * in a transaction whose commit makes the answer count. A failed question is rolled back (undoes ->
 * free) or ends the connection. The server itself ends a question that takes too long
 * (statement_timeout); the transport leaves a server that does not, since a request to cancel would
 * block.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include "backoff.h"
#include "clock.h"
#include "pg.h"
#include "pg_array.h"
#include "script.h"
#include "sql_files.h"
#include "text.h"
#include "transport_private.h"

enum {
	LINES = 4,
	GRACE_MS = 500, /* for the server to end a statement that overruns */
	FIRST_PAUSE_MS = 200,
	LONGEST_PAUSE_MS = 5000,
	NAME_BYTES = 63,      /* of an identifier */
	WIRE_PARTS = 4,       /* of an answer: the protocol adds this much to short values */
	WIRE_REST = 64 << 10, /* greeting and certificates */
};

struct asked {
	struct reply reply;          /* first */
	struct asked *next, *before; /* the list of all questions that were not released */
	struct asked *behind;        /* in a queue */
	int64_t expires_at;
};

struct queue {
	struct asked *first, **end;
};

enum stage { CLOSED, CONNECTING, FREE, BEGINS, ASKS, ENDS, UNDOES };

struct line {
	struct pg *pg; /* NULL: closed */
	enum stage stage;
	struct asked *asked;  /* begins, asks, ends */
	int64_t gives_up_at;  /* connecting, or busy */
	int fd, events;       /* as the epoll descriptor has them */
	int64_t opens_at;     /* closed: not before */
	struct backoff pause; /* after a connection that was not made */
};

struct transport {
	const struct config_check *check;
	char *application, *ask; /* the statement */
	int epoll_fd;
	struct line lines[LINES];
	int line_count;
	struct asked *all;
	int in_flight;
	struct queue waiting, done;
	int64_t opens_at; /* when a pause ends that questions wait for */
	bool woken;       /* something new to be done */
};

static void put_asked(struct queue *queue, struct asked *asked)
{
	asked->behind = NULL;
	*queue->end = asked;
	queue->end = &asked->behind;
}

static struct asked *get_asked(struct queue *queue)
{
	struct asked *asked = queue->first;

	if (!asked)
		return NULL;
	queue->first = asked->behind;
	if (!queue->first)
		queue->end = &queue->first;
	return asked;
}

/* --- answers -------------------------------------------------------------------------------- */

static void finish_asked(struct transport *transport, struct asked *asked)
{
	asked->reply.answer.total_us = clock_us() - asked->reply.began_us;
	put_asked(&transport->done, asked);
}

static void fail_waiting(struct transport *transport, const char *failure, const char *why)
{
	struct asked *asked;

	while ((asked = get_asked(&transport->waiting))) {
		reply_fail(&asked->reply, failure, "%s", why);
		finish_asked(transport, asked);
	}
}

/*
 * Advice for errors where the server's message does not help. It does not repeat text that the
 * server may quote.
 */
static const char *advice_of(const struct transport *transport, const char *sqlstate)
{
	static const struct {
		const char *sqlstate, *advice;
	} rows[] = {
	    {"42883", "there is no such function of (text, text[]), or it calls one that is not "
		      "there"},
	    {"42501", "a privilege is missing: to call the function, or what it needs itself"},
	    {"3F000", "the function names a schema that is not there"},
	    {"42P01", "the function names a table that is not there"},
	    {"42703", "the function names a column that is not there"},
	    {"25006", "the function writes, and read_only = yes forbids it"},
	};

	if (text_equal(sqlstate, "25006") && !transport->check->read_only)
		return NULL; /* it is a standby */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (text_equal(rows[i].sqlstate, sqlstate))
			return rows[i].advice;
	return NULL;
}

/* The server said no, and the connection goes on. */
static void fail_statement(struct transport *transport, struct line *line, const struct err *err)
{
	struct reply *reply = &line->asked->reply;
	const char *sqlstate = pg_sqlstate(line->pg);
	const char *advice = advice_of(transport, sqlstate);
	const bool late = text_equal(sqlstate, "57014");

	if (advice)
		reply_fail(reply, "database", "%s: %.100s: %s (SQLSTATE %s)", pg_place(line->pg),
		    transport->check->function, advice, sqlstate);
	else
		reply_fail(reply, late ? "timeout" : "database", "%s", err->message);
	/* An error of the function shows that the database works: no breaker opens. */
	reply->answer.reached = advice || err->kind != ERR_RETRY;
	finish_asked(transport, line->asked);
	line->asked = NULL;
}

/* --- connections ---------------------------------------------------------------------------- */

static void watch_line(struct transport *transport, struct line *line)
{
	int fd = line->pg ? pg_fd(line->pg) : -1;
	short wanted = line->pg ? pg_events(line->pg) : 0;
	struct epoll_event event = {.data.fd = fd};

	if (fd < 0 || (line->fd == fd && line->events == wanted && line->stage != CONNECTING))
		return;
	event.events = (wanted & POLLIN ? EPOLLIN : 0u) | (wanted & POLLOUT ? EPOLLOUT : 0u);
	/* A descriptor that was closed has left by itself, and its number may be another's. */
	if (epoll_ctl(transport->epoll_fd, EPOLL_CTL_MOD, fd, &event) < 0 && errno == ENOENT)
		epoll_ctl(transport->epoll_fd, EPOLL_CTL_ADD, fd, &event);
	line->fd = fd;
	line->events = wanted;
}

static void close_line(struct transport *transport, struct line *line)
{
	int fd = line->pg ? pg_fd(line->pg) : -1;

	/* Before pg_destroy closes it: then the number may be another descriptor's. */
	if (fd >= 0)
		epoll_ctl(transport->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	pg_destroy(line->pg);
	line->pg = NULL;
	line->fd = -1;
	line->stage = CLOSED;
	transport->woken = true;
}

/* Closes the connection; its question fails with it. */
static void lose_line(
    struct transport *transport, struct line *line, const char *failure, const char *why)
{
	if (line->asked) {
		reply_fail(&line->asked->reply, failure, "%s", why);
		finish_asked(transport, line->asked);
		line->asked = NULL;
	}
	close_line(transport, line);
}

/*
 * If no other connection exists, fails the waiting questions: they must not wait for a database
 * that is away.
 */
static void fail_line_connecting(
    struct transport *transport, struct line *line, const char *failure, const char *why)
{
	bool others = false;

	close_line(transport, line);
	line->opens_at = clock_ms() + backoff_next_ms(&line->pause);
	for (int i = 0; i < transport->line_count; i++)
		others |= transport->lines[i].stage != CLOSED;
	if (!others)
		fail_waiting(transport, failure, why);
}

static bool open_line(struct transport *transport, struct line *line, struct err *err)
{
	line->pg = pg_start_plain(transport->check->dsn, transport->application, err);
	if (!line->pg)
		return false;
	pg_limit_answer(line->pg, transport->check->max_answer * WIRE_PARTS + WIRE_REST);
	line->stage = CONNECTING;
	line->gives_up_at = clock_ms() + transport->check->connect_timeout_ms;
	watch_line(transport, line);
	return true;
}

/* Opens as many connections as are needed, and no more at once than questions wait. */
static void open_lines(struct transport *transport, int64_t now_ms)
{
	const struct asked *asked = transport->waiting.first;
	struct err err;

	transport->opens_at = INT64_MAX;
	/* Connections that are being made will take the first questions. */
	for (int i = 0; i < transport->line_count; i++)
		if (asked && transport->lines[i].stage == CONNECTING)
			asked = asked->behind;
	for (int i = 0; i < transport->line_count && asked; i++) {
		struct line *line = &transport->lines[i];
		if (line->stage != CLOSED)
			continue;
		if (now_ms < line->opens_at) {
			if (line->opens_at < transport->opens_at)
				transport->opens_at = line->opens_at;
			continue;
		}
		asked = asked->behind;
		if (!open_line(transport, line, &err))
			fail_line_connecting(transport, line, "connect", err.message);
	}
}

/* --- one question --------------------------------------------------------------------------- */

static bool begin_line_transaction(
    struct transport *transport, struct line *line, int64_t now_ms, struct err *err)
{
	int64_t left = line->asked->expires_at - now_ms;
	char limit[24], idle_limit[24];
	const struct script_place places[] = {
	    {"access", transport->check->read_only ? "read only" : "read write", true},
	    {"limit_ms", limit, true}, {"idle_limit_ms", idle_limit, true}, {0}};

	/* For the server, 0 would be no limit. */
	left = left > 1 ? left : 1;
	snprintf(limit, sizeof limit, "%" PRId64, left);
	snprintf(idle_limit, sizeof idle_limit, "%" PRId64, left + GRACE_MS);
	owned_text char *script = script_fill(sql_check_begin, places);
	line->stage = BEGINS;
	line->gives_up_at = line->asked->expires_at + GRACE_MS;
	return pg_send_script(line->pg, script, err);
}

static bool ask_line(struct transport *transport, struct line *line, struct err *err)
{
	const struct check_question *question = line->asked->reply.question;
	struct pg_array ids = {0};
	char most[24];
	bool sent;

	for (int i = 0; i < question->id_count; i++)
		pg_array_add_text(&ids, question->ids[i].biz_id);
	/* One row more than may come shows that there are too many. */
	snprintf(most, sizeof most, "%d", question->id_count + 1);
	const struct pg_param params[] = {{question->biz_type}, {pg_array_end(&ids)}, {most}};
	line->stage = ASKS;
	/* Also if pg_send fails: a part may have left. */
	line->asked->reply.answer.sent = true;
	sent = pg_send(line->pg, transport->ask, params, 3, err);
	pg_array_finish(&ids);
	return sent;
}

static bool read_answer_row(struct reply *reply, const struct pg_result *rows, int row)
{
	enum check_word word = CHECK_WORDS;

	if (pg_is_null(rows, row, 0))
		return reply_fail(reply, "answer", "it returns a biz_id that is null");
	if (!pg_is_null(rows, row, 1))
		word = check_word_of(pg_value(rows, row, 1), (size_t)pg_length(rows, row, 1));
	return reply_add(reply, pg_value(rows, row, 0), (size_t)pg_length(rows, row, 0), word);
}

static bool read_rows(struct reply *reply, const struct pg_result *rows, int64_t max_answer)
{
	int64_t bytes = 0;

	if (pg_rows(rows) > reply->question->id_count)
		return reply_fail(reply, "answer", "it returns more rows than it was asked for");
	for (int i = 0; i < pg_rows(rows); i++) {
		bytes += pg_length(rows, i, 0) + pg_length(rows, i, 1);
		if (bytes > max_answer)
			return reply_fail(reply, "too_large",
			    "its answer has more than %" PRId64 " bytes (max_answer)", max_answer);
		if (!read_answer_row(reply, rows, i))
			return false;
	}
	return true;
}

static bool end_line_transaction(
    struct line *line, const struct pg_result *rows, int64_t max_answer, struct err *err)
{
	struct reply *reply = &line->asked->reply;

	reply->answer.reached = true;
	line->stage = ENDS;
	/* If the answer is malformed, the writes of the function are rolled back. */
	return pg_send_script(
	    line->pg, read_rows(reply, rows, max_answer) ? "commit" : "rollback", err);
}

static void settle_line(struct transport *transport, struct line *line)
{
	if (!line->asked->reply.answer.failure)
		reply_read(&line->asked->reply);
	finish_asked(transport, line->asked);
	line->asked = NULL;
	line->stage = FREE;
}

static bool undo_line_transaction(struct transport *transport, struct line *line, struct err *err)
{
	line->stage = UNDOES;
	line->gives_up_at = clock_ms() + transport->check->connect_timeout_ms;
	return pg_send_script(line->pg, "rollback", err);
}

/* The statement of a stage was answered. */
static bool advance_line(
    struct transport *transport, struct line *line, const struct pg_result *rows, struct err *err)
{
	transport->woken = true;
	switch (line->stage) {
	case BEGINS:
		return ask_line(transport, line, err);
	case ASKS:
		return end_line_transaction(line, rows, transport->check->max_answer, err);
	case ENDS:
		settle_line(transport, line);
		return true;
	default:
		line->stage = FREE;
		return true;
	}
}

/* --- the loop ------------------------------------------------------------------------------- */

static void step_line_connecting(struct transport *transport, struct line *line, int64_t now_ms)
{
	struct err err;

	if (!pg_step(line->pg, &err)) {
		fail_line_connecting(transport, line,
		    pg_is_flooded(line->pg) ? "too_large" : "connect", err.message);
	} else if (pg_state(line->pg) == PG_IDLE) {
		line->stage = FREE;
		backoff_reset(&line->pause);
	} else if (now_ms >= line->gives_up_at) {
		owned_text char *why = xformat("%s: no connection in time", pg_place(line->pg));
		fail_line_connecting(transport, line, "connect_timeout", why);
	}
}

static void step_line_busy(struct transport *transport, struct line *line, int64_t now_ms)
{
	struct pg_result *rows = NULL;
	struct err err;
	bool done = false;
	bool good = pg_step(line->pg, &err) && pg_receive(line->pg, &done, &rows, &err);

	if (good && done)
		good = advance_line(transport, line, rows, &err);
	pg_result_destroy(rows);
	/*
	 * The server refused the statement, and the session is usable. A refused rollback is not
	 * undone again: that connection is closed.
	 */
	if (!good && pg_state(line->pg) == PG_IDLE && line->stage != UNDOES) {
		fail_statement(transport, line, &err);
		good = undo_line_transaction(transport, line, &err);
	}
	if (!good) {
		lose_line(
		    transport, line, pg_is_flooded(line->pg) ? "too_large" : "closed", err.message);
	} else if (pg_state(line->pg) == PG_BUSY && now_ms >= line->gives_up_at) {
		owned_text char *why = xformat("%s: no answer in time", pg_place(line->pg));
		lose_line(transport, line, "timeout", why);
	}
}

static void step_line(struct transport *transport, struct line *line, int64_t now_ms)
{
	struct err err;

	if (line->stage == CONNECTING)
		step_line_connecting(transport, line, now_ms);
	/* No question is on a free connection: if the server closes it, nothing fails. */
	else if (line->stage == FREE && !pg_step(line->pg, &err))
		close_line(transport, line);
	else if (line->stage > FREE)
		step_line_busy(transport, line, now_ms);
	if (line->stage == FREE && transport->waiting.first) {
		line->asked = get_asked(&transport->waiting);
		if (!begin_line_transaction(transport, line, now_ms, &err))
			lose_line(transport, line, "closed", err.message);
	}
	watch_line(transport, line);
}

/* All questions have the same timeout: the first in the queue is the first to be late. */
static void stop_late_questions(struct transport *transport, int64_t now_ms)
{
	while (transport->waiting.first && now_ms >= transport->waiting.first->expires_at) {
		struct asked *asked = get_asked(&transport->waiting);
		reply_fail(&asked->reply, "queue_timeout",
		    "no connection to the database was free in time");
		finish_asked(transport, asked);
	}
}

static void step_all(struct transport *transport, int64_t now_ms)
{
	transport->woken = false;
	for (int i = 0; i < transport->line_count; i++)
		step_line(transport, &transport->lines[i], now_ms);
	stop_late_questions(transport, now_ms);
	open_lines(transport, now_ms);
}

static int fd_of(const struct transport *transport)
{
	return transport->epoll_fd;
}

static int64_t line_deadline(const struct line *line)
{
	if (line->stage == CLOSED || line->stage == FREE)
		return INT64_MAX;
	return pg_fd(line->pg) < 0 ? 0 : line->gives_up_at;
}

static int64_t deadline_of(const struct transport *transport)
{
	int64_t deadline = transport->opens_at;

	if (transport->waiting.first && transport->waiting.first->expires_at < deadline)
		deadline = transport->waiting.first->expires_at;

	if (transport->woken)
		return 0;
	for (int i = 0; i < transport->line_count; i++) {
		int64_t own = line_deadline(&transport->lines[i]);
		deadline = own < deadline ? own : deadline;
	}
	return deadline;
}

/* --- questions ------------------------------------------------------------------------------ */

static bool take_over(
    struct transport *transport, const struct check_question *question, struct err *err)
{
	struct asked *asked;

	if (question->url)
		return err_set(err, ERR_REJECT,
		    "[check \"%s\"] asks a database, and the message brings a URL",
		    transport->check->name);
	if (transport->in_flight >= transport->check->host_in_flight)
		return err_set(err, ERR_RETRY, "%d questions are under way, as many as may be",
		    transport->in_flight);
	asked = xcalloc(1, sizeof *asked);
	reply_begin(&asked->reply, question);
	asked->expires_at = clock_ms() + transport->check->timeout_ms;
	asked->next = transport->all;
	if (asked->next)
		asked->next->before = asked;
	transport->all = asked;
	transport->in_flight++;
	put_asked(&transport->waiting, asked);
	transport->woken = true;
	return true;
}

static struct check_answer *next_answer(struct transport *transport)
{
	struct asked *asked = get_asked(&transport->done);

	return asked ? &asked->reply.answer : NULL;
}

static void release_answer(struct transport *transport, struct check_answer *answer)
{
	struct asked *asked = (struct asked *)(void *)answer;

	if (asked->before)
		asked->before->next = asked->next;
	else
		transport->all = asked->next;
	if (asked->next)
		asked->next->before = asked->before;
	reply_finish(&asked->reply);
	free(asked);
	transport->in_flight--;
}

/* --- life ----------------------------------------------------------------------------------- */

static void close_all(struct transport *transport)
{
	if (!transport)
		return;
	for (int i = 0; i < transport->line_count; i++)
		close_line(transport, &transport->lines[i]);
	while (transport->all)
		release_answer(transport, &transport->all->reply.answer);
	if (transport->epoll_fd >= 0)
		close(transport->epoll_fd);
	free(transport->application);
	free(transport->ask);
	free(transport);
}

static void add_quoted_name(struct text *text, const char *name, size_t length)
{
	text_add(text, "\"");
	for (size_t i = 0; i < length; i++)
		text_addf(text, "%s%c", name[i] == '"' ? "\"" : "", name[i]);
	text_add(text, "\"");
}

/* "name" or "schema.name", as PostgreSQL's system catalogs spell them. */
static bool set_function(struct transport *transport, struct err *err)
{
	const char *name = transport->check->function, *dot = strchr(name, '.');
	size_t first = dot ? (size_t)(dot - name) : strlen(name);
	size_t second = dot ? strlen(dot + 1) : 1;
	struct text quoted = {0};

	if (!first || !second || first > NAME_BYTES || second > NAME_BYTES ||
	    (dot && strchr(dot + 1, '.')))
		return check_refuse(transport->check, err, "function",
		    "'%.130s' is no name of a function, with a schema and a dot before it or "
		    "without",
		    name);
	add_quoted_name(&quoted, name, first);
	if (dot) {
		text_add(&quoted, ".");
		add_quoted_name(&quoted, dot + 1, second);
	}
	const struct script_place places[] = {{"function", text_string(&quoted), true}, {0}};
	transport->ask = script_fill(sql_check_ask, places);
	text_finish(&quoted);
	return true;
}

static bool check_settings(const struct config_check *check, struct err *err)
{
	static const char remote[] = "transport = sql asks the database of dsn; remove it";
	static const char security[] =
	    "it is not for transport = sql: its dsn says how a database is reached (sslmode, "
	    "sslrootcert, sslcert, …)";
	const struct check_unfit unfit[] = {{"url", check->url, remote},
	    {"name_servers", check->name_servers, remote}, {"allow", check->allow, remote},
	    {"networks", check->networks, security},
	    {"headers", check->credentials.headers.count ? "set" : "", security},
	    {"token_url", check->credentials.token_url, security},
	    {"secret", check->secret, security}, {"old_secret", check->old_secret, security},
	    {"tls_ca", check->tls_ca, security},
	    {"tls_certificate", check->tls_certificate, security},
	    {"tls_key", check->tls_key, security}};

	if (!check->dsn[0])
		return check_refuse(check, err, "dsn", "it is empty; name the business's database");
	return check_has_none(check, unfit, sizeof unfit / sizeof *unfit, err);
}

static bool set_up_sql(struct transport *transport, struct err *err)
{
	const struct config_check *check = transport->check;
	struct err why;

	transport->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (transport->epoll_fd < 0)
		return err_set(err, ERR_FATAL, "epoll: %s", strerror(errno));
	if (!check_settings(check, err) || !set_function(transport, err))
		return false;
	transport->application = xformat("outbox-relay check %s", check->name);
	transport->line_count = check->host_in_flight < LINES ? (int)check->host_in_flight : LINES;
	for (int i = 0; i < transport->line_count; i++)
		transport->lines[i] = (struct line){.fd = -1,
		    .pause = {.first_ms = FIRST_PAUSE_MS,
			.cap_ms = LONGEST_PAUSE_MS,
			.jitter = 0.2,
			.seed = (uint64_t)clock_random()}};
	/* The first connection is opened at once, since that shows whether the dsn is valid. */
	if (!open_line(transport, &transport->lines[0], &why))
		return check_refuse(check, err, "dsn", "%s", why.message);
	return true;
}

static struct transport *open_sql(const struct config_check *check, struct err *err)
{
	struct transport *transport = xcalloc(1, sizeof *transport);

	transport->check = check;
	transport->opens_at = INT64_MAX;
	transport->waiting.end = &transport->waiting.first;
	transport->done.end = &transport->done.first;
	if (set_up_sql(transport, err))
		return transport;
	close_all(transport);
	return NULL;
}

static bool check_sql(const struct config_check *check, struct err *err)
{
	struct transport *transport = xcalloc(1, sizeof *transport);
	struct err why;
	bool good;

	transport->check = check;
	good =
	    check_settings(check, err) && set_function(transport, err) &&
	    (pg_dsn_check(check->dsn, &why) || check_refuse(check, err, "dsn", "%s", why.message));
	free(transport->ask);
	free(transport);
	return good;
}

const struct transport_kind transport_sql = {.open = open_sql,
    .check = check_sql,
    .close = close_all,
    .ask = take_over,
    .fd = fd_of,
    .deadline = deadline_of,
    .step = step_all,
    .take = next_answer,
    .release = release_answer};
