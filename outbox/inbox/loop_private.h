#pragma once
/*
 * What the files of a loop share: loop.c (the thread), loop_items.c, loop_reading.c,
 * loop_commits.c, loop_partitions.c.
 *
 * All of it is for the loop's thread, but for what the mutex guards. Stores are waited for, and
 * other things only where it says so. What fails without an error to return has been judged: it
 * ends in loop_tell, loop_trouble or loop_fail.
 */
#include <pthread.h>
#include "inbox_partition.h"
#include "key_queues.h"
#include "loop.h"
#include "timers.h"

enum { AGAIN_MS = 500 /* after a store, a disk or a broker was away */ };

/* A partition, as it was given: what is committed. */
struct late {
	char *topic, *text;
	struct subscription_place place;
};

struct loop {
	const struct inbox_settings *settings;
	pthread_t thread;
	bool runs;
	int wake_fd;
	struct subscription *subscription;
	struct worker_pool *workers;
	struct redelivery *redelivery;

	struct inbox_partition_store common;
	struct inbox_partition **partitions;
	int partition_count;
	struct late *late; /* of what was given, what could not be opened yet */
	int late_count;
	int64_t late_at;                /* then it is tried again */
	struct inbox_partition *recent; /* of the last record; NULL: none */
	int to_read;                    /* records in this turn */
	struct item_pool pool;
	struct key_queues key_queues;
	struct timers timers;
	struct item_list ready;
	int64_t items, bytes; /* in memory, of all assigned partitions */
	bool closing;         /* partitions go: nothing is begun */
	bool busy;            /* this turn did something */
	int64_t full_since;   /* 0: there is room */
	int64_t now_ms;       /* when this turn began */
	int64_t flush_at, commit_at, told_at;
	const char *told; /* the event */
	uint64_t seed;

	struct outbox_inbox_stats stats;
	int64_t again_at; /* the partitions are to be taken anew; 0: no */

	pthread_mutex_t mutex; /* of what follows */
	bool over, ended;
	struct err why;
	struct outbox_inbox_stats shown;
	char **paused; /* topics; "" stands for all */
	size_t paused_count;
	bool pauses_changed, resumed;
};

/* --- loop.c --------------------------------------------------------------------------------- */
/* A warning in the log; the same one, as it comes again and again, only now and then. */
void loop_tell(struct loop *loop, const char *event, const struct err *err);
/* It cannot go on. */
void loop_fail(struct loop *loop, const struct err *err);
/*
 * A store that does not answer is asked again; what it has lost is judged by opening it anew. A
 * wrong configuration is a failure.
 */
void loop_trouble(struct loop *loop, struct inbox_partition_store *store, const struct err *err);
/* Its store did not answer, and is not asked yet. */
bool loop_is_in_trouble(const struct inbox_partition *assigned);

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
/* Messages that came back since: from handlers, from redelivery, from timers. */
void loop_take_ends(struct loop *loop);
void loop_take_redelivered(struct loop *loop);
void loop_take_timers(struct loop *loop);
/* The ids of what is done go to the stores' logs; then it is finished. */
void loop_log_done(struct loop *loop);
bool loop_is_logging(const struct loop *loop); /* some are to go there */

/* --- loop_reading.c ------------------------------------------------------------------------- */
/* NULL: it is not this consumer's, or not open yet. */
struct inbox_partition *loop_find_partition(
    const struct loop *loop, const char *topic, int32_t partition);
/* What a reading that went badly means: it is told and tried again, or the loop fails. */
void loop_judge_reading(struct loop *loop, bool well, const struct err *err);
/* There is room. Partitions that have had none for long rest from now on, or do so no more. */
bool loop_may_read(struct loop *loop);
/* What is there, as far as there is room; what else there is to say. Both call loop_on_…: block. */
void loop_read_records(struct loop *loop);
void loop_read_events(struct loop *loop);
/* Gives each message that has arrived its fate, and puts it into its key queue. */
void loop_admit(struct loop *loop);
/* Partitions with a stop are paused in librdkafka, the others are not. */
void loop_apply_stops(struct loop *loop);
/* What loop_pause has said since the last time. */
void loop_apply_pauses(struct loop *loop);
void loop_look_at_pauses(struct loop *loop); /* it holds for new partitions, too */

/* --- loop_commits.c ------------------------------------------------------------------------- */
/* Makes durable and commits what changed. wait: blocks until the coordinator has answered. */
void loop_commit(struct loop *loop, bool wait);
void loop_commit_in_time(struct loop *loop);
/* What is in memory of the stores' logs goes to the kernel. */
void loop_flush_in_time(struct loop *loop);
/* Whether the partitions are still ours, when the subscription has to know. */
void loop_ask_coordinator(struct loop *loop);
void loop_show_figures(struct loop *loop); /* to loop_stats */
/* Of subscription_callbacks; context: the loop. */
void loop_on_not_committed(void *context, const struct err *err);

/* --- loop_partitions.c ---------------------------------------------------------------------- */
/* Of subscription_callbacks; context: the loop. The first two block: they open stores, or drain. */
bool loop_on_assigned(void *context, struct subscription_place *places, int count, struct err *err);
void loop_on_revoked(void *context, bool lost);
void loop_on_out_of_range(void *context, const char *topic, int32_t partition);
void loop_on_missing(void *context, const char *topic, int32_t partition);
/* When again_at says so, all partitions are taken anew, from what is committed. Drains: blocks. */
void loop_begin_again(struct loop *loop);
/* What could not be begun where it was given, or has to go on elsewhere, is tried again. Blocks. */
void loop_see_to_late(struct loop *loop);
/*
 * Forgets all messages in memory, except those in progress: the worker pool keeps them until they
 * are finished.
 */
void loop_forget(struct loop *loop);
