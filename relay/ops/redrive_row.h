#pragma once
/* A redrive in the database: a row of outbox.redrive with its order, progress, lease and fence
 * (0006_replay.sql). */
#include "config.h"
#include "pg.h"

struct redrive_row {
	int64_t id, nonce;
	int64_t total, done;
};

/* An order of the HTTP interface. The texts are the caller's. */
struct redrive_new {
	const char *section, *filter,
	    *ends; /* filter: a JSON object; ends: as redrive_choice_ends reads them */
	const char *reason, *caller;
	int64_t total;
};

/* Writes the row of a redrive that a relay takes, and the one of the audit. */
bool redrive_row_create(struct pg *pg, const struct postgres_settings *postgres,
    const struct redrive_new *order, int64_t *ret_id, int64_t *ret_audit,
    struct err *err) MUST_CHECK;
/* *ret_taken: false: another process has it. */
bool redrive_row_take(struct redrive_row *row, struct pg *pg,
    const struct postgres_settings *postgres, bool *ret_taken, struct err *err) MUST_CHECK;
/* state and error: as replay_note. ERR_FENCED: another process took it, or somebody cancelled it.
 */
bool redrive_row_note(struct redrive_row *row, struct pg *pg,
    const struct postgres_settings *postgres, const char *state, const char *error,
    struct err *err) MUST_CHECK;
