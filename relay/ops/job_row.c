#include "job_row.h"

#include <inttypes.h>
#include <stdlib.h>
#include "cleanup.h"
#include "clock.h"
#include "database.h"
#include "job_owner.h"
#include "sql_files.h"

/* Longer than a batch takes while the broker or the database does not answer. */
#define LEASE_MS "30000"

bool job_row_take(struct job_row *row, struct pg *pg, const struct postgres_settings *postgres,
    bool *ret_taken, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, row->id);
	owned_text char *nonce = xformat("%" PRId64, row->nonce = clock_random());
	owned_text char *owner = job_owner_name();
	const struct pg_param params[] = {{id}, {nonce}, {owner}, {LEASE_MS}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *answer = database_query(pg, postgres, row->take, params, 4, err);

	if (!answer)
		return false;
	*ret_taken = pg_int(answer, 0, 0) == 1;
	return true;
}

bool job_row_note(struct job_row *row, struct pg *pg, const struct postgres_settings *postgres,
    const char *state, const char *error, const json_t *more, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, row->id);
	owned_text char *nonce = xformat("%" PRId64, row->nonce);
	owned_text char *done = xformat("%" PRId64, row->done);
	owned_text char *columns = more ? json_dumps(more, JSON_REAL_PRECISION(6)) : xstrdup("{}");
	const struct pg_param params[] = {
	    {row->table}, {id}, {nonce}, {done}, {state}, {LEASE_MS}, {error}, {columns}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *answer = database_query(pg, postgres, sql_job_note, params, 8, err);

	if (!answer)
		return false;
	if (pg_int(answer, 0, 0) == 0)
		return err_set(err, ERR_FENCED,
		    "%s %s was taken by another process, or was cancelled", row->table, id);
	return true;
}
