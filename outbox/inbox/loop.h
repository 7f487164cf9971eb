#pragma once
/*
 * The loop of an inbox: one thread that reads, admits, gives messages to the worker pool, takes
 * them back, and commits. Only this thread uses the state of the partitions.
 *
 *   record -> arrived -> admitted (store, rules) -> its key queue -> ready -> a worker -> ended
 *          -> another try, redelivery, or the store's log -> finished -> commit
 *
 * loop_create, _start and _destroy are for the thread that made it, the others for any.
 */
#include "inbox_settings.h"

struct loop;

/* Joins the group when it is started. Only its thread changes the rules of the settings. inbox: the
 * handler's argument. */
struct loop *loop_create(
    struct inbox_settings *settings, struct outbox_inbox *inbox, struct err *err);
bool loop_start(struct loop *loop, struct err *err) MUST_CHECK;
/* Gives back the partitions, commits, and ends; then waits for handlers. NULL is fine. */
void loop_destroy(struct loop *loop);

bool loop_finish(
    struct loop *loop, const struct outbox_inbox_end *ends, size_t count, struct err *err);
bool loop_holds(struct loop *loop, uint64_t ticket);
/* Copies the lines, which were checked. */
void loop_change_rules(struct loop *loop, const char *const *rules);
void loop_pause(struct loop *loop, const char *topic, bool pause);
void loop_stats(struct loop *loop, struct outbox_inbox_stats *ret_stats);
/* False: the loop has ended by itself, and the error says why. */
bool loop_works(struct loop *loop, struct err *err);
