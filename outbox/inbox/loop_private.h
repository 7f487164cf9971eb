#pragma once
/*
 * Shared by the files of a loop: loop.c (the thread), loop_items.c, loop_claims.c, loop_reading.c,
 * loop_rules.c, loop_commits.c, loop_partitions.c.
 *
 * Only the loop's thread uses these, except for the members that the mutex guards. Functions may
 * block on stores, and on other things only where the comment says so. A function that returns no
 * error handles its failures itself, with loop_tell, loop_trouble or loop_fail.
 */
#include <pthread.h>
#include "inbox_partition.h"
#include "key_queues.h"
#include "loop.h"
#include "timers.h"

enum { AGAIN_MS = 500 /* after a store, a disk or a broker was away */ };

/* A partition as it was assigned, with its commit. */
struct late {
	char *topic, *text;
	struct subscription_place place;
};

struct loop {
	struct inbox_settings *settings;
	pthread_t thread;
	bool runs;
	int wake_fd;
	struct subscription *subscription;
	struct worker_pool *workers;
	struct redelivery *redelivery;
	struct claimer *claimer;   /* NULL: ids are not claimed */
	struct reporter *reporter; /* NULL: handled messages are not reported */
	uint64_t report_mark;      /* reporter_add's, of the prepared commits */

	struct inbox_partition_store common;
	struct inbox_partition_rules common_rules;
	struct inbox_partition **partitions;
	int partition_count;
	struct late *late; /* assigned partitions that could not be opened yet */
	int late_count;
	int64_t late_at;                /* time of the next try to open them */
	struct inbox_partition *recent; /* partition of the last record; NULL: none */
	int to_read;                    /* records that this turn may still read */
	struct item_pool pool;
	struct key_queues key_queues;
	struct timers timers;
	struct item_list ready;    /* for the worker pool, at the end of the turn */
	struct item_list claiming; /* for the claimer, likewise */
	int64_t items, bytes;      /* in memory, of all assigned partitions */
	bool closing;              /* partitions are revoked: nothing is begun */
	bool busy;                 /* this turn did something */
	int64_t full_since;        /* 0: there is room */
	int64_t now_ms;            /* when this turn began */
	int64_t flush_at, commit_at, told_at;
	const char *told; /* the event */
	uint64_t seed;

	struct outbox_inbox_stats stats;
	int64_t again_at; /* when to open the partitions again; 0: never */
	int64_t renew_at; /* when to try again to replace a client with former certificates */

	char **next_rules; /* lines that some partitions do not have yet; NULL: none */
	int64_t rules_at;  /* when to give them these lines */

	pthread_mutex_t mutex; /* guards the members below */
	char **new_rules; /* given by loop_change_rules; the loop takes them at its next turn */
	bool over, ended;
	int64_t turn_ms; /* when the last turn began */
	struct err why;
	struct outbox_inbox_stats shown;
	char **paused; /* topics; "" stands for all */
	size_t paused_count;
	bool pauses_changed, resumed;
	bool pauses; /* the loop has paused a topic */
};

/* --- loop.c --------------------------------------------------------------------------------- */
/* Logs a warning; repetitions of the same warning are logged only now and then. */
void loop_tell(struct loop *loop, const char *event, const struct err *err);
/* Ends the loop, which cannot go on. */
void loop_fail(struct loop *loop, const struct err *err);
/*
 * A store that does not answer is queried again later; a store that may have lost ids is opened
 * again, which finds out what it has lost. A wrong configuration ends the loop.
 */
void loop_trouble(struct loop *loop, struct inbox_partition_store *store, const struct err *err);
/* The same, for the trouble_until of a store or of rules. */
void loop_trouble_until(struct loop *loop, int64_t *trouble_until, const struct err *err);
/* The partition's store did not answer, and must not be queried yet. */
bool loop_is_in_trouble(const struct inbox_partition *assigned);
/* The same, of its store or its rules. */
bool loop_cannot_admit(const struct inbox_partition *assigned);

/* --- loop_items.c --------------------------------------------------------------------------- */
/*
 * Puts an admitted message into its key queue and handles it if it is the first there. A message
 * that was finished before ends here.
 */
void loop_enter(struct loop *loop, struct item *item);
/* Continues with the first message of a key queue after that time. */
void loop_rest(struct loop *loop, struct item *item, int64_t wait_ms);
/* A handler has finished the message. */
void loop_take_end(struct loop *loop, struct item *item);
/* Takes the messages that came back: from handlers, from redelivery, from timers. */
void loop_take_ends(struct loop *loop);
void loop_take_redelivered(struct loop *loop);
void loop_take_timers(struct loop *loop);
/* Writes the ids of done messages to the stores' logs, and then finishes the messages. */
void loop_log_done(struct loop *loop);
bool loop_is_logging(const struct loop *loop); /* some ids have yet to be logged */

/* --- loop_claims.c -------------------------------------------------------------------------- */
/* The message is handled once its id is claimed. */
void loop_claim(struct loop *loop, struct item *item);
/* Takes the messages whose claims were granted or refused. */
void loop_take_claimed(struct loop *loop);
/* A handler has finished the message. */
void loop_end_claim(struct loop *loop, struct item *item);

/* --- loop_reading.c ------------------------------------------------------------------------- */
/* NULL: the partition is not assigned to this consumer, or not open yet. */
struct inbox_partition *loop_find_partition(
    const struct loop *loop, const char *topic, int32_t partition);
/* Handles a read error: logs it and tries again, or ends the loop. */
void loop_judge_reading(struct loop *loop, bool well, const struct err *err);
/* Is there room? Pauses partitions that have had no room for long, and resumes them later. */
bool loop_may_read(struct loop *loop);
/* Reads records as far as there is room; serves librdkafka's events. Both call loop_on_…, and so
 * block. */
void loop_read_records(struct loop *loop);
void loop_read_events(struct loop *loop);
/* Sets the fate of each message that has arrived, and puts it into its key queue. */
void loop_admit(struct loop *loop);
/* Partitions with a stop are paused in librdkafka, the others are not. */
void loop_apply_stops(struct loop *loop);
/* Carries out the requests of loop_pause since the last call. */
void loop_apply_pauses(struct loop *loop);
void loop_look_at_pauses(struct loop *loop); /* also for new partitions */

/* --- loop_rules.c --------------------------------------------------------------------------- */
/* Gives all partitions the lines of loop_change_rules. */
void loop_apply_rules(struct loop *loop);

/* --- loop_commits.c ------------------------------------------------------------------------- */
/* Makes changes durable and commits them. wait: blocks until the coordinator has answered. */
void loop_commit(struct loop *loop, bool wait);
void loop_commit_in_time(struct loop *loop);
/* The message is reported before its offset is committed. */
void loop_note_handled(struct loop *loop, const struct item *item);
/* Reports are too far behind: nothing more is read. */
bool loop_is_unreported(const struct loop *loop);
/* Writes the stores' logs from memory to the kernel. */
void loop_flush_in_time(struct loop *loop);
/* Asks whether the partitions are still ours, when the subscription has to know. */
void loop_ask_coordinator(struct loop *loop);
void loop_show_figures(struct loop *loop); /* to loop_stats */
/* Of subscription_callbacks; context: the loop. */
void loop_on_not_committed(void *context, const struct err *err);

/* --- loop_filters.c ------------------------------------------------------------------------- */
/* Adds the store's figures to loop->stats, and logs an alarm of its filter. assigned: the partition
 * whose ids it has; NULL: it is the store of all partitions. */
void loop_note_store(
    struct loop *loop, struct inbox_partition_store *store, struct inbox_partition *assigned);

/* --- loop_partitions.c ---------------------------------------------------------------------- */
/*
 * For subscription_callbacks; context: the loop. The first two block: they open stores, or drain.
 */
bool loop_on_assigned(void *context, struct subscription_place *places, int count, struct err *err);
void loop_on_revoked(void *context, bool lost);
void loop_on_out_of_range(void *context, const char *topic, int32_t partition);
void loop_on_missing(void *context, const char *topic, int32_t partition);
/*
 * Once again_at is reached, opens all partitions again, from their commits. Drains, and so blocks.
 */
void loop_begin_again(struct loop *loop);
/* Tries again to open partitions that could not be opened when they were assigned, or that must
 * continue at another offset. Blocks. */
void loop_see_to_late(struct loop *loop);
/*
 * Forgets all messages in memory, except those in progress: the worker pool keeps them until they
 * are finished.
 */
void loop_forget(struct loop *loop);
