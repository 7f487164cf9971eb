#pragma once
/*
 * The partitions of the tables that are kept by time and of the log, by the functions of
 * sql/migrations/0004_partitions.sql, which has the rules: how no writer waits and no row is
 * lost. Each call is one statement in autocommit on the caller's idle connection, and blocks;
 * "busy" is an outcome, not an error: the same call may succeed a little later.
 *
 * `table` is one of partition_tables; a partition's name says of which table it is one.
 */
#include "config.h"
#include "pg.h"

enum { PARTITION_TABLES = 4 };
/* "message", "lookback", "processed", "unique_ledger" */
extern const char *const partition_tables[PARTITION_TABLES];

enum partition_outcome {
	PARTITION_MADE,
	PARTITION_EXISTS,
	PARTITION_OVERLAPS,          /* another one holds a part of the range */
	PARTITION_DEFAULT_NOT_EMPTY, /* its rows must be moved first */
	PARTITION_NAME_TAKEN,        /* by a table that is no partition */
	PARTITION_EMPTIED,
	PARTITION_HELD, /* a row of it is still needed: partition_holder */
	PARTITION_DROPPED,
	PARTITION_NOT_EMPTY,
	PARTITION_DETACHED,
	PARTITION_MOVED, /* the default partition's rows, into partitions of their own */
	PARTITION_EMPTY, /* nothing to move */
	PARTITION_MISSING,
	PARTITION_BUSY, /* a lock was not free at once */
	PARTITION_OUTCOMES
};
const char *partition_outcome_name(enum partition_outcome outcome); /* "made" */
/* Adds to the database's relay_partition_changes_total. */
void partition_count(
    const char *database, const char *table, enum partition_outcome outcome, int times);

struct partition {
	char *name;
	bool bounded;           /* false: the default one, or one without a beginning or an end */
	int64_t from_us, to_us; /* since 1970, UTC */
	int64_t bytes;          /* with indexes and TOAST */
	int64_t rows;           /* as the planner estimates them; -1: unknown */
	int64_t kept_until_us;  /* a restored one: upkeep leaves it until then; 0: not restored */
};

struct partition_list {
	struct partition *items; /* oldest first, the default one last */
	int count;
	int64_t now_us;    /* the server's clock */
	int64_t period_us; /* the start of the period of `every_ms` that it lies in */
};

bool partition_list(struct pg *pg, const char *schema, const char *table, int64_t every_ms,
    struct partition_list *ret_list, struct err *err) MUST_CHECK;
void partition_list_finish(struct partition_list *list);

bool partition_make(struct pg *pg, const char *schema, const char *table, int64_t from_us,
    int64_t to_us, enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;
/* Empties it; drop then removes an emptied one. */
bool partition_empty(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;
bool partition_drop(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;
/* Leaves it as a table of its own. */
bool partition_detach(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;

/*
 * Detaches it for the archiver, which writes it to a file: DETACHED; or drops one that is empty, or
 * whose rows are in a file already.
 */
bool partition_archive(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;
/* Are partitions of this table archived? The others' are dropped. */
bool partition_is_archived(const char *table);

/* An operator's request, which outbox.audit keeps. */
struct partition_request {
	const char *name;
	bool detach;       /* partition_detach; else partition_empty */
	bool held_too;     /* even if a row of it is still needed */
	const char *force; /* as the operator wrote it; "" */
	const char *reason;
	const char *caller; /* of the HTTP interface; NULL: none */
	int64_t audit;      /* result: the id in outbox.audit; 0: nothing was done */
};
bool partition_retire(struct pg *pg, const char *schema, struct partition_request *request,
    enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;

/* Plans count rows up to this number; as many mean "at least". */
enum { COUNTED_ROWS = 100000 };
/* Counts up to COUNTED_ROWS. */
bool partition_count_rows(struct pg *pg, const char *schema, const char *table,
    const struct partition *partition, int64_t *ret_rows, struct err *err) MUST_CHECK;

/*
 * Who keeps the partition; "" for nobody. For the message table: "main/0" (publisher and shard) or
 * "no publisher"; for the look-back's: the section of an undecided prepare; for the processed ids':
 * the consumer whose window has not passed; for the unique keys': the topic of such a key. size:
 * bytes of ret_holder.
 */
enum { HOLDER_SIZE = 128 };
bool partition_holder(struct pg *pg, const char *schema, const char *name, char *ret_holder,
    size_t size, struct err *err) MUST_CHECK;

/* Rows in the default partition, counted up to 100,000. */
bool partition_default_rows(struct pg *pg, const char *schema, const char *table, int64_t *ret_rows,
    struct err *err) MUST_CHECK;
bool partition_rehome(struct pg *pg, const char *schema, const char *table, int64_t every_ms,
    enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;

/*
 * Makes what is missing from now to `partitions_ahead` periods ahead. *ret_outcome is the last
 * call's: MADE or EXISTS when all are there. `made` is called for each new one; NULL is fine.
 */
bool partition_make_ahead(struct pg *pg, const struct postgres_settings *postgres,
    const char *table, const struct partition_list *list,
    void (*made)(void *context, int64_t from_us), void *context,
    enum partition_outcome *ret_outcome, struct err *err) MUST_CHECK;

/*
 * Makes and drops the partitions of the log that are due. ret_changes counts outcomes by kind, also
 * when it fails: the failure of one partition (*err has the first) keeps no other from being made.
 */
bool partition_log_upkeep(struct pg *pg, const char *schema,
    int ret_changes[static PARTITION_OUTCOMES], struct err *err) MUST_CHECK;
