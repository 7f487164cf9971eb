#include "link.h"

#include "clock.h"
#include "copy_binary.h"
#include "sql_files.h"
#include "text.h"

enum { CONNECT_TIMEOUT_MS = 10000 };

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

void link_finish(struct link *link)
{
	pg_destroy(link->pg);
	link->pg = NULL;
}

void link_drop(struct link *link, int64_t now, const struct err *err)
{
	if (err)
		text_copy(link->error, sizeof link->error, err->message);
	link_finish(link);
	link->connect_at = now + backoff_next_ms(&link->backoff);
	link->lost_count++;
}

void link_failed(struct link *link, int64_t now, const struct err *err)
{
	const char *sqlstate = link->pg ? pg_sqlstate(link->pg) : "";
	bool no_statement = text_equal(sqlstate, "26000");
	link->pooled |= no_statement;
	link->prepared &= !no_statement;
	/* a standby; the log row is not there (window_guard); the plan's type has changed */
	if (text_equal(sqlstate, "25006") || text_equal(sqlstate, "OR001") ||
	    text_equal(sqlstate, "0A000"))
		link_drop(link, now, err);
}

static void begin(struct link *link, int64_t now)
{
	struct err err;
	link->connect_by = now + CONNECT_TIMEOUT_MS;
	link->introduced = !link->statements || link->pooled;
	link->prepared = link->quiet = false;
	link->answers = 0;
	link->pg = pg_start(link->dsn, link->name, &err);
	if (!link->pg)
		link_drop(link, now, &err);
}

static enum link_event lose(struct link *link, int64_t now, const struct err *err)
{
	link_drop(link, now, err);
	return LINK_LOST;
}

/* The first answer is the process that serves; a pooler gave another one when it let us in. */
static void hear(struct link *link, const struct pg_result *result)
{
	int answers = ++link->answers;
	link->prepared = !link->statements[answers - 1].name;
	link->introduced = link->prepared || (answers == 1 && copy_int32(pg_value(result, 0, 0)) !=
								  pg_backend(link->pg));
}

/* Asks whose session it is and prepares the statements in it, one a step. */
static enum link_event introduce(struct link *link, int64_t now)
{
	struct err err;
	if (pg_state(link->pg) == PG_BUSY) {
		bool done;
		OWNED(owned_pg_result_destroy) struct pg_result *result = NULL;
		bool good = pg_receive(link->pg, &done, &result, &err);
		if (!good && pg_state(link->pg) == PG_LOST)
			return lose(link, now, &err);
		if (!done)
			return LINK_NONE;
		if (good)
			hear(link, result);
		else /* without being prepared it fails again, where that is told */
			link->introduced = true;
	}
	if (link->introduced)
		return LINK_READY;
	const struct link_statement *next = &link->statements[link->answers - 1];
	bool sent = link->answers == 0 ? pg_send(link->pg, sql_backend, NULL, 0, &err)
				       : pg_send_prepare(link->pg, next->name, next->sql, &err);
	return sent ? LINK_NONE : lose(link, now, &err);
}

static bool is_made(const struct link *link)
{
	return pg_state(link->pg) != PG_CONNECTING && link->introduced;
}

enum link_event link_step(struct link *link, int64_t now)
{
	struct err err;
	if (!link->pg && now >= link->connect_at)
		begin(link, now);
	if (!link->pg)
		return LINK_NONE;
	bool spares = link->quiet && pg_state(link->pg) == PG_IDLE;
	if (!spares && !pg_step(link->pg, &err))
		return lose(link, now, &err);
	enum pg_state state = pg_state(link->pg);
	if (state == PG_LOST)
		return lose(link, now, NULL);
	bool made = is_made(link);
	if (!made && now >= link->connect_by) {
		err_set(&err, ERR_RETRY, "%s does not answer", pg_place(link->pg));
		return lose(link, now, &err);
	}
	if (state == PG_CONNECTING)
		return LINK_NONE;
	enum link_event event = state == PG_BUSY ? LINK_ANSWER : LINK_READY;
	if (!made)
		event = introduce(link, now);
	if (event == LINK_READY) {
		link->error[0] = '\0';
		backoff_reset(&link->backoff);
	}
	return event;
}

int64_t link_wait(const struct link *link)
{
	if (!link->pg)
		return link->connect_at;
	return is_made(link) ? INT64_MAX : link->connect_by;
}
