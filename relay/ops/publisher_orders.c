#include "publisher_orders.h"

#include "cleanup.h"
#include "sql_files.h"
#include "text.h"

const char publisher_rebase_question[] = "Rebase all publishers?";

bool publisher_pause(struct pg *pg, const struct postgres_settings *postgres,
    const struct publisher_pause *order, int64_t *ret_audit, struct err *err)
{
	const struct pg_param params[] = {
	    {order->publisher}, {order->pauses ? "t" : "f"}, {order->reason}, {order->caller}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = database_query(pg, postgres, sql_publisher_pause, params, 4, err);

	if (!row)
		return false;
	*ret_audit = pg_is_null(row, 0, 0) ? 0 : pg_int(row, 0, 0);
	return true;
}

/* Ends the transaction; without it the session would keep its locks. */
static bool end_rebase(struct pg *pg, bool done, struct err *err)
{
	struct err ignored;

	if (done)
		return pg_script(pg, "commit", err);
	if (pg_state(pg) != PG_LOST && !pg_script(pg, "rollback", &ignored))
		err->kind = ERR_RETRY; /* the session is not used again */
	return false;
}

bool publisher_rebase(struct pg *pg, const struct postgres_settings *postgres,
    struct publisher_rebase *order, struct err *err)
{
	const struct pg_param params[] = {
	    {order->reason}, {order->new_identity ? "t" : "f"}, {order->caller}};
	OWNED(owned_pg_result_destroy) struct pg_result *done = NULL;

	if (!pg_script(pg, sql_rebase_begin, err))
		return false;
	done = database_query(pg, postgres, sql_rebase, params, 3, err);
	/* 55P03: a lock; 23505: a row of the log was written meanwhile. Both pass by themselves */
	if (!done && (text_equal(pg_sqlstate(pg), "55P03") || text_equal(pg_sqlstate(pg), "23505")))
		err_set(err, ERR_RETRY,
		    "upkeep or another session holds the table or the log; nothing was changed: "
		    "repeat the call");
	if (done) {
		order->audit = pg_int(done, 0, 0);
		order->restamped = pg_int(done, 0, 1);
	}
	return end_rebase(pg, done != NULL, err);
}

struct pg_result *publisher_rebase_plan(
    struct pg *pg, const struct postgres_settings *postgres, struct err *err)
{
	struct pg_result *plan;

	if (!pg_script(pg, sql_rebase_begin, err))
		return NULL;
	plan = database_query(pg, postgres, sql_rebase_plan, NULL, 0, err);
	if (end_rebase(pg, plan != NULL, err))
		return plan;
	pg_result_destroy(plan);
	return NULL;
}
