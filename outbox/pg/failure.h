#pragma once
/*
 * Within outbox/pg: what Postgres, PgBouncer and libpq say when something fails, turned into one
 * line and a kind. Pure, without libpq. No line shows a password, nor a DETAIL of the server, which
 * may quote the row.
 */
#include <stddef.h>
#include "errors.h"

enum { SQLSTATE_SIZE = 6 }; /* five characters and the NUL */

/* The kind of an SQLSTATE ("" is unknown: ERR_FATAL). ret_advice may be NULL; set to NULL if none.
 */
enum err_kind failure_kind(const char *sqlstate, const char **ret_advice);

/* A statement failed: "place: message (SQLSTATE 42P01); advice". hint is the server's, or NULL. */
bool failure_of_statement(const char *place, const char *sqlstate, const char *message,
    const char *hint, struct err *err);

/*
 * Connecting failed. text is libpq's, in its verbose form, which is the only one that carries the
 * SQLSTATE while no result exists. Text that tells of no server at all is about the dsn.
 */
bool failure_of_connecting(const char *dsn, const char *place, const char *text,
    char ret_sqlstate[SQLSTATE_SIZE], struct err *err);

/* The dsn cannot be used. What text quotes is left out when it may be a part of a password. */
bool failure_of_dsn(const char *dsn, const char *text, struct err *err);
