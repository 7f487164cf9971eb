#pragma once
/*
 * Commands that a relay carries out over its HTTP interface (docs/reference/api.md) instead of a
 * database: with --server URL, or the variable OUTBOX_RELAY_SERVER.
 *
 *   if (server_is_used(call))
 *       return server_ask(call, "/v1/parked?limit=10", NULL, &answer, err) && …
 */
#include <jansson.h>
#include "call.h"
#include "errors.h"
#include "text.h"

/* The rows of a command that has --server. The command line takes them anywhere. */
#define SERVER_OPTIONS                                                                             \
	{"server", "URL",                                                                          \
	    "Sends the request to the HTTP interface of this relay, which needs no access to the " \
	    "database (default: OUTBOX_RELAY_SERVER)."},                                           \
	    {"token-file", "FILE",                                                                 \
		"File with the token for --server (default: OUTBOX_RELAY_TOKEN_FILE, else the "    \
		"token in OUTBOX_RELAY_TOKEN)."},                                                  \
	{                                                                                          \
		"server-ca", "FILE",                                                               \
		    "Certificate authorities (PEM) of --server (default: OUTBOX_RELAY_SERVER_CA, " \
		    "else those of the system)."                                                   \
	}

bool server_is_used(const struct call *call);

/*
 * Sends a request: a GET, or a POST if there is a body, which is borrowed. True: the status is 200
 * or 202, and the caller owns *ret_answer. Else the error has the detail of the relay's answer;
 * ERR_REJECT: the same request fails again; ERR_RETRY: it may succeed later.
 */
bool server_ask(const struct call *call, const char *path, const json_t *body, json_t **ret_answer,
    struct err *err) MUST_CHECK;

/*
 * GET /v1/jobs/{id}, such as "replay-3"; the caller owns *ret_job. postgres: the section of its
 * database, which the answer to the order has.
 */
bool server_ask_job(const struct call *call, const char *id, const char *postgres, json_t **ret_job,
    struct err *err) MUST_CHECK;
/* Is it finished, cancelled or failed? */
bool server_job_is_over(const json_t *job);
/* Prints a line about a job. what: the noun of its numbers, such as "rows". */
void server_print_job(const json_t *job, const char *what);
/*
 * Calls `show` with each state of a job until it is over, and returns the last one at *ret_job,
 * also after an error (NULL: none). ERR_REJECT: the job failed, or was cancelled. ERR_RETRY:
 * Ctrl-C; the job goes on, and the error says how to watch or cancel it.
 */
bool server_follow_job(const struct call *call, const char *id, const char *postgres,
    void (*show)(void *context, const json_t *job), void *context, json_t **ret_job,
    struct err *err) MUST_CHECK;
/* Follows a job, and prints each change. */
bool server_watch_job(const struct call *call, const char *id, const char *postgres,
    const char *what, struct err *err) MUST_CHECK;

/* Appends "?name=value" or "&name=value", encoded. NULL: nothing is appended. */
void server_add_argument(struct text *path, const char *name, const char *value);
/* Appends a part of a path, encoded, with its slashes. */
void server_add_name(struct text *path, const char *name);

/*
 * Lists have pages. Moves *after, the place where a page began (NULL: the first row), to the place
 * behind it, or to NULL after the last one. The caller frees it.
 */
void server_turn_page(const json_t *page, char **after);
/* Asks for all pages of the list at this path; the caller owns *ret_rows. */
bool server_ask_list(
    const struct call *call, const char *path, json_t **ret_rows, struct err *err) MUST_CHECK;

/*
 * Members of an order: --reason, unless it is a dry run; --force as a list; --postgres; the
 * question that the operator has confirmed (NULL: a dry run).
 */
bool server_add_reason(json_t *body, const struct call *call, struct err *err) MUST_CHECK;
void server_add_force(json_t *body, const struct call *call);
void server_add_postgres(json_t *body, const struct call *call);
void server_add_confirm(json_t *body, const char *question);
