#include "postgres_session.h"

#include <inttypes.h>
#include <string.h>
#include "clock.h"
#include "sql_files.h"
#include "text.h"

void postgres_session_init(struct postgres_session *server, const char *dsn, int timeout_ms,
    enum postgres_session_kind kind)
{
	*server = (struct postgres_session){
	    .dsn = xstrdup(dsn ? dsn : ""), .timeout_ms = timeout_ms, .kind = kind};
}

void postgres_session_finish(struct postgres_session *server)
{
	postgres_session_leave(server);
	free(server->dsn);
	*server = (struct postgres_session){0};
}

void postgres_session_leave(struct postgres_session *server)
{
	pg_destroy(server->pg);
	server->pg = NULL;
}

static int left_until(int64_t end)
{
	int64_t left = end - clock_ms();
	return left > 0 ? (int)left : 0;
}

/* A standby shows older data than the primary has confirmed. */
static bool judge_postgres_session(
    const struct postgres_session *server, const struct pg_result *session, struct err *err)
{
	const char *place = pg_place(server->pg);

	if (text_equal(pg_value(session, 0, 1), "t"))
		return err_set(err, ERR_RETRY,
		    "%s: this is a standby: name the primary in the dsn, or all hosts and "
		    "target_session_attrs=read-write",
		    place);
	if (server->kind == POSTGRES_SESSION_OWN && !text_equal(pg_value(session, 0, 0), "t"))
		return err_set(err, ERR_CONFIG,
		    "%s: a pooler is between, and locks need a session of their own: name the "
		    "server itself in the dsn, or take ids in the transaction of their effect "
		    "(outbox_dedup_take)",
		    place);
	return true;
}

static bool begin_postgres_session(struct postgres_session *server, int64_t end, struct err *err)
{
	owned_text char *process = xformat("%d", pg_backend(server->pg));
	owned_text char *timeout = xformat("%d", server->timeout_ms);
	const struct pg_param params[] = {{process}, {timeout}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *session =
	    pg_query_within(server->pg, sql_dedup_session, params, 2, left_until(end), err);
	return session && judge_postgres_session(server, session, err);
}

static bool connect_until(struct postgres_session *server, int64_t end, struct err *err)
{
	struct err lost;

	if (server->pg && !pg_step(server->pg, &lost)) /* while the session was idle */
		postgres_session_leave(server);
	if (server->pg)
		return true;

	server->pg = server->kind == POSTGRES_SESSION_PLAIN
			 ? pg_connect_plain(server->dsn, "outbox dedup", left_until(end), err)
			 : pg_connect(server->dsn, "outbox dedup", left_until(end), err);
	if (server->pg && begin_postgres_session(server, end, err)) {
		server->sessions++;
		return true;
	}
	postgres_session_leave(server);
	return false;
}

bool postgres_session_connect(struct postgres_session *server, struct err *err)
{
	return connect_until(server, clock_ms() + server->timeout_ms, err);
}

struct pg_result *postgres_session_ask(struct postgres_session *server, const char *sql,
    const struct pg_param *params, int count, char *ret_sqlstate, struct err *err)
{
	int64_t end = clock_ms() + server->timeout_ms;

	if (ret_sqlstate)
		ret_sqlstate[0] = '\0';
	if (!connect_until(server, end, err))
		return NULL;

	struct pg_result *result =
	    pg_query_within(server->pg, sql, params, count, left_until(end), err);
	if (result)
		return result;
	/* A refusal leaves the connection idle; a lost connection refused nothing. */
	if (ret_sqlstate && pg_state(server->pg) == PG_IDLE)
		text_copy(ret_sqlstate, 6, pg_sqlstate(server->pg));
	postgres_session_leave(server);
	return NULL;
}
