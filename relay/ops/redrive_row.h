#pragma once
/* A new redrive in the database: a row of outbox.redrive, on which job_row.h works. */
#include "config.h"
#include "pg.h"

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
