#pragma once
/*
 * Answers a stream's questions about tails (stream.h): which records are in Kafka already. Internal
 * to outbox/publish; owned by the shard worker's thread; nothing blocks.
 */
#include "publisher_settings.h"
#include "publish_metrics.h"
#include "stream.h"

struct resume;

/*
 * All pointers must outlive it. identity: the publisher's, known once the shard was taken. Only
 * records with a position of this publisher, identity and shard count.
 */
struct resume *resume_create(const struct publisher_settings *publisher, int shard,
    const char *identity, struct stream *stream, struct publish_metrics *metrics);
void resume_destroy(struct resume *resume); /* NULL: fine */

/* Takes answers, and asks the stream's next questions. True: there are more answers now. */
bool resume_step(struct resume *resume, int64_t now);
/* The shard is lost: answers to earlier questions no longer count. */
void resume_forget(struct resume *resume);

int resume_fd(const struct resume *resume); /* readable: call resume_step; -1: no question */
int64_t resume_wait(const struct resume *resume);
