#pragma once
/*
 * The poison guard finds a message that crashes the process. A process that takes a shard whose
 * owner ended without releasing it counts a death in the log row. After DEATHS_ACTIVATE deaths in a
 * row without progress the guard is active: rows are read and sent one at a time, and before each
 * row a log row is written with a mark: the first row after the acknowledged position is alone in
 * flight now. A row that was alone in flight in DEATHS_CONVICT deaths in a row is convicted: it is
 * parked, and its contents are not read.
 *
 * After ROWS_ALONE rows, rows go in groups, each twice as large as the one before, so that a shard
 * without such a message is not slow for long. After a death in a group the next owner starts in
 * front of the group, with one row at a time again.
 *
 * A process that is killed for other reasons makes progress now and then, and any progress resets
 * the count. A row that was alone in flight until the lease was renewed does not crash the process:
 * Kafka may be away, or a topic missing. After stall_after other rows go out as well. Only one
 * shard of a process at a time may have a row marked, because the row of another shard would be
 * alone in flight just as often. A shard that has no row to mark gives the turn back.
 *
 * Owned by one thread; the threads of a process share the turn.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { DEATHS_ACTIVATE = 3, DEATHS_CONVICT = 3, ROWS_ALONE = 256 };

/* The deaths that a log row counts. */
struct deaths {
	int64_t owners; /* owners that died in a row, without progress */
	int64_t alone;  /* how many of the last ones had the same row alone in flight */
	bool marked;    /* a row is alone in flight now */
};

/* The guard that may have a row marked; NULL: none. A process has one turn. */
typedef _Atomic(const void *) poison_guard_turn;

struct poison_guard {
	struct deaths deaths; /* as in the newest log row */
	bool active;
	bool out;                /* a row, or a group of rows, may be read or is in flight */
	bool read;               /* that row or group was read */
	int64_t batch;           /* maximum number of rows of the group */
	int64_t gone;            /* rows marked since the take-over, at most */
	int64_t until_tick;      /* the guard may end when this window is published, */
	int64_t most;            /* or when this many rows have gone */
	poison_guard_turn *turn; /* NULL: this guard always has the turn */
};

/*
 * The shard was taken; former owners had windows up to `inherited_tick` open. After `rows` rows the
 * guard may end.
 */
void poison_guard_begin(
    struct poison_guard *guard, const struct deaths *deaths, int64_t inherited_tick, int64_t rows);
/* The shard is lost or released. */
void poison_guard_end(struct poison_guard *guard);
/* True: the guard has the turn; takes the turn if it is free. */
bool poison_guard_has_turn(struct poison_guard *guard);
/* May `batch` rows be read now? A convicted row is read without its contents. */
bool poison_guard_reads(const struct poison_guard *guard);
bool poison_guard_convicts(const struct poison_guard *guard);

/* The contents of the next log row, and the guard's state once it is written. */
struct poison_guard_row {
	struct deaths deaths;
	bool marks;    /* the next rows may be read */
	int64_t batch; /* how many of them */
	bool out;      /* these rows, or the ones before, are not published yet */
	bool ends;     /* the guard is no longer active */
};
struct poison_guard_step {
	bool marks;         /* the next rows should go, and all rows before them are published */
	bool published;     /* all rows that were read are published, or this row keeps them back */
	bool progress;      /* the log row notes progress */
	bool renews;        /* the newest log row is so old that the lease must be renewed */
	bool renews_alone;  /* the log row only renews the lease: outbox.renew */
	bool reading;       /* a page is in flight */
	bool stuck;         /* a row was sent and not acknowledged for stall_after */
	int64_t first_tick; /* of the log row */
};
struct poison_guard_row poison_guard_next(
    const struct poison_guard *guard, const struct poison_guard_step *step);
void poison_guard_written(struct poison_guard *guard, const struct poison_guard_row *row);
