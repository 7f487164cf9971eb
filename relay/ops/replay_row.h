#pragma once
/*
 * A replay in the database: its settings, fixed when it is created, and a row of outbox.replay with
 * its progress, lease and fence (sql/migrations/0006_replay.sql).
 */
#include "config.h"
#include "pg.h"
#include "replay_filter.h"

/* replay_init and replay_finish. */
struct replay {
	const struct publisher_settings *publisher;
	struct replay_filter filter;
	int64_t id;                                 /* 0: not in the database */
	char *target;                               /* NULL: each row's own topic */
	int64_t rate;                               /* records a second; 0: no limit */
	char *snapshot;                             /* the transactions committed at the start */
	char *shards, *acked, *windows, *acked_ids; /* of state=published, else NULL */
	int64_t upto_id;                            /* the largest id at the start */
	int64_t last_id;                            /* acknowledged up to here, as noted */
	int64_t total, done;
	int64_t nonce;
	bool by_relay;    /* a relay carries it out, and another one after it */
	int64_t noted_ms; /* clock_ms before the last note was sent: the lease counts from here */
};

void replay_init(struct replay *replay, const struct publisher_settings *publisher);
void replay_finish(struct replay *replay);

/* The selected rows of one topic. */
struct replay_topic {
	char *name;
	int64_t rows, oldest_ms; /* since 1970 */
	int32_t partition;       /* the largest that a row asks for; -1: none does */
};
/* Rows and topics of a replay, counted before it begins. */
struct replay_plan {
	struct replay_topic *topics;
	int count;
	int64_t low_id, now_ms, gone; /* gone: ids of the range without a row; -1: no range */
};
void replay_plan_finish(struct replay_plan *plan);

/*
 * Counts the filter's rows and fixes snapshot, upto_id and total. May take long; changes nothing.
 * ERR_REJECT: there is no such row.
 */
bool replay_plan_make(
    struct replay *replay, struct pg *pg, struct replay_plan *ret_plan, struct err *err) MUST_CHECK;

/*
 * Writes the row; this process has the replay from here on. With by_relay no process has it, and a
 * relay takes it. caller: as in outbox.audit; NULL: none.
 */
bool replay_create(struct replay *replay, struct pg *pg, int64_t low_id, const char *reason,
    const char *caller, struct err *err) MUST_CHECK;
/*
 * Reads replay->id and takes it. Its publisher must be one of the configuration, in the database of
 * replay->publisher. ERR_FENCED: another process has it; ERR_REJECT: there is nothing to go on
 * with.
 */
bool replay_take(
    struct replay *replay, struct pg *pg, const struct config *config, struct err *err) MUST_CHECK;
/*
 * state: "running" renews the lease, "stopped" and "finished" give it back; "released": another
 * relay may go on at once. error: why; NULL: none. ERR_FENCED: another process took it, or somebody
 * cancelled it.
 */
bool replay_note(struct replay *replay, struct pg *pg, int64_t last_id, int64_t done,
    const char *state, const char *error, struct err *err) MUST_CHECK;

/* The script of one page of at most `rows` rows behind `after`; the caller frees. */
char *replay_page_script(const struct replay *replay, int64_t after, int64_t rows);
