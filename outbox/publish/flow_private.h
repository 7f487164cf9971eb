#pragma once
/* What the files of a flow share: flow.c (records), flow_topics.c (destinations), flow_tails.c. */
#include <uthash.h>
#include "flow.h"

enum record_state { PENDING, HELD, SENT, ACKED, REFUSED, BLOCKED };

struct record {
	struct message message;
	struct topic *topic;
	int64_t tick;
	int64_t offset;     /* where Kafka has it, once ACKED */
	uint64_t next_held; /* the one behind it in the queue it is held in; 0: last */
	int32_t partition;
	uint8_t state;
	bool suspect; /* was in a refused batch */
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
	UT_hash_handle hh;
};

struct lane {
	struct topic *topic;
	int32_t partition;
	int32_t under_way;
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
	bool first_tail;    /* none was read since the shard was taken */
	bool wants_end;     /* open and silent: its offset is to move up to the end */
	bool asked_end;     /* which is being looked for; nothing was sent since */
	bool used;          /* records flowed since flow_tails_move */
	struct seen *found; /* by (id, event id); taken out when the row comes by */
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
	bool missing; /* the broker says so */
	int index;
	UT_hash_handle hh;
};

/* Goes no further than the refused record; what came before that still does. */
struct blocked_key {
	struct topic *topic;
	uint64_t refused;
	int32_t length;
	char key[];
};

struct flow {
	int64_t max_in_flight;
	bool resumes; /* reads tails */
	struct record *ring;
	uint64_t capacity; /* a power of two */
	uint64_t covered, acked, next, end, highest_sent;
	int64_t bytes, under_way, held; /* held: on lanes */
	int64_t skipped;
	struct topic *topics; /* by name */
	struct topic **topic_list;
	int topic_count;
	struct topic *last_topic; /* the one of the record before: most tables have few */
	int unready;              /* topics NEW or CHANGED */
	int tails_wanted;         /* lanes UNREAD or with wants_end */
	int unlogged;             /* lanes UNLOGGED */
	int64_t found;            /* records in all lanes' `found` */
	bool recreated;           /* a topic was: positions in it begin anew */
	bool changing;            /* the row under way carries a changed count */
	struct lane *ready_first, *ready_last; /* lanes whose held records may go now */
	struct blocked_key **blocked;
	int blocked_count;
	bool refused;
	struct flow_refusal refusal;
};

struct record *flow_record(const struct flow *flow, uint64_t sequence);

/* --- flow.c --------------------------------------------------------------------------------- */
/* What waited for the topic goes to its lanes. */
void flow_release_held(struct flow *flow, struct topic *topic);
/* The lane's held records may go now. */
void flow_list_ready(struct flow *flow, struct lane *lane);
/* Every lane as a fresh producer finds it; no record is held anywhere. */
void flow_forget_lanes(struct flow *flow);

/* --- flow_topics.c -------------------------------------------------------------------------- */
struct topic *flow_topic_find(struct flow *flow, const char *name, size_t length);
/* NULL: the topic has no such partition in the log. */
struct lane *flow_lane(struct flow *flow, const char *topic, int32_t partition);
void flow_topics_forget(struct flow *flow); /* what the log said of them */
void flow_topics_destroy(struct flow *flow);

/* --- flow_tails.c --------------------------------------------------------------------------- */
/* The lanes from `from` on are new to this owner, or their topic is there again: to be read. */
void flow_tails_begin(struct flow *flow, struct topic *topic, int32_t from);
/* The producer goes: what is under way on the lane may be there or not. */
void flow_tail_lost(struct flow *flow, struct lane *lane);
/* A row was written; what it says of the lane is in logged_offset. */
void flow_tail_logged(struct flow *flow, struct lane *lane);
/* Kafka has the record already, at *ret_offset. It is found once. */
bool flow_tail_found(
    struct flow *flow, struct lane *lane, const struct message *message, int64_t *ret_offset);
void flow_tail_close(struct flow *flow, struct lane *lane); /* the lane goes */
