#pragma once
/*
 * A message that kills the process. Owners of a shard that end without releasing it are counted in
 * its log rows, by who takes the shard next. After DEATHS_CAREFUL of them in a row without progress
 * the shard is careful: its rows are read and sent one at a time, and before each the log row is
 * marked: the first row behind the acknowledged position is alone in flight now. A row that was so
 * in DEATHS_CONVICT deaths in a row is convicted: it is parked, and nobody reads its contents.
 *
 * After ROWS_ALONE rows groups of them go, each twice as large as the one before, so that a shard
 * in which nothing kills is not slow for long. A death in one leaves the next owner in front of it,
 * and that begins with one row again.
 *
 * Whoever is killed for other reasons makes progress now and then, and any progress begins the
 * count anew. A row that is alone in flight for as long as it takes to renew the lease is not what
 * kills: Kafka may be away, or a topic missing; after stall_after others go beside it. Of all
 * shards of a process only one at a time may have a row marked, since the row of another one would
 * be alone in flight just as often; who has none to mark gives the turn back.
 *
 * One thread; the turn is shared between threads.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { DEATHS_CAREFUL = 3, DEATHS_CONVICT = 3, ROWS_ALONE = 256 };

/* What a log row says of them. */
struct deaths {
	int64_t owners; /* in a row that died, without progress */
	int64_t alone;  /* the last of them, with one and the same row alone in flight */
	bool marked;    /* a row is alone in flight now */
};

/* Who is careful and reads rows; NULL: nobody. One for a process. */
typedef _Atomic(const void *) careful_turn;

struct careful {
	struct deaths deaths; /* as in the newest log row */
	bool active;
	bool out;           /* a row, or a group of them, may be read or is in flight */
	bool read;          /* it was read */
	int64_t batch;      /* the rows of the group, at most */
	int64_t gone;       /* rows that went so, at most */
	int64_t until_tick; /* over when this window is published, */
	int64_t most;       /* or so many rows are */
	careful_turn *turn; /* NULL: it is always ours */
};

/*
 * The shard was taken; former owners had windows up to `inherited_tick` open. At most so many rows
 * go alone.
 */
void careful_begin(
    struct careful *careful, const struct deaths *deaths, int64_t inherited_tick, int64_t rows);
/* The shard is not ours any more. */
void careful_end(struct careful *careful);
/* Takes the turn when it is free. */
bool careful_has_turn(struct careful *careful);
/* So many rows may be read; one without its contents when it is convicted. */
bool careful_reads(const struct careful *careful);
bool careful_convicts(const struct careful *careful);

/* What the next log row says, and what is so once it is written. */
struct careful_row {
	struct deaths deaths;
	bool marks;    /* the next ones may be read */
	int64_t batch; /* so many */
	bool out;      /* they, or the ones before, are not published yet */
	bool ends;     /* no longer careful */
};
struct careful_step {
	bool marks;         /* the next rows are to go, and all before them are published */
	bool published;     /* all that was read is, or the row notes that it is kept back */
	bool progress;      /* the row notes some */
	bool renews;        /* it is as old as a row becomes */
	bool renews_alone;  /* the row notes nothing else: outbox.renew */
	bool reading;       /* a page is under way */
	bool stuck;         /* a row went and did not arrive for stall_after */
	int64_t first_tick; /* the row's */
};
struct careful_row careful_next(const struct careful *careful, const struct careful_step *step);
void careful_written(struct careful *careful, const struct careful_row *row);
