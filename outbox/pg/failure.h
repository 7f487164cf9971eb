#pragma once
/*
 * Within outbox/pg: turns an error of Postgres, PgBouncer or libpq into one line and a kind. Pure,
 * without libpq. No line shows a password, nor a DETAIL of the server, which may quote the row.
 */
#include <stddef.h>
#include "errors.h"

enum { SQLSTATE_SIZE = 6 }; /* five characters and the NUL */

/*
 * The kind of an SQLSTATE ("" is unknown: ERR_FATAL). *ret_advice is NULL if there is no advice;
 * ret_advice may be NULL.
 */
enum err_kind failure_kind(const char *sqlstate, const char **ret_advice);

/* A statement failed: "place: message (SQLSTATE 42P01); advice". hint is the server's, or NULL. */
bool failure_of_statement(const char *place, const char *sqlstate, const char *message,
    const char *hint, struct err *err);

/*
 * Connecting failed. text is libpq's message in its verbose form, the only one that carries the
 * SQLSTATE while no result exists. A text that mentions no server is about the dsn.
 */
bool failure_of_connecting(const char *dsn, const char *place, const char *text,
    char ret_sqlstate[SQLSTATE_SIZE], struct err *err);

/* The dsn cannot be used. Omits the quoted parts of text if they may belong to a password. */
bool failure_of_dsn(const char *dsn, const char *text, struct err *err);
