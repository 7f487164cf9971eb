#include "parked_request.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include "clock.h"
#include "confirm.h"
#include "field.h"
#include "parked.h"
#include "parked_print.h"
#include "sql_files.h"

enum { SAMPLE = 10, BUSY_MS = 2000, LOOK_MS = 100, WAIT_S = 30, COUNTED = 100000 };

/* One call. */
struct request {
	struct parked *parked;
	enum parked_verb verb;
	const char *word, *reason;
	char *chosen;
	/* of the chosen rows: those that may be asked for, and why others may not */
	int64_t matching, addressed, behind, free;
	bool more;     /* they were counted among the first COUNTED rows, and there are others */
	int64_t about; /* rows that the owner looks at */
	int64_t id;    /* of outbox.audit */
};

/* --- the command line ------------------------------------------------------------------------ */

static bool check_parked_choice(const struct request *request, struct err *err)
{
	const struct call *call = request->parked->call;

	if (call->argument_count > 0 && call_flag(call, "all"))
		return err_set(err, ERR_REJECT,
		    "--all does not go with '%.60s': take one of them away", call->arguments[0]);
	if (call->argument_count == 0 && !call_flag(call, "all"))
		return err_set(err, ERR_REJECT,
		    "nothing says which rows: name ids (12 13) or terms (topic=orders, "
		    "error=TEXT, …), or say --all");
	return true;
}

static bool check_request_way(const struct request *request, struct err *err)
{
	const struct call *call = request->parked->call;
	bool dry = call_flag(call, "dry-run");

	if (dry && call_flag(call, "wait"))
		return err_set(err, ERR_REJECT, "--wait does not go with --dry-run");
	if (call_flag(call, "timeout") && !call_flag(call, "wait"))
		return err_set(err, ERR_REJECT, "--timeout goes with --wait only");
	return confirm_check(call, err);
}

/* --- what stands against it ------------------------------------------------------------------ */

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
    const struct request *request, const struct pg_result *rows, int i, struct err *err)
{
	const char *id = pg_value(rows, i, FIND_ID);

	if (pg_is_null(rows, i, FIND_STATE))
		return err_set(err, ERR_REJECT,
		    "id %s is not parked in publisher %s: `outbox-relay parked list` shows what is",
		    id, request->parked->publisher->name);
	if (!pg_is_null(rows, i, FIND_REQUEST))
		return err_set(err, ERR_REJECT,
		    "id %s: %s was requested by %s at %s (%.200s) and is not carried out yet", id,
		    pg_value(rows, i, FIND_REQUEST), pg_value(rows, i, FIND_WHO),
		    pg_value(rows, i, FIND_AT), pg_value(rows, i, FIND_REASON));
	if (request->verb == PARKED_RETRY && text_equal(pg_value(rows, i, FIND_STATE), "behind"))
		return err_set(err, ERR_REJECT,
		    "id %s waits behind id %s (%s) of the same key: retry or skip id %s", id,
		    pg_value(rows, i, FIND_HEAD), pg_value(rows, i, FIND_HEAD_STATE),
		    pg_value(rows, i, FIND_HEAD));
	if (request->verb == PARKED_RETRY && text_equal(pg_value(rows, i, FIND_STATE), "free"))
		return err_set(err, ERR_REJECT,
		    "id %s is free: nothing is known against it, and it goes as soon as possible",
		    id);
	return true;
}

/* True: the request may be carried out for each of the ids. */
static bool check_parked_ids(const struct request *request, struct err *err)
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

/* ", 3 are behind their heads, …" of those that are left out. */
static void add_left_out(const struct request *request, struct text *out)
{
	bool retry = request->verb == PARKED_RETRY;

	if (retry && request->behind > 0)
		text_addf(out, "; %" PRId64 " wait behind the first of their key", request->behind);
	if (retry && request->free > 0)
		text_addf(out, "; %" PRId64 " are free and go anyway", request->free);
}

static bool check_terms(const struct request *request, struct err *err)
{
	OWNED(text_finish) struct text others = {0};

	if (request->more)
		return true;
	if (request->matching == 0)
		return err_set(err, ERR_REJECT, "nothing %s parked in publisher %s",
		    call_flag(request->parked->call, "all") ? "is" : "that matches is",
		    request->parked->publisher->name);
	add_left_out(request, &others);
	return request->addressed > 0 ||
	       err_set(err, ERR_REJECT, "none of the %" PRId64 " rows can be asked for%s",
		   request->matching, text_string(&others));
}

static bool count_addressed_rows(struct request *request, struct err *err)
{
	owned_text char *counted = xformat("%d", COUNTED);
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
	request->more = text_equal(pg_value(row, 0, 4), "t");
	request->about = pg_int(row, 0, 5);
	return request->parked->id_count > 0 ? check_parked_ids(request, err)
					     : check_terms(request, err);
}

/* --- what it would do ------------------------------------------------------------------------ */

static void print_addressed_rows(const struct request *request)
{
	OWNED(text_finish) struct text others = {0};

	if (request->more)
		text_addf(&others, "; counted among the first %d of about %" PRId64, COUNTED,
		    request->about);
	else
		add_left_out(request, &others);
	printf("%s of %s%" PRId64 " rows in publisher %s%s\n", request->word,
	    request->more ? "at least " : "", request->addressed, request->parked->publisher->name,
	    text_string(&others));
	fflush(stdout);
}

static bool print_parked_sample(const struct request *request, struct err *err)
{
	owned_text char *most = xformat("%d", SAMPLE);
	const struct pg_param params[] = {
	    {request->parked->publisher->name}, {request->chosen}, {"0"}, {most}, {request->word}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_query(request->parked, sql_parked_list, params, 5, err);
	OWNED(text_finish) struct text out = {0};

	if (!rows)
		return false;
	for (int i = 0; i < pg_rows(rows); i++)
		parked_add_row(&out, rows, i);
	fputs(text_string(&out), stdout);
	if (request->addressed > SAMPLE)
		puts("…");
	puts("nothing was requested: --dry-run");
	return true;
}

/* --- noting it ------------------------------------------------------------------------------- */

static bool note_once(struct request *request, struct err *err)
{
	const struct parked *parked = request->parked;
	owned_text char *about = xformat("%" PRId64, request->about);
	const struct pg_param params[] = {{parked->publisher->name}, {request->word},
	    {request->chosen}, {request->reason}, {about}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(request->parked, sql_parked_request, params, 5, err);

	if (!row)
		return false;
	request->id = pg_int(row, 0, 0);
	return true;
}

/*
 * The owner may be changing the rows at this very moment (OR002). Then they are counted and checked
 * again, which usually finds the reason why the request must be refused now.
 */
static bool note_request(struct request *request, struct err *err)
{
	int64_t until = clock_ms() + BUSY_MS;

	while (!note_once(request, err)) {
		if (!text_equal(pg_sqlstate(request->parked->pg), "OR002"))
			return false;
		if (!count_addressed_rows(request, err))
			return false;
		if (clock_ms() > until)
			return err_set(err, ERR_RETRY,
			    "the relay is changing these rows just now: repeat the call");
		poll(NULL, 0, LOOK_MS);
	}
	printf("request %" PRId64 ": the %s is noted", request->id, request->word);
	puts(call_flag(request->parked->call, "wait")
		 ? ""
		 : "; the owner of each shard carries it out (parked list shows how far it is)");
	fflush(stdout);
	return true;
}

/* --- waiting for it -------------------------------------------------------------------------- */

struct outcome {
	int64_t done, published, refused, refused_id;
	bool ended; /* all rows were looked at */
	char error[400];
};

/* A retry is over when Kafka has answered for each row. */
static bool is_request_over(const struct request *request, const struct outcome *outcome)
{
	return outcome->ended && (request->verb == PARKED_SKIP ||
				     outcome->published + outcome->refused >= outcome->done);
}

static bool look_at_outcome(struct request *request, struct outcome *ret_outcome, struct err *err)
{
	owned_text char *id = xformat("%" PRId64, request->id);
	const struct pg_param params[] = {{request->parked->publisher->name}, {id}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = parked_query(request->parked, sql_parked_outcome, params, 2, err);
	OWNED(text_finish) struct text error = {0};

	if (!row)
		return false;
	if (!pg_is_null(row, 0, 4))
		field_add_line(&error, pg_value(row, 0, 4));
	*ret_outcome = (struct outcome){.done = pg_int(row, 0, 0),
	    .published = pg_int(row, 0, 1),
	    .refused = pg_int(row, 0, 2),
	    .refused_id = pg_int(row, 0, 3),
	    .ended = text_equal(pg_value(row, 0, 5), "t")};
	text_copy(ret_outcome->error, sizeof ret_outcome->error, text_string(&error));
	return true;
}

static bool report_outcome(
    const struct request *request, const struct outcome *outcome, struct err *err)
{
	const char *word = request->verb == PARKED_RETRY ? "retried" : "skipped";

	printf("request %" PRId64 ": %" PRId64 " rows are %s", request->id, outcome->done, word);
	if (request->verb == PARKED_RETRY)
		printf(", %" PRId64 " of them published", outcome->published);
	puts("");
	if (outcome->refused > 0)
		return err_set(err, ERR_REJECT,
		    "%" PRId64 " of %" PRId64 " rows were refused again, first id %" PRId64 ": %s",
		    outcome->refused, outcome->done, outcome->refused_id, outcome->error);
	return is_request_over(request, outcome) ||
	       err_set(err, ERR_RETRY,
		   "not all rows are %s and answered for; the request stays noted: does a relay "
		   "own publisher %s? `outbox-relay status` tells",
		   word, request->parked->publisher->name);
}

static bool wait_for_owner(struct request *request, struct err *err)
{
	int64_t seconds = call_number(request->parked->call, "timeout", WAIT_S);
	int64_t until = clock_ms() + seconds * 1000;
	struct outcome outcome;

	for (;;) {
		if (!look_at_outcome(request, &outcome, err))
			return false;
		if (is_request_over(request, &outcome) || clock_ms() >= until)
			return report_outcome(request, &outcome, err);
		poll(NULL, 0, LOOK_MS);
	}
}

/* --- the command ----------------------------------------------------------------------------- */

static bool confirm_request(const struct request *request, struct err *err)
{
	owned_text char *question =
	    xformat("%s %s%" PRId64 " rows?", request->verb == PARKED_RETRY ? "Retry" : "Skip",
		request->more ? "at least " : "", request->addressed);

	return confirm_call(request->parked->call, question, err);
}

static bool confirm_and_note(struct request *request, struct err *err)
{
	if (!count_addressed_rows(request, err))
		return false;
	print_addressed_rows(request);
	if (call_flag(request->parked->call, "dry-run"))
		return print_parked_sample(request, err);
	if (!confirm_request(request, err) || !note_request(request, err))
		return false;
	return !call_flag(request->parked->call, "wait") || wait_for_owner(request, err);
}

static bool make_parked_request(struct parked *parked, enum parked_verb verb, struct err *err)
{
	struct request request = {.parked = parked,
	    .verb = verb,
	    .word = verb == PARKED_RETRY ? "retry" : "skip",
	    .reason = call_text(parked->call, "reason", "")};
	bool done;

	if (!check_parked_choice(&request, err) || !parked_choose(parked, true, err) ||
	    !check_request_way(&request, err))
		return false;
	request.chosen = parked_chosen(parked);
	done = confirm_and_note(&request, err);
	free(request.chosen);
	return done;
}

static bool retry_parked(struct parked *parked, struct err *err)
{
	return make_parked_request(parked, PARKED_RETRY, err);
}

static bool skip_parked(struct parked *parked, struct err *err)
{
	return make_parked_request(parked, PARKED_SKIP, err);
}

int parked_request_run(const struct call *call, enum parked_verb verb)
{
	return parked_run(call, verb == PARKED_RETRY ? retry_parked : skip_parked);
}

const struct command_option parked_request_options[] = {
    {"all", NULL, "Every parked row of the publisher."},
    {"reason", "TEXT", "Why; kept in outbox.audit. Needed, but for --dry-run."},
    {"dry-run", NULL, "Counts the rows, shows some, and changes nothing."},
    {"yes", NULL, "Do not ask. Needed where no terminal is."},
    {"wait", NULL, "Waits until it is carried out."},
    {"timeout", "SECONDS", "The longest --wait; 30 unless given.", 1, 86400},
    PARKED_PUBLISHER_OPTION,
    {0},
};
