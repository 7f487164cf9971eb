#pragma once
/*
 * Ids of the look-back that an operator selects, and queries about them. Ids are named (TYPE ID…),
 * or selected by values that must all hold: type, section, state, service, error, from, to.
 */
#include <jansson.h>
#include "database.h"

/* lookback_selection_init and lookback_selection_finish. */
struct lookback_selection {
	const struct config *config;
	const char *section; /* the [postgres] section to ask; NULL: that of the selected ids */
	const struct postgres_settings *postgres; /* NULL until the first query */
	struct pg *pg;                            /* the same */
	json_t *chosen; /* as outbox.lookback_operate takes it; {}: all that is overdue or parked */
	const char *type; /* business type of the named ids; NULL: ids are selected by values */
	const char *const *ids;
	int id_count;
};

/* The pointers must outlive it. */
void lookback_selection_init(
    struct lookback_selection *selection, const struct config *config, const char *section);
void lookback_selection_finish(struct lookback_selection *selection);

/* words: a type and its ids; they must outlive the selection. No word at all is fine. */
bool lookback_selection_name(struct lookback_selection *selection, const char *const *words,
    int count, struct err *err) MUST_CHECK;
/* May this text be a business type? */
bool lookback_selection_check_type(const char *type, struct err *err) MUST_CHECK;

/* `chosen` as text; the caller frees. */
char *lookback_selection_chosen(const struct lookback_selection *selection);

/* Chooses the database and connects, if need be. */
bool lookback_selection_connect(struct lookback_selection *selection, struct err *err) MUST_CHECK;
/* database_query, which connects first if need be. */
struct pg_result *lookback_selection_query(struct lookback_selection *selection, const char *sql,
    const struct pg_param *params, int count, struct err *err);

/* Columns of lookback_list.sql; lookback_find.sql and lookback_show.sql begin with the same. */
enum lookback_selection_column {
	SELECTION_TYPE,
	SELECTION_ID,
	SELECTION_STATE,
	SELECTION_SECTION,
	SELECTION_PREPARED,
	SELECTION_SERVICE,
	SELECTION_URL,
	SELECTION_ATTEMPTS,
	SELECTION_PENDINGS,
	SELECTION_NEXT_AT,
	SELECTION_EXPIRES,
	SELECTION_RESULT,
	SELECTION_ERROR,
	SELECTION_LAST_AT,
	SELECTION_COLUMNS
};
/* Columns behind them, of lookback_list.sql and lookback_waiting.sql; the last is of the latter
 * alone. */
enum { LISTED_PLACE = SELECTION_COLUMNS, LISTED_SINCE, LISTED_CLAIMED, LISTED_MEANT };

/* overdue, parked, undecided */
enum { LOOKBACK_STATES = 3 };
extern const char *const lookback_states[LOOKBACK_STATES];

/* The number of prepares that a page or a count of undecided ids looks at in the journal. */
#define LOOKBACK_JOURNAL_ROWS "10000"

/*
 * The chosen ids by state, among the first 100,000 overdue and parked rows, and, if `undecided`,
 * those that are not due yet, among the first LOOKBACK_JOURNAL_ROWS prepares.
 */
struct lookback_totals {
	int64_t counts[LOOKBACK_STATES]; /* in the order of lookback_states */
	bool exact;                      /* there are no further rows */
};
bool lookback_totals_count(struct pg *pg, const struct postgres_settings *postgres,
    const char *chosen, bool undecided, struct lookback_totals *ret_totals,
    struct err *err) MUST_CHECK;
