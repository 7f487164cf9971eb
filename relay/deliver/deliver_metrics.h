#pragma once
/*
 * The metrics of a [deliver] section. They must be created before, and destroyed after, the threads
 * that use them.
 */
#include "breaker.h"
#include "inbox.h"
#include "metrics.h"

struct deliver_metrics;

extern const struct metric_table deliver_metric_table; /* of struct outbox_inbox_stats */

/* The section's series are shown from now on. */
struct deliver_metrics *deliver_metrics_create(const char *section);
void deliver_metrics_destroy(struct deliver_metrics *metrics); /* NULL is fine */

/* A request ended; label: as deliver_answer.h has it. Any thread. */
void deliver_metrics_answer(
    struct deliver_metrics *metrics, const char *label, bool sent, int64_t total_us);
/*
 * Notes the current figures of an inbox and the breaker's state. From one thread.
 * deliver_metrics_begin notes that there is no inbox, and that the next one counts from 0.
 */
void deliver_metrics_note(struct deliver_metrics *metrics, const struct outbox_inbox_stats *stats,
    enum breaker_state breaker);
void deliver_metrics_begin(struct deliver_metrics *metrics);
