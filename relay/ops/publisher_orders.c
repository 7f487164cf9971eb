#include "publisher_orders.h"

#include <string.h>
#include "cleanup.h"
#include "producer.h"
#include "sql_files.h"
#include "text.h"

enum { NAME_LENGTH = 40 };

const char publisher_rebase_question[] = "Rebase all publishers?";

bool publisher_pause(struct pg *pg, const struct postgres_settings *postgres,
    const struct publisher_pause *order, int64_t *ret_audit, struct err *err)
{
	const struct pg_param params[] = {{order->publisher}, {order->pauses ? "t" : "f"},
	    {order->reason}, {order->caller}, {order->topic}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = NULL;

	if (order->topic && !producer_topic_is_valid(order->topic))
		return err_set(err, ERR_REJECT,
		    "'%.60s' is no name of a Kafka topic: use 1 to 249 of A-Z, a-z, 0-9, '.', '_' "
		    "and '-'",
		    order->topic);
	row = database_query(pg, postgres, sql_publisher_pause, params, 5, err);
	if (!row)
		return false;
	*ret_audit = pg_is_null(row, 0, 0) ? 0 : pg_int(row, 0, 0);
	return true;
}

/* --- create ---------------------------------------------------------------------------------- */

bool publisher_start_read(const char *text, char ret_start[MOMENT_SIZE], struct err *err)
{
	int64_t us;

	if (text_equal(text, "now") || text_equal(text, "beginning")) {
		text_copy(ret_start, MOMENT_SIZE, text);
		return true;
	}
	if (!moment_parse(text, &us, err))
		return err_prefix(err, "start is neither now nor beginning, and");
	moment_format_exact(us, ret_start);
	return true;
}

bool publisher_name_check(const char *name, struct err *err)
{
	size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	return (!name[length] && length >= 1 && length <= NAME_LENGTH) ||
	       err_set(err, ERR_REJECT,
		   "'%.60s' is no name for a publisher: use 1 to %d of a-z, 0-9, - and _", name,
		   NAME_LENGTH);
}

bool publisher_create(struct pg *pg, const struct postgres_settings *postgres,
    struct publisher_creation *creation, struct err *err)
{
	owned_text char *shards = xformat("%d", creation->shards);
	const struct pg_param params[] = {{creation->publisher}, {shards}, {creation->start},
	    {creation->reason}, {creation->caller}};
	OWNED(owned_pg_result_destroy) struct pg_result *row = NULL;

	if (!publisher_name_check(creation->publisher, err))
		return false;
	row = database_query(pg, postgres, sql_publisher_create, params, 5, err);
	/* the name is the primary key */
	if (!row && text_equal(pg_sqlstate(pg), "23505"))
		err_set(err, ERR_REJECT, "publisher %s exists already in %s", creation->publisher,
		    pg_place(pg));
	if (!row)
		return false;
	creation->audit = pg_is_null(row, 0, 0) ? 0 : pg_int(row, 0, 0);
	return true;
}

/* --- rebase ---------------------------------------------------------------------------------- */

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
	if (!done &&
	    (text_equal(pg_sqlstate(pg), "55P03") || text_equal(pg_sqlstate(pg), "23505"))) {
		err_set(err, ERR_RETRY,
		    "upkeep or another session holds the table or the log; nothing was changed: "
		    "repeat the call");
		err_contended(err);
	}
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
