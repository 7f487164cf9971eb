#pragma once
/*
 * A world in one thread and one seed: a Postgres with writers, a Kafka, and one to three relays,
 * each with a real stream (stream.h) driven as outbox/publish/io/shard_worker.c drives it. Faults
 * fall on all of them; what the brokers hold in the end is held against what was committed. The
 * same seed gives the same run, to the last event.
 */
#include <stdbool.h>
#include <stdint.h>

/* Who reads the table: the windows of 0003_log.sql, or one of the readers that are known to be
 * wrong. */
enum simulator_reader {
	READER_WINDOWS,
	READER_BEYOND_LAST_ID, /* id > the last one seen */
	READER_BARRIER_BY_XID, /* txid < xmin, in the order of txid */
	READER_BARRIER_BY_ID,  /* txid < xmin, in the order of id */
	READER_WINDOWS_BY_XID, /* windows, in the order of txid */
	READER_WINDOWS_CUT,    /* windows made smaller by cutting their snapshot at an xid */
	READER_TICK_TOO_LATE,  /* the tick is taken after the transaction has an xid */
	READER_UNFENCED,       /* a log row is made from row n whatever its nonce and timeline */
	READER_BELIEVES_PRODUCERS, /* a producer counts as ready before init_transactions */
	READER_FENCES_HALF, /* a producer counts as ready when it has fenced one of its two ids */
};

/* The doorbell as it is, or with a mistake. */
enum simulator_bell {
	BELL_RIGHT,
	BELL_TESTED_BRIEFLY,  /* a writer frees the lock after its test, not with its end */
	BELL_WITHOUT_LOOK,    /* shards sleep as soon as the lock is there */
	BELL_WITHOUT_MARKS,   /* who leaves the ring to another transaction holds nothing */
	BELL_DEAF_AFTER_LOCK, /* a ring soon after the lock was got is ignored */
};

struct simulator_options {
	uint64_t seed;
	enum simulator_reader reader;
	enum simulator_bell bell;
	bool bell_alone; /* the doorbell is the only thing that is tried */
	bool without_faults;
	bool trace; /* every event to stderr */
};

struct simulator_result {
	bool passed;
	char failure[512]; /* the first thing that was wrong */
	int64_t rows;      /* committed */
	int64_t records;   /* written by the brokers */
	int64_t duplicates;
	int64_t disturbances;     /* shards taken unreleased, producers made anew, log rows lost */
	int64_t publisher_pauses; /* by an operator */
	int64_t topic_pauses, paused_rows; /* of one topic; rows parked for that reason */
	int64_t kills, pauses, takeovers, producers, refusals, unsure, epochs, failovers;
	int64_t renewals, cancelled; /* log rows that did nothing else; statements */
	int64_t skipped;             /* rows that a tail showed */
	int64_t passes;              /* of tails, that ended before their end */
	int64_t closings;            /* of topics, in rows that were to be written */
	int64_t rewinds;             /* records of a history that the database does not know */
	int64_t jumps;               /* of the database's clock */
	int64_t late_calls;          /* of transactions */
	/* of the doorbell; renewals of a sleeper that found nothing changed */
	int64_t sleeps, rings, missed, quiet_renewals;
};

struct simulator_result simulator_run(const struct simulator_options *options);
