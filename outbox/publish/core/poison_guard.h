#pragma once
/*
 * The poison guard finds a message that kills the process. A process that takes a shard whose owner
 * ended without releasing it counts a death in the log row. After DEATHS_ACTIVATE deaths in a row
 * without progress the guard is active: rows are read and sent one at a time, and before each row
 * the log row is marked: the first row behind the acknowledged position is alone in flight now. A
 * row that was alone in flight in DEATHS_CONVICT deaths in a row is convicted: it is parked, and
 * its contents are not read.
 *
 * After ROWS_ALONE rows, rows go in groups, each twice as large as the one before, so that a shard
 * without such a message is not slow for long. A death in a group leaves the next owner in front of
 * it, and that owner begins with one row again.
 *
 * A process that is killed for other reasons makes progress now and then, and any progress resets
 * the count. A row that is alone in flight for as long as it takes to renew the lease does not
 * kill: Kafka may be away, or a topic missing. After stall_after other rows go out as well. Only
 * one shard of a process at a time may have a row marked, because the row of another shard would be
 * alone in flight just as often. A shard that has no row to mark gives the turn back.
 *
 * One thread; the turn is shared between threads.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { DEATHS_ACTIVATE = 3, DEATHS_CONVICT = 3, ROWS_ALONE = 256 };

/* The deaths that a log row counts. */
struct deaths {
	int64_t owners; /* owners that died in a row, without progress */
	int64_t alone;  /* the last of them, with one and the same row alone in flight */
	bool marked;    /* a row is alone in flight now */
};

/* The guard that may have a row marked; NULL: none. One for a process. */
typedef _Atomic(const void *) poison_guard_turn;

struct poison_guard {
	struct deaths deaths; /* as in the newest log row */
	bool active;
	bool out;                /* a row, or a group of them, may be read or is in flight */
	bool read;               /* it was read */
	int64_t batch;           /* the rows of the group, at most */
	int64_t gone;            /* rows that went so, at most */
	int64_t until_tick;      /* over when this window is published, */
	int64_t most;            /* or so many rows are */
	poison_guard_turn *turn; /* NULL: this guard always has the turn */
};

/*
 * The shard was taken; former owners had windows up to `inherited_tick` open. At most so many rows
 * go alone.
 */
void poison_guard_begin(
    struct poison_guard *guard, const struct deaths *deaths, int64_t inherited_tick, int64_t rows);
/* The shard is lost or released. */
void poison_guard_end(struct poison_guard *guard);
/* Takes the turn when it is free. */
bool poison_guard_has_turn(struct poison_guard *guard);
/* So many rows may be read; one without its contents when it is convicted. */
bool poison_guard_reads(const struct poison_guard *guard);
bool poison_guard_convicts(const struct poison_guard *guard);

/* The contents of the next log row, and the guard's state once it is written. */
struct poison_guard_row {
	struct deaths deaths;
	bool marks;    /* the next ones may be read */
	int64_t batch; /* so many */
	bool out;      /* they, or the ones before, are not published yet */
	bool ends;     /* the guard is no longer active */
};
struct poison_guard_step {
	bool marks;         /* the next rows are to go, and all before them are published */
	bool published;     /* all that was read is, or the row notes that it is kept back */
	bool progress;      /* the row notes some */
	bool renews;        /* it is as old as a row becomes */
	bool renews_alone;  /* the row notes nothing else: outbox.renew */
	bool reading;       /* a page is under way */
	bool stuck;         /* a row went and did not arrive for stall_after */
	int64_t first_tick; /* the row's */
};
struct poison_guard_row poison_guard_next(
    const struct poison_guard *guard, const struct poison_guard_step *step);
void poison_guard_written(struct poison_guard *guard, const struct poison_guard_row *row);
