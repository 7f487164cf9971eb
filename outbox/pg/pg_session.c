/*
 * Sets the settings that our statements depend on, so that defaults of the database and the role do
 * not change what the statements mean (sql/queries/session_settings.sql).
 */
#include "pg_private.h"
#include <stdio.h>
#include <string.h>
#include "sql_files.h"
#include "text.h"

char *pg_settings(const struct pg *pg)
{
	static const char place[] = ":process";
	const char *sql = sql_session_settings, *process = strstr(sql, place);

	return xformat("%.*s%d%s", (int)(process - sql), sql, PQbackendPID(pg->connection),
	    process + strlen(place));
}

bool pg_needs_settings(const struct pg *pg)
{
	return pg->pooled && PQtransactionStatus(pg->connection) == PQTRANS_IDLE;
}

bool pg_settle_begin(struct pg *pg, struct err *err)
{
	owned_text char *settings = pg_settings(pg);
	int left = PQsendQuery(pg->connection, settings) ? PQflush(pg->connection) : -1;

	pg->settling = true;
	pg->flushing = left > 0;
	return left < 0 ? pg_lose(pg, err) : true;
}

static bool end_settling(struct pg *pg, struct err *err)
{
	PGresult *answer = pg->answer;

	pg->settling = false;
	if (PQstatus(pg->connection) == CONNECTION_BAD || pg->farewell.message[0] || !answer)
		return pg_lose(pg, err);
	pg->answer = NULL;
	if (pg_is_error(answer)) {
		pg->state = PG_LOST;
		pg_report(pg, answer, err);
		PQclear(answer);
		return false;
	}

	/* The second column of every row says whether a pooler is between. */
	pg->pooled = PQntuples(answer) > 0 && text_equal(PQgetvalue(answer, 0, 1), "t");
	PQclear(answer);
	pg->state = PG_IDLE;
	return true;
}

bool pg_settle_step(struct pg *pg, struct err *err)
{
	PGresult *result;

	if (pg->flushing) {
		int left = PQflush(pg->connection);
		if (left < 0)
			return pg_lose(pg, err);
		pg->flushing = left > 0;
	}
	if (PQisBusy(pg->connection) && !pg_consume(pg))
		return pg_lose(pg, err);
	/*
	 * pg_keep_answer prefers an error: a failed setting must not be hidden by a later result.
	 */
	while (pg_take_result(pg, &result)) {
		if (!result)
			return end_settling(pg, err);
		pg_keep_answer(pg, result);
	}
	return true;
}

bool pg_is_pooled(const struct pg *pg)
{
	return pg->pooled;
}
