#include "link.h"

#include "clock.h"
#include "text.h"

enum { CONNECT_TIMEOUT_MS = 10000 };

void link_init(struct link *link, const char *dsn, const char *name)
{
	*link = (struct link){
	    .dsn = dsn,
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
	/* read_only_sql_transaction; the log row is not there (window_guard) */
	if (link->pg && (text_equal(pg_sqlstate(link->pg), "25006") ||
			    text_equal(pg_sqlstate(link->pg), "OR001")))
		link_drop(link, now, err);
}

static void begin(struct link *link, int64_t now)
{
	struct err err;
	link->connect_by = now + CONNECT_TIMEOUT_MS;
	link->pg = pg_start(link->dsn, link->name, &err);
	if (!link->pg)
		link_drop(link, now, &err);
}

enum link_event link_step(struct link *link, int64_t now)
{
	struct err err;
	if (!link->pg && now >= link->connect_at)
		begin(link, now);
	if (!link->pg)
		return LINK_NONE;
	if (!pg_step(link->pg, &err)) {
		link_drop(link, now, &err);
		return LINK_LOST;
	}
	switch (pg_state(link->pg)) {
	case PG_IDLE:
		link->error[0] = '\0';
		backoff_reset(&link->backoff);
		return LINK_READY;
	case PG_BUSY:
		return LINK_ANSWER;
	case PG_CONNECTING:
		if (now < link->connect_by)
			return LINK_NONE;
		err_set(&err, ERR_RETRY, "%s does not answer", pg_place(link->pg));
		link_drop(link, now, &err);
		return LINK_LOST;
	case PG_LOST:
		break;
	}
	link_drop(link, now, NULL);
	return LINK_LOST;
}

int64_t link_wait(const struct link *link)
{
	if (!link->pg)
		return link->connect_at;
	return pg_state(link->pg) == PG_CONNECTING ? link->connect_by : INT64_MAX;
}
