#include "lookback_selection_request.h"

#include <inttypes.h>
#include <stdio.h>
#include "confirm.h"
#include "field.h"
#include "lookback_selection.h"
#include "lookback_selection_print.h"
#include "pg_array.h"
#include "sql_files.h"

enum { SAMPLE = 10 };

static const struct verb {
	const char *word, *question;
} selection_verbs[] = {
    [SELECTION_COMMIT] = {"commit", "Commit"},
    [SELECTION_ROLLBACK] = {"rollback", "Roll back"},
    [SELECTION_RETRY] = {"retry", "Ask again about"},
};

/* One call. */
struct request {
	struct lookback_selection *selection;
	enum lookback_selection_verb verb;
	char *chosen;
	int64_t matching;
};

/* --- the command line ------------------------------------------------------------------------ */

static bool check_selection(const struct lookback_selection *selection, struct err *err)
{
	bool all = call_flag(selection->call, "all"), named = selection->id_count > 0;
	const char *narrowed;

	if (named && all)
		return err_set(
		    err, ERR_REJECT, "--all does not go with ids: take one of them away");
	if (named && lookback_selection_is_narrowed(selection, &narrowed))
		return err_set(err, ERR_REJECT,
		    "--%s does not go with ids: name them, or choose with --all", narrowed);
	if (!named && !all)
		return err_set(err, ERR_REJECT,
		    "nothing says which ids: name them (TYPE ID…), or say --all, which takes what "
		    "is overdue or parked; --type, --state, --error, … choose among it");
	return true;
}

/* --- ids that must be refused ---------------------------------------------------------------- */

/* Columns of lookback_find.sql behind those of enum lookback_selection_column. */
enum {
	FIND_DECISION = SELECTION_COLUMNS,
	FIND_SOURCE,
	FIND_DECIDED_AT,
	FIND_DECIDED_BY,
	FIND_REASON,
	FIND_CAME_BEFORE
};

/* ", alice: ticket 7" of an operator's decision. */
static bool refuse_decided(const char *id, const struct pg_result *rows, int i, struct err *err)
{
	OWNED(text_finish) struct text why = {0};

	if (!pg_is_null(rows, i, FIND_DECIDED_BY)) {
		text_addf(&why, ", %s: ", pg_value(rows, i, FIND_DECIDED_BY));
		field_add_line(&why, field_or_dash(rows, i, FIND_REASON));
	}
	return err_set(err, ERR_REJECT, "%s was decided: %s by %s at %s%.200s", id,
	    pg_value(rows, i, FIND_DECISION), pg_value(rows, i, FIND_SOURCE),
	    pg_value(rows, i, FIND_DECIDED_AT), text_string(&why));
}

static bool refuse_selected_row(
    const struct request *request, const struct pg_result *rows, int i, struct err *err)
{
	OWNED(text_finish) struct text id = {0};
	const char *state = pg_value(rows, i, SELECTION_STATE);

	text_addf(&id, "%s ", pg_value(rows, i, SELECTION_TYPE));
	field_add_line(&id, pg_value(rows, i, SELECTION_ID));
	if (pg_is_null(rows, i, SELECTION_STATE) && !pg_is_null(rows, i, FIND_CAME_BEFORE))
		return err_set(err, ERR_REJECT,
		    "%s: its %s came, and its prepare has not: it will be decided by that", id.data,
		    pg_value(rows, i, FIND_CAME_BEFORE));
	if (pg_is_null(rows, i, SELECTION_STATE))
		return err_set(err, ERR_REJECT,
		    "%s is not known: `outbox-relay lookback list` shows what is overdue or "
		    "parked",
		    id.data);
	if (text_equal(state, "decided"))
		return refuse_decided(id.data, rows, i, err);
	if (request->verb == SELECTION_RETRY && text_equal(state, "undecided"))
		return err_set(err, ERR_REJECT,
		    "%s is not overdue: the business is asked first at %s", id.data,
		    pg_value(rows, i, SELECTION_NEXT_AT));
	return true;
}

/* Returns the rows of the named ids; NULL on error. */
static struct pg_result *find_selected_ids(const struct request *request, struct err *err)
{
	const json_t *pairs = json_object_get(request->selection->chosen, "ids");
	struct pg_array types = {0}, ids = {0};
	struct pg_result *rows;

	for (size_t i = 0; i < json_array_size(pairs); i++) {
		const json_t *pair = json_array_get(pairs, i);

		pg_array_add_text(&types, json_string_value(json_array_get(pair, 0)));
		pg_array_add_text(&ids, json_string_value(json_array_get(pair, 1)));
	}

	const struct pg_param params[] = {{pg_array_end(&types)}, {pg_array_end(&ids)}};

	rows = lookback_selection_query(request->selection, sql_lookback_find, params, 2, err);
	pg_array_finish(&types);
	pg_array_finish(&ids);
	return rows;
}

/* True: the request may be carried out for each of the ids. */
static bool check_selected_ids(const struct request *request, struct err *err)
{
	OWNED(owned_pg_result_destroy) struct pg_result *rows = find_selected_ids(request, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (!refuse_selected_row(request, rows, i, err))
			return false;
	return rows != NULL;
}

static bool count_matching(struct request *request, struct err *err)
{
	const struct pg_param params[] = {{request->chosen}, {"false"}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    lookback_selection_query(request->selection, sql_lookback_totals, params, 2, err);
	const char *narrowed;

	if (!rows)
		return false;
	request->matching = 0;
	for (int i = 0; i < pg_rows(rows); i++)
		request->matching += pg_int(rows, i, 1);
	return request->matching > 0 ||
	       err_set(err, ERR_REJECT, "nothing%s is overdue or parked",
		   lookback_selection_is_narrowed(request->selection, &narrowed) ? " that matches"
										 : "");
}

static bool count_selected_ids(struct request *request, struct err *err)
{
	if (request->selection->id_count == 0)
		return count_matching(request, err);
	request->matching = request->selection->id_count;
	return check_selected_ids(request, err);
}

/* --- what it would do ------------------------------------------------------------------------ */

static struct pg_result *find_sample(const struct request *request, struct err *err)
{
	owned_text char *most = xformat("%d", SAMPLE);
	const struct pg_param params[] = {{request->chosen}, {""}, {""}, {"-infinity"}, {most}};

	if (request->selection->id_count > 0)
		return find_selected_ids(request, err);
	return lookback_selection_query(request->selection, sql_lookback_list, params, 5, err);
}

static bool print_selected_sample(const struct request *request, struct err *err)
{
	OWNED(owned_pg_result_destroy) struct pg_result *rows = find_sample(request, err);
	OWNED(text_finish) struct text out = {0};

	if (!rows)
		return false;
	for (int i = 0; i < pg_rows(rows) && i < SAMPLE; i++)
		lookback_selection_add_row(&out, rows, i);
	fputs(text_string(&out), stdout);
	if (request->matching > SAMPLE)
		puts("…");
	puts("nothing was changed: --dry-run");
	return true;
}

/* --- doing it -------------------------------------------------------------------------------- */

/* Somebody was faster, or nothing is left of it: what stands against it now? */
static bool look_again(struct request *request, struct err *err)
{
	if (!count_selected_ids(request, err))
		return false;
	return err_set(err, ERR_RETRY,
	    "others have decided some of these ids just now, and nothing was changed: repeat the "
	    "call");
}

static bool operate_on_selected(struct request *request, struct err *err)
{
	enum { AUDIT, DONE, REFUSED };
	const struct lookback_selection *selection = request->selection;
	const struct pg_param params[] = {{selection_verbs[request->verb].word}, {request->chosen},
	    {call_text(selection->call, "reason", "")},
	    {selection->id_count > 0 ? "true" : "false"}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    lookback_selection_query(request->selection, sql_lookback_operate, params, 4, err);
	int64_t done;

	if (!row)
		return false;
	if (!pg_is_null(row, 0, REFUSED))
		return look_again(request, err);
	done = pg_int(row, 0, DONE);
	printf("request %s: %s of %" PRId64 " ids is done", pg_value(row, 0, AUDIT),
	    selection_verbs[request->verb].word, done);
	if (done < request->matching)
		printf("; %" PRId64 " were decided meanwhile", request->matching - done);
	puts("");
	return true;
}

static bool confirm_and_operate(struct request *request, struct err *err)
{
	const struct verb *verb = &selection_verbs[request->verb];
	owned_text char *question = NULL;

	if (!count_selected_ids(request, err))
		return false;
	printf("%s of %" PRId64 " ids\n", verb->word, request->matching);
	fflush(stdout);
	if (call_flag(request->selection->call, "dry-run"))
		return print_selected_sample(request, err);
	question = xformat("%s %" PRId64 " ids?", verb->question, request->matching);
	return confirm_call(request->selection->call, question, err) &&
	       operate_on_selected(request, err);
}

static bool make_selection_request(
    struct lookback_selection *selection, enum lookback_selection_verb verb, struct err *err)
{
	struct request request = {.selection = selection, .verb = verb};
	bool done;

	if (!check_selection(selection, err) || !lookback_selection_choose(selection, err) ||
	    !confirm_check(selection->call, err))
		return false;
	request.chosen = lookback_selection_chosen(selection);
	done = confirm_and_operate(&request, err);
	free(request.chosen);
	return done;
}

static bool commit_selected(struct lookback_selection *selection, struct err *err)
{
	return make_selection_request(selection, SELECTION_COMMIT, err);
}

static bool roll_back_selected(struct lookback_selection *selection, struct err *err)
{
	return make_selection_request(selection, SELECTION_ROLLBACK, err);
}

static bool retry_selected(struct lookback_selection *selection, struct err *err)
{
	return make_selection_request(selection, SELECTION_RETRY, err);
}

int lookback_selection_request_run(const struct call *call, enum lookback_selection_verb verb)
{
	return lookback_selection_run(call, verb == SELECTION_COMMIT     ? commit_selected
					    : verb == SELECTION_ROLLBACK ? roll_back_selected
									 : retry_selected);
}

const struct command_option lookback_selection_request_options[] = {
    {"all", NULL, "Everything that is overdue or parked, as far as the other options choose it."},
    LOOKBACK_SELECTION_OPTIONS,
    {"reason", "TEXT", "Why; kept in outbox.audit. Needed, but for --dry-run."},
    {"dry-run", NULL, "Counts the ids, shows some, and changes nothing."},
    {"yes", NULL, "Do not ask. Needed where no terminal is."},
    LOOKBACK_SELECTION_POSTGRES_OPTION,
    {0},
};
