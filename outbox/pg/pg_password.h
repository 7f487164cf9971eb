#pragma once
/*
 * Passwords that a command prints: pg_start runs the command of the dsn before each connection, so
 * that a password or a token that changes needs no restart.
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"

/*
 * From now on each connection by this very dsn gets its password from the command, which replaces
 * the password of the dsn. The command is run by /bin/sh -c; limit_ms is the time that it has. Call
 * it before threads connect; a later call for the same dsn wins.
 */
void pg_password_from(const char *dsn, const char *command, int64_t limit_ms);

/* The time that the command of the dsn has; 0: the dsn has no command. */
int64_t pg_password_limit_ms(const char *dsn);

struct pg_password;
/* Starts the command of the dsn and returns at once. *ret NULL: the dsn has none. */
bool pg_password_begin(const char *dsn, struct pg_password **ret, struct err *err) MUST_CHECK;
/* Readable when pg_password_step has something to do, also when the time is over. */
int pg_password_fd(const struct pg_password *password);
/*
 * Never blocks. *ret_text NULL: the command still runs. The text is wiped by pg_password_destroy.
 * ERR_RETRY: the command failed; the message names the key and the cure, and no output.
 */
bool pg_password_step(
    struct pg_password *password, const char **ret_text, struct err *err) MUST_CHECK;
/* Kills the command and its process group if it still runs. NULL is fine. */
void pg_password_destroy(struct pg_password *password);
