#pragma once
/*
 * The worker pool of the inbox: threads that call the handler. The loop offers messages to the pool
 * and takes back those that were finished. In between each message has a ticket, so that finishing
 * it twice, or a ticket of another inbox, changes nothing.
 *
 * worker_pool_finish and worker_pool_holds may be called from any thread, all others from the
 * loop's.
 */
#include "item.h"

struct worker_pool_settings {
	outbox_inbox_handler *handle;
	void *context;
	struct outbox_inbox *inbox; /* the handler's argument */
	int threads, most, batch;   /* most: maximum number of messages in progress */
	int wake_fd; /* an eventfd, written when something ended and the loop rests */
};

struct worker_pool;

struct worker_pool *worker_pool_create(
    const struct worker_pool_settings *settings, struct err *err);
/* Waits for handlers to return; they may finish messages until then. NULL is fine. */
void worker_pool_destroy(struct worker_pool *pool);

/* Takes ownership of a list of ready messages. */
void worker_pool_offer(struct worker_pool *pool, struct item_list *ready);
/* No handler starts from that moment (clock_ms) on, because another consumer may own the
 * partitions. */
void worker_pool_hold_until(struct worker_pool *pool, int64_t until_ms);

/* Returns the messages that ended since the last call. rest: if the list is empty, the next end
 * writes wake_fd. */
struct item_list worker_pool_ended(struct worker_pool *pool, bool rest);
/* Number of ready messages that no handler has. */
struct item_list worker_pool_withdraw(struct worker_pool *pool);
/*
 * Takes the messages in progress away from their partitions; returns the number of these messages.
 * A handler that finishes one of them leaves it in memory until worker_pool_forget, since the loop
 * may still meet the message in its key queue. After that a finished message is freed.
 */
int worker_pool_abandon(struct worker_pool *pool);
void worker_pool_forget(struct worker_pool *pool);
int worker_pool_in_progress(struct worker_pool *pool);

/*
 * Is the message in progress, does the consumer still own its partition and its claim, and is the
 * moment of worker_pool_hold_until not reached?
 */
bool worker_pool_holds(struct worker_pool *pool, uint64_t ticket);
bool worker_pool_finish(
    struct worker_pool *pool, const struct outbox_inbox_end *ends, size_t count, struct err *err);
