/*
 * Reads the application's answer to a delivery: verdicts for one message or for each message of a
 * batch. Begin at deliver_answer_read.
 */
#include "deliver_answer.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

enum {
	BODY_SHOWN = 200, /* bytes of an answer that a reason quotes */
	PAUSE_MS = 1000,  /* after a request that never reached the application */
};

/* --- reasons -------------------------------------------------------------------------------- */

/* Makes the reason clean text: it may quote others and be cut within a character. */
static void clean_reason(char *text)
{
	uint32_t code;

	while (*text) {
		int length = text_utf8(text, &code);

		if (length == 0 || code < ' ' || (code >= 0x7f && code < 0xa0)) {
			*text = length ? ' ' : '?';
			/* A control character from 0x80 on has two bytes. */
			if (length == 2)
				text[1] = ' ';
			text += length ? length : 1;
			continue;
		}
		text += length;
	}
}

__attribute__((format(printf, 2, 3))) static void set_reason(
    struct deliver_verdict *verdict, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(verdict->reason, sizeof verdict->reason, format, args);
	va_end(args);
	clean_reason(verdict->reason);
}

static void give_reason(
    struct deliver_verdict *verdict, int status, const char *said, size_t length)
{
	int shown = (int)(length < BODY_SHOWN ? length : BODY_SHOWN);

	if (verdict->result == OUTBOX_INBOX_DONE || verdict->result == OUTBOX_INBOX_DUPLICATE)
		return;
	set_reason(verdict, "status %d%s%.*s", status, shown ? ": " : "", shown, said);
}

/* --- one status ----------------------------------------------------------------------------- */

static bool is_between(int status, int class)
{
	return status / 100 == class;
}

static bool is_passing(int status)
{
	return status == 408 || status == 429 || is_between(status, 5);
}

/* retry_after_ms: -1: not said. */
static struct deliver_verdict verdict_of_status(
    const struct deliver_judge *judge, int status, int64_t retry_after_ms)
{
	int64_t most = judge->retry_after_max_ms;

	if (is_between(status, 2))
		return (struct deliver_verdict){OUTBOX_INBOX_DONE};
	if (status == 409)
		return (struct deliver_verdict){OUTBOX_INBOX_DUPLICATE};
	/* a date that has passed, or no seconds: soon, and not as the settings say */
	if ((status == 429 || status == 503) && retry_after_ms >= 0 && most > 0)
		return (struct deliver_verdict){OUTBOX_INBOX_WAIT,
		    retry_after_ms > most ? most : retry_after_ms + !retry_after_ms};
	/* An error of the application may pass; its refusal of the content does not. */
	return (struct deliver_verdict){
	    is_passing(status) ? OUTBOX_INBOX_RETRY : OUTBOX_INBOX_DEAD};
}

static enum breaker_outcome outcome_of_status(int status)
{
	return is_passing(status) ? BREAKER_FAILURE : BREAKER_SUCCESS;
}

static const char *label_of(int status)
{
	static const char *const labels[] = {"1xx", "2xx", "3xx", "4xx", "5xx"};

	return status >= 100 && status < 600 ? labels[status / 100 - 1] : "answer";
}

/* --- all of them alike ---------------------------------------------------------------------- */

static void set_verdicts(struct deliver_answer *answer, const struct deliver_verdict *verdict)
{
	for (size_t i = 0; i < answer->count; i++)
		answer->verdicts[i] = *verdict;
}

/*
 * A malformed answer counts as a failure for the breaker: it stops the calls before all messages
 * are dead.
 */
static void worth_nothing(struct deliver_answer *answer, const char *why)
{
	struct deliver_verdict verdict = {OUTBOX_INBOX_RETRY};

	set_reason(&verdict, "%s", why);
	set_verdicts(answer, &verdict);
	answer->outcome = BREAKER_FAILURE;
	answer->label = "answer";
}

static bool is_own_failure(const char *failure)
{
	return text_equal(failure, "internal") || text_equal(failure, "queue_timeout");
}

/*
 * A request that never reached the application costs no attempt. So no message is dead after the
 * application was away for long.
 */
static void read_failure(struct deliver_answer *answer, const struct deliver_response *response)
{
	bool ours = is_own_failure(response->failure), tried = response->tried && !ours;
	struct deliver_verdict verdict = {
	    tried ? OUTBOX_INBOX_RETRY : OUTBOX_INBOX_WAIT, tried ? 0 : PAUSE_MS};

	set_reason(&verdict, "%s: %s", response->failure, response->error);
	set_verdicts(answer, &verdict);
	answer->outcome = ours ? BREAKER_NEITHER : BREAKER_FAILURE;
	answer->label = response->failure;
}

/* 401: the password or the token of the relay is wrong, or was changed just now. */
static bool is_shut_out(const struct deliver_judge *judge, int status)
{
	return status == 401 && judge->has_credentials;
}

/* The reason does not quote the body, which may repeat the password or the token. */
static void wait_for_credentials(struct deliver_answer *answer)
{
	struct deliver_verdict verdict = {OUTBOX_INBOX_WAIT, PAUSE_MS};

	set_reason(&verdict,
	    "status 401: the application refuses the headers or the token of the section; correct "
	    "headers or token_url, or the application");
	set_verdicts(answer, &verdict);
	answer->outcome = BREAKER_FAILURE;
	answer->label = label_of(401);
}

static void read_status_answer(struct deliver_answer *answer, const struct deliver_judge *judge,
    const struct deliver_response *response)
{
	struct deliver_verdict verdict =
	    verdict_of_status(judge, response->status, response->retry_after_ms);

	if (response->encoding && response->length)
		set_reason(&verdict, "status %d: the body is encoded (%.40s)", response->status,
		    response->encoding);
	else
		give_reason(&verdict, response->status, response->body, response->length);
	set_verdicts(answer, &verdict);
	answer->outcome = outcome_of_status(response->status);
	answer->label = label_of(response->status);
	/* Perhaps one message alone caused the refusal of all. */
	answer->apart = verdict.result == OUTBOX_INBOX_DEAD && answer->count > 1;
}

/* --- the answer to a batch ------------------------------------------------------------------ */

struct item {
	const char *id;
	int status;
	int64_t retry_after_ms;
	const char *reason;
};

/* Seconds, with a fraction or without. */
static bool read_seconds(const json_t *value, int64_t *ret_ms)
{
	double seconds = json_number_value(value);

	if (!value) {
		*ret_ms = -1;
		return true;
	}
	if (!json_is_number(value) || !(seconds >= 0) || seconds > 1e9)
		return false;
	*ret_ms = (int64_t)ceil(seconds * 1000);
	return true;
}

static bool is_json_text(const json_t *value)
{
	return json_is_string(value) &&
	       strlen(json_string_value(value)) == json_string_length(value);
}

/* {"id", "status", and as it needs them "retry_after" and "reason"}; nothing else. */
static bool read_answer_item(const json_t *object, struct item *ret_item)
{
	const json_t *id = json_object_get(object, "id");
	const json_t *status = json_object_get(object, "status");
	const json_t *reason = json_object_get(object, "reason");
	const json_t *retry_after = json_object_get(object, "retry_after");
	json_int_t number = json_integer_value(status);

	if (!is_json_text(id) || !json_is_integer(status) || number < 200 || number > 599 ||
	    (reason && !is_json_text(reason)) ||
	    json_object_size(object) !=
		2 + (size_t)(reason != NULL) + (size_t)(retry_after != NULL))
		return false;
	ret_item->id = json_string_value(id);
	ret_item->status = (int)number;
	ret_item->reason = reason ? json_string_value(reason) : "";
	return read_seconds(retry_after, &ret_item->retry_after_ms);
}

/* Most applications answer in the order of the request. `count`: the id was not sent. */
static size_t find_event_id(const char *const *ids, size_t count, size_t from, const char *id)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(ids[(from + i) % count], id) == 0)
			return (from + i) % count;
	return count;
}

static bool read_items(struct deliver_answer *answer, const struct deliver_judge *judge,
    const char *const *ids, const json_t *array, bool *said, const char **ret_why)
{
	size_t index, at = 0;
	const json_t *object;

	*ret_why = "it answers a batch with JSON that is not an array of id, status, retry_after "
		   "and reason";
	if (!json_is_array(array))
		return false;
	json_array_foreach(array, index, object)
	{
		struct item item;

		/* The caller overwrites all verdicts: a malformed answer decides nothing. */
		if (!read_answer_item(object, &item))
			return false;
		at = find_event_id(ids, answer->count, at, item.id);
		if (at == answer->count || said[at]) {
			*ret_why = at == answer->count
				       ? "it answers about an id that it was not sent"
				       : "it answers twice about an id";
			return false;
		}
		said[at] = true;
		answer->verdicts[at] = verdict_of_status(judge, item.status, item.retry_after_ms);
		give_reason(&answer->verdicts[at], item.status, item.reason, strlen(item.reason));
	}
	return true;
}

static void read_batch_answer(struct deliver_answer *answer, const struct deliver_judge *judge,
    const char *const *ids, const struct deliver_response *response)
{
	json_t *array = json_loadb(response->body, response->length, JSON_REJECT_DUPLICATES, NULL);
	bool *said = xcalloc(answer->count, sizeof *said);
	owned_text char *encoded = xformat(
	    "it answers a batch with an encoded body (%.40s), and the relay asked for no encoding",
	    response->encoding ? response->encoding : "");
	const char *why = "it answers a batch with a body that is no JSON";

	answer->outcome = BREAKER_SUCCESS;
	answer->label = label_of(response->status);
	if (response->encoding)
		why = encoded;
	if (!array || !read_items(answer, judge, ids, array, said, &why)) {
		worth_nothing(answer, why);
	} else {
		/* A missing id is no success: it might never have been handled. */
		for (size_t i = 0; i < answer->count; i++)
			if (!said[i]) {
				answer->verdicts[i].result = OUTBOX_INBOX_RETRY;
				set_reason(&answer->verdicts[i], "the answer says nothing of it");
			}
	}
	free(said);
	json_decref(array);
}

/* --- the whole ------------------------------------------------------------------------------ */

/* A response that is too long to be read has a status all the same. */
static bool has_status(const struct deliver_response *response)
{
	return !response->failure ||
	       (text_equal(response->failure, "too_large") && response->status >= 200);
}

void deliver_answer_read(struct deliver_answer *answer, const struct deliver_judge *judge,
    const char *const *ids, size_t count, const struct deliver_response *response)
{
	*answer = (struct deliver_answer){
	    .verdicts = xcalloc(count, sizeof *answer->verdicts), .count = count};
	if (!has_status(response))
		read_failure(answer, response);
	else if (is_shut_out(judge, response->status))
		wait_for_credentials(answer);
	else if (judge->form == DELIVER_SINGLE || !is_between(response->status, 2))
		read_status_answer(answer, judge, response);
	/* Too long to be read: the array may hold failures, so 2xx alone proves nothing. */
	else if (response->failure)
		worth_nothing(answer, "it answers a batch with more than max_answer");
	else if (response->length == 0)
		read_status_answer(answer, judge, response);
	else
		read_batch_answer(answer, judge, ids, response);
}

void deliver_answer_finish(struct deliver_answer *answer)
{
	free(answer->verdicts);
	*answer = (struct deliver_answer){0};
}
