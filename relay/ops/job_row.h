#pragma once
/* A job in the database that a relay carries out: the lease, fence and progress of its row
 * (0006_replay.sql). */
#include <jansson.h>
#include "config.h"
#include "pg.h"

struct job_row {
	const char *table; /* "redrive" */
	const char *take;  /* the statement that takes a row: redrive_take.sql */
	int64_t id, nonce;
	int64_t total, done; /* total: stored with the order */
};

/* *ret_taken: false: another process has it. */
bool job_row_take(struct job_row *row, struct pg *pg, const struct postgres_settings *postgres,
    bool *ret_taken, struct err *err) MUST_CHECK;
/*
 * state and error: as replay_note. more: further columns, as a JSON object; NULL: none.
 * ERR_FENCED: another process took it, or somebody cancelled it.
 */
bool job_row_note(struct job_row *row, struct pg *pg, const struct postgres_settings *postgres,
    const char *state, const char *error, const json_t *more, struct err *err) MUST_CHECK;
