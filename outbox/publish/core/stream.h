#pragma once
/*
 * The core of the shard_worker: one shard of one publisher, without I/O. Events go in, actions come
 * out, time is an argument, so that a seeded simulator drives it through crashes and interleavings
 * exactly as outbox/publish/io/shard_worker.c drives it with Postgres and Kafka. stream.c opens
 * with the algorithm.
 *
 * One thread owns a stream. Nothing blocks. Times are milliseconds of one monotonic clock.
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"
#include "message.h"
#include "poison_guard.h"
#include "position.h"
#include "states.h"
#include "text.h"

struct stream;

/* What becomes of a record that Kafka refuses for good. */
enum stream_policy {
	STREAM_BLOCK, /* it is parked, and what comes later of its key behind it */
	STREAM_PASS,  /* it is parked alone */
	STREAM_STOP,  /* the publisher stops */
};

struct stream_parking {
	int64_t retry_first_ms, retry_max_ms, max_attempts;
	/* Called once for each topic; NULL: STREAM_BLOCK for all. */
	enum stream_policy (*policy)(const void *context, const char *topic);
	/*
	 * Called once for each topic: why no message of an application goes to it (malloc'ed);
	 * NULL: they do. Such messages are parked as dead. NULL function: all topics are open.
	 */
	char *(*refused_topic)(const void *context, const char *topic);
	const void *context;
	/* For tests, 0 or NULL: what suits a server. */
	int64_t batch;               /* of stream_tick */
	int64_t lookups, page, keys; /* of record_queue_keys.c: in a look-up; digests; exact keys */
	int64_t (*digest)(const void *context, const char *topic, size_t topic_length,
	    const char *key, size_t key_length);
};

struct stream_settings {
	int64_t max_in_flight; /* of one transaction, when there are any */
	int64_t memory;
	int64_t tail_memory; /* the share of found records; for tests; 0: a quarter */
	int64_t lease_ms;
	int64_t poll_busy_ms, poll_idle_ms;
	int64_t ack_interval_ms;
	int64_t stall_after_ms;
	int64_t topic_idle_ms; /* topics that are not used for so long are closed; 0: none is */
	bool resumes;          /* reads tails */
	bool transactions;     /* and records go out in transactions of Kafka */
	struct stream_parking parking;
	poison_guard_turn *turn; /* NULL: no other shard is in the process */
	uint64_t seed;           /* of nonces and epochs; random in production */
};

/* The most records that were given to the producer and are not covered by a row of the log. */
int64_t stream_most_uncovered(const struct stream_settings *settings);
struct stream *stream_create(const struct stream_settings *settings);
void stream_destroy(struct stream *stream);
/* On a reload: poll and ack intervals only. */
void stream_retune(struct stream *stream, const struct stream_settings *settings);

/* --- the log connection ------------------------------------------------------------------- */

enum stream_call {
	STREAM_NONE,
	STREAM_TAKE,         /* outbox.take: become the owner if the lease is over */
	STREAM_TICK,         /* outbox.tick: look for a window, note progress, renew the lease */
	STREAM_RENEW,        /* outbox.renew: renew the lease, and nothing else */
	STREAM_NEWEST,       /* read the newest log row: was the last TICK or RENEW written? */
	STREAM_PLACES,       /* read of which partitions and missing topics rows are parked */
	STREAM_LOOKUP,       /* are these records, or their keys, parked? (record_queue_keys.c) */
	STREAM_DIGESTS,      /* read a page of the digests of all parked keys */
	STREAM_DESTINATIONS, /* read what the log says of topics */
	STREAM_CLOSED,       /* read names of closed topics: the cluster may not have them */
};

/* A record of a LOOKUP. */
struct stream_lookup {
	uint64_t sequence;
	int64_t id;           /* 0: the row cannot be parked itself */
	const char *event_id; /* of that row: 16 bytes */
	bool has_digest;
	int64_t digest; /* parked_digest of topic and key */
};

struct stream_tick {
	enum stream_call call;
	int64_t n, nonce; /* the row this owner wrote last */
	int64_t new_nonce;
	int64_t fresh_epoch; /* TAKE */
	int64_t lease_ms;    /* 0: release the shard */
	int closed;
	int64_t acked_id;
	bool new_epoch; /* fresh_epoch is logged with this row; see stream_epoch */
	bool may_open, must_write;
	int64_t max_rows, max_bytes;
	int64_t batch; /* at most so many parked rows are freed, retried or skipped, and twice as
			  many rows that are due are listed */
	const char *destinations; /* JSON; valid until the answer is given */
	int64_t fold_to;          /* rows up to this one go into outbox.destination; 0: none do */
	const char *parks;        /* rows that are kept back: the same; NULL: none */
	bool may_list;
	bool blind; /* a window opens without a look at its rows, to be read by pages */
	const struct stream_lookup *lookups; /* LOOKUP; valid until the answer is given */
	int64_t most;                        /* so many of them, rows of DIGESTS or of PLACES */
	int64_t from_digest;                 /* DIGESTS */
	const char *after_topic;             /* PLACES behind this one; NULL: from the first on */
	int32_t after_partition;
	struct deaths deaths;
	/*
	 * DESTINATIONS. topics: an array of names in Postgres' text form; NULL: a page of those
	 * that are open, behind the topic `after`. CLOSED: a page of those that are not. Valid
	 * until the answer is given.
	 */
	const char *topics, *after;
	int max_topics, max_partitions; /* of a page */
};

/* What to send on the idle log connection now; NONE: nothing (see stream_wait). */
struct stream_tick stream_log_call(struct stream *stream, int64_t now);

struct stream_taken {
	int64_t n, epoch, first_tick, acked_id;
	int64_t former_epoch; /* of the row before: another one when the server is another */
	int windows;
	int64_t listed_tick; /* the open window that is a listed one; 0: none */
	bool parked;         /* rows are */
	bool scheduled;      /* rows are */
	int64_t requests;
	struct deaths deaths;
};
/* Answers of TAKE. */
void stream_taken(struct stream *stream, int64_t now, const struct stream_taken *taken);
void stream_not_taken(struct stream *stream, int64_t now, int64_t retry_ms);
/* There is no such publisher, or not with this number of shards: the stream is GONE. */
void stream_absent(struct stream *stream, int64_t now);

enum stream_verdict {
	STREAM_FENCED,
	STREAM_DROPPED, /* the publisher is gone or has another number of shards: stop for good */
	STREAM_IDLE,
	STREAM_SPLITTING, /* idle, but nothing is looked for before a split is over */
	STREAM_NOTED,
	STREAM_ROWS, /* followed by stream_row for each row, then stream_rows_end */
	STREAM_PAGES,
	STREAM_LISTED, /* as STREAM_ROWS */
};
/*
 * Other columns of a TICK's answer, passed before stream_ticked: digests whose last parked row is
 * gone, the number of the operators' newest request, and the milliseconds until a parked or
 * scheduled row is due (-1: none, or unknown).
 */
void stream_unparked(struct stream *stream, int64_t digest);
/* Of a recovered place: rows up to `last_id` are free; 0: all of them. Told before stream_ticked.
 */
void stream_recovered(struct stream *stream, const char *topic, size_t topic_length,
    int32_t partition, int64_t last_id);
void stream_parked_news(struct stream *stream, int64_t now, int64_t requests, int64_t due_ms);
/*
 * A TICK that parked, freed, listed, retried, skipped or removed rows took so long in the server,
 * up to its commit. Told before stream_ticked; the next TICK has as much to do as takes 20 ms, or
 * as long as the rest of a TICK.
 */
void stream_worked(struct stream *stream, int64_t now, int64_t took_ms);
void stream_ticked(struct stream *stream, int64_t now, enum stream_verdict verdict);
/* The answer of RENEW: written, or fenced. */
void stream_renewed(struct stream *stream, int64_t now, bool written);
/*
 * The call failed: `unknown` when it may have been carried out all the same (connection lost,
 * cancelled by this side), `late` when it took longer than its limit: the next TICK has less to do.
 * Before it an owner asks for RENEW, so that no failure of a TICK costs the lease.
 */
void stream_log_failed(struct stream *stream, int64_t now, bool unknown, bool late);
/* The answer of NEWEST: of the newest row, with its number of open windows. */
void stream_newest(
    struct stream *stream, int64_t now, int64_t n, int64_t nonce, int windows, int64_t listed_tick);
/* The answer of PLACES, in their order, and then the end. */
void stream_stalled_place(/* partition -1: the topic was missing */
    struct stream *stream, const char *topic, size_t topic_length, int32_t partition);
void stream_places_end(struct stream *stream, int64_t rows);
/* The answer of LOOKUP: those that are parked, by their places, or whose keys are; then the end. */
void stream_looked_up(struct stream *stream, int place, bool itself);
void stream_lookup_end(struct stream *stream);
/* The answer of DIGESTS: each, in their order, and then the end. */
void stream_digest(struct stream *stream, int64_t digest);
void stream_digests_end(struct stream *stream, int64_t rows);

/* The answer of DESTINATIONS, each one and then the end. */
struct stream_destination {
	const char *topic;
	int32_t partitions;
	bool open;
	int64_t n;              /* the log row that changed it last */
	const int64_t *offsets; /* for each partition from 0 on; below -1: unknown */
	int32_t count;          /* of offsets */
};
void stream_destination(struct stream *stream, const struct stream_destination *destination);
/* last: the page is the last one. */
void stream_destinations_end(struct stream *stream, bool last);
/* The answer of CLOSED: each name and then the end. */
void stream_closed_destination(struct stream *stream, const char *topic);
void stream_closed_end(struct stream *stream, int64_t now, bool last);

/* --- the read connection ------------------------------------------------------------------ */

struct stream_page {
	bool wanted;
	int64_t n, nonce; /* the log row that holds the window's boundaries */
	int64_t tick;
	int64_t after_id; /* rows with a larger id */
	int64_t rows;     /* at most so many */
	int64_t bytes;    /* the reader stops the page when it has so many */
	bool withheld;    /* without payload and headers */
};
/* The page to read now on the idle read connection. */
struct stream_page stream_read_call(struct stream *stream, int64_t now);
/*
 * One row of the page or of a tick's answer, in order; takes over the message's block. Rows of a
 * page that was asked for before the shard was lost are dropped.
 */
void stream_row(struct stream *stream, const struct message *message);
/*
 * Ends the page. last: the window has no further row. upto_id: all rows of the window up to this id
 * have been passed; 0: unknown.
 */
void stream_page_end(struct stream *stream, int64_t now, bool last, int64_t upto_id);
/* The read failed: what came of it counts, the rest is asked again after a while. */
void stream_read_failed(struct stream *stream, int64_t now);
/* All rows of a STREAM_ROWS or STREAM_LISTED verdict were given. */
void stream_rows_end(struct stream *stream);

/* --- Kafka -------------------------------------------------------------------------------- */

/* The newest knowledge of a topic; partitions 0: it is missing or not known yet. */
void stream_topic(struct stream *stream, const char *topic, int32_t partitions);
/* When the cluster last answered that the topic is missing; 0: never. */
void stream_topic_answered(struct stream *stream, const char *topic, int64_t answered_at);
/*
 * The topics in use take turns: returns the one whose turn was longest ago; NULL: no topic is in
 * use. unready: considers only topics that records cannot flow to. ready: records may flow;
 * partitions: the count in the log, 0: none yet. The name is valid until the next call of any
 * function here.
 */
const char *stream_next_topic(
    struct stream *stream, bool unready, bool *ret_ready, int32_t *ret_partitions);
int stream_topics(const struct stream *stream, bool unready); /* how many there are */
/*
 * Returns the names of closed topics, one a call, so that the caller can forget them. True:
 * `ret_name` is the next one; the caller frees it.
 */
bool stream_closed_topic(struct stream *stream, char **ret_name);

/* --- tails: records in Kafka that no log row covers (record_queue_tails.c) ------------------ */

enum { STREAM_TAIL_END = -1 };
struct stream_tail {
	const char *topic; /* valid until the next call of any function here */
	int32_t partition;
	uint64_t number; /* of the question; its answers carry it */
	int64_t offset;  /* read from here up to the end; STREAM_TAIL_END: only where the end is */
	int64_t least;   /* the end was there before: if it is not, that is `beyond` */
};
/* The next partition to be read; false: none now. */
bool stream_tail_call(struct stream *stream, int64_t now, struct stream_tail *ret_tail);
/*
 * The question that an answer belongs to. An answer to any question but the newest one of its
 * partition changes nothing.
 */
struct stream_question {
	const char *topic;
	int32_t partition;
	uint64_t number;
};
/* A record of this publisher and shard that was found there; event_id: 16 bytes. */
enum stream_found {
	STREAM_FOUND,
	/*
	 * This owner knows of no such window. The database went back in time, or this owner lost
	 * the shard without knowing and the next one wrote the record. The next log row tells: see
	 * stream_rewinds.
	 */
	STREAM_FOUND_UNKNOWN,
	STREAM_FOUND_ENOUGH, /* the rest of the answer need not be read, and its end not be told */
};
enum stream_found stream_tail_record(struct stream *stream, const struct stream_question *question,
    int64_t offset, const struct outbox_position *position, const char event_id[16]);
/*
 * Grows with each log row that began a new epoch after STREAM_FOUND_UNKNOWN. Only the owner of the
 * shard can write such a row, so its log does not know the records that were found.
 */
int64_t stream_rewinds(const struct stream *stream);
/* Read up to `end`. beyond: the offset that was asked for, or `least`, lies behind it. */
void stream_tail_end(
    struct stream *stream, const struct stream_question *question, int64_t end, bool beyond);
/* It cannot be read, for good: records flow without; with transactions it is asked again later. */
void stream_tail_failed(struct stream *stream, int64_t now, const struct stream_question *question);

struct stream_record {
	uint64_t sequence; /* names the record in stream_report */
	int64_t tick, id;
	const struct message *message;
	const char *topic; /* NUL-terminated, valid until the record was reported */
	int32_t partition;
};
/* The next record to hand to the producer; false: none now. */
bool stream_send(struct stream *stream, int64_t now, struct stream_record *ret_record);

enum stream_delivery {
	STREAM_WRITTEN,    /* acks=all */
	STREAM_AGAIN,      /* not at fault: to be sent again by the next producer */
	STREAM_REFUSED,    /* Kafka refuses it, or the batch it was in, for good */
	STREAM_UNSENDABLE, /* refused before anything was sent: at fault by itself */
	STREAM_DENIED,     /* its topic takes no records now, whatever is in them */
	STREAM_FAILED,     /* its record, its partition or its topic: the error does not say */
};
/* error: text for people; NULL when written. */
void stream_report(struct stream *stream, int64_t now, uint64_t sequence,
    enum stream_delivery delivery, int64_t offset, const char *error);

/* Why the producer must be made anew now; NULL: it need not. */
const char *stream_producer_verdict(const struct stream *stream, int64_t now);
extern const char stream_stalled[]; /* the verdict for want of acknowledgements */
extern const char stream_refusal[]; /* nothing is wrong with the brokers */
/* the same: only one partition, or topic, takes no records */
extern const char stream_denial[];
extern const char stream_partition_stalled[];
/*
 * With transactions. A producer that fenced all others is to be made now, by init_transactions; and
 * it is ready: nothing that others wrote can become visible any more.
 */
bool stream_wants_producer(const struct stream *stream, int64_t now);
void stream_producer_ready(struct stream *stream);
/* After stream_send said false: true when the open transaction is to be committed now. */
bool stream_commits(struct stream *stream);
/* It was. When that failed or is not known: stream_producer_lost. */
void stream_committed(struct stream *stream, int64_t now);
/* The producer may go without a trace: nothing is under way, nor in a transaction. */
bool stream_is_settled(const struct stream *stream);
/* The producer that is to go has records of which it said nothing yet. */
bool stream_awaits_reports(const struct stream *stream);
/* The producer was destroyed: everything not acknowledged goes out again, in order. */
void stream_producer_lost(struct stream *stream);

/* --- the whole ----------------------------------------------------------------------------- */

/* When to call again if nothing happens before; INT64_MAX: only an event helps. */
int64_t stream_wait(struct stream *stream, int64_t now);
/* The same while the log connection is busy or away: what is due on it cannot be done now. */
int64_t stream_wait_offline(const struct stream *stream, int64_t now);
/*
 * Records are under way and nothing waits for their reports: they may be taken with a later turn of
 * the loop instead of waking it.
 */
bool stream_is_patient(const struct stream *stream);

/* Finish what is in flight, for at most a lease, note it, release the shard. */
void stream_stop(struct stream *stream);

enum stream_state {
	STREAM_STANDBY,
	STREAM_OWNER,
	STREAM_UNSURE,
	STREAM_RELEASED,
	STREAM_GONE,
	STREAM_STATES
};
extern const struct state_table stream_states; /* their names and meanings */

struct stream_status {
	enum stream_state state;
	int64_t n, epoch;
	bool lease_over;
	int windows;            /* open */
	int64_t records, bytes; /* in memory, not acknowledged */
	int64_t tail_bytes;     /* memory of records that were found in tails */
	int64_t in_flight;      /* given to the producer and not covered by a log row */
	bool full;         /* as much waits for acknowledgement as may: nothing further goes out */
	int64_t published; /* acknowledged since the stream was made */
	int64_t published_bytes;
	int64_t skipped;       /* found in Kafka instead of being sent */
	int64_t parked;        /* noted in outbox.parked instead */
	int64_t scheduled;     /* noted in outbox.scheduled */
	int stalls;            /* partitions and topics of which records are parked meanwhile */
	int64_t oldest_due_us; /* of the oldest unacknowledged row in memory; 0: none */
	bool caught_up;        /* the last look found nothing and all is covered */
	int64_t deaths;        /* of owners, for which rows go one at a time now; 0: they do not */
	bool refused;          /* stopped by a record that Kafka refuses */
	int64_t refusals;      /* records that were refused and parked */
	/* the one it is stopped by, or else the last that was parked; 0: none */
	int64_t refused_id;
	const char *refused_topic, *refused_error;
	const char *missing_topic; /* a topic that is waited for; NULL: none */
	/* one whose partitions answer with errors and are tried again; NULL: none */
	const char *denied_topic, *denied_error;
	int denied; /* such partitions */
};
struct stream_status stream_status(const struct stream *stream, int64_t now);

/* The number that the next row gets, and the message of a number (NULL: not in memory). */
uint64_t stream_next_sequence(const struct stream *stream);
const struct message *stream_message(const struct stream *stream, uint64_t sequence);

/* The epoch for positions: the log's, but after a refusal that of the rows before it. */
int64_t stream_epoch(const struct stream *stream);
