#include "lookback_server.h"

#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "confirm.h"
#include "field.h"
#include "lookback_call.h"
#include "server_order.h"
#include "session.h"

enum { PAGE = 1000 };

/* As lookback_add_row prints it. A row of a preview has fewer members. */
static void add_server_row(struct text *out, const json_t *row)
{
	const char *url = json_string_value(json_object_get(row, "check_url"));

	text_addf(out, "%s ", field_member(row, "biz_type"));
	text_add_line(out, field_member(row, "biz_id"));
	text_addf(out,
	    "  %s  section=%s  prepared=%s  attempts=%" JSON_INTEGER_FORMAT
	    "  pending=%" JSON_INTEGER_FORMAT "  next=%s  expires=%s  asked=",
	    field_member(row, "state"), field_member(row, "section"),
	    field_member(row, "prepared_at"), json_integer_value(json_object_get(row, "attempts")),
	    json_integer_value(json_object_get(row, "pendings")), field_member(row, "next_check"),
	    field_member(row, "expires_at"));
	text_add_line(out, url ? url : field_member(row, "check_service"));
	text_addf(out, "  result=%s  error=", field_member(row, "last_result"));
	text_add_line(out, field_member(row, "last_error"));
	text_add(out, "\n");
}

/* --- `lookback list` ------------------------------------------------------------------------- */

static bool check_server_listing(const struct call *call, struct err *err)
{
	static const char *const others[] = {"error", "from", "to", "undecided", "postgres"};

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (call_flag(call, others[i]))
			return err_set(err, ERR_REJECT,
			    "--%s does not go with --server: choose by --type, --section, --state "
			    "or --service",
			    others[i]);
	return true;
}

static bool ask_listing(const struct call *call, json_t **ret_answer, struct err *err)
{
	static const char *const names[] = {"type", "section", "state", "service"};
	int64_t limit = call_number(call, "limit", PAGE);
	owned_text char *most = xformat("%" PRId64, limit < PAGE ? limit : (int64_t)PAGE);
	OWNED(text_finish) struct text path = {0};

	text_add(&path, "/v1/lookback");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		server_add_argument(&path, names[i], call_text(call, names[i], NULL));
	server_add_argument(&path, "limit", most);
	return server_ask(call, text_string(&path), NULL, ret_answer, err);
}

static void print_server_listing(const struct call *call, json_t *answer)
{
	const json_t *rows = json_object_get(answer, "rows"), *row;
	bool more = json_is_true(json_object_get(answer, "more"));
	OWNED(text_finish) struct text out = {0};
	size_t i;

	if (call_flag(call, "json")) {
		field_print_json("", json_incref(answer), JSON_COMPACT, "\n");
		return;
	}
	json_array_foreach(rows, i, row)
	{
		add_server_row(&out, row);
	}
	fputs(text_string(&out), stdout);
	if (json_array_size(rows) == 0)
		puts("nothing is overdue or parked");
	else if (more)
		puts("there are more: choose by --type, --section, --state or --service");
}

int lookback_server_list(const struct call *call)
{
	json_t *answer = NULL;
	struct err err;

	if (!check_server_listing(call, &err) || !ask_listing(call, &answer, &err))
		return session_failed(&err);
	print_server_listing(call, answer);
	json_decref(answer);
	return 0;
}

/* --- `lookback show` ------------------------------------------------------------------------- */

int lookback_server_show(const struct call *call)
{
	OWNED(text_finish) struct text path = {0};
	json_t *answer = NULL;
	struct err err;

	text_addf(&path, "/v1/lookback/%s/", call->arguments[0]);
	server_add_name(&path, call->arguments[1]);
	if (!lookback_selection_check_type(call->arguments[0], &err) ||
	    !server_ask(call, text_string(&path), NULL, &answer, &err))
		return session_failed(&err);
	if (call_flag(call, "json"))
		field_print_json("", answer, JSON_COMPACT, "\n");
	else
		field_print_object(answer);
	if (!call_flag(call, "json"))
		json_decref(answer);
	return 0;
}

/* --- `lookback commit`, `rollback` and `retry` ----------------------------------------------- */

static const char *const verbs[] = {
    [LOOKBACK_COMMIT] = "commit", [LOOKBACK_ROLLBACK] = "rollback", [LOOKBACK_RETRY] = "retry"};
static const char *const questions[] = {[LOOKBACK_COMMIT] = "Commit",
    [LOOKBACK_ROLLBACK] = "Roll back",
    [LOOKBACK_RETRY] = "Ask again about"};

static void print_server_order(const json_t *answer, const char *word)
{
	int64_t done = json_integer_value(json_object_get(answer, "done"));
	int64_t duplicates = json_integer_value(json_object_get(answer, "duplicates"));
	int64_t left = json_integer_value(json_object_get(answer, "left_alone"));

	printf("request %" PRId64 ": %s of %" PRId64 " id%s is done",
	    (int64_t)json_integer_value(json_object_get(answer, "audit")), word, done,
	    text_plural(done));
	if (left > 0)
		printf("; others decided %" PRId64 " meanwhile", left);
	if (duplicates > 0)
		printf("; %" PRId64
		       " of them wrote no message, since another message has the unique key",
		    duplicates);
	puts("");
}

/* The named ids are the order: no preview could show more of them. */
static bool order_named_ids(const struct call *call, const struct lookback_selection *selection,
    enum lookback_verb verb, json_t **ret_answer, struct err *err)
{
	json_t *ids = json_object_get(selection->chosen, "ids"), *body;
	int64_t count = (int64_t)json_array_size(ids);
	owned_text char *question =
	    xformat("%s %" PRId64 " id%s?", questions[verb], count, text_plural(count));
	bool done;

	printf("%s of %" PRId64 " id%s\n", verbs[verb], count, text_plural(count));
	if (call_flag(call, "dry-run")) {
		puts("nothing was changed: --dry-run");
		return true;
	}
	if (!confirm_call(call, question, err))
		return false;
	body = json_pack(
	    "{s:s, s:O, s:s}", "verb", verbs[verb], "ids", ids, "reason", confirm_reason(call));
	if (!body)
		return err_set(err, ERR_REJECT, "the reason is not UTF-8");
	done = server_ask(call, "/v1/lookback/operate", body, ret_answer, err);
	json_decref(body);
	return done;
}

static bool order_by_filter(const struct call *call, const struct lookback_selection *selection,
    enum lookback_verb verb, json_t **ret_answer, struct err *err)
{
	const struct server_order order = {.preview_path = "/v1/lookback/preview",
	    .path = "/v1/lookback/operate",
	    .verb = verbs[verb],
	    .what = "id",
	    .question = questions[verb],
	    .filter = selection->chosen,
	    .add_row = add_server_row};

	return server_order_send(call, &order, ret_answer, err);
}

static bool order_over_server(const struct call *call, struct lookback_selection *selection,
    enum lookback_verb verb, struct err *err)
{
	json_t *answer = NULL;
	bool done;

	if (!lookback_selection_name(selection, call->arguments, call->argument_count, err) ||
	    !lookback_call_check(call, selection, err) ||
	    !lookback_call_choose(call, selection, err) || !confirm_check(call, err))
		return false;
	if (call_flag(call, "postgres"))
		return err_set(
		    err, ERR_REJECT, "--postgres does not go with --server: name a --section");
	done = (selection->id_count > 0 ? order_named_ids : order_by_filter)(
	    call, selection, verb, &answer, err);
	if (answer)
		print_server_order(answer, verbs[verb]);
	json_decref(answer);
	return done;
}

int lookback_server_order(const struct call *call, enum lookback_verb verb)
{
	OWNED(lookback_selection_finish) struct lookback_selection selection = {0};
	struct err err;

	lookback_selection_init(&selection, NULL, NULL);
	return order_over_server(call, &selection, verb, &err) ? 0 : session_failed(&err);
}
