#pragma once
/*
 * Declarations that the files of the record queue share: record_queue.c (records),
 * record_queue_states.c (their states), record_queue_topics.c (destinations), record_queue_rows.c
 * (destinations in log rows), record_queue_tails.c, record_queue_parks.c, record_queue_keys.c,
 * record_queue_stalls.c, record_queue_pauses.c, record_queue_denials.c.
 *
 * Thousands of topics may be in use: a turn of the loop never walks over all topics, or over all
 * partition queues. Hence the lists; a comment at each says which objects are on it.
 */
#include <jansson.h>
#include <uthash.h>
#include <utlist.h>
#include "parked_digest.h"
#include "record_queue.h"

/* record_queue_states.c has the table and the invariants. */
enum record_state {
	RECORD_PENDING,
	RECORD_HELD,
	RECORD_SENT,
	RECORD_WRITTEN,
	RECORD_ACKED,
	RECORD_PARKING,
	RECORD_PARKED,
	RECORD_REFUSED,
	RECORD_BLOCKED,
	RECORD_STATES
};

struct record {
	struct message message;
	struct topic *topic;
	int64_t tick;
	int64_t offset;     /* the record's offset in Kafka, once it is written */
	uint64_t next_held; /* the next record in the list that holds this one; 0: last */
	int32_t partition;
	uint8_t state;    /* enum record_state; record_move sets it */
	uint8_t turn;     /* the producer that has it, if it is SENT or WRITTEN */
	bool suspect;     /* was in a refused batch */
	bool from_parked; /* it came from outbox.parked, with the listed window */
	bool later;       /* its time has not come: it goes to outbox.scheduled */
	bool convicted;   /* parked as dead, not sent: it crashes the sender, or topic_refused */
	bool topic_refused;
	/* record_queue_keys.c */
	bool key_known; /* it is known whether the record or its key is parked */
	bool looked_up; /* the database has answered */
	bool is_parked; /* the record itself is parked */
	bool has_digest;
	int64_t digest;
	struct seen *seen; /* the found record in Kafka that is this one; NULL: none */
};

struct record_list {
	uint64_t head, tail; /* sequence numbers; 0: empty */
};

/*
 * How far this owner has read the partition's tail. record_queue_states.c has the table and the
 * invariants.
 */
enum partition_state {
	PARTITION_UNREAD,
	PARTITION_READING,
	PARTITION_UNLOGGED,
	PARTITION_OPEN,
	PARTITION_CUT,
	PARTITION_UNSOUGHT,
	PARTITION_SEEKING,
	PARTITION_CLOSED,
	PARTITION_STATES
};

enum { OFFSET_NONE = -2 /* unknown; -1 means in front of the first record */ };

/* A record of ours that was found in a tail. */
struct seen {
	struct seen_name {
		int64_t id;
		char event_id[16];
	} name;
	int64_t offset;
	uint64_t matched; /* the number of its row, which was read and is not passed; 0: none */
	struct seen *prev, *next; /* by offset */
	UT_hash_handle hh;
};

/* A reading that did not keep every record that it found (record_queue_found.c). */
struct pass {
	int64_t from;              /* not all are kept from here on; OFFSET_NONE: no pass */
	uint64_t settled;          /* rows up to this number are decided nevertheless */
	int64_t least_id, most_id; /* range of the ids of records that were not kept */
};

struct cut {
	struct pass made, reading;
	int64_t end;         /* end of the last reading that reached the partition's end */
	struct seen *sought; /* by (id, event id): waiting rows that are not found so far */
};

/* The wait of records for a partition, or for a missing topic. */
struct wait {
	int64_t since; /* records wait, and none was acknowledged; 0: none waits, or unknown */
	enum {
		STALL_NONE,
		STALL_OWED,  /* rows are parked, and some may be in the tail */
		STALL_PARKS, /* the same, and further records are parked until it recovers */
	} stall;
};

/* The last answer came `at`. From `since` on each came less than `gap` after the one before. */
struct hearing {
	int64_t at, since, gap;
};

struct partition_queue {
	struct topic *topic;
	int32_t number;
	int32_t under_way;    /* records that the producer has */
	int32_t written;      /* records in transactions that are not committed */
	int32_t unpassed;     /* acknowledged records behind one that is not */
	uint64_t alone_until; /* records up to this number go alone */
	/* Time of the last acknowledgement that each producer had here, unless it is fresh. */
	int64_t acked_at[2];
	/*
	 * `state` concerns only the tail, these two the producers. fresh: that producer has no
	 * acknowledgement on the partition yet. solo: the record in flight was sent alone.
	 */
	bool fresh[2], solo;
	/* The queue is in queue.ready_first. The last queue there has no next_ready either. */
	bool in_ready;
	/*
	 * Every record of ours on the partition that progress in the log does not cover lies behind
	 * `offset`; every record of ours that this owner does not know lies behind `known_offset`.
	 */
	int64_t offset, logging_offset, logged_offset, known_offset;
	enum partition_state state;
	uint64_t question; /* number of the newest question; answers to others are ignored */
	/*
	 * The partition has rows that were parked before their tail was read; they count as passed.
	 * Set in any state, and cleared when the partition opens.
	 */
	bool keeps_passed;
	/* No tail was read since the topic was loaded. Later tails pass through the same states. */
	bool first_tail;
	/* No window opens before its tail is read: the topic was open in the log when loaded. */
	bool awaited;
	/* A question for its end is in flight, so that the offset moves up; states OPEN and CUT. */
	bool asked_end;
	/* Records were sent since the topic was visited. */
	bool used;
	/* Is in topic.changed_first or in the row in flight; the last one has no next_changed. */
	bool offset_changed;
	struct wait wait;
	int64_t unnoted; /* rows parked because of it and not noted; until then nothing is sent */
	/* consecutive tries that failed with an error that blames no record */
	int failures;
	int64_t barred_until; /* the time of the next try; until then nothing is sent; 0: none */
	struct seen *found;   /* by (id, event id), until the row is passed */
	struct seen *first;   /* the same records, by offset */
	struct seen *newest;  /* the last one before the position of the reading */
	struct cut *cut;      /* NULL: all found records are kept */
	struct record_list held;
	struct partition_queue *next_ready;
	struct partition_queue *next_changed;
	struct partition_queue *prev_wanted, *next_wanted; /* of queue.wanted; prev NULL: off it */
	struct partition_queue *prev_watched, *next_watched; /* of queue.watched: the same */
};

enum topic_state {
	TOPIC_ASKED,   /* the answer of the broker (it exists) or of the log is missing */
	TOPIC_NEW,     /* exists; must be logged as open, with its count */
	TOPIC_READY,   /* records flow */
	TOPIC_CHANGED, /* exists with another count than the logged one */
	TOPIC_CLOSING, /* the row in flight closes it: records wait */
};

/* How far the topic's destination has been read from the log. */
enum topic_log {
	LOG_UNASKED,
	LOG_WANTED,  /* is in queue.unloaded */
	LOG_LOADING, /* the call in flight reads it */
	LOG_LOADED,
};

struct topic_links {
	struct topic *prev, *next; /* prev NULL: the topic is not in that list */
};

struct topic {
	char *name;
	enum topic_state state;
	enum topic_log log;
	bool open;       /* in the log: there may be records behind the noted offsets */
	bool checks;     /* closed and not used; the broker is only asked whether it exists */
	int32_t logging; /* the count that the row in flight carries; 0: none */
	int64_t cost_n;  /* the fold after which rows mention it; see unfolded_cost */
	int32_t count;   /* in the log; 0: none yet */
	int32_t reported_count; /* by the broker; 0: missing */
	struct partition_queue **partition_queues;
	/* at least count: brokers may report an older count for a while */
	int32_t partition_queue_count;
	struct record_list held;
	bool missing;                        /* the broker reports it as missing */
	int64_t missing_since, missing_seen; /* the first and the newest of these answers */
	struct wait wait;                    /* while it is missing */
	/*
	 * Rows parked while it was missing or paused, as in its partitions; and one more while it
	 * is paused, so that nothing is sent.
	 */
	int64_t unnoted;
	bool paused;            /* by an operator: its records are parked */
	struct hearing answers; /* answers of the cluster that the topic is missing */
	struct denial *denial;  /* NULL: no partition of it failed */
	int64_t uses;           /* by records that are not passed, and by recovered places */
	int awaited_count;      /* number of its awaited partitions */
	int64_t used_at, moved_at, visit_at;
	bool used;       /* since the last visit */
	bool closes;     /* the next row should close or remove it */
	bool ends_asked; /* its ends were requested, so that offsets move up before it closes */
	enum stream_policy policy;
	char *refusal_reason; /* why it takes no message of an application; NULL: it does */
	/* partitions with offsets to log */
	struct partition_queue *changed_first, *changed_last;
	struct topic_links in_changed;  /* topics with such partitions, NEW, CHANGED or closing */
	struct topic_links in_round;    /* in use */
	struct topic_links in_unready;  /* in use, and the broker should be queried soon */
	struct topic_links in_visits;   /* in use, by the time of the next visit */
	struct topic_links in_waiting;  /* ASKED, with records held or parked because of it */
	struct topic_links in_unloaded; /* LOG_WANTED or LOG_LOADING */
	struct topic *next_in_row;
	UT_hash_handle hh;
};

/*
 * A key that has parked records, or one at which the publisher stopped. Records behind the refused
 * one are not sent, records in front of it are.
 */
struct parked_key {
	/* the first refused record in the stream; 0: it was refused for a former owner */
	uint64_t refused_sequence;
	uint64_t refused_again; /* the same in the open listed window; 0: none */
	int64_t parking_count;  /* records that must still be noted */
	bool is_parked;         /* the key is in outbox.parked */
	int64_t digest;         /* parked_digest of topic and key */
	UT_hash_handle hh;
};

/* A Bloom filter of the digests of parked keys; words NULL: there is none. */
struct parked_filter {
	void *memory;
	uint64_t *words; /* points into memory, to the beginning of a line */
	uint64_t lines;
	int64_t count, emptied; /* digests added; how many of them lost their last parked row */
	int64_t next_digest;    /* the next page begins with it */
	int64_t last_digest;    /* the last one that came */
	int64_t loaded;         /* digests of all pages so far */
};

/* A kept back record to note; error NULL: it is behind a refused one, or scheduled. */
struct park {
	uint64_t sequence;
	char *error;
	bool stalled; /* not refused: its partition or topic stalled */
	bool dead;    /* must not be tried again */
};

/* Instead of a number of a partition: rows of the topic are parked because it was missing, or
 * paused. */
enum { PLACE_MISSING = -1, PLACE_PAUSED = -2 };

/* A partition, or a topic, that recovered from a stall or a pause and may have parked rows. */
struct stall {
	struct topic *topic;
	int32_t partition;
	int64_t freed_id; /* rows up to here are free */
};

struct record_queue {
	int64_t max_in_flight;
	bool resumes; /* reads tails */
	bool transactions;
	struct stream_parking parking;
	struct record *ring;
	uint64_t capacity; /* a power of two */
	uint64_t covered, acked, next, end, highest_sent;
	int64_t bytes, under_way, held_count; /* held_count: on partitions */
	int64_t unreported; /* records in flight without any report of the producer */
	int64_t written;    /* records in transactions that are not committed, of all partitions */
	int64_t committing; /* those whose commit is in flight */
	int turn; /* which of the two producers has the open transaction, or the next one */
	int64_t skipped, parked, scheduled;
	struct topic *topics;     /* by name */
	struct topic *last_topic; /* the last record's topic: most tables have few topics */
	int64_t now;              /* time of the last turn */
	int64_t idle_ms;          /* an unused topic is closed after this time; 0: never */
	int64_t move_ms;          /* interval at which offsets of silent partitions move up */
	int round_count, unready_count;
	struct topic *round, *unready, *visits, *waiting, *unloaded, *changed;
	struct topic *row_topics; /* topics in the row in flight */
	struct partition_queue *row_partition_queues;
	int row_partitions;
	int64_t taken_n, folded_n;       /* log row of the take-over, and of the last fold */
	int64_t unfolded;                /* partitions in the rows after folded_n */
	int news, changes;               /* number of topics NEW, and CHANGED */
	int awaited_count;               /* awaited partitions of topics that are not missing */
	struct partition_queue *wanted;  /* unread, unsought, or their end is wanted */
	struct partition_queue *watched; /* records wait on them, or waited lately */
	int64_t asked_at, asked;         /* recent questions for tails without an answer */
	uint64_t questions;              /* number of all questions so far */
	int unlogged;                    /* number of partitions UNLOGGED */
	bool row_closes;
	struct closed_topic *closed;
	int64_t found_count;     /* records in all partitions' `found`, without the matched ones */
	int64_t seen_count;      /* the same, with the matched ones */
	int cuts;                /* number of partitions with a cut */
	int64_t tail_memory;     /* for found records; 0: a share of memory */
	int owed_count;          /* number of partitions and topics with a stall */
	struct stall *recovered; /* places without a stall whose parked rows are not all free */
	char *paused_text;       /* the paused topics, as the database named them; NULL: none */
	json_t *paused;          /* the same, read */
	int recovered_count, recovered_capacity;
	struct hearing hearing; /* answers of any partition */
	int64_t stall_after;
	struct denial *denials;       /* of all topics */
	int barred_count;             /* number of barred partitions */
	bool hurries;                 /* a record is parked at its first failure */
	int64_t bars_end_at;          /* when the first bar ends, if there are any */
	int64_t watched_at, watch_at; /* last and next look for stalls */
	bool recreated;               /* a topic was recreated: its offsets begin again */
	bool changing;                /* the row in flight carries a changed count */
	/* partitions whose held records may go now */
	struct partition_queue *ready_first, *ready_last;
	struct parked_key *keys;          /* by digest: the exact keys */
	struct parked_filter filter;      /* in force: it holds all parked keys */
	struct parked_filter loading;     /* replaces `filter` once all pages are loaded */
	struct parked_digester *digester; /* NULL: nothing was hashed yet */
	int64_t memory;                   /* the limit; includes the filter and the keys */
	int64_t inherited_tick; /* rows of windows up to here may be parked already; 0: none */
	int64_t unknown;        /* number of records without key_known */
	uint64_t looked;        /* unknown records before this number are being looked up */
	struct stream_lookup *lookups;
	int lookup_count, lookup_capacity;
	struct park *parks; /* in the order in which they came */
	int park_count, park_capacity, parks_logging;
	int parks_refused; /* parks of refused records, without those behind */
	int64_t refusals;  /* refused records that were parked */
	bool refused;      /* a record was refused, and the publisher stopped */
	/* the record at which the publisher stopped, or else the last refused one that was parked
	 */
	struct record_queue_refusal refusal;
	/*
	 * A fold writes whole topics. unfolded_cost: the partitions of all topics in the rows after
	 * the last fold, each topic counted once. row_cost: those that the row in flight adds.
	 */
	int64_t unfolded_cost, row_cost;
	int fold_halves;   /* how often the work of a fold is halved, as ticks were late */
	bool closes_later; /* the row in flight does not fold all rows, so it closes no topic */
};

struct record *record_queue_at(const struct record_queue *queue, uint64_t sequence);

/* --- record_queue_states.c ------------------------------------------------------------------ */
/* Ends the process if the record may not move to that state. */
void record_check_move(
    const struct record_queue *queue, const struct record *record, enum record_state state);
/* Set the fields that the new state requires before. */
static inline void record_move(
    const struct record_queue *queue, struct record *record, enum record_state state)
{
	if (STATES_CHECKED)
		record_check_move(queue, record, state);
	record->state = (uint8_t)state;
}
/* Ends the process if the fields of a partition queue, after a move, do not fit its state. */
void partition_check(const struct record_queue *queue, const struct partition_queue *partition);
/* The partition gets no records before its next try. */
static inline bool partition_is_barred(const struct partition_queue *partition)
{
	return partition->barred_until != 0;
}
/* No producer has the record. */
static inline bool record_waits(const struct record *record)
{
	return record->state == RECORD_PENDING || record->state == RECORD_HELD;
}
/* The record is sent again if its producer is lost. */
static inline bool record_has_producer(const struct record *record)
{
	return record->state == RECORD_SENT || record->state == RECORD_WRITTEN;
}
/* The record counts as published, and its message is freed. */
static inline bool record_is_over(const struct record *record)
{
	return record->state == RECORD_ACKED || record->state == RECORD_PARKED;
}

/* --- record_queue.c ------------------------------------------------------------------------- */
/* Moves records that waited for the topic to its partition queues. */
void record_queue_release_held(struct record_queue *queue, struct topic *topic);
/* The record's look-up was answered: it may be the first of the list that holds it. */
void record_queue_becomes_known(struct record_queue *queue, uint64_t sequence);
/* The partition's held records may go now. */
void record_queue_list_ready(struct record_queue *queue, struct partition_queue *partition);
/* Resets every partition queue for a fresh producer; no record is held anywhere. */
void record_queue_reset_partitions(struct record_queue *queue);

/* Frees the record's message; its state stays until it is passed. */
void record_queue_release(struct record_queue *queue, struct record *record);

/* --- record_queue_parks.c ------------------------------------------------------------------- */
/* Parks a record that Kafka refused permanently while it was alone on its partition. */
void record_queue_park_refused(struct record_queue *queue, uint64_t sequence, const char *error);
/* True: the record is behind a refused one of its key. It is parked, or blocked by policy stop. */
bool record_queue_park_behind(struct record_queue *queue, uint64_t sequence);
void record_queue_schedule(struct record_queue *queue, uint64_t sequence);
/* The record was already parked when the shard was taken: nothing is left to do. */
void record_queue_stands(struct record_queue *queue, uint64_t sequence);
/* Parks a record that crashes the process that sends it, or whose topic is refused. */
void record_queue_park_convicted(struct record_queue *queue, uint64_t sequence);
/* Parks a record whose partition, or whose topic, is stalled. */
void record_queue_park_stalled(struct record_queue *queue, uint64_t sequence);
/* Parks a record whose topic is paused. */
void record_queue_park_paused(struct record_queue *queue, uint64_t sequence);
void record_queue_parks_logged(struct record_queue *queue, bool written);
void record_queue_parks_forget(struct record_queue *queue);

/* --- record_queue_denials.c ----------------------------------------------------------------- */
/*
 * The record's partition answered with an error that blames no record; of_topic: it concerns all
 * partitions of the topic. True: the record failed so often that it may be the cause.
 */
bool record_queue_deny(
    struct record_queue *queue, int64_t now, uint64_t sequence, bool of_topic, const char *error);
/* The partition acknowledged a record, and its topic has a denial. */
void record_queue_admit(struct record_queue *queue, struct partition_queue *partition);
/* Must the records of the barred partition be parked meanwhile? If so, it is stalled. */
bool record_queue_denial_parks(struct record_queue *queue, struct partition_queue *partition);
/* NULL: the topic has no denial. */
const char *record_queue_denial_error(const struct topic *topic);
/* Call it before the partition queues of the topic are freed. */
void record_queue_denial_forget(struct record_queue *queue, struct topic *topic);
/* --- record_queue_keys.c -------------------------------------------------------------------- */
/* The exact key of the record, or, if `adds`, a new one; NULL: there is none. */
struct parked_key *record_queue_key_of(
    struct record_queue *queue, struct record *record, bool adds);
/* The record was read: decides whether it must be looked up. */
void record_queue_key_added(struct record_queue *queue, struct record *record);
/* The record is in outbox.parked now, and so its key; then: all records of the log row are. */
void record_queue_key_noted(struct record_queue *queue, struct record *record);
void record_queue_keys_noted(struct record_queue *queue);
void record_queue_keys_forget(struct record_queue *queue);

/* --- record_queue_stalls.c ------------------------------------------------------------------ */
/* Parks the partition's records from now on. True: some are in flight, and their producer must go.
 */
bool record_queue_partition_stalls(struct record_queue *queue, struct partition_queue *partition);
/* Records wait on the partition; or the partition queue is closed. */
void record_queue_partition_waits(struct record_queue *queue, struct partition_queue *partition);
void record_queue_partition_unwatch(struct record_queue *queue, struct partition_queue *partition);
/* The partition's tail was read; or the topic exists again. */
void record_queue_partition_recovers(struct record_queue *queue, struct partition_queue *partition);
void record_queue_topic_recovers(struct record_queue *queue, struct topic *topic);
/* A partition answered: it acknowledged a record, or its end was read. */
void record_queue_hear(struct record_queue *queue, int64_t now);
void record_queue_stalls_forget(struct record_queue *queue);
/* The rows that were parked because of the place become free, with the next log rows; or no longer.
 */
void record_queue_add_recovered(struct record_queue *queue, struct topic *topic, int32_t partition);
void record_queue_drop_recovered(
    struct record_queue *queue, struct topic *topic, int32_t partition);

/* --- record_queue_pauses.c ------------------------------------------------------------------ */
/* The topic is new in memory. */
void record_queue_pause_new_topic(struct record_queue *queue, struct topic *topic);
/* The record is the first of its queue, its topic is paused, and it is decided that it is not in
 * flight and whether Kafka has it. */
bool record_queue_pause_parks(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence);
void record_queue_pauses_forget(struct record_queue *queue);

/* --- record_queue_topics.c ------------------------------------------------------------------ */
struct topic *record_queue_topic_find(struct record_queue *queue, const char *name, size_t length);
/* NULL: the topic has no such partition in the log. */
struct partition_queue *record_queue_partition(
    struct record_queue *queue, const char *topic, int32_t partition);
/* The topic has a record: reads its destination from the log, unless it was read. */
void record_queue_topic_use(struct record_queue *queue, struct topic *topic);
/* The topic is closed or gone in the log. */
void record_queue_topic_drop(struct record_queue *queue, struct topic *topic);
/* The log has this count now. */
void record_queue_topic_count(struct record_queue *queue, struct topic *topic, int32_t count);
/* Should the row that is being made still close the topic? */
bool record_queue_topic_closes(const struct record_queue *queue, struct topic *topic);
/* Derives the topic's state from the answers of the log and the broker. */
void record_queue_topic_settle(struct record_queue *queue, struct topic *topic);
/* Records are held, or parked, because of the topic. */
void record_queue_topic_waits(struct record_queue *queue, struct topic *topic);
/* Forgets all topics. */
void record_queue_topics_forget(struct record_queue *queue);
void record_queue_topics_destroy(struct record_queue *queue);
#define TOPIC_IS_LISTED(topic, list) ((topic)->in_##list.prev != NULL)
#define TOPIC_LIST(queue, topic, list)                                                             \
	do {                                                                                       \
		if (!TOPIC_IS_LISTED(topic, list))                                                 \
			DL_APPEND2((queue)->list, topic, in_##list.prev, in_##list.next);          \
	} while (0)
#define TOPIC_UNLIST(queue, topic, list)                                                           \
	do {                                                                                       \
		if (TOPIC_IS_LISTED(topic, list))                                                  \
			DL_DELETE2((queue)->list, topic, in_##list.prev, in_##list.next);          \
		(topic)->in_##list.prev = NULL;                                                    \
	} while (0)

/* --- record_queue_rows.c -------------------------------------------------------------------- */
/* The partition's offset may differ from the log's. */
void record_queue_partition_changes(struct record_queue *queue, struct partition_queue *partition);
/* Drops the row in flight and all changes that are not logged. */
void record_queue_rows_forget(struct record_queue *queue);

/* --- record_queue_tails.c ------------------------------------------------------------------- */
/* Partitions from `from` on must be read: new to this owner, or their topic exists again. */
void record_queue_tails_begin(struct record_queue *queue, struct topic *topic, int32_t from);
/* The producer is lost: Kafka may or may not have the records in flight. */
void record_queue_tails_lost(struct record_queue *queue);
/* A log row was written with logged_offset as the partition's offset. */
void record_queue_tail_logged(struct record_queue *queue, struct partition_queue *partition);
/* The offset to log: in front of the cut and of each found record whose row is not passed. */
int64_t record_queue_tail_offset(const struct partition_queue *partition);
/* The partition is read, and it is decided whether Kafka has the row. */
bool record_queue_tail_lets(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence);
/* The row is the first of its queue, and nothing is in flight there: seeks it if undecided. */
void record_queue_tail_seek(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence);
/* The partition was read to its end once. */
bool record_queue_tail_is_known(const struct partition_queue *partition);
/* Closes the partition queue. */
void record_queue_tail_close(struct record_queue *queue, struct partition_queue *partition);
/* Asks open partitions where their ends are. */
void record_queue_tails_ask(struct record_queue *queue);
/* The partition must be read once more. */
void record_queue_tail_again(struct record_queue *queue, struct partition_queue *partition);
/* Lists the partition as wanted if it is unread or unsought. */
void record_queue_tail_want(struct record_queue *queue, struct partition_queue *partition);
/* Asks for the partition's end, and moves the offset up to the end if that is allowed. */
void record_queue_tail_move(struct record_queue *queue, struct partition_queue *partition);
/*
 * The partition waits for no answer, and no record found on it waits for its row. away: nothing can
 * be read, so pending questions do not count.
 */
bool record_queue_tail_rests(const struct partition_queue *partition, bool away);

/* --- record_queue_found.c ------------------------------------------------------------------- */
/* The row for which `seen` was found is passed. */
void record_queue_tail_passed(
    struct record_queue *queue, struct partition_queue *partition, struct seen *seen);
/* The found record of the row; NULL: none. Each found record is returned once. */
struct seen *record_queue_tail_found(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence);
/* False: Kafka may have the row behind the cut. */
bool record_queue_found_decides(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence);
void record_queue_found_forget(struct record_queue *queue, struct partition_queue *partition);
/* A reading of the partition begins; reads a record; needs no more records; reaches the end. */
void record_queue_found_begin(struct record_queue *queue, struct partition_queue *partition);
enum record_found record_queue_found_take(struct record_queue *queue,
    struct partition_queue *partition, const struct seen_name *name, int64_t offset);
void record_queue_cut_enough(struct partition_queue *partition);
/* True: the partition has a cut. */
bool record_queue_cut_end(
    struct record_queue *queue, struct partition_queue *partition, int64_t end);
/* Not all found records are kept. */
bool record_queue_partition_is_cut(const struct partition_queue *partition);
/* The next reading begins at this offset; OFFSET_NONE: there is no cut. */
int64_t record_queue_cut_offset(const struct partition_queue *partition);
/* Makes the rows that waited when the cut was made undecided again. */
void record_queue_cut_unsettle(struct record_queue *queue, struct partition_queue *partition);
void record_queue_cut_drop(struct record_queue *queue, struct partition_queue *partition);
