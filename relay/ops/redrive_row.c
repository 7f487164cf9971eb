#include "redrive_row.h"

#include <inttypes.h>
#include "cleanup.h"
#include "clock.h"
#include "database.h"
#include "job_owner.h"
#include "sql_files.h"

/* Longer than a batch takes while the broker or the database does not answer. */
#define LEASE_MS "30000"

bool redrive_row_create(struct pg *pg, const struct postgres_settings *postgres,
    const struct redrive_new *order, int64_t *ret_id, int64_t *ret_audit, struct err *err)
{
	owned_text char *total = xformat("%" PRId64, order->total);
	const struct pg_param params[] = {{order->reason}, {order->caller}, {order->section},
	    {order->filter}, {order->ends}, {total}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = database_query(pg, postgres, sql_redrive_create, params, 6, err);

	if (!row)
		return false;
	*ret_id = pg_int(row, 0, 0);
	*ret_audit = pg_int(row, 0, 1);
	return true;
}

bool redrive_row_take(struct redrive_row *row, struct pg *pg,
    const struct postgres_settings *postgres, bool *ret_taken, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, row->id);
	owned_text char *nonce = xformat("%" PRId64, row->nonce = clock_random());
	owned_text char *owner = job_owner_name();
	const struct pg_param params[] = {{id}, {nonce}, {owner}, {LEASE_MS}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *answer = database_query(pg, postgres, sql_redrive_take, params, 4, err);

	if (!answer)
		return false;
	*ret_taken = pg_int(answer, 0, 0) == 1;
	return true;
}

bool redrive_row_note(struct redrive_row *row, struct pg *pg,
    const struct postgres_settings *postgres, const char *state, const char *error, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, row->id);
	owned_text char *nonce = xformat("%" PRId64, row->nonce);
	owned_text char *done = xformat("%" PRId64, row->done);
	const struct pg_param params[] = {{id}, {nonce}, {done}, {state}, {LEASE_MS}, {error}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *answer = database_query(pg, postgres, sql_redrive_note, params, 6, err);

	if (!answer)
		return false;
	if (pg_int(answer, 0, 0) == 0)
		return err_set(err, ERR_FENCED,
		    "redrive %s was taken by another process, or was cancelled", id);
	return true;
}
