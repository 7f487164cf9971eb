#pragma once
/* A verification that the HTTP interface orders: a row of outbox.verification, on which job_row.h
 * works. */
#include <jansson.h>
#include "database.h"
#include "verification_result.h"

/* MiB for rows: a relay has other work, so it takes less than the command does by itself. */
enum { VERIFICATION_MEMORY = 64, VERIFICATION_MOST_MEMORY = 256 };

struct verification_order {
	struct verify_range range;
	struct verification_facts facts; /* from, to and no_duplicates */
	const char *sequence;            /* of the JSON object; NULL: none */
	int64_t memory;                  /* MiB */
};

/*
 * Reads from, to, sequence, no_duplicates and memory of a JSON object, which must outlive the
 * order. ERR_REJECT: a value is wrong; *ret_conflicts: each is well formed, but the range is empty
 * or begins in the future.
 */
bool verification_order_read(struct verification_order *order, const json_t *filter,
    bool *ret_conflicts, struct err *err) MUST_CHECK;

/* Writes the row of a verification that a relay takes, and the one of the audit. */
bool verification_create(struct pg *pg, const struct publisher_settings *publisher,
    const json_t *filter, const char *reason, const char *caller, int64_t *ret_id,
    int64_t *ret_audit, struct err *err) MUST_CHECK;

/* An estimate of the rows that it reads. False: there is none. */
bool verification_rows(struct pg *pg, const struct postgres_settings *postgres,
    const struct verify_range *range, int64_t *ret_rows, struct err *err) MUST_CHECK;
