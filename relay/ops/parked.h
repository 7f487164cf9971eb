#pragma once
/*
 * Parked rows of one publisher that an operator selects, and queries about them. Rows are named by
 * id (12 13), or selected by terms that must all hold:
 *
 *   topic=orders  key=42  key=\x00ff  error="too large"  parked=2026-01-02..  state=dead ids=10..20
 */
#include <jansson.h>
#include "database.h"

enum { PARKED_STATES = 6 };
extern const char *const parked_states[PARKED_STATES];

/* parked_init and parked_finish. */
struct parked {
	const struct publisher_settings *publisher;
	struct pg *pg;  /* NULL until the first query */
	json_t *chosen; /* as outbox.parked_is takes it; {}: all rows of the publisher */
	int id_count;   /* number of rows named by id; 0: terms select them */
};

void parked_init(struct parked *parked, const struct publisher_settings *publisher);
void parked_finish(struct parked *parked);

/* Reads ids or terms into `chosen`. Bare ids are refused unless may_name_ids. */
bool parked_choose(struct parked *parked, const char *const *words, int count, bool may_name_ids,
    struct err *err) MUST_CHECK;
/*
 * Adds a condition as programs write it: topic, key, error and state as above; from and to, moments
 * of parking, the second of which is no part of the range; from_id and to_id, both part of it.
 */
bool parked_choose_member(
    struct parked *parked, const char *name, const char *value, struct err *err) MUST_CHECK;
/* One bare id. */
bool parked_id(const char *word, int64_t *ret_id, struct err *err) MUST_CHECK;

/* The chosen rows by state, in the order of parked_states, among the first COUNTED_ROWS rows. */
struct parked_totals {
	int64_t counts[PARKED_STATES];
	bool exact; /* there are fewer rows */
};
bool parked_count_states(
    struct parked *parked, struct parked_totals *ret_totals, struct err *err) MUST_CHECK;

/* `chosen` as text; the caller frees. */
char *parked_chosen(const struct parked *parked);

/* database_query, which connects first if need be. */
struct pg_result *parked_query(struct parked *parked, const char *sql,
    const struct pg_param *params, int count, struct err *err);
