#include "link.h"

#include "clock.h"
#include "copy_binary.h"
#include "pg_password.h"
#include "script.h"
#include "sql_files.h"
#include "text.h"

/*
 * One connection at a time: begin_connection starts it, introduce_session finds out whether it is a
 * session of our own and sets it up, link_drop gives it up. link_cancel and the functions after it
 * end a statement that takes too long. Read link_step first: it is the order of all of these.
 */

enum {
	CONNECT_TIMEOUT_MS = 10000,
	/* By then the server has ended a session that is not authenticated, unless its
	   authentication_timeout is longer than the default. */
	START_UP_MS = 70000,
	/* Multiples of limit_ms, counted from the cancel. */
	ASKED_LIMITS = 2,
	ENDS_LIMITS = 10,
};

void link_init(
    struct link *link, const char *dsn, const char *name, const struct link_statement *statements)
{
	*link = (struct link){
	    .dsn = dsn,
	    .statements = statements,
	    .backoff = {.first_ms = 50,
		.cap_ms = 1000,
		.jitter = 0.2,
		.seed = (uint64_t)clock_random()},
	};
	text_copy(link->name, sizeof link->name, name);
}

static void write_settings(char *text, size_t size, int64_t limit_ms, const char *local)
{
	char limit[24];
	*text_write_int64(limit, limit_ms) = '\0';
	const struct script_place places[] = {{"limit", limit, true}, {"local", local, true}, {0}};
	owned_text char *filled = script_fill(sql_limit, places);
	text_copy(text, size, filled);
}

void link_limit(struct link *link, int64_t limit_ms)
{
	link->limit_ms = limit_ms < 1 ? 1 : limit_ms;
	write_settings(link->lasting, sizeof link->lasting, link->limit_ms, "false");
	write_settings(link->passing, sizeof link->passing, link->limit_ms, "true");
}

static void close_link_connection(struct link *link)
{
	pg_destroy(link->pg);
	link->pg = NULL;
	link->ending = false;
}

void link_finish(struct link *link)
{
	close_link_connection(link);
	pg_cancel_release(link->cancel);
	link->cancel = NULL;
}

bool link_send(const struct link *link, const char *sql, const struct pg_param *params, int count,
    struct err *err)
{
	return link->limit_ms && !link->own
		   ? pg_send_behind(link->pg, link->passing, sql, params, count, err)
		   : pg_send(link->pg, sql, params, count, err);
}

void link_drop(struct link *link, int64_t now, const struct err *err)
{
	if (err)
		text_copy(link->error, sizeof link->error, err->message);
	close_link_connection(link);
	link->connect_at = now + backoff_next_ms(&link->backoff);
	link->lost_count += !link->hangs;
}

void link_failed(struct link *link, int64_t now, const struct err *err)
{
	const char *sqlstate = link->pg ? pg_sqlstate(link->pg) : "";
	bool no_statement = text_equal(sqlstate, "26000");
	link->pooled |= no_statement;
	link->prepared &= !no_statement;
	/* A standby; the log row is missing (window_guard); the result type of a plan has changed.
	 */
	if (text_equal(sqlstate, "25006") || text_equal(sqlstate, "OR001") ||
	    text_equal(sqlstate, "0A000"))
		link_drop(link, now, err);
}

static void begin_connection(struct link *link, int64_t now)
{
	struct err err;
	bool unknown = (link->statements || link->limit_ms) && !link->pooled;

	link->begun_at = now;
	link->connect_by = now + CONNECT_TIMEOUT_MS + pg_password_limit_ms(link->dsn);
	link->stage = unknown ? LINK_ASKS : LINK_KNOWN;
	link->own = link->prepared = link->quiet = link->hangs = false;
	link->answers = 0;
	/* Each attempt counts: an old cancel request must not count for a new connection. */
	link->made++;

	link->pg = pg_start(link->dsn, link->name, &err);
	if (!link->pg)
		link_drop(link, now, &err);
}

static enum link_event lose_connection(struct link *link, int64_t now, const struct err *err)
{
	link_drop(link, now, err);
	return LINK_LOST;
}

/*
 * The first answer is the backend that serves the session. If a pooler is between, it is not the
 * process that libpq connected to.
 */
static void note_introduction(struct link *link, const struct pg_result *result)
{
	if (link->stage == LINK_ASKS)
		link->own = pg_int4(result, 0, 0) == pg_backend(link->pg);
	if (link->stage == LINK_PREPARES)
		link->answers++;
	else
		link->stage = !link->own       ? LINK_KNOWN
			      : link->limit_ms ? link->stage + 1
					       : LINK_PREPARES;
	if (link->stage != LINK_PREPARES)
		return;

	/* The row behind the last statement has no name. */
	link->prepared = link->statements && !link->statements[link->answers].name;
	if (link->prepared || !link->statements)
		link->stage = LINK_KNOWN;
}

static bool send_introduction(struct link *link, struct err *err)
{
	const struct link_statement *next = link->statements;

	switch (link->stage) {
	case LINK_ASKS:
		return pg_send(link->pg, sql_backend, NULL, 0, err);
	case LINK_SETS:
		return pg_send(link->pg, link->lasting, NULL, 0, err);
	case LINK_SETTLES:
		return pg_send(link->pg, sql_session, NULL, 0, err);
	default:
		next += link->answers;
		return pg_send_prepare(link->pg, next->name, next->sql, err);
	}
}

/*
 * Only the limit is mandatory. When another setting fails, the first statement that needs it
 * reports the failure.
 */
static enum link_event introduction_failed(struct link *link, int64_t now, const struct err *err)
{
	bool needed = link->limit_ms && link->stage < LINK_SETTLES;
	if (needed || pg_state(link->pg) == PG_LOST)
		return lose_connection(link, now, err);
	link->stage = link->stage == LINK_SETTLES && link->statements ? LINK_PREPARES : LINK_KNOWN;
	return LINK_NONE;
}

/* Finds out whether a pooler is between, sets up the session and prepares the statements: one
 * statement in each step. */
static enum link_event introduce_session(struct link *link, int64_t now)
{
	struct err err;
	if (pg_state(link->pg) == PG_BUSY) {
		bool done;
		OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
		bool good = pg_receive(link->pg, &done, &result, &err);
		if (!done)
			return LINK_NONE;
		if (good)
			note_introduction(link, result);
		else if (introduction_failed(link, now, &err) == LINK_LOST)
			return LINK_LOST;
	}

	if (link->stage == LINK_KNOWN)
		return LINK_READY;
	return send_introduction(link, &err) ? LINK_NONE : lose_connection(link, now, &err);
}

/* --- the end of a statement that was cancelled ----------------------------------------------- */

static bool is_asking(const struct link *link)
{
	return link->cancel && pg_cancel_outcome(link->cancel) == PG_CANCEL_ASKING;
}

/* A cancel request is a connection too: the link has only one of them, even while it hangs. */
static void ask_for_end(struct link *link, int64_t now)
{
	link->cancel_at = now + link->limit_ms;
	if (is_asking(link))
		return;
	pg_cancel_release(link->cancel);
	link->cancel = pg_cancel_begin(link->pg);
	link->cancel_of = link->made;
}

void link_cancel(struct link *link, int64_t now)
{
	link->connect_at = now;

	/* No statement runs, or the link has no limit: the connection may be closed at once. */
	if (!link->pg || !link->limit_ms || pg_state(link->pg) != PG_BUSY) {
		close_link_connection(link);
		return;
	}
	if (link->ending)
		return;

	link->ending = true;
	link->heard = false;
	link->end_by = now + ENDS_LIMITS * link->limit_ms;
	link->asked_by = now + ASKED_LIMITS * link->limit_ms;
	ask_for_end(link, now);
}

/* Drops the rows that have come: at most one buffer. */
static void drop_answer(struct link *link)
{
	struct err err;
	enum pg_copy what = PG_COPY_ROW;
	while (what == PG_COPY_ROW) {
		char *row;
		int length;
		if (!pg_copy_next(link->pg, &what, &row, &length, &err))
			return;
		pg_free_row(row);
	}
}

/*
 * Has the server not ended the statement, or taken no cancel request, in time? One that takes none
 * is not reachable: it has noticed, or will notice, that its client is gone.
 */
static bool is_unheard(const struct link *link, int64_t now)
{
	return now >= link->end_by || (!link->heard && now >= link->asked_by);
}

static void step_cancelled_statement(struct link *link, int64_t now)
{
	struct err err;
	bool over = !pg_step(link->pg, &err);
	link->heard |= link->cancel && link->cancel_of == link->made &&
		       pg_cancel_outcome(link->cancel) == PG_CANCEL_TAKEN;
	if (!over && pg_state(link->pg) == PG_BUSY)
		drop_answer(link);
	if (over || pg_state(link->pg) != PG_BUSY || is_unheard(link, now))
		close_link_connection(link);
	else if (now >= link->cancel_at)
		ask_for_end(link, now);
}

static bool is_introduced(const struct link *link)
{
	return pg_state(link->pg) != PG_CONNECTING && link->stage == LINK_KNOWN;
}

/*
 * Must the attempt be given up? The server may have a session for it, and does not notice that the
 * client has gone: another attempt would add another session. So the link waits until the server
 * has ended the session; for an authenticated session it waits without a limit. The timeouts of
 * TCP notice a host that is gone. An attempt that hangs counts as lost at once: operators must see
 * that the server does not answer.
 */
static bool is_hopeless(struct link *link, int64_t now, struct err *err)
{
	bool connecting = pg_state(link->pg) == PG_CONNECTING;
	enum pg_connecting how = connecting ? pg_connecting(link->pg) : PG_STARTS_UP;
	int64_t upto = link->begun_at + START_UP_MS;
	if (now < link->connect_by)
		return false;

	err_set(err, ERR_RETRY, "%s does not answer", pg_place(link->pg));
	text_copy(link->error, sizeof link->error, err->message);
	link->connect_by = how == PG_STARTS_UP ? upto : now + CONNECT_TIMEOUT_MS;
	if (how == PG_REACHES || (how == PG_STARTS_UP && now >= upto))
		return true;
	link->lost_count += !link->hangs;
	link->hangs = true;
	return false;
}

enum link_event link_step(struct link *link, int64_t now)
{
	struct err err;
	if (link->pg && link->ending)
		step_cancelled_statement(link, now);
	if (link->pg && link->ending)
		return LINK_NONE;
	if (!link->pg && now >= link->connect_at)
		begin_connection(link, now);
	if (!link->pg)
		return LINK_NONE;

	/* Nothing came on an idle connection: a step would only cost a system call. */
	bool spares = link->quiet && pg_state(link->pg) == PG_IDLE;
	if (!spares && !pg_step(link->pg, &err))
		return lose_connection(link, now, &err);

	enum pg_state state = pg_state(link->pg);
	if (state == PG_LOST)
		return lose_connection(link, now, NULL);
	bool made = is_introduced(link);
	if (!made && is_hopeless(link, now, &err))
		return lose_connection(link, now, &err);
	if (state == PG_CONNECTING)
		return LINK_NONE;

	enum link_event event = state == PG_BUSY ? LINK_ANSWER : LINK_READY;
	if (!made)
		event = introduce_session(link, now);
	if (event == LINK_READY) {
		link->hangs = false;
		link->error[0] = '\0';
		backoff_reset(&link->backoff);
	}
	return event;
}

int64_t link_wait(const struct link *link)
{
	if (!link->pg)
		return link->connect_at;
	if (link->ending)
		return link->cancel_at;
	return is_introduced(link) ? INT64_MAX : link->connect_by;
}
