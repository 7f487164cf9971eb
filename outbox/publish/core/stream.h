#pragma once
/*
 * The core of the shard worker: one shard of one publisher, without I/O. Events go in, actions come
 * out, and time is an argument. So a seeded simulator can drive it through crashes and
 * interleavings exactly as outbox/publish/io/shard_worker.c drives it with Postgres and Kafka.
 * stream.c opens with the algorithm.
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

/* The policy for a record that Kafka refuses permanently. */
enum stream_policy {
	STREAM_BLOCK, /* the record is parked, and later records of its key are parked behind it */
	STREAM_PASS,  /* only the record is parked */
	STREAM_STOP,  /* the publisher stops */
};

struct stream_parking {
	int64_t retry_first_ms, retry_max_ms, max_attempts;
	/* Called once for each topic; NULL: STREAM_BLOCK for all. */
	enum stream_policy (*policy)(const void *context, const char *topic);
	/*
	 * Called once for each topic: returns why no message of an application may go to it
	 * (malloc'ed), or NULL if they may. Refused messages are parked as dead. NULL function: all
	 * topics are open.
	 */
	char *(*refused_topic)(const void *context, const char *topic);
	const void *context;
	/* For tests. 0 or NULL: the defaults, which suit a server. */
	int64_t batch;               /* see stream_tick */
	int64_t lookups, page, keys; /* record_queue_keys.c: of a look-up; digests; exact keys */
	int64_t (*digest)(const void *context, const char *topic, size_t topic_length,
	    const char *key, size_t key_length);
};

struct stream_settings {
	int64_t max_in_flight; /* with transactions: in each transaction */
	int64_t memory;
	int64_t tail_memory; /* for found records; for tests; 0: a quarter of memory */
	int64_t lease_ms;
	int64_t poll_busy_ms, poll_idle_ms;
	int64_t ack_interval_ms;
	int64_t stall_after_ms;
	int64_t topic_idle_ms; /* topics unused for this long are closed; 0: topics stay open */
	bool resumes;          /* reads tails */
	bool transactions;     /* reads tails, and sends records in transactions of Kafka */
	bool drains;           /* the caller stops when it has caught up: it does so at once */
	struct stream_parking parking;
	poison_guard_turn *turn; /* NULL: no other shard is in the process */
	uint64_t seed;           /* for nonces and epochs; random in production */
};

/* Maximum number of records given to the producer and not covered by a row of the log. */
int64_t stream_most_uncovered(const struct stream_settings *settings);
struct stream *stream_create(const struct stream_settings *settings);
void stream_destroy(struct stream *stream);
/* On a reload: changes the poll and ack intervals only. */
void stream_retune(struct stream *stream, const struct stream_settings *settings);

/* --- the log connection ------------------------------------------------------------------- */

enum stream_call {
	STREAM_NONE,
	STREAM_TAKE,         /* outbox.take: become the owner if the lease is over */
	STREAM_TICK,         /* outbox.tick: look for a window, note progress, renew the lease */
	STREAM_RENEW,        /* outbox.renew: only renew the lease; may_open: see if all is quiet */
	STREAM_NEWEST,       /* read the newest log row: was the last TICK or RENEW written? */
	STREAM_PLACES,       /* read the partitions and missing topics that have parked rows */
	STREAM_LOOKUP,       /* are these records, or their keys, parked? (record_queue_keys.c) */
	STREAM_DIGESTS,      /* read a page of the digests of all parked keys */
	STREAM_DESTINATIONS, /* read the destinations of topics from the log */
	STREAM_CLOSED,       /* read names of closed topics: the cluster may not have them */
};

/* A record to look up in a LOOKUP. */
struct stream_lookup {
	uint64_t sequence;
	int64_t id;           /* 0: the row cannot be parked itself */
	const char *event_id; /* of that row: 16 bytes */
	bool has_digest;
	int64_t digest; /* parked_digest of topic and key */
};

struct stream_tick {
	enum stream_call call;
	int64_t n, nonce; /* the number and nonce of this owner's last row */
	int64_t new_nonce;
	int64_t fresh_epoch; /* TAKE */
	int64_t lease_ms;    /* 0: release the shard */
	int closed;
	int64_t acked_id;
	bool new_epoch; /* this row logs fresh_epoch; see stream_epoch */
	bool may_open, must_write;
	int64_t max_rows, max_bytes;
	int64_t batch; /* maximum of parked rows to free, retry or skip; twice as many due rows may
			  be listed */
	const char *destinations; /* JSON; valid until the answer is given */
	int64_t fold_to;          /* rows up to this one go into outbox.destination; 0: none do */
	const char *parks;        /* kept back rows, JSON as well; NULL: none */
	bool may_list;
	bool blind; /* opens a window without looking at its rows; they are read by pages */
	const struct stream_lookup *lookups; /* LOOKUP; valid until the answer is given */
	int64_t most;                        /* number of lookups, or maximum rows of a page */
	int64_t from_digest;                 /* DIGESTS */
	const char *after_topic;             /* PLACES after this one; NULL: from the first on */
	int32_t after_partition;
	struct deaths deaths;
	/*
	 * DESTINATIONS reads the topics, an array of names in Postgres' text form; if that is NULL,
	 * a page of the open topics after the topic `after`. CLOSED reads a page of the closed
	 * topics. Valid until the answer is given.
	 */
	const char *topics, *after;
	int max_topics, max_partitions; /* of a page */
};

/* The call to send on the idle log connection now; NONE: nothing (see stream_wait). */
struct stream_tick stream_log_call(struct stream *stream, int64_t now);

struct stream_taken {
	int64_t n, epoch, first_tick, acked_id;
	int64_t former_epoch; /* of the row before: another one after a failover */
	int windows;
	int64_t listed_tick; /* the open listed window; 0: none */
	bool parked;         /* the shard has parked rows */
	bool scheduled;      /* the shard has scheduled rows */
	int64_t requests;
	struct deaths deaths;
	bool paused;               /* by an operator: see stream_pause */
	const char *paused_topics; /* see stream_pause_topics */
};
/* Answers of TAKE. */
void stream_taken(struct stream *stream, int64_t now, const struct stream_taken *taken);
void stream_not_taken(struct stream *stream, int64_t now, int64_t retry_ms);
/* There is no such publisher, or not with this number of shards: the stream is GONE. */
void stream_absent(struct stream *stream, int64_t now);

enum stream_verdict {
	STREAM_FENCED,
	STREAM_DROPPED, /* the publisher is gone or has another number of shards: stop permanently
			 */
	STREAM_IDLE,
	STREAM_SPLITTING, /* idle, but no window opens before a split or a pause is over */
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
/* The rows of a recovered place up to `last_id` are free; 0: all rows. Before stream_ticked. */
void stream_recovered(struct stream *stream, const char *topic, size_t topic_length,
    int32_t partition, int64_t last_id);
void stream_parked_news(struct stream *stream, int64_t now, int64_t requests, int64_t due_ms);
/*
 * Does an operator pause the publisher, as a TICK's answer says? Call it before stream_ticked.
 * While paused, the stream opens no window, reads no page and sends no record. It keeps what it has
 * read, notes what Kafka acknowledges, renews its lease, and looks every half second for the end of
 * the pause.
 */
void stream_pause(struct stream *stream, bool paused);
/*
 * The topics that an operator pauses, as a TICK's answer says: the names are the members of a JSON
 * object; NULL: none. Call it before stream_ticked. No further record of them is sent: they are
 * parked, and become free when an answer no longer names their topic (record_queue_pauses.c).
 */
void stream_pause_topics(struct stream *stream, const char *topics);
/*
 * How long a TICK that parked, freed, listed, retried, skipped or removed rows took in the server,
 * up to its commit. Call it before stream_ticked. It adjusts the batch of the next TICK (BATCH_MS
 * in stream_answers.c).
 */
void stream_worked(struct stream *stream, int64_t now, int64_t took_ms);
void stream_ticked(struct stream *stream, int64_t now, enum stream_verdict verdict);
/*
 * The answer of RENEW: written, or fenced. With may_open, stream_renewed_idle: it was written, and
 * no transaction but its own has ended since the look that found nothing (STREAM_IDLE).
 */
void stream_renewed(struct stream *stream, int64_t now, bool written);
void stream_renewed_idle(struct stream *stream, int64_t now);
/*
 * The call failed. `unknown`: the server may have executed it nevertheless (connection lost,
 * cancelled by this side). `late`: it took longer than its limit, so the next TICK has less to do.
 * An owner sends RENEW before the next TICK, so that failing TICKs never cost the lease.
 */
void stream_log_failed(struct stream *stream, int64_t now, bool unknown, bool late);
/* The answer of NEWEST: the newest row, with its number of open windows. */
void stream_newest(
    struct stream *stream, int64_t now, int64_t n, int64_t nonce, int windows, int64_t listed_tick);
/* The answer of PLACES: each place, in their order, and then the end. */
void stream_stalled_place(/* -1: the topic was missing; -2: it was paused */
    struct stream *stream, const char *topic, size_t topic_length, int32_t partition);
void stream_places_end(struct stream *stream, int64_t rows);
/*
 * The answer of LOOKUP: the place of each asked record that is parked itself (`itself`) or whose
 * key is parked; then the end.
 */
void stream_looked_up(struct stream *stream, int place, bool itself);
void stream_lookup_end(struct stream *stream);
/* The answer of DIGESTS: each digest, in their order, and then the end. */
void stream_digest(struct stream *stream, int64_t digest);
void stream_digests_end(struct stream *stream, int64_t rows);

/* The answer of DESTINATIONS: each destination and then the end. */
struct stream_destination {
	const char *topic;
	int32_t partitions;
	bool open;
	int64_t n;              /* the last log row that changed it */
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
	int64_t rows;     /* maximum number of rows */
	int64_t bytes;    /* the reader stops the page at this size */
	bool withheld;    /* without payload and headers */
};
/* The page to read now on the idle read connection. */
struct stream_page stream_read_call(struct stream *stream, int64_t now);
/*
 * One row of the page or of a tick's answer, in order; takes over the message's block. Drops rows
 * of a page that was requested before the shard was lost.
 */
void stream_row(struct stream *stream, const struct message *message);
/*
 * Ends the page. last: the window has no further row. upto_id: all rows of the window up to this id
 * have been passed; 0: unknown.
 */
void stream_page_end(struct stream *stream, int64_t now, bool last, int64_t upto_id);
/* The read failed: the rows that came count, and the rest is read again after a while. */
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
 * use. unready: considers only topics to which records cannot flow. ready: records may flow;
 * partitions: the count in the log, 0: none yet. The name is valid until the next call of any
 * function here.
 */
const char *stream_next_topic(
    struct stream *stream, bool unready, bool *ret_ready, int32_t *ret_partitions);
int stream_topics(const struct stream *stream, bool unready); /* how many there are */
/*
 * Returns the names of closed topics, one for each call, so that the caller can forget them. True:
 * `ret_name` is the next one; the caller frees it.
 */
bool stream_closed_topic(struct stream *stream, char **ret_name);

/* --- tails: records in Kafka that no log row covers (record_queue_tails.c) ------------------ */

enum { STREAM_TAIL_END = -1 };
struct stream_tail {
	const char *topic; /* valid until the next call of any function here */
	int32_t partition;
	uint64_t number; /* of the question; its answers carry it */
	int64_t offset;  /* read from here to the end; STREAM_TAIL_END: only find the end */
	int64_t least;   /* the end known before: if the end is in front of it, that is `beyond` */
};
/* The next partition to read; false: none now. */
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
/* A record of this publisher and shard was found in the partition; event_id: 16 bytes. */
enum stream_found {
	STREAM_FOUND,
	/*
	 * This owner does not know the record's window. The database went back in time, or this
	 * owner lost the shard without knowing it and the next owner wrote the record. The next log
	 * row decides: see stream_rewinds.
	 */
	STREAM_FOUND_UNKNOWN,
	STREAM_FOUND_ENOUGH, /* the rest need not be read, nor stream_tail_end be called */
};
enum stream_found stream_tail_record(struct stream *stream, const struct stream_question *question,
    int64_t offset, const struct outbox_position *position, const char event_id[16]);
/*
 * Grows with each log row that began a new epoch after STREAM_FOUND_UNKNOWN. Only the owner of the
 * shard can write such a row, so its log does not know the records that were found.
 */
int64_t stream_rewinds(const struct stream *stream);
/* The tail was read up to `end`. beyond: the requested offset, or `least`, lies behind `end`. */
void stream_tail_end(
    struct stream *stream, const struct stream_question *question, int64_t end, bool beyond);
/*
 * The tail cannot be read, permanently: records flow without it; with transactions it is requested
 * again later.
 */
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
	STREAM_AGAIN,      /* not the record's fault: the next producer sends it again */
	STREAM_REFUSED,    /* Kafka refuses the record, or the batch it was in, permanently */
	STREAM_UNSENDABLE, /* refused before anything was sent: the record itself is the cause */
	STREAM_DENIED,     /* its topic takes no records now, whatever they contain */
	STREAM_FAILED, /* the error does not say whether record, partition or topic is the cause */
};
/* error: text for people; NULL when written. */
void stream_report(struct stream *stream, int64_t now, uint64_t sequence,
    enum stream_delivery delivery, int64_t offset, const char *error);

/* Why the producer must be replaced now; NULL: it need not. */
const char *stream_producer_verdict(const struct stream *stream, int64_t now);
extern const char stream_stalled[]; /* the verdict when acknowledgements are missing */
extern const char stream_refusal[]; /* nothing is wrong with the brokers */
/* nothing is wrong with the brokers either: only one partition, or topic, takes no records */
extern const char stream_denial[];
extern const char stream_partition_stalled[];
/*
 * With transactions. stream_wants_producer: create a producer now, which fences all others by
 * init_transactions. stream_producer_ready: the producer exists, so no record that others wrote can
 * still become visible.
 */
bool stream_wants_producer(const struct stream *stream, int64_t now);
void stream_producer_ready(struct stream *stream);
/*
 * Grows each time that the shard is taken. If it has grown during init_transactions, another owner
 * may have fenced the producer meanwhile, and may write: the producer is not ready, and must go.
 */
int64_t stream_takes(const struct stream *stream);
/*
 * After stream_send returned false: true if the open transaction must be committed now. The records
 * that stream_send returns from then on go to the other producer, as the next transaction.
 */
bool stream_commits(struct stream *stream);
/* The commit succeeded. If it failed or its result is unknown: stream_producer_lost. */
void stream_committed(struct stream *stream, int64_t now);
/* The producer can be destroyed without loss: nothing is in flight, nor in a transaction. */
bool stream_is_settled(const struct stream *stream);
/* The producer, which must go, has not yet reported on all of its records. */
bool stream_awaits_reports(const struct stream *stream);
/* The producer was destroyed: all records that are not acknowledged go out again, in order. */
void stream_producer_lost(struct stream *stream);

/* --- the whole ----------------------------------------------------------------------------- */

/*
 * For the doorbell (bell.h). stream_hurry: looks for new rows at once, or at once after the TICK in
 * flight. stream_doze: looks in `ms` at the earliest, unless stream_hurry is called before.
 */
void stream_hurry(struct stream *stream, int64_t now);
void stream_doze(struct stream *stream, int64_t now, int64_t ms);
/*
 * The TICKs that looked for new rows, as far as their answers came: how many there were, how many
 * of them certainly saw every committed row (one that lists kept back rows does not), how many of
 * these opened a window, and the number of rows that came with them or with pages. A window may
 * prove to be empty.
 */
struct stream_looks {
	int64_t tried, made, found, rows;
};
struct stream_looks stream_looks(const struct stream *stream);

/* When to call again if nothing happens before; INT64_MAX: only after an event. */
int64_t stream_wait(struct stream *stream, int64_t now);
/* The same while the log connection is busy or away: calls that are due on it cannot be sent now.
 */
int64_t stream_wait_offline(const struct stream *stream, int64_t now);
/*
 * Records are in flight and nothing waits for their reports: a later turn of the loop may take the
 * reports, and they need not wake it.
 */
bool stream_is_patient(const struct stream *stream);
/* poll_busy is 0: the next look for a window is due when the last one is answered. */
bool stream_polls_at_once(const struct stream *stream);

/* Waits for the records in flight, for at most a lease, notes them, and releases the shard. */
void stream_stop(struct stream *stream);

enum stream_state {
	STREAM_STANDBY,
	STREAM_OWNER,
	STREAM_UNSURE, /* the answer of the last COMMIT is lost; the newest row tells (NEWEST) */
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
	bool full;              /* the limit of unacknowledged records is reached: no more go out */
	int64_t published;      /* acknowledged since the stream was created */
	int64_t published_bytes;
	int64_t skipped;       /* found in Kafka instead of being sent */
	int64_t parked;        /* noted in outbox.parked instead */
	int64_t scheduled;     /* noted in outbox.scheduled */
	int stalls;            /* stalled partitions and topics: their records are parked */
	int64_t oldest_due_us; /* due time of the oldest unacknowledged row in memory; 0: none */
	bool caught_up;        /* the last look found nothing, and all records are covered */
	bool paused;           /* by an operator */
	int paused_topics;     /* number of topics that an operator pauses */
	int64_t deaths;        /* deaths of owners; 0: the poison guard is not active */
	bool refused;          /* stopped by a record that Kafka refuses */
	int64_t refusals;      /* records that were refused and parked */
	/* the record at which the stream stopped, or else the last that was parked; 0: none */
	int64_t refused_id;
	const char *refused_topic, *refused_error;
	const char *missing_topic; /* a topic that records wait for; NULL: none */
	/* a topic whose partitions answer with errors and are tried again; NULL: none */
	const char *denied_topic, *denied_error;
	int denied; /* number of such partitions */
};
struct stream_status stream_status(const struct stream *stream, int64_t now);

/* The number that the next row gets, and the message of a number (NULL: not in memory). */
uint64_t stream_next_sequence(const struct stream *stream);
const struct message *stream_message(const struct stream *stream, uint64_t sequence);

/* The epoch for positions: that of the log, but after a refusal that of the rows before it. */
int64_t stream_epoch(const struct stream *stream);
