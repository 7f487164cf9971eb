#pragma once
/*
 * Declarations that the files of the record queue share: record_queue.c (records),
 * record_queue_states.c (their states), record_queue_topics.c (destinations), record_queue_rows.c
 * (destinations in log rows), record_queue_tails.c, record_queue_parks.c, record_queue_keys.c,
 * record_queue_stalls.c, record_queue_denials.c.
 *
 * Thousands of topics may be in use: nothing that a turn of the loop does walks over all of them,
 * or over their partition queues. Hence the lists; each says which objects are on it.
 */
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
	int64_t offset;     /* where Kafka has it, once it is written */
	uint64_t next_held; /* the one behind it in the queue it is held in; 0: last */
	int32_t partition;
	uint8_t state;    /* enum record_state; record_move sets it */
	bool suspect;     /* was in a refused batch */
	bool from_parked; /* it came from outbox.parked, with the listed window */
	bool later;       /* its time has not come: outbox.scheduled is where it goes */
	bool convicted; /* parked as dead, unsent: it kills who sends it, or its topic is refused */
	bool topic_refused;
	/* record_queue_keys.c */
	bool key_known; /* whether its key is parked, and whether it is itself */
	bool looked_up; /* in the database */
	bool stands;    /* it is parked itself */
	bool has_digest;
	int64_t digest;
	struct seen *seen; /* the record in Kafka that was found for it; NULL: it was sent */
};

struct record_list {
	uint64_t head, tail; /* sequence numbers; 0: empty */
};

/*
 * How much of the partition's tail this owner has read. record_queue_states.c has the table and the
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

enum { OFFSET_NONE = -2 /* not known; -1: in front of the first record */ };

/* A record of ours that was found in a tail. */
struct seen {
	struct seen_name {
		int64_t id;
		char event_id[16];
	} name;
	int64_t offset;
	uint64_t matched; /* the number of its row, which came by and is not passed yet; 0: none */
	struct seen *prev, *next; /* by offset */
	UT_hash_handle hh;
};

/* A reading that did not keep everything that it found (record_queue_found.c). */
struct pass {
	int64_t from;              /* from here on; OFFSET_NONE: there is none */
	uint64_t settled;          /* rows up to this number are decided all the same */
	int64_t least_id, most_id; /* range of the ids of records that were not kept */
};

struct cut {
	struct pass made, reading;
	int64_t end;         /* of the reading that `made` speaks of, or of one before it */
	struct seen *sought; /* by (id, event id): rows that wait, not found so far */
};

/* Records wait for a partition, or for a missing topic. */
struct wait {
	int64_t since; /* and none came through; 0: none waits, or not known */
	enum {
		STALL_NONE,
		STALL_OWED,  /* rows are parked, and some may be in the tail */
		STALL_PARKS, /* the same, and further records are parked until it recovers */
	} stall;
};

/* Answers came up to `at`, and since `since` with none `gap` or more later than the one before. */
struct hearing {
	int64_t at, since, gap;
};

struct partition_queue {
	struct topic *topic;
	int32_t number;
	int32_t under_way;
	int32_t written;      /* in the transaction that is open */
	int32_t unpassed;     /* acknowledged behind a record that is not */
	uint64_t alone_until; /* records up to here go alone */
	int64_t acked_at;     /* the last one, unless fresh */
	/*
	 * The state only concerns the tail, and these two concern the producer. fresh: this
	 * producer has no acknowledgement on the partition yet. solo: the record under way was sent
	 * alone.
	 */
	bool fresh, solo;
	/* Is in queue.ready_first. The last one there has no next_ready either. */
	bool in_ready;
	/*
	 * Every record of ours on the partition that progress in the log does not cover lies behind
	 * `offset`; every one that this owner does not know of behind `known_offset`.
	 */
	int64_t offset, logging_offset, logged_offset, known_offset;
	enum partition_state state;
	uint64_t question; /* the number of the newest one; answers to any other do not count */
	/*
	 * Rows that were parked before their tail was read count as passed. Set in any state, and
	 * cleared when the partition opens.
	 */
	bool keeps_passed;
	/* No tail was read since the topic was loaded. Later ones pass through the same states. */
	bool first_tail;
	/* Windows open after its tail was read: the log said so when the topic was loaded. */
	bool awaited;
	/* Its end is being looked for, so that the offset moves up. Open and cut ones may be asked.
	 */
	bool asked_end;
	/* Records flowed since the topic was visited. */
	bool used;
	/* Is in topic.changed_first or in the row under way; the last one has no next_changed. */
	bool offset_changed;
	struct wait wait;
	int64_t unnoted; /* rows parked for its sake that are to be noted; nothing is sent before */
	/* tries in a row that failed with an error that blames no record */
	int failures;
	int64_t barred_until; /* the time of the next try, before which nothing is sent; 0: none */
	struct seen *found;   /* by (id, event id), until the row is passed */
	struct seen *first;   /* the same, by offset */
	struct seen *newest;  /* the last one before the position of the reading */
	struct cut *cut;      /* NULL: all that was found is kept */
	struct record_list held;
	struct partition_queue *next_ready;
	struct partition_queue *next_changed;
	struct partition_queue *prev_wanted, *next_wanted; /* of queue.wanted; prev NULL: off it */
	struct partition_queue *prev_watched, *next_watched; /* of queue.watched: the same */
};

enum topic_state {
	TOPIC_ASKED,   /* the broker has not said that it exists, or the log what it says of it */
	TOPIC_NEW,     /* exists; that it is open, and its count, are to be logged */
	TOPIC_READY,   /* records flow */
	TOPIC_CHANGED, /* exists with another count than the logged one */
	TOPIC_CLOSING, /* the row under way closes it: records wait */
};

/* How far the topic's destination has been read from the log. */
enum topic_log {
	LOG_UNASKED,
	LOG_WANTED,  /* is in queue.unloaded */
	LOG_LOADING, /* asked for by the call under way */
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
	bool checks;     /* closed, not used, and looked at only whether it is still there */
	int32_t logging; /* the count that the row under way carries; 0: none */
	int64_t cost_n;  /* the fold behind which rows say something of it; see unfolded_cost */
	int32_t count;   /* logged; 0: none yet */
	int32_t reported_count; /* by the broker; 0: missing */
	struct partition_queue **partition_queues;
	/* at least count: brokers may report an older count for a while */
	int32_t partition_queue_count;
	struct record_list held;
	bool missing;           /* the broker says so */
	struct wait wait;       /* while it is missing */
	int64_t unnoted;        /* rows parked because it was, as in its partitions */
	struct hearing answers; /* the cluster repeats that the topic is missing */
	struct denial *denial;  /* NULL: no partition of it failed */
	int64_t uses;      /* by records that are not passed, parked keys, stalls to be noted */
	int awaited_count; /* partitions */
	int64_t used_at, moved_at, visit_at;
	bool used;       /* since the last visit */
	bool closes;     /* it is to be closed, or to go, with the next row */
	bool ends_asked; /* so that its offsets move up before that */
	enum stream_policy policy;
	char *refusal_reason; /* why it takes no message of an application; NULL: it does */
	/* partitions with offsets to be logged */
	struct partition_queue *changed_first, *changed_last;
	struct topic_links in_changed;  /* those with such partitions, NEW, CHANGED or closing */
	struct topic_links in_round;    /* in use */
	struct topic_links in_unready;  /* in use, and the broker is to be asked soon */
	struct topic_links in_visits;   /* in use, by the time of the next visit */
	struct topic_links in_waiting;  /* ASKED, with records held or parked for its sake */
	struct topic_links in_unloaded; /* LOG_WANTED */
	struct topic *next_in_row;
	UT_hash_handle hh;
};

/*
 * A key of which records are parked, or one on which the publisher stops. Records behind the
 * refused one go no further, records in front of it still do.
 */
struct parked_key {
	/* the first refused record in the stream; 0: of a former owner */
	uint64_t refused_sequence;
	uint64_t refused_again; /* the same in the open listed window; 0: none */
	int64_t parking_count;  /* records to be noted */
	bool stands;            /* in outbox.parked */
	int64_t digest;         /* parked_digest of topic and key */
	UT_hash_handle hh;
};

/* A Bloom filter of the digests of parked keys; words NULL: there is none. */
struct parked_filter {
	void *memory;
	uint64_t *words; /* in memory, at the beginning of a line */
	uint64_t lines;
	int64_t count, emptied; /* digests added; digests without a parked row since then */
	int64_t next_digest;    /* the next page begins there */
	int64_t last_digest;    /* of the page before */
	int64_t loaded;         /* digests of all pages so far */
};

/* A record to be noted; error NULL: it is behind a refused one, or scheduled. */
struct park {
	uint64_t sequence;
	char *error;
	bool stalled; /* it was not refused: nobody took it */
	bool dead;    /* not to be tried again */
};

/* A partition, or with -1 a topic, of which records are or were parked since nobody took them. */
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
	int64_t bytes, under_way, held_count; /* held: on partitions */
	int64_t unreported; /* under way, and the producer has reported nothing of them */
	int64_t written;    /* on all partitions */
	int64_t skipped, parked, scheduled;
	struct topic *topics;     /* by name */
	struct topic *last_topic; /* the one of the record before: most tables have few */
	int64_t now;              /* of the last turn */
	int64_t idle_ms;          /* an unused topic is closed after so long; 0: never */
	int64_t move_ms;          /* offsets of silent partitions move up so often */
	int round_count, unready_count;
	struct topic *round, *unready, *visits, *waiting, *unloaded, *changed;
	struct topic *row_topics; /* in the row under way */
	struct partition_queue *row_partition_queues;
	int row_partitions;
	int64_t taken_n, folded_n;       /* log row of the take-over, and of the last fold */
	int64_t unfolded;                /* partitions in the rows behind it */
	int news, changes;               /* topics NEW, and CHANGED */
	int awaited_count;               /* partitions of topics that are not missing */
	struct partition_queue *wanted;  /* unread, unsought, or to be asked for their ends */
	struct partition_queue *watched; /* records wait on them, or did lately */
	int64_t asked_at, asked;         /* questions for tails lately, without an answer */
	uint64_t questions;              /* ever */
	int unlogged;                    /* partitions UNLOGGED */
	bool row_closes;
	struct closed_topic *closed;
	int64_t found_count;     /* records in all partitions' `found`, but for the matched ones */
	int64_t seen_count;      /* with them */
	int cuts;                /* partitions that have one */
	int64_t tail_memory;     /* for found records; 0: a share of memory */
	int owed_count;          /* partitions and topics */
	struct stall *recovered; /* those that are so no more, while rows of them are stalled */
	int recovered_count, recovered_capacity;
	struct hearing hearing; /* of partitions */
	int64_t stall_after;
	struct denial *denials;       /* of all topics */
	int barred_count;             /* partitions */
	bool hurries;                 /* no record waits for a second try */
	int64_t bars_end_at;          /* of the first; when there are any */
	int64_t watched_at, watch_at; /* stalls were looked for; when to do so again */
	bool recreated;               /* a topic was: positions in it begin anew */
	bool changing;                /* the row under way carries a changed count */
	/* partitions whose held records may go now */
	struct partition_queue *ready_first, *ready_last;
	struct parked_key *keys;          /* by digest: those known exactly */
	struct parked_filter filter;      /* in force: it holds all parked keys */
	struct parked_filter loading;     /* replaces it once all pages are loaded */
	struct parked_digester *digester; /* NULL: nothing was hashed yet */
	int64_t memory;                   /* the limit; includes the filter and the keys */
	int64_t inherited_tick; /* rows of windows up to here may be parked themselves; 0: none */
	int64_t unknown;        /* records that are not known */
	uint64_t looked;        /* those of them before it are looked up now */
	struct stream_lookup *lookups;
	int lookup_count, lookup_capacity;
	struct park *parks; /* in the order in which they came */
	int park_count, park_capacity, parks_logging;
	int parks_refused; /* those of refused records, not those behind */
	int64_t refusals;  /* that were parked */
	bool refused;      /* and the publisher stops */
	/* the record at which the publisher stops, or else the last one that was parked */
	struct record_queue_refusal refusal;
	/*
	 * A fold writes whole topics: the partitions that the rows behind the last fold make it
	 * write, those of a topic once; and those that the row under way adds to them.
	 */
	int64_t unfolded_cost, row_cost;
	int fold_halves;   /* ticks came late: a fold does half as much, so many times */
	bool closes_later; /* the fold of the row under way is a part: it closes no topic */
};

struct record *record_queue_at(const struct record_queue *queue, uint64_t sequence);

/* --- record_queue_states.c ------------------------------------------------------------------ */
/* Ends the process if the record may not come into that state. */
void record_check_move(
    const struct record_queue *queue, const struct record *record, enum record_state state);
/* The fields that the new state needs are set before. */
static inline void record_move(
    const struct record_queue *queue, struct record *record, enum record_state state)
{
	if (STATES_CHECKED)
		record_check_move(queue, record, state);
	record->state = (uint8_t)state;
}
/* Ends the process if the fields of the partition queue, which has moved, do not fit its state. */
void partition_check(const struct record_queue *queue, const struct partition_queue *partition);
/* Nothing is sent to it before its next try. */
static inline bool partition_is_barred(const struct partition_queue *partition)
{
	return partition->barred_until != 0;
}
/* No producer has the record. */
static inline bool record_waits(const struct record *record)
{
	return record->state == RECORD_PENDING || record->state == RECORD_HELD;
}
/* The record goes again if its producer is lost. */
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
/* Records that waited for the topic go to its partition queues. */
void record_queue_release_held(struct record_queue *queue, struct topic *topic);
/* Its look-up was answered: it may be at the head of where it is held. */
void record_queue_becomes_known(struct record_queue *queue, uint64_t sequence);
/* The partition's held records may go now. */
void record_queue_list_ready(struct record_queue *queue, struct partition_queue *partition);
/* Every partition queue as a fresh producer finds it; no record is held anywhere. */
void record_queue_reset_partitions(struct record_queue *queue);

/* Frees the record's message; its state stays until it is passed. */
void record_queue_release(struct record_queue *queue, struct record *record);

/* --- record_queue_parks.c ------------------------------------------------------------------- */
/* Refused, for good, alone on its partition. */
void record_queue_park_refused(struct record_queue *queue, uint64_t sequence, const char *error);
/* Behind a refused record of its key: parked, or blocked where the publisher stops. */
bool record_queue_park_behind(struct record_queue *queue, uint64_t sequence);
void record_queue_schedule(struct record_queue *queue, uint64_t sequence);
/* It stood there when the shard was taken: nothing is left to do. */
void record_queue_stands(struct record_queue *queue, uint64_t sequence);
/* It kills who sends it. */
void record_queue_park_convicted(struct record_queue *queue, uint64_t sequence);
/* Its partition, or its topic, is stalled. */
void record_queue_park_stalled(struct record_queue *queue, uint64_t sequence);
void record_queue_parks_logged(struct record_queue *queue, bool written);
void record_queue_parks_forget(struct record_queue *queue);

/* --- record_queue_denials.c ----------------------------------------------------------------- */
/*
 * The record's partition answered with an error that blames no record; of_topic: it concerns all
 * partitions of the topic. True: the record failed so often that it may be the cause.
 */
bool record_queue_deny(
    struct record_queue *queue, int64_t now, uint64_t sequence, bool of_topic, const char *error);
/* The partition took a record, and its topic has a denial. */
void record_queue_admit(struct record_queue *queue, struct partition_queue *partition);
/* The partition is barred: are its records parked meanwhile? It is stalled then. */
bool record_queue_denial_parks(struct record_queue *queue, struct partition_queue *partition);
/* NULL: the topic has no denial. */
const char *record_queue_denial_error(const struct topic *topic);
/* Called before the partition queues of the topic go. */
void record_queue_denial_forget(struct record_queue *queue, struct topic *topic);
/* --- record_queue_keys.c -------------------------------------------------------------------- */
/* The exact key of the record, or, if `adds`, a new one; NULL: there is none. */
struct parked_key *record_queue_key_of(
    struct record_queue *queue, struct record *record, bool adds);
/* The record was read: must it be looked up? */
void record_queue_key_added(struct record_queue *queue, struct record *record);
/* A record of its key is in outbox.parked now; and all of the row of the log are. */
void record_queue_key_noted(struct record_queue *queue, struct record *record);
void record_queue_keys_noted(struct record_queue *queue);
void record_queue_keys_forget(struct record_queue *queue);

/* --- record_queue_stalls.c ------------------------------------------------------------------ */
/* Its records are parked from here on. True: some are under way, and their producer must go. */
bool record_queue_partition_stalls(struct record_queue *queue, struct partition_queue *partition);
/* Records wait on the partition; or it goes. */
void record_queue_partition_waits(struct record_queue *queue, struct partition_queue *partition);
void record_queue_partition_unwatch(struct record_queue *queue, struct partition_queue *partition);
/* Its tail was read; or the topic is there. */
void record_queue_partition_recovers(struct record_queue *queue, struct partition_queue *partition);
void record_queue_topic_recovers(struct record_queue *queue, struct topic *topic);
/* A partition answered: a record, or a question for its end. */
void record_queue_hear(struct record_queue *queue, int64_t now);
void record_queue_stalls_forget(struct record_queue *queue);

/* --- record_queue_topics.c ------------------------------------------------------------------ */
struct topic *record_queue_topic_find(struct record_queue *queue, const char *name, size_t length);
/* NULL: the topic has no such partition in the log. */
struct partition_queue *record_queue_partition(
    struct record_queue *queue, const char *topic, int32_t partition);
/* A record of the topic comes: asks the log for the destination, unless it was read. */
void record_queue_topic_use(struct record_queue *queue, struct topic *topic);
/* The log says that it is closed or gone. */
void record_queue_topic_drop(struct record_queue *queue, struct topic *topic);
/* The count is in the log now. */
void record_queue_topic_count(struct record_queue *queue, struct topic *topic, int32_t count);
/* Is it still to be closed with the row that is being made? */
bool record_queue_topic_closes(struct topic *topic);
/* Derives the topic's state from the answers of the log and the broker. */
void record_queue_topic_settle(struct record_queue *queue, struct topic *topic);
/* Records are held, or parked, for its sake. */
void record_queue_topic_waits(struct record_queue *queue, struct topic *topic);
/* Forgets what the log said of the topics. */
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
/* Its offset is not, or may not be, what the log says. */
void record_queue_partition_changes(struct record_queue *queue, struct partition_queue *partition);
/* Drops the row under way and all unlogged changes. */
void record_queue_rows_forget(struct record_queue *queue);

/* --- record_queue_tails.c ------------------------------------------------------------------- */
/* Partitions from `from` on are to be read: new to this owner, or their topic is there again. */
void record_queue_tails_begin(struct record_queue *queue, struct topic *topic, int32_t from);
/* The producer is lost: Kafka may have records that are under way, or not. */
void record_queue_tails_lost(struct record_queue *queue);
/* A log row was written; logged_offset is its offset of the partition. */
void record_queue_tail_logged(struct record_queue *queue, struct partition_queue *partition);
/* The offset to log: in front of the cut and of each found record whose row is not passed. */
int64_t record_queue_tail_offset(const struct partition_queue *partition);
/* The partition is read, and it is known whether Kafka has the row. */
bool record_queue_tail_lets(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence);
/* The row waits at the head of the queue, with nothing under way: it is looked for if need be. */
void record_queue_tail_seek(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence);
/* The partition was read up to its end once. */
bool record_queue_tail_is_known(const struct partition_queue *partition);
/* The partition queue goes. */
void record_queue_tail_close(struct record_queue *queue, struct partition_queue *partition);
/* Asks open partitions where their ends are. */
void record_queue_tails_ask(struct record_queue *queue);
/* The partition is to be read once more. */
void record_queue_tail_again(struct record_queue *queue, struct partition_queue *partition);
/* The partition may be asked for, if it is unread. */
void record_queue_tail_want(struct record_queue *queue, struct partition_queue *partition);
/* Asks where the partition ends, and moves the offset up to there, if it may. */
void record_queue_tail_move(struct record_queue *queue, struct partition_queue *partition);
/*
 * The partition waits for no answer, and nothing that was found on it waits for its row. away:
 * nothing can be read.
 */
bool record_queue_tail_rests(const struct partition_queue *partition, bool away);

/* --- record_queue_found.c ------------------------------------------------------------------- */
/* The row for which `seen` was found is passed. */
void record_queue_tail_passed(
    struct record_queue *queue, struct partition_queue *partition, struct seen *seen);
/* The row's record, if a tail had it; NULL: none was found. Each record is returned once. */
struct seen *record_queue_tail_found(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence);
/* False: Kafka may have the row behind the cut. */
bool record_queue_found_decides(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence);
void record_queue_found_forget(struct record_queue *queue, struct partition_queue *partition);
/* A reading of the partition begins, reads a record, needs no more records, or is at the end. */
void record_queue_found_begin(struct record_queue *queue, struct partition_queue *partition);
enum record_found record_queue_found_take(struct record_queue *queue,
    struct partition_queue *partition, const struct seen_name *name, int64_t offset);
void record_queue_cut_enough(struct partition_queue *partition);
/* True: the partition has a cut. */
bool record_queue_cut_end(
    struct record_queue *queue, struct partition_queue *partition, int64_t end);
/* Not all found records are kept. */
bool record_queue_partition_is_cut(const struct partition_queue *partition);
/* The tail is read again from this offset on; OFFSET_NONE: there is no cut. */
int64_t record_queue_cut_offset(const struct partition_queue *partition);
/* Rows that waited when the cut was made are undecided again. */
void record_queue_cut_unsettle(struct record_queue *queue, struct partition_queue *partition);
void record_queue_cut_drop(struct record_queue *queue, struct partition_queue *partition);
