#pragma once
/* Questions to a database, for the verbs that ask one. Internal to relay/admin. */
#include "api_private.h"

/* Without the end of a sentence: a database is away, and the cure. */
#define API_DATABASE_AWAY                                                                          \
	"the database does not answer: check that it runs and that the relay reaches it; the log " \
	"of the relay says why"

void api_log_database_error(const struct api_call *call, const struct err *err);
/* Refuses a call for an error of a database: 503 no_database, or 500 database_error. Logs it. */
void api_refuse_database(struct api_call *call, const struct err *err);

/* Hands the question (on the heap; it becomes the call's work) to the database. */
void api_look_ask(struct api_call *call, const struct postgres_settings *postgres, const char *sql,
    struct api_question *question);

/* Conditions of a list of ids, and of an order about all that match. */
bool api_look_is_condition(const char *name);
/*
 * The value of a condition as the database takes it; the caller has the reference. *ret_undecided:
 * it is the state undecided, which orders do not take: they have NULL here. NULL: *err says why it
 * is none.
 */
json_t *api_look_condition(
    const char *name, const char *value, bool *ret_undecided, struct err *err);

/*
 * The database of this [postgres] section, or else of the type, or else of the section, or else the
 * only one (all NULL). NULL: the call is refused.
 */
const struct postgres_settings *api_look_postgres(
    struct api_call *call, const char *postgres, const char *type, const char *section);
