#include "pg_private.h"
#include "text.h"

static bool check_state(const PGconn *connection, const char *place, struct err *err)
{
	if (PQstatus(connection) != CONNECTION_OK)
		return err_set(err, ERR_RETRY, "%s: the connection was lost before", place);
	/*
	 * In pipeline mode the results of the application's own statements would come between ours.
	 */
	if (PQpipelineStatus(connection) != PQ_PIPELINE_OFF)
		return err_set(err, ERR_REJECT,
		    "%s: the connection is in pipeline mode: call PQexitPipelineMode before",
		    place);

	switch (PQtransactionStatus(connection)) {
	case PQTRANS_INTRANS:
		return true;
	case PQTRANS_INERROR:
		return err_set(
		    err, ERR_REJECT, "%s: the open transaction has failed: roll it back", place);
	case PQTRANS_ACTIVE:
		return err_set(err, ERR_REJECT,
		    "%s: a statement is under way on the connection: take its results first",
		    place);
	default:
		return err_set(err, ERR_REJECT,
		    "%s: no transaction is open on the connection: begin one before", place);
	}
}

struct pg *pg_borrow(struct pg_conn *connection, struct err *err)
{
	struct pg *pg = xcalloc(1, sizeof *pg);
	*pg = (struct pg){.connection = connection, .borrowed = true, .state = PG_IDLE};
	pg_note_place(pg);
	if (check_state(connection, pg->place, err))
		return pg;
	pg_destroy(pg);
	return NULL;
}
