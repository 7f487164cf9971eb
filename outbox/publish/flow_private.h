#pragma once
/*
 * What the files of a flow share: flow.c (records), flow_topics.c (destinations), flow_tails.c,
 * flow_parks.c, flow_stalls.c, flow_denials.c.
 */
#include <uthash.h>
#include "flow.h"

enum record_state {
	PENDING,
	HELD,
	SENT,
	WRITTEN, /* in the transaction that is open */
	ACKED,
	PARKING, /* kept back, to be noted with the next row */
	PARKED,  /* noted; its memory is free */
	REFUSED, /* the slot stops at it */
	BLOCKED, /* behind such a one */
};

struct record {
	struct message message;
	struct topic *topic;
	int64_t tick;
	int64_t offset;     /* where Kafka has it, once WRITTEN or ACKED */
	uint64_t next_held; /* the one behind it in the queue it is held in; 0: last */
	int32_t partition;
	uint8_t state;
	bool suspect;       /* was in a refused batch */
	bool listed;        /* of the listed window: it stands in outbox.parked */
	bool later;         /* its time has not come: outbox.scheduled is where it goes */
	bool convicted;     /* it kills who sends it */
	struct seen *found; /* the record in Kafka that was found for it; NULL: it was sent */
};

struct queue {
	uint64_t head, tail; /* sequence numbers; 0: empty */
};

/* What is known of the records that stand on the lane's partition already. */
enum lane_tail {
	LANE_UNREAD,
	LANE_READING,
	LANE_UNLOGGED, /* read; where its end was must stand in the log before records flow */
	LANE_OPEN,
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
	UT_hash_handle hh;
};

/* Records wait for a partition, or for a missing topic. */
struct wait {
	int64_t since; /* and none came through; 0: none waits, or not known */
	bool stalled; /* for too long: they are parked until its tail was read again, or it is there
		       */
	bool owed;    /* rows are parked since it was so, and some may stand in its tail */
};

struct lane {
	struct topic *topic;
	int32_t partition;
	int32_t under_way;
	int32_t written;        /* in the transaction that is open */
	int32_t unpassed;       /* acknowledged behind a record that is not */
	bool fresh;             /* this producer has no acknowledgement on it yet */
	int64_t acked_at;       /* the last one, unless fresh */
	bool solo;              /* a record is alone on it */
	bool listed;            /* is in flow.ready */
	uint64_t careful_until; /* records up to here go alone */
	/*
	 * Every record of ours on the partition that progress in the log does not cover lies behind
	 * `offset`; every one that this owner does not know of behind `known`.
	 */
	int64_t offset, logging_offset, logged_offset, known;
	enum lane_tail tail;
	bool first_tail; /* none was read since the shard was taken */
	bool wants_end;  /* open and silent: its offset is to move up to the end */
	bool asked_end;  /* which is being looked for */
	bool used;       /* records flowed since flow_tails_move */
	struct wait wait;
	/* tries in a row that failed with an error that blames no record */
	int failures;
	bool barred;          /* nothing is sent before the next try, */
	int64_t barred_until; /* which is then */
	struct seen
	    *found; /* by (id, event id), in the order of offsets; until the row is passed */
	struct queue held;
	struct lane *next_ready;
};

enum topic_state {
	TOPIC_ASKED,   /* the broker has not said that it exists */
	TOPIC_NEW,     /* exists; its count is to be logged */
	TOPIC_READY,   /* records flow */
	TOPIC_CHANGED, /* exists with another count than the logged one */
};

struct topic {
	char *name;
	enum topic_state state;
	int32_t logging; /* the count that the row under way carries; 0: none */
	int32_t count;   /* logged; 0: none yet */
	int32_t known;   /* what the broker says; 0: missing */
	struct lane *lanes;
	int32_t lane_count; /* at least count: brokers may tell an older count for a while */
	struct queue held;
	bool missing;          /* the broker says so */
	struct wait wait;      /* while it is missing */
	struct denial *denial; /* NULL: no partition of it failed */
	int index;
	enum stream_policy policy;
	UT_hash_handle hh;
};

/*
 * A key of which records are parked, or one on which the slot stops. What comes behind the refused
 * record goes no further, what came before it still does.
 */
struct parked_key {
	uint64_t refused;       /* of the stream; 0: it was before our time */
	uint64_t refused_again; /* of the open listed window; 0: none */
	int64_t parking;        /* records to be noted */
	bool stands;            /* in outbox.parked */
	UT_hash_handle hh;
	char name[]; /* number of the topic, then the key */
};

/* A row that stood in outbox.parked when the shard was taken, and is read again. */
struct parked_row {
	int64_t id;
	UT_hash_handle hh;
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

struct flow {
	int64_t max_in_flight;
	bool resumes; /* reads tails */
	bool transactions;
	struct stream_parking parking;
	struct record *ring;
	uint64_t capacity; /* a power of two */
	uint64_t covered, acked, next, end, highest_sent;
	int64_t bytes, under_way, held; /* held: on lanes */
	int64_t unreported;             /* of those under way, by the producer of now */
	int64_t written;                /* on all lanes */
	int64_t skipped, parked, scheduled;
	struct topic *topics; /* by name */
	struct topic **topic_list;
	int topic_count;
	struct topic *last_topic; /* the one of the record before: most tables have few */
	int unready;              /* topics NEW or CHANGED */
	int tails_wanted;         /* lanes UNREAD or with wants_end */
	int unlogged;             /* lanes UNLOGGED */
	int64_t found;            /* records in all lanes' `found`, but for the matched ones */
	int owed;                 /* lanes and topics */
	struct stall *recovered;  /* those that are so no more, while rows of them are stalled */
	int recovered_count, recovered_capacity;
	int64_t heard_at,
	    hearing_since; /* a partition answered; and without long gaps since then */
	int64_t stall_after;
	struct denial *denials;                /* of all topics */
	int barred;                            /* lanes */
	bool hurries;                          /* no record waits for a second try */
	int64_t bars_end_at;                   /* of the first; when there are any */
	int64_t watched_at, watch_at;          /* stalls were looked for; when to do so again */
	bool recreated;                        /* a topic was: positions in it begin anew */
	bool changing;                         /* the row under way carries a changed count */
	struct lane *ready_first, *ready_last; /* lanes whose held records may go now */
	struct parked_key *keys;               /* by name */
	struct parked_row *parked_rows;        /* by id; taken out when the row comes by */
	struct text key_name;                  /* of the one that is looked for */
	struct park *parks;                    /* in the order in which they came */
	int park_count, park_capacity, parks_logging;
	int parks_refused;           /* of them, not those behind */
	int64_t refusals;            /* that were parked */
	bool refused;                /* and the slot stops */
	struct flow_refusal refusal; /* the one it stops at, or else the last that was parked */
};

struct record *flow_record(const struct flow *flow, uint64_t sequence);

/* --- flow.c --------------------------------------------------------------------------------- */
/* What waited for the topic goes to its lanes. */
void flow_release_held(struct flow *flow, struct topic *topic);
/* The lane's held records may go now. */
void flow_list_ready(struct flow *flow, struct lane *lane);
/* Every lane as a fresh producer finds it; no record is held anywhere. */
void flow_forget_lanes(struct flow *flow);

/* Its memory goes; what is known of it stays until it is passed. */
void flow_release(struct flow *flow, struct record *record);

/* --- flow_parks.c --------------------------------------------------------------------------- */
/* Refused, for good, alone on its lane. */
void flow_park_refused(struct flow *flow, uint64_t sequence, const char *error);
/* Behind a refused record of its key: parked, or blocked where the slot stops. */
bool flow_park_behind(struct flow *flow, uint64_t sequence);
void flow_schedule(struct flow *flow, uint64_t sequence);
/* It stood there when the shard was taken: nothing is left to do. */
bool flow_is_parked(struct flow *flow, uint64_t sequence);
/* It kills who sends it. */
void flow_park_convicted(struct flow *flow, uint64_t sequence);
/* Its lane, or its topic, is stalled. */
void flow_park_stalled(struct flow *flow, uint64_t sequence);
void flow_parks_logged(struct flow *flow, bool written);
void flow_parks_forget(struct flow *flow);

/* --- flow_denials.c ------------------------------------------------------------------------- */
/*
 * The record's partition answered with an error that blames no record; of_topic: it concerns all
 * partitions of the topic. True: the record failed so often that it may be the cause.
 */
bool flow_deny(struct flow *flow, int64_t now, uint64_t sequence, bool of_topic, const char *error);
/* The lane took a record, and its topic has a denial. */
void flow_admit(struct flow *flow, struct lane *lane);
/* The lane is barred: are its records parked meanwhile? It is stalled then. */
bool flow_denial_parks(struct flow *flow, struct lane *lane);
const char *flow_denial_error(const struct topic *topic);        /* NULL: it has none */
void flow_denial_forget(struct flow *flow, struct topic *topic); /* before its lanes go */

/* --- flow_stalls.c -------------------------------------------------------------------------- */
/* Its records are parked from here on. True: some are under way, and their producer must go. */
bool flow_lane_stalls(struct flow *flow, struct lane *lane);
/* Its tail was read; or the topic is there. */
void flow_lane_recovers(struct flow *flow, struct lane *lane);
void flow_topic_recovers(struct flow *flow, struct topic *topic);
/* A partition answered: a record, or a question for its end. */
void flow_hear(struct flow *flow, int64_t now);
void flow_stalls_forget(struct flow *flow);

/* --- flow_topics.c -------------------------------------------------------------------------- */
struct topic *flow_topic_find(struct flow *flow, const char *name, size_t length);
/* NULL: the topic has no such partition in the log. */
struct lane *flow_lane(struct flow *flow, const char *topic, int32_t partition);
void flow_topics_forget(struct flow *flow); /* what the log said of them */
void flow_topics_destroy(struct flow *flow);

/* --- flow_tails.c --------------------------------------------------------------------------- */
/* The lanes from `from` on are new to this owner, or their topic is there again: to be read. */
void flow_tails_begin(struct flow *flow, struct topic *topic, int32_t from);
/* The producer goes: what is under way on a lane may be there or not. */
void flow_tails_lost(struct flow *flow);
/* A row was written; what it says of the lane is in logged_offset. */
void flow_tail_logged(struct flow *flow, struct lane *lane);
/* What is to be logged of the lane: not beyond what was found and is not passed. */
int64_t flow_tail_offset(const struct lane *lane);
/* The row for which `seen` was found is passed. */
void flow_tail_passed(struct flow *flow, struct lane *lane, struct seen *seen);
/* What Kafka has of the row already; NULL: nothing. It is found once. */
struct seen *flow_tail_found(struct flow *flow, struct lane *lane, uint64_t sequence);
void flow_tail_close(struct flow *flow, struct lane *lane); /* the lane goes */
void flow_tails_ask(struct flow *flow);                     /* open lanes, where their end is */
void flow_tail_again(struct flow *flow, struct lane *lane); /* it is to be read once more */
