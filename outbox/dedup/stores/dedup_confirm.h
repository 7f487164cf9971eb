#pragma once
/*
 * The second check of what a filter may have, by a query of the business (confirm=sql): which of
 * these ids has it? One query a batch, on a connection of its own, through PgBouncer if need be.
 *
 * $1 of the query is an array of ids; it returns one column, each id that is there as it was asked.
 * Owned by one thread.
 */
#include "postgres_session.h"
#include "dedup_store.h"
#include "pg_array.h"

struct dedup_confirmer;

/*
 * Runs the query once, with an empty array. NULL and err: ERR_CONFIG for a query that the server
 * refuses, or that returns what it should not; else as pg.h.
 */
struct dedup_confirmer *dedup_confirm_open(const struct dedup_spec *spec, struct err *err);
void dedup_confirm_close(struct dedup_confirmer *confirm); /* NULL is fine */

/* Can it be asked for? ERR_REJECT: no, it is no text of Postgres. */
bool dedup_confirm_takes(
    struct dedup_confirmer *confirm, const struct dedup_item *item, struct err *err) MUST_CHECK;
/*
 * ret_there: of the items at these places, in the places' order. ERR_REJECT: the query cannot
 * compare one of them; ERR_CONFIG: it returned what nobody asked for; ERR_RETRY: the server does
 * not answer.
 */
bool dedup_confirm_ask(struct dedup_confirmer *confirm, const struct dedup_item *items,
    const size_t *places, size_t count, bool *ret_there, struct err *err) MUST_CHECK;
