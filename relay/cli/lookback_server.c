/*
 * `lookback list` reads pages of GET /v1/lookback, and `lookback show` one id. The orders commit,
 * rollback and retry name ids, or choose them by a filter with a preview (server_order.h).
 */
#include "lookback_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "cleanup.h"
#include "confirm.h"
#include "field.h"
#include "lookback_call.h"
#include "lookback_print.h"
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

struct server_ids {
	const struct call *call;
	const json_t *chosen;
	bool json;
	bool begun; /* the database is known, and the JSON has its name */
	int64_t left, shown;
	struct lookback_listed listed;
};

/* undecided: a page of prepares that are not due yet. */
static bool ask_ids_page(const struct server_ids *listing, bool undecided, const char *after,
    json_t **ret_page, struct err *err)
{
	int64_t most = listing->left < PAGE ? listing->left : (int64_t)PAGE;
	/* the totals are wanted even if no row is */
	owned_text char *limit = xformat("%" PRId64, most > 0 ? most : (int64_t)1);
	OWNED(text_finish) struct text path = {0};
	const char *name;
	json_t *value;

	text_add(&path, "/v1/lookback");
	server_add_argument(&path, "postgres", call_text(listing->call, "postgres", NULL));
	server_add_argument(&path, "state", undecided ? lookback_states[2] : NULL);
	json_object_foreach((json_t *)listing->chosen, name, value)
	{
		server_add_argument(&path, name, json_string_value(value));
	}
	server_add_argument(&path, "limit", limit);
	server_add_argument(&path, "after", after);
	if (!after)
		server_add_argument(&path, "totals", "yes");
	return server_ask(listing->call, text_string(&path), NULL, ret_page, err);
}

static void rename_member(json_t *object, const char *from, const char *to)
{
	json_object_set(object, to, json_object_get(object, from));
	json_object_del(object, from);
}

/* As lookback_row_json makes it. */
static json_t *command_row(const json_t *row)
{
	json_t *object = json_copy((json_t *)row);

	rename_member(object, "biz_type", "type");
	rename_member(object, "biz_id", "id");
	rename_member(object, "next_check", "next_at");
	json_object_del(object, "since");
	json_object_del(object, "claimed");
	return object;
}

/* The first page of a list has totals. */
static void read_ids_page_totals(struct server_ids *listing, const json_t *page)
{
	struct lookback_totals *totals = &listing->listed.totals;
	const json_t *counts = json_object_get(page, "totals");

	if (!counts)
		return;
	for (int i = 0; i < LOOKBACK_STATES; i++)
		totals->counts[i] += field_number(counts, lookback_states[i]);
	totals->exact &= json_is_true(json_object_get(page, "exact"));
}

static void print_ids_page(struct server_ids *listing, const json_t *page)
{
	const json_t *row;
	size_t i;

	read_ids_page_totals(listing, page);
	if (listing->json && !listing->begun)
		printf("{\"postgres\":\"%s\",\"rows\":[", field_member(page, "postgres"));
	listing->begun = true;

	json_array_foreach(json_object_get(page, "rows"), i, row)
	{
		OWNED(text_finish) struct text line = {0};

		if (listing->left-- <= 0)
			return;
		if (listing->json)
			field_print_json(
			    listing->shown ? ",\n" : "\n", command_row(row), JSON_COMPACT, "");
		else
			add_server_row(&line, row);
		fputs(text_string(&line), stdout);
		lookback_listed_add(&listing->listed, field_member(row, "state"));
		listing->shown++;
	}
}

static bool list_ids_over_server(struct server_ids *listing, bool undecided, struct err *err)
{
	owned_text char *after = NULL;

	do {
		json_t *page;

		if (!ask_ids_page(listing, undecided, after, &page, err))
			return false;
		print_ids_page(listing, page);
		server_turn_page(page, &after);
		json_decref(page);
	} while (after && listing->left > 0 && !ferror(stdout));
	listing->listed.complete = !after;
	return true;
}

int lookback_server_list(const struct call *call)
{
	OWNED(lookback_selection_finish) struct lookback_selection selection = {0};
	struct server_ids listing = {.call = call,
	    .json = call_flag(call, "json"),
	    .left = call_number(call, "limit", INT64_MAX),
	    .listed = {.totals.exact = true, .undecided = call_flag(call, "undecided")}};
	struct err err;

	lookback_selection_init(&selection, NULL, NULL);
	if (!lookback_call_choose(call, &selection, &err))
		return session_failed(&err);
	listing.chosen = selection.chosen;
	listing.listed.chosen = json_object_size(selection.chosen) > 0;
	if (!list_ids_over_server(&listing, false, &err) ||
	    (listing.listed.undecided && !list_ids_over_server(&listing, true, &err)))
		return session_failed(&err);
	lookback_print_totals(&listing.listed, listing.json);
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
	server_add_argument(&path, "postgres", call_text(call, "postgres", NULL));
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
	body = json_pack("{s:s, s:O, s:s, s:s*}", "verb", verbs[verb], "ids", ids, "reason",
	    confirm_reason(call), "postgres", call_text(call, "postgres", NULL));
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
	    .scope_name = "postgres",
	    .scope = call_text(call, "postgres", NULL),
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
	if (call_flag(call, "all") && json_object_size(selection->chosen) == 0)
		return err_set(err, ERR_REJECT,
		    "--all needs an option that selects over --server, for example --state or "
		    "--from: a relay takes no order about every id of a database");
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
