/*
 * Requests about parked rows: [refusals] and the count come first, then [noting it], and waiting.
 */
#include "parked_request.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "field_json.h"
#include "moment.h"
#include "sql_files.h"
#include "text.h"

enum { BUSY_MS = 2000, LOOK_MS = 100 };

void parked_request_init(
    struct parked_request *request, struct parked *parked, enum parked_verb verb)
{
	*request = (struct parked_request){.parked = parked,
	    .verb = verb,
	    .word = verb == PARKED_RETRY ? "retry" : "skip",
	    .chosen = parked_chosen(parked)};
}

void parked_request_finish(struct parked_request *request)
{
	free(request->chosen);
	free(request->snapshot);
}

/* --- refusals -------------------------------------------------------------------------------- */

/* Columns of parked_find.sql. */
enum {
	FIND_ID,
	FIND_STATE,
	FIND_REQUEST,
	FIND_WHO,
	FIND_AT,
	FIND_REASON,
	FIND_HEAD,
	FIND_HEAD_STATE
};

static bool refuse_parked_row(
    const struct parked_request *request, const struct pg_result *rows, int i, struct err *err)
{
	const char *id = pg_value(rows, i, FIND_ID);

	if (pg_is_null(rows, i, FIND_STATE))
		return err_set(err, ERR_REJECT,
		    "id %s is not parked in publisher %s, or no longer: `outbox-relay parked list` "
		    "shows what is",
		    id, request->parked->publisher->name);

	/* two open requests could mean the same row in different ways */
	if (!pg_is_null(rows, i, FIND_REQUEST))
		return err_set(err, ERR_REJECT,
		    "id %s: %s was requested by %s at %s (%.200s) and is not carried out yet", id,
		    pg_value(rows, i, FIND_REQUEST), pg_value(rows, i, FIND_WHO),
		    pg_value(rows, i, FIND_AT), pg_value(rows, i, FIND_REASON));

	/* its record would reach Kafka before that of an earlier message of its key */
	if (request->verb == PARKED_RETRY && text_equal(pg_value(rows, i, FIND_STATE), "behind"))
		return err_set(err, ERR_REJECT,
		    "id %s waits behind id %s (%s) of the same key: retry or skip id %s", id,
		    pg_value(rows, i, FIND_HEAD), pg_value(rows, i, FIND_HEAD_STATE),
		    pg_value(rows, i, FIND_HEAD));
	if (request->verb == PARKED_RETRY && text_equal(pg_value(rows, i, FIND_STATE), "free"))
		return err_set(err, ERR_REJECT,
		    "id %s is free: nothing is known against it, and it goes as soon as possible",
		    id);
	if (request->verb == PARKED_RETRY && text_equal(pg_value(rows, i, FIND_STATE), "paused"))
		return err_set(err, ERR_REJECT,
		    "id %s waits because an operator paused its topic: run `outbox-relay publisher "
		    "resume %s --topic TOPIC`",
		    id, request->parked->publisher->name);
	return true;
}

/* True: the request can be noted for each of the ids. */
static bool check_parked_ids(const struct parked_request *request, struct err *err)
{
	OWNED(text_finish) struct text list = {0};
	const json_t *ids = json_object_get(request->parked->chosen, "ids");

	for (size_t i = 0; i < json_array_size(ids); i++)
		text_addf(&list, "%s%" JSON_INTEGER_FORMAT, i ? "," : "{",
		    json_integer_value(json_array_get(ids, i)));
	text_add(&list, "}");

	const struct pg_param params[] = {{request->parked->publisher->name}, {list.data}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_query(request->parked, sql_parked_find, params, 2, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (!refuse_parked_row(request, rows, i, err))
			return false;
	return rows != NULL;
}

void parked_request_add_left_out(const struct parked_request *request, struct text *out)
{
	bool retry = request->verb == PARKED_RETRY;

	if (retry && request->behind > 0)
		text_addf(out, "; %" PRId64 " wait behind the first of their key", request->behind);
	if (retry && request->free > 0)
		text_addf(out, "; %" PRId64 " are free and go anyway", request->free);
	if (retry && request->paused > 0)
		text_addf(out,
		    "; %" PRId64 " wait for the end of a pause: `outbox-relay publisher resume %s "
		    "--topic TOPIC`",
		    request->paused, request->parked->publisher->name);
}

static bool check_terms(const struct parked_request *request, struct err *err)
{
	OWNED(text_finish) struct text others = {0};

	/* rows beyond the counted ones may match, so nothing can be refused */
	if (request->more)
		return true;
	if (request->matching == 0)
		return err_set(err, ERR_REJECT, "nothing %s parked in publisher %s",
		    json_object_size(request->parked->chosen) == 0 ? "is" : "that matches is",
		    request->parked->publisher->name);
	parked_request_add_left_out(request, &others);
	return request->addressed > 0 ||
	       err_set(err, ERR_REJECT, "none of the %" PRId64 " row%s can be asked for%s",
		   request->matching, text_plural(request->matching), text_string(&others));
}

bool parked_request_count(struct parked_request *request, struct err *err)
{
	owned_text char *counted = xformat("%d", PARKED_COUNTED);
	const struct pg_param params[] = {
	    {request->parked->publisher->name}, {request->chosen}, {request->word}, {counted}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(request->parked, sql_parked_count, params, 4, err);

	if (!row)
		return false;
	request->matching = pg_int(row, 0, 0);
	request->addressed = pg_int(row, 0, 1);
	request->behind = pg_int(row, 0, 2);
	request->free = pg_int(row, 0, 3);
	request->paused = pg_int(row, 0, 8);
	request->more = text_equal(pg_value(row, 0, 4), "t");
	request->about = pg_int(row, 0, 5);
	request->at_us = pg_int(row, 0, 6);
	free(request->snapshot);
	request->snapshot = xstrdup(pg_value(row, 0, 7));
	/* a named id that cannot be changed refuses the call; rows found by terms are left out */
	return request->parked->id_count > 0 ? check_parked_ids(request, err)
					     : check_terms(request, err);
}

void parked_request_end(struct parked_request *request, int64_t at_us)
{
	json_t *chosen = request->parked->chosen;
	const char *to = json_string_value(json_object_get(chosen, "to"));
	char at[MOMENT_SIZE];
	struct err ignored;
	int64_t to_us;

	/* an earlier end of the operator stays */
	if (to && moment_parse(to, &to_us, &ignored) && to_us <= at_us)
		return;
	moment_format_exact(at_us, at);
	json_object_set_new(chosen, "to", json_string(at));
	free(request->chosen);
	request->chosen = parked_chosen(request->parked);
}

struct pg_result *parked_request_sample(
    const struct parked_request *request, int most, struct err *err)
{
	owned_text char *limit = xformat("%d", most);
	const struct pg_param params[] = {
	    {request->parked->publisher->name}, {request->chosen}, {"0"}, {limit}, {request->word}};

	return parked_query(request->parked, sql_parked_list, params, 5, err);
}

/* --- noting it ------------------------------------------------------------------------------- */

static bool note_once(
    struct parked_request *request, const char *reason, const char *caller, struct err *err)
{
	const struct parked *parked = request->parked;
	owned_text char *about = xformat("%" PRId64, request->about);
	owned_text char *total =
	    xformat("%" PRId64, request->seen ? request->shown : request->addressed);
	const struct pg_param params[] = {{parked->publisher->name}, {request->word},
	    {request->chosen}, {reason}, {about}, {caller}, {total}, {request->more ? "f" : "t"},
	    {request->seen}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(request->parked, sql_parked_request, params, 9, err);

	if (!row)
		return false;
	request->id = pg_int(row, 0, 0);
	return true;
}

/*
 * The owner may be changing the rows at this very moment (OR002). Then they are counted and checked
 * again, which usually finds the reason why the request must be refused now.
 */
bool parked_request_note(
    struct parked_request *request, const char *reason, const char *caller, struct err *err)
{
	int64_t until = clock_ms() + BUSY_MS;

	while (!note_once(request, reason, caller, err)) {
		/* only this refusal passes by itself */
		if (!text_equal(pg_sqlstate(request->parked->pg), "OR002"))
			return false;
		if (!parked_request_count(request, err))
			return false;
		if (clock_ms() > until)
			return err_set(err, ERR_RETRY,
			    "the relay is changing these rows just now: repeat the call");
		poll(NULL, 0, LOOK_MS);
	}
	return true;
}

/* --- waiting for it -------------------------------------------------------------------------- */

static bool look_at_outcome(
    struct parked_request *request, struct parked_outcome *ret_outcome, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, request->id);
	const struct pg_param params[] = {{request->parked->publisher->name}, {id}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(request->parked, sql_parked_outcome, params, 2, err);

	if (!row)
		return false;
	*ret_outcome = (struct parked_outcome){.done = pg_int(row, 0, 0),
	    .published = pg_int(row, 0, 1),
	    .refused = pg_int(row, 0, 2),
	    .refused_id = pg_int(row, 0, 3)};

	/* a skipped row is finished once it is looked at; Kafka has to answer for a retried one */
	ret_outcome->over = text_equal(pg_value(row, 0, 5), "t") &&
			    (request->verb == PARKED_SKIP ||
				ret_outcome->published + ret_outcome->refused >= ret_outcome->done);
	text_copy(ret_outcome->error, sizeof ret_outcome->error, pg_value(row, 0, 4));
	return true;
}

bool parked_request_wait(struct parked_request *request, int64_t timeout_ms,
    struct parked_outcome *ret_outcome, struct err *err)
{
	int64_t until = clock_ms() + timeout_ms;

	for (;;) {
		if (!look_at_outcome(request, ret_outcome, err))
			return false;
		if (ret_outcome->over || clock_ms() >= until)
			return true;
		poll(NULL, 0, LOOK_MS);
	}
}

/* --- requests in progress -------------------------------------------------------------------- */

/* Columns of parked_requests.sql. */
enum {
	OPEN_ID,
	OPEN_VERB,
	OPEN_FILTER,
	OPEN_WHO,
	OPEN_AT,
	OPEN_REASON,
	OPEN_ABOUT,
	OPEN_LOOKED,
	OPEN_DONE,
	OPEN_PUBLISHED,
	OPEN_REFUSED
};

static json_t *open_request_json(const struct pg_result *rows, int i)
{
	static const struct field_column texts[] = {{"id", OPEN_ID}, {"verb", OPEN_VERB},
	    {"who", OPEN_WHO}, {"at", OPEN_AT}, {"reason", OPEN_REASON}, {"about", OPEN_ABOUT},
	    {"looked_at", OPEN_LOOKED}, {"done", OPEN_DONE}, {"published", OPEN_PUBLISHED},
	    {"refused", OPEN_REFUSED}};
	json_t *object = FIELD_JSON_TEXTS(rows, i, texts);

	json_object_set_new(
	    object, "filter", field_json_numbers_as_text(field_json_parsed(rows, i, OPEN_FILTER)));
	return object;
}

bool parked_open_requests(struct parked *parked, json_t **ret_requests, struct err *err)
{
	const struct pg_param params[] = {{parked->publisher->name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_query(parked, sql_parked_requests, params, 1, err);

	if (!rows)
		return false;
	*ret_requests = json_array();
	for (int i = 0; i < pg_rows(rows); i++)
		json_array_append_new(*ret_requests, open_request_json(rows, i));
	return true;
}
