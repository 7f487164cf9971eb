#pragma once
/*
 * The thread of a [deliver] section that sends. Any thread submits messages; their ends come back
 * on the thread of the sender. dispatch.h decides which request is sent when, and http_client.h
 * sends it.
 *
 *   sender = http_sender_start(&options, &err);
 *   … http_sender_submit(sender, messages, count) …
 *   http_sender_rest(sender, drain_ms), close where messages come from
 *   http_sender_stop(sender);
 */
#include "deliver_metrics.h"
#include "dispatch.h"

struct http_sender;

struct http_sender_options {
	const struct config_deliver *deliver; /* this and the next outlive the sender */
	struct deliver_metrics *metrics;
	bool (*holds)(void *context, uint64_t ticket); /* dispatch.h; on the sender's thread */
	/*
	 * Called once for each message, with its end: on the thread of the sender, or, while it
	 * rests, on the thread that calls http_sender_submit. Must not call the sender.
	 */
	void (*finish)(void *context, const struct outbox_inbox_end *ends, size_t count);
	void *context;
};

/* Files are read here. ERR_CONFIG: names section and key. ERR_RETRY, ERR_FATAL: no thread. */
struct http_sender *http_sender_start(const struct http_sender_options *options, struct err *err);
/* The sender must rest, or never have had a message. NULL is fine. */
void http_sender_stop(struct http_sender *sender);

/* Could it be started? Connects to nothing. */
bool http_sender_check(const struct config_deliver *deliver, struct err *err) MUST_CHECK;

/*
 * Messages that travel together, unless form = single; they are valid until they are ended. Returns
 * at once.
 */
void http_sender_submit(
    struct http_sender *sender, const struct outbox_inbox_message *const *messages, size_t count);

/*
 * Ends all submitted messages: requests in flight have drain_ms to end by themselves. From now on a
 * submitted message ends at once, as not tried. After the return the thread of the sender calls no
 * `finish`, until http_sender_work.
 */
void http_sender_rest(struct http_sender *sender, int64_t drain_ms);
void http_sender_work(struct http_sender *sender);

/* A copy of the status that the thread wrote last. */
struct http_sender_status {
	int64_t loop_ms; /* clock_ms of the last turn of the loop: old means stalled */
	struct dispatch_figures figures;
	char error[DISPATCH_ERROR]; /* of the last request; "" when it did not fail */
};
struct http_sender_status http_sender_status(struct http_sender *sender);
