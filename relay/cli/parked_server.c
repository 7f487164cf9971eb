/*
 * `parked list` reads pages of GET /v1/parked, and `parked show` one row. `parked retry` and `skip`
 * send an order (server_order.h), and with --wait look at its job until it is over.
 */
#include "parked_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "cleanup.h"
#include "clock.h"
#include "confirm.h"
#include "field.h"
#include "parked_call.h"
#include "parked_print.h"
#include "server_order.h"
#include "session.h"

enum { PAGE = 1000, WAIT_S = 30, LOOK_MS = 200 };

/* What the terms choose; the publisher is the relay's only one unless --publisher names it. */
static bool choose_over_server(
    const struct call *call, struct parked *parked, bool may_name_ids, struct err *err)
{
	static const struct publisher_settings unnamed = {0};

	parked_init(parked, &unnamed);
	return parked_choose(parked, call->arguments, call->argument_count, may_name_ids, err);
}

/* --- `parked list` --------------------------------------------------------------------------- */

struct server_listing {
	const struct call *call;
	const json_t *chosen;
	bool json;
	int64_t left, shown;
	char *publisher;
	json_t *totals, *requests;
	bool exact; /* the totals count all rows */
};

/* Numbers of the filter, as texts. */
static void add_chosen(struct text *path, const json_t *chosen)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)chosen, name, value)
	{
		owned_text char *number = json_is_integer(value) ? xformat("%" JSON_INTEGER_FORMAT,
								       json_integer_value(value))
								 : NULL;

		server_add_argument(path, name, number ? number : json_string_value(value));
	}
}

static bool ask_page(
    const struct server_listing *listing, const char *after, json_t **ret_page, struct err *err)
{
	OWNED(text_finish) struct text path = {0};
	owned_text char *limit =
	    xformat("%" PRId64, listing->left < PAGE ? listing->left : (int64_t)PAGE);

	text_add(&path, "/v1/parked");
	server_add_argument(&path, "publisher", call_text(listing->call, "publisher", NULL));
	add_chosen(&path, listing->chosen);
	server_add_argument(&path, "limit", limit);
	server_add_argument(&path, "after", after);
	if (!after)
		server_add_argument(&path, "totals", "yes");
	return server_ask(listing->call, text_string(&path), NULL, ret_page, err);
}

static void print_rows(struct server_listing *listing, const json_t *rows)
{
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		OWNED(text_finish) struct text line = {0};

		if (listing->json)
			field_print_json(listing->shown ? ",\n" : "\n", json_incref((json_t *)row),
			    JSON_COMPACT, "");
		else
			parked_add_row(&line, row);
		fputs(text_string(&line), stdout);
		listing->shown++;
	}
	listing->left -= (int64_t)json_array_size(rows);
}

/* The first page has the totals, the open requests and the publisher's name. */
static void begin_listing(struct server_listing *listing, const json_t *page)
{
	if (listing->publisher)
		return;
	listing->publisher = xstrdup(field_member(page, "publisher"));
	listing->totals = json_incref(json_object_get(page, "totals"));
	listing->requests = json_incref(json_object_get(page, "requests"));
	listing->exact = json_is_true(json_object_get(page, "exact"));
	if (listing->json)
		printf("{\"publisher\":\"%s\",\"rows\":[", listing->publisher);
}

static bool print_pages(struct server_listing *listing, struct err *err)
{
	owned_text char *after = NULL;

	do {
		json_t *page;

		if (!ask_page(listing, after, &page, err))
			return false;
		begin_listing(listing, page);
		print_rows(listing, json_object_get(page, "rows"));
		server_turn_page(page, &after);
		json_decref(page);
	} while (after && listing->left > 0 && !ferror(stdout));
	return true;
}

static bool list_parked_over_server(struct server_listing *listing, struct err *err)
{
	struct parked_totals totals;

	if (!print_pages(listing, err))
		return false;
	totals.exact = listing->exact;
	for (int i = 0; i < PARKED_STATES; i++)
		totals.counts[i] = field_number(listing->totals, parked_states[i]);
	if (listing->json)
		parked_print_end_json(listing->requests, &totals);
	else
		parked_print_end(listing->publisher, json_object_size(listing->chosen) > 0,
		    listing->shown, listing->requests, &totals);
	return true;
}

int parked_server_list(const struct call *call)
{
	OWNED(parked_finish) struct parked parked = {0};
	struct server_listing listing = {.call = call,
	    .json = call_flag(call, "json"),
	    .left = call_number(call, "limit", INT64_MAX)};
	struct err err;
	bool done = choose_over_server(call, &parked, false, &err);

	listing.chosen = parked.chosen;
	done = done && list_parked_over_server(&listing, &err);
	free(listing.publisher);
	json_decref(listing.totals);
	json_decref(listing.requests);
	return done ? 0 : session_failed(&err);
}

/* --- `parked show` --------------------------------------------------------------------------- */

int parked_server_show(const struct call *call)
{
	OWNED(text_finish) struct text path = {0};
	json_t *shown;
	struct err err;
	int64_t id;

	if (!parked_id(call->arguments[0], &id, &err))
		return session_failed(&err);
	text_addf(&path, "/v1/parked/%" PRId64, id);
	server_add_argument(&path, "publisher", call_text(call, "publisher", NULL));
	if (!server_ask(call, text_string(&path), NULL, &shown, &err))
		return session_failed(&err);
	json_object_del(shown, "source"); /* the command's JSON has no such member */
	parked_print_shown(call, shown);
	return 0;
}

/* --- `parked retry` and `parked skip` -------------------------------------------------------- */

static bool report_job(const json_t *job, enum parked_verb verb, int64_t id, struct err *err)
{
	int64_t done = field_number(job, "done"), refused = field_number(job, "refused");

	printf("request %" PRId64 ": %" PRId64 " row%s %s", id, done, text_plural(done),
	    verb == PARKED_RETRY ? "retried" : "skipped");
	if (verb == PARKED_RETRY)
		printf(", %" PRId64 " of them published", field_number(job, "published"));
	puts("");
	/* a refusal comes first: waiting longer would not change it */
	if (refused > 0)
		return err_set(err, ERR_REJECT,
		    "Kafka refused %" PRId64 " of %" PRId64 " row%s again: %s", refused, done,
		    text_plural(done), field_member(job, "error"));
	return server_job_is_over(job) ||
	       err_set(err, ERR_RETRY,
		   "not all rows are %s yet; the request remains: check with `outbox-relay status` "
		   "that a relay owns the publisher",
		   verb == PARKED_RETRY ? "retried" : "skipped");
}

/* Is every retried row published, or refused again? */
static bool is_settled(const json_t *job, enum parked_verb verb)
{
	return server_job_is_over(job) &&
	       (verb == PARKED_SKIP ||
		   field_number(job, "published") + field_number(job, "refused") >=
		       field_number(job, "done"));
}

static bool wait_for_job(
    const struct call *call, enum parked_verb verb, const json_t *answer, struct err *err)
{
	int64_t id = field_number(answer, "audit");
	owned_text char *name = xformat("parked-%" PRId64, id);
	int64_t until = clock_ms() + call_number(call, "timeout", WAIT_S) * 1000;
	const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
	json_t *job = NULL;
	bool done;

	for (;;) {
		json_decref(job);
		if (!server_ask_job(call, name, field_member(answer, "postgres"), &job, err))
			return false;
		if (is_settled(job, verb) || clock_ms() >= until)
			break;
		nanosleep(&pause, NULL);
	}
	done = report_job(job, verb, id, err);
	json_decref(job);
	return done;
}

static bool request_over_server(
    const struct call *call, struct parked *parked, enum parked_verb verb, struct err *err)
{
	const char *word = verb == PARKED_RETRY ? "retry" : "skip";
	const struct server_order order = {.preview_path = "/v1/parked/preview",
	    .path = verb == PARKED_RETRY ? "/v1/parked/retry" : "/v1/parked/skip",
	    .verb = word,
	    .what = "row",
	    .question = verb == PARKED_RETRY ? "Retry" : "Skip",
	    .scope_name = "publisher",
	    .scope = call_text(call, "publisher", NULL),
	    .ids = json_object_get(parked->chosen, "ids"),
	    .filter = parked->chosen,
	    .add_row = parked_add_row};
	json_t *answer;
	bool done;

	if (!server_order_send(call, &order, &answer, err))
		return false;
	if (!answer)
		return true;
	parked_print_noted(call, field_number(answer, "audit"), word);
	done = !call_flag(call, "wait") || wait_for_job(call, verb, answer, err);
	json_decref(answer);
	return done;
}

int parked_server_request(const struct call *call, enum parked_verb verb)
{
	OWNED(parked_finish) struct parked parked = {0};
	struct err err;

	return parked_call_check(call, &err) && choose_over_server(call, &parked, true, &err) &&
		       request_over_server(call, &parked, verb, &err)
		   ? 0
		   : session_failed(&err);
}
