#pragma once
/*
 * The second check of ids that a filter may have, by a query of the business (confirm=sql): which
 * of these ids exist? One query for each batch, on a connection of its own, also through PgBouncer.
 *
 * $1 of the query is an array of ids. The query returns one column: the ids that exist, written
 * exactly as in $1. Owned by one thread.
 */
#include "postgres_session.h"
#include "dedup_store.h"
#include "pg_array.h"

struct dedup_confirmer;

/* Does confirm=sql have a query? Without confirm=sql, query and dsn are refused. */
bool dedup_confirm_check(const struct dedup_spec *spec, struct err *err) MUST_CHECK;

/*
 * Runs the query once, with an empty array. NULL and err: ERR_CONFIG if the server refuses the
 * query, or its result is not one column without rows; else the errors of pg.h.
 */
struct dedup_confirmer *dedup_confirm_open(const struct dedup_spec *spec, struct err *err);
void dedup_confirm_close(struct dedup_confirmer *confirm); /* NULL is fine */

/* Can the query be run for this id? ERR_REJECT: no, PostgreSQL has no text with these bytes. */
bool dedup_confirm_takes(
    struct dedup_confirmer *confirm, const struct dedup_item *item, struct err *err) MUST_CHECK;
/*
 * Runs the query for the items at these places. ret_there: one for each place, in their order; does
 * the id exist? ERR_REJECT: the query cannot compare one of the ids; ERR_CONFIG: the query returned
 * an id that is not in $1; ERR_RETRY: the server does not answer.
 */
bool dedup_confirm_ask(struct dedup_confirmer *confirm, const struct dedup_item *items,
    const size_t *places, size_t count, bool *ret_there, struct err *err) MUST_CHECK;
