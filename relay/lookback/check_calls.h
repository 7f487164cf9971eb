#pragma once
/*
 * The statements of a checker: turns the wishes of a schedule into SQL on a connection. Owned by
 * the checker's thread.
 */
#include "config.h"
#include "link.h"
#include "schedule.h"

struct check_calls;

/* The schema must have passed schema_text_check. */
struct check_calls *check_calls_create(const struct config_lookback *lookback);
void check_calls_destroy(struct check_calls *calls); /* NULL is fine */

/* The statements that the links for claims and settlements prepare. */
const struct link_statement *check_calls_claims(const struct check_calls *calls);
const struct link_statement *check_calls_settles(const struct check_calls *calls);

/* Send a statement; the link must be ready. */
bool check_calls_claim(struct check_calls *calls, const struct link *link, const int *most,
    int64_t claim, struct err *err) MUST_CHECK;
bool check_calls_settle(struct check_calls *calls, const struct link *link,
    const struct schedule_row *rows, struct err *err) MUST_CHECK;
bool check_calls_figures(
    struct check_calls *calls, const struct link *link, struct err *err) MUST_CHECK;

/*
 * Whether an answer has the expected form and names no type that the section does not have. Ask it
 * before any of the functions below. ERR_FATAL: the database sends something else.
 */
enum check_answer_of { CHECK_ANSWER_CLAIMS, CHECK_ANSWER_FIGURES, CHECK_ANSWER_SETTLED };
bool check_calls_usable(const struct check_calls *calls, enum check_answer_of what,
    const struct pg_result *result, struct err *err) MUST_CHECK;

/*
 * Read one row of an answer. The caller fills in the claim of a claimed row and the time of the
 * claim; the result owns the texts.
 */
struct schedule_claimed check_calls_claimed(
    const struct pg_result *result, int row, const char **ret_service);
struct check_settled {
	int won, lost, strange;
	int duplicates; /* of those that won */
};
struct check_settled check_calls_settled(const struct pg_result *result);
/*
 * The settled rows that the table has as parked now: their places (from 1 on) in the list that was
 * sent, in ascending order. 0: there are no more.
 */
int check_calls_parked(const struct pg_result *result, int row);
struct check_type_figures {
	int type;
	int64_t overdue, parked, oldest_ms, unprepared, conflicts;
};
struct check_type_figures check_calls_type(const struct pg_result *result, int row);
