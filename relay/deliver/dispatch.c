/*
 * The order and the pace of deliveries to one application, without I/O: parcels, the rate, the
 * circuit breaker, and the splitting of batches. Begin at dispatch_add, dispatch_next and
 * dispatch_answered.
 */
#include "dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bucket.h"
#include "text.h"

struct line {
	struct parcel *first, *last;
};

struct dispatch {
	struct dispatch_settings settings;
	struct line waiting, sent;
	struct breaker breaker;
	struct bucket bucket;
	int64_t rate_at; /* there is no token before */
	size_t messages;
	int in_flight;
	struct outbox_inbox_end *ends; /* as many as the largest parcel has messages */
	size_t most_ends;
	char error[DISPATCH_ERROR]; /* of the last request */
};

/* --- parcels -------------------------------------------------------------------------------- */

static struct parcel *parcel_create(
    const struct outbox_inbox_message *const *messages, size_t count)
{
	struct parcel *parcel = xcalloc(1, sizeof *parcel);

	parcel->messages = xcalloc(count, sizeof(void *));
	memcpy(parcel->messages, messages, count * sizeof(void *));
	parcel->count = count;
	return parcel;
}

static void unwrite_parcel(struct parcel *parcel)
{
	if (parcel->written)
		deliver_request_finish(&parcel->request);
	parcel->written = false;
}

static void parcel_destroy(struct parcel *parcel)
{
	unwrite_parcel(parcel);
	free(parcel->messages);
	free(parcel);
}

static void put_last(struct line *line, struct parcel *parcel)
{
	parcel->before = line->last;
	parcel->after = NULL;
	if (line->last)
		line->last->after = parcel;
	else
		line->first = parcel;
	line->last = parcel;
}

static void put_first(struct line *line, struct parcel *parcel)
{
	parcel->before = NULL;
	parcel->after = line->first;
	if (line->first)
		line->first->before = parcel;
	else
		line->last = parcel;
	line->first = parcel;
}

static void take_from_line(struct line *line, struct parcel *parcel)
{
	if (parcel->before)
		parcel->before->after = parcel->after;
	else
		line->first = parcel->after;
	if (parcel->after)
		parcel->after->before = parcel->before;
	else
		line->last = parcel->before;
}

static void line_finish(struct line *line)
{
	struct parcel *next;

	for (struct parcel *parcel = line->first; parcel; parcel = next) {
		next = parcel->after;
		parcel_destroy(parcel);
	}
	*line = (struct line){0};
}

/* --- ends ----------------------------------------------------------------------------------- */

static struct outbox_inbox_end *room_for(struct dispatch *dispatch, size_t count)
{
	if (count > dispatch->most_ends) {
		dispatch->most_ends = count;
		dispatch->ends = xrealloc(dispatch->ends, count * sizeof *dispatch->ends);
	}
	return dispatch->ends;
}

/* The parcel is in no line. */
static void tell_ends(struct dispatch *dispatch, struct parcel *parcel)
{
	dispatch->messages -= parcel->count;
	dispatch->settings.finish(dispatch->settings.context, dispatch->ends, parcel->count);
	parcel_destroy(parcel);
}

static void end_all(struct dispatch *dispatch, struct parcel *parcel,
    enum outbox_inbox_result result, int64_t after_ms, const char *reason)
{
	struct outbox_inbox_end *ends = room_for(dispatch, parcel->count);

	for (size_t i = 0; i < parcel->count; i++)
		ends[i] = (struct outbox_inbox_end){
		    parcel->messages[i]->ticket, result, reason, after_ms};
	tell_ends(dispatch, parcel);
}

static void end_each(
    struct dispatch *dispatch, struct parcel *parcel, const struct deliver_verdict *verdicts)
{
	struct outbox_inbox_end *ends = room_for(dispatch, parcel->count);

	for (size_t i = 0; i < parcel->count; i++) {
		const struct deliver_verdict *verdict = &verdicts[i];

		ends[i] = (struct outbox_inbox_end){parcel->messages[i]->ticket, verdict->result,
		    verdict->reason[0] ? verdict->reason : NULL, verdict->after_ms};
	}
	tell_ends(dispatch, parcel);
}

/* Ends messages that another process has by now. Returns whether any are left. */
static bool keep_held(struct dispatch *dispatch, struct parcel *parcel)
{
	const struct dispatch_settings *settings = &dispatch->settings;
	struct outbox_inbox_end *ends = room_for(dispatch, parcel->count);
	size_t kept = 0, gone = 0;

	for (size_t i = 0; i < parcel->count; i++) {
		uint64_t ticket = parcel->messages[i]->ticket;

		if (settings->holds(settings->context, ticket))
			parcel->messages[kept++] = parcel->messages[i];
		else
			ends[gone++] = (struct outbox_inbox_end){
			    ticket, OUTBOX_INBOX_WAIT, "its partition or its claim was lost", 0};
	}
	if (gone == 0)
		return true;
	/* The body and its name are of all messages: the rest is written anew. */
	unwrite_parcel(parcel);
	parcel->count = kept;
	dispatch->messages -= gone;
	settings->finish(settings->context, ends, gone);
	return kept > 0;
}

/* Puts parcels of one message each in its place at the front of the line, in order. */
static void split_parcel(struct dispatch *dispatch, struct parcel *parcel)
{
	for (size_t i = parcel->count; i > 0; i--)
		put_first(&dispatch->waiting, parcel_create(&parcel->messages[i - 1], 1));
	parcel_destroy(parcel);
}

/* --- life ----------------------------------------------------------------------------------- */

struct dispatch *dispatch_create(const struct dispatch_settings *settings, int64_t now)
{
	struct dispatch *dispatch = xcalloc(1, sizeof *dispatch);

	dispatch->settings = *settings;
	bucket_init(&dispatch->bucket, now);
	return dispatch;
}

void dispatch_destroy(struct dispatch *dispatch)
{
	if (!dispatch)
		return;
	line_finish(&dispatch->waiting);
	line_finish(&dispatch->sent);
	free(dispatch->ends);
	free(dispatch);
}

void dispatch_add(
    struct dispatch *dispatch, const struct outbox_inbox_message *const *messages, size_t count)
{
	put_last(&dispatch->waiting, parcel_create(messages, count));
	dispatch->messages += count;
}

/* --- sending -------------------------------------------------------------------------------- */

static void end_waiting(struct dispatch *dispatch, int64_t after_ms, const char *reason)
{
	struct parcel *parcel;

	while ((parcel = dispatch->waiting.first)) {
		take_from_line(&dispatch->waiting, parcel);
		end_all(dispatch, parcel, OUTBOX_INBOX_WAIT, after_ms, reason);
	}
}

/* May a request go out now? */
static bool may_send_parcel(struct dispatch *dispatch, int64_t now)
{
	int64_t wait = breaker_wait(&dispatch->breaker, now);

	/* Ended as not tried: an outage costs no message an attempt. */
	if (wait > 0)
		end_waiting(dispatch, wait, "the application failed too often in a row");
	if (!dispatch->waiting.first || !breaker_allows(&dispatch->breaker, now) ||
	    dispatch->in_flight >= dispatch->settings.connections)
		return false;
	wait = bucket_wait(&dispatch->bucket, dispatch->settings.rate, now);
	dispatch->rate_at = now + wait;
	return wait == 0;
}

/* The first of the line, as a request that an answer can be made to; NULL: none is left. */
static struct parcel *take_written(struct dispatch *dispatch)
{
	struct parcel *parcel;

	while ((parcel = dispatch->waiting.first)) {
		take_from_line(&dispatch->waiting, parcel);
		if (!keep_held(dispatch, parcel)) {
			parcel_destroy(parcel);
			continue;
		}
		if (!parcel->written)
			deliver_request_init(&parcel->request, &dispatch->settings.wire,
			    parcel->messages, parcel->count);
		parcel->written = true;
		if (!deliver_request_is_ambiguous(&parcel->request))
			return parcel;
		/* An answer names messages by their ids: it could not tell these apart. */
		split_parcel(dispatch, parcel);
	}
	return NULL;
}

struct parcel *dispatch_next(struct dispatch *dispatch, int64_t now)
{
	struct parcel *parcel;

	if (!may_send_parcel(dispatch, now))
		return NULL;
	parcel = take_written(dispatch);
	if (!parcel)
		return NULL;
	put_last(&dispatch->sent, parcel);
	bucket_take(&dispatch->bucket, dispatch->settings.rate);
	parcel->probe = breaker_begin(&dispatch->breaker, now);
	dispatch->in_flight++;
	return parcel;
}

/* Afterwards the parcel is in no line. */
static void come_back(
    struct dispatch *dispatch, struct parcel *parcel, int64_t now, enum breaker_outcome outcome)
{
	take_from_line(&dispatch->sent, parcel);
	dispatch->in_flight--;
	breaker_end(&dispatch->breaker, now, parcel->probe, outcome,
	    dispatch->settings.breaker_failures, dispatch->settings.breaker_pause_ms);
}

const char *dispatch_answered(struct dispatch *dispatch, int64_t now, struct parcel *parcel,
    const struct deliver_response *response)
{
	struct deliver_response said = *response;
	struct deliver_answer answer;
	const char *label;

	said.tried = response->tried && !parcel->probe; /* a probe fails for all messages */
	deliver_answer_read(&answer, &dispatch->settings.judge,
	    (const char *const *)parcel->request.ids, parcel->count, &said);
	label = answer.label;
	text_copy(dispatch->error, sizeof dispatch->error,
	    answer.outcome == BREAKER_SUCCESS ? "" : answer.verdicts[0].reason);
	/* Before the ends: they destroy the parcel. */
	come_back(dispatch, parcel, now, answer.outcome);
	if (answer.apart)
		split_parcel(dispatch, parcel);
	else
		end_each(dispatch, parcel, answer.verdicts);
	deliver_answer_finish(&answer);
	return label;
}

void dispatch_put_back(struct dispatch *dispatch, struct parcel *parcel, int64_t now)
{
	come_back(dispatch, parcel, now, BREAKER_NEITHER);
	bucket_give_back(&dispatch->bucket, dispatch->settings.rate);
	put_first(&dispatch->waiting, parcel);
}

void dispatch_refused(
    struct dispatch *dispatch, struct parcel *parcel, int64_t now, const char *error)
{
	come_back(dispatch, parcel, now, BREAKER_NEITHER);
	end_all(dispatch, parcel, OUTBOX_INBOX_RETRY, 0, error);
}

/* --- the rest ------------------------------------------------------------------------------- */

void dispatch_drain(struct dispatch *dispatch, int64_t after_ms)
{
	end_waiting(dispatch, after_ms, "sending has stopped");
}

void dispatch_abandon(struct dispatch *dispatch, int64_t now, const char *why)
{
	struct parcel *parcel;

	while ((parcel = dispatch->sent.first)) {
		come_back(dispatch, parcel, now, BREAKER_NEITHER);
		end_all(dispatch, parcel, OUTBOX_INBOX_WAIT, 0, why);
	}
}

int64_t dispatch_deadline(const struct dispatch *dispatch, int64_t now)
{
	if (!dispatch->waiting.first || dispatch->in_flight >= dispatch->settings.connections ||
	    !breaker_allows(&dispatch->breaker, now))
		return INT64_MAX;
	return dispatch->rate_at;
}

struct dispatch_figures dispatch_figures(const struct dispatch *dispatch, int64_t now)
{
	return (struct dispatch_figures){
	    dispatch->messages, dispatch->in_flight, breaker_state(&dispatch->breaker, now)};
}

const char *dispatch_error(const struct dispatch *dispatch)
{
	return dispatch->error;
}
