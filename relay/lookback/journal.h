#pragma once
/*
 * The reader's calls to its database: the functions of sql/migrations/0011_lookback_flow.sql for
 * one section. Blocking; one thread owns it.
 */
#include "batch.h"
#include "config.h"
#include "errors.h"

struct journal;

enum { JOURNAL_CLOCK = 64 };

/* A partition of the look-back topic, as far as the reader has come. */
struct journal_place {
	int32_t partition;
	int64_t n;     /* number of its newest row in outbox.lookback_log; 0: none */
	int64_t start; /* the offset in that row; reading begins there */
	int64_t next;  /* the offset after the last record of the batch */
	/*
	 * Everything written to the partition by this time was read (journal_due's clock); "": not
	 * known.
	 */
	char horizon[JOURNAL_CLOCK];
};

/* No I/O. `reader` names the process in the log. The configuration outlives it. */
struct journal *journal_create(const struct config_lookback *lookback, const char *reader);
void journal_destroy(struct journal *journal); /* NULL is fine */

/*
 * All of these connect when there is no connection, and close one that failed. ERR_FENCED: another
 * reader has gone on with a partition. ERR_REJECT: some value of a row can never be stored; nothing
 * was changed.
 */

/* Fills in n and start of each place; start is -1 for one without a row. */
bool journal_progress(
    struct journal *journal, struct journal_place *places, int count, struct err *err) MUST_CHECK;

/* Gives the batch the rows that the database has of its ids. */
bool journal_know(struct journal *journal, struct batch *batch, struct err *err) MUST_CHECK;

struct journal_outcome {
	int won, lost;  /* decisions */
	int promoted;   /* prepares that are overdue now */
	int duplicates; /* committed, but another message has the unique key */
};

/*
 * The batch, which was worked out, and the progress of these places, in one transaction. Prepares
 * that were due by a place's horizon and are not decided become overdue.
 */
bool journal_apply(struct journal *journal, struct batch *batch, const struct journal_place *places,
    int count, struct journal_outcome *ret_outcome, struct err *err) MUST_CHECK;

/*
 * After journal_apply failed with ERR_RETRY: the first record of each partition that cannot be
 * decided now, and why. Returns how many. *ret_full: they only exceed what one transaction can
 * take, and can be decided in the next one.
 */
enum { JOURNAL_HELD = 100 };
int journal_held(struct journal *journal, const struct batch *batch, int ret_records[JOURNAL_HELD],
    bool *ret_full);

/*
 * After journal_apply failed with ERR_REJECT: the records of the batch that the tables refuse; one
 * with several rows may be listed for each. The caller frees the list.
 */
struct journal_refusal {
	int record;
	char error[400];
};
bool journal_refused(struct journal *journal, struct batch *batch,
    struct journal_refusal **ret_list, int *ret_count, struct err *err) MUST_CHECK;
/* The longest payload that the tables take now. */
bool journal_payload_most(struct journal *journal, int64_t *ret_most, struct err *err) MUST_CHECK;

/*
 * In how many milliseconds the first prepare of each place comes due that was not checked yet;
 * INT64_MAX: there is none. ret_clock: the time of the database, read before anything else.
 */
bool journal_due(struct journal *journal, const struct journal_place *places, int count,
    int64_t *ret_wait_ms, char ret_clock[JOURNAL_CLOCK], struct err *err) MUST_CHECK;
