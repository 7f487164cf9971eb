#include "redrive_row.h"

#include <inttypes.h>
#include "cleanup.h"
#include "database.h"
#include "sql_files.h"

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
