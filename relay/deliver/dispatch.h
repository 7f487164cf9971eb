#pragma once
/*
 * Decides what a [deliver] section sends next: messages, answers and the time go in; requests and
 * ends of messages come out. No I/O, no clock; one thread.
 *
 * Messages that came together travel together, in a parcel. Parcels are sent in the order in which
 * they came, as far as these allow:
 *
 *   connections   requests at once
 *   rate          a token bucket (bucket.h)
 *   the breaker   (breaker.h): while it is open every message that waits is ended at once, as one
 *                 that was not tried and comes again when the pause is over; half-open, one parcel
 *                 goes as the probe and the others wait for its result
 *
 * A message whose partition was revoked while the message waited is not sent: the new owner has it.
 *
 * Parcels are taken apart, into such of one message each, when the application refuses all of one
 * for good, and when two events of one have the same id.
 */
#include "breaker.h"
#include "deliver_answer.h"
#include "deliver_request.h"

struct dispatch_settings {
	struct deliver_wire wire;
	struct deliver_judge judge;
	int64_t connections;
	int64_t rate; /* requests a second; 0: no limit */
	int64_t breaker_failures, breaker_pause_ms;
	/* Asked right before a message is sent: does its partition belong to this process still? */
	bool (*holds)(void *context, uint64_t ticket);
	/*
	 * Called once with the end of each message. Both callbacks are called from within the
	 * functions below, and must not call them.
	 */
	void (*finish)(void *context, const struct outbox_inbox_end *ends, size_t count);
	void *context;
};

struct dispatch;

/* Messages that travel in one request. */
struct parcel {
	const struct outbox_inbox_message **messages;
	size_t count;
	struct deliver_request request; /* written when it is sent */
	/* the dispatch's */
	bool written, probe;
	struct parcel *before, *after;
};

struct dispatch *dispatch_create(const struct dispatch_settings *settings, int64_t now);
/* Messages in it have no end then. NULL is fine. */
void dispatch_destroy(struct dispatch *dispatch);

/* Messages from the inbox; they are valid until they are ended. */
void dispatch_add(
    struct dispatch *dispatch, const struct outbox_inbox_message *const *messages, size_t count);

/*
 * The parcel to send now; NULL: none. The dispatch owns it until one of the next three functions
 * ends it.
 */
struct parcel *dispatch_next(struct dispatch *dispatch, int64_t now);
/* Returns the label of the answer (deliver_answer.h). */
const char *dispatch_answered(struct dispatch *dispatch, int64_t now, struct parcel *parcel,
    const struct deliver_response *response);
/* There is no room for the request: undoes dispatch_next. */
void dispatch_put_back(struct dispatch *dispatch, struct parcel *parcel, int64_t now);
/* The request cannot be sent: counts as a failed attempt. */
void dispatch_refused(
    struct dispatch *dispatch, struct parcel *parcel, int64_t now, const char *error);

/*
 * Waiting messages end as not tried. They come again after after_ms, unless another process takes
 * them.
 */
void dispatch_drain(struct dispatch *dispatch, int64_t after_ms);
/* Messages under way end as not tried. No answer may be passed in afterwards. */
void dispatch_abandon(struct dispatch *dispatch, int64_t now, const char *why);

/* When the result of dispatch_next may change without an event; INT64_MAX: never. */
int64_t dispatch_deadline(const struct dispatch *dispatch, int64_t now);

struct dispatch_figures {
	size_t messages; /* that have no end yet */
	int in_flight;   /* requests */
	enum breaker_state breaker;
};
struct dispatch_figures dispatch_figures(const struct dispatch *dispatch, int64_t now);

enum { DISPATCH_ERROR = 400 };
/* Why the last request failed; "": it did not fail, or none was made. Until the next answer. */
const char *dispatch_error(const struct dispatch *dispatch);
