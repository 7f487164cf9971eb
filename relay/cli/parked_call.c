#include "parked_call.h"

#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "confirm.h"
#include "parked_print.h"
#include "parked_server.h"
#include "session.h"

enum { SAMPLE = 10, WAIT_S = 30 };

int parked_call_run(const struct call *call,
    bool (*work)(const struct call *call, struct parked *parked, struct err *err))
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	const struct publisher_settings *publisher =
	    config ? session_publisher(call, config, &err) : NULL;
	OWNED(parked_finish) struct parked parked = {0};

	if (!publisher)
		return session_failed(&err);
	parked_init(&parked, publisher);
	return work(call, &parked, &err) ? 0 : session_failed(&err);
}

/* --- `parked retry` and `parked skip` -------------------------------------------------------- */

static bool check_parked_choice(const struct call *call, struct err *err)
{
	if (call->argument_count > 0 && call_flag(call, "all"))
		return err_set(err, ERR_REJECT,
		    "--all does not go with '%.60s': take one of them away", call->arguments[0]);

	/* a request about every row must be said: leaving out the terms is not enough */
	if (call->argument_count == 0 && !call_flag(call, "all"))
		return err_set(err, ERR_REJECT,
		    "nothing says which rows: name ids (12 13) or terms (topic=orders, "
		    "error=TEXT, …), or say --all");
	return true;
}

static bool check_request_way(const struct call *call, struct err *err)
{
	if (call_flag(call, "dry-run") && call_flag(call, "wait"))
		return err_set(err, ERR_REJECT, "--wait does not go with --dry-run");
	if (call_flag(call, "timeout") && !call_flag(call, "wait"))
		return err_set(err, ERR_REJECT, "--timeout goes with --wait only");
	return confirm_check(call, err);
}

static void print_addressed_rows(const struct parked_request *request)
{
	OWNED(text_finish) struct text others = {0};

	/* the reasons are known of the counted rows only */
	if (request->more)
		text_addf(&others, "; counted among the first %d of about %" PRId64, PARKED_COUNTED,
		    request->about);
	else
		parked_request_add_left_out(request, &others);
	printf("%s of %s%" PRId64 " row%s in publisher %s%s\n", request->word,
	    request->more ? "at least " : "", request->addressed, text_plural(request->addressed),
	    request->parked->publisher->name, text_string(&others));
	fflush(stdout);
}

static bool print_parked_sample(const struct parked_request *request, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_request_sample(request, SAMPLE, err);
	OWNED(text_finish) struct text out = {0};

	if (!rows)
		return false;
	for (int i = 0; i < pg_rows(rows); i++) {
		json_t *row = parked_row_json(rows, i);

		parked_add_row(&out, row);
		json_decref(row);
	}
	fputs(text_string(&out), stdout);
	if (request->addressed > SAMPLE)
		puts("…");
	fflush(stdout);
	return true;
}

static bool confirm_request(
    const struct call *call, const struct parked_request *request, struct err *err)
{
	owned_text char *question = xformat("%s %s%" PRId64 " row%s?",
	    request->verb == PARKED_RETRY ? "Retry" : "Skip", request->more ? "at least " : "",
	    request->addressed, text_plural(request->addressed));

	return confirm_call(call, question, err);
}

void parked_print_noted(const struct call *call, int64_t id, const char *word)
{
	printf("request %" PRId64 ": the %s is noted", id, word);
	puts(call_flag(call, "wait")
		 ? ""
		 : "; the owner of each shard carries it out (parked list shows how far it is)");
	fflush(stdout);
}

static bool report_outcome(
    const struct parked_request *request, const struct parked_outcome *outcome, struct err *err)
{
	const char *word = request->verb == PARKED_RETRY ? "retried" : "skipped";
	OWNED(text_finish) struct text error = {0};

	printf("request %" PRId64 ": %" PRId64 " row%s %s", request->id, outcome->done,
	    text_plural(outcome->done), word);
	if (request->verb == PARKED_RETRY)
		printf(", %" PRId64 " of them published", outcome->published);
	puts("");
	text_add_line(&error, outcome->error);
	/* a refusal comes first: waiting longer would not change it */
	if (outcome->refused > 0)
		return err_set(err, ERR_REJECT,
		    "Kafka refused %" PRId64 " of %" PRId64 " row%s again, first id %" PRId64
		    ": %s",
		    outcome->refused, outcome->done, text_plural(outcome->done),
		    outcome->refused_id, text_string(&error));
	return outcome->over ||
	       err_set(err, ERR_RETRY,
		   "not all rows are %s yet; the request remains: check with `outbox-relay status` "
		   "that a relay owns publisher %s",
		   word, request->parked->publisher->name);
}

static bool wait_for_owner(const struct call *call, struct parked_request *request, struct err *err)
{
	struct parked_outcome outcome;

	return parked_request_wait(
		   request, call_number(call, "timeout", WAIT_S) * 1000, &outcome, err) &&
	       report_outcome(request, &outcome, err);
}

static bool confirm_and_note(
    const struct call *call, struct parked_request *request, struct err *err)
{
	if (!parked_request_count(request, err))
		return false;

	print_addressed_rows(request);
	/* with --yes nobody reads the sample before the request */
	if ((call_flag(call, "dry-run") || !call_flag(call, "yes")) &&
	    !print_parked_sample(request, err))
		return false;
	if (call_flag(call, "dry-run")) {
		puts("nothing was requested: --dry-run");
		return true;
	}
	if (!confirm_request(call, request, err) ||
	    !parked_request_note(request, confirm_reason(call), NULL, err))
		return false;

	parked_print_noted(call, request->id, request->word);
	return !call_flag(call, "wait") || wait_for_owner(call, request, err);
}

bool parked_call_check(const struct call *call, struct err *err)
{
	return check_parked_choice(call, err) && check_request_way(call, err);
}

static bool request_of_parked(
    const struct call *call, struct parked *parked, enum parked_verb verb, struct err *err)
{
	OWNED(parked_request_finish) struct parked_request request = {0};

	if (!parked_call_check(call, err) ||
	    !parked_choose(parked, call->arguments, call->argument_count, true, err))
		return false;
	parked_request_init(&request, parked, verb);
	return confirm_and_note(call, &request, err);
}

static bool retry_parked(const struct call *call, struct parked *parked, struct err *err)
{
	return request_of_parked(call, parked, PARKED_RETRY, err);
}

static bool skip_parked(const struct call *call, struct parked *parked, struct err *err)
{
	return request_of_parked(call, parked, PARKED_SKIP, err);
}

int parked_call_request(const struct call *call, enum parked_verb verb)
{
	if (server_is_used(call))
		return parked_server_request(call, verb);
	return parked_call_run(call, verb == PARKED_RETRY ? retry_parked : skip_parked);
}

const struct command_option parked_request_options[] = {
    {"all", NULL, "Selects every parked row of the publisher."},
    CONFIRM_OPTIONS,
    {"wait", NULL, "Waits until the request is carried out."},
    {"timeout", "SECONDS", "Timeout of --wait (default 30).", 1, 86400},
    PARKED_PUBLISHER_OPTION,
    SERVER_OPTIONS,
    {0},
};
