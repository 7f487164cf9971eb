#pragma once
/*
 * The thread of a [deliver] section that sends: messages are handed to it from any thread, and
 * their ends come back on its own. dispatch.h says what goes when, http_client.h carries it.
 *
 *   courier = courier_start(&options, &err);
 *   … courier_hand(courier, messages, count) …
 *   courier_rest(courier, drain_ms), close where messages come from
 *   courier_stop(courier);
 */
#include "deliver_metrics.h"
#include "dispatch.h"

struct courier;

struct courier_options {
	const struct config_deliver *deliver; /* this and the next outlive the courier */
	struct deliver_metrics *metrics;
	bool (*holds)(void *context, uint64_t ticket); /* dispatch.h; on the courier's thread */
	/*
	 * Told of each message's end, once: on the courier's thread, or, while it rests, on that
	 * of courier_hand. Must not call the courier.
	 */
	void (*finish)(void *context, const struct outbox_inbox_end *ends, size_t count);
	void *context;
};

/* Files are read here. ERR_CONFIG: names section and key. ERR_RETRY, ERR_FATAL: no thread. */
struct courier *courier_start(const struct courier_options *options, struct err *err);
/* It rests, or nothing was handed to it. NULL is fine. */
void courier_stop(struct courier *courier);

/* Could it be started? Connects to nothing. */
bool courier_check(const struct config_deliver *deliver, struct err *err) MUST_CHECK;

/* Messages that travel together; they are valid until they are ended. Returns at once. */
void courier_hand(
    struct courier *courier, const struct outbox_inbox_message *const *messages, size_t count);

/*
 * Ends all that was handed to it: what is under way has drain_ms to end by itself. What is handed
 * to it from now on ends at once, as not tried. When it returns, no end is being told on the
 * courier's thread, until courier_work.
 */
void courier_rest(struct courier *courier, int64_t drain_ms);
void courier_work(struct courier *courier);

/* A copy of what the thread last wrote down. */
struct courier_status {
	int64_t loop_ms; /* clock_ms of the last turn of the loop: old means stalled */
	struct dispatch_figures figures;
};
struct courier_status courier_status(struct courier *courier);
