#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "lookback_call.h"
#include "lookback_print.h"
#include "lookback_server.h"
#include "session.h"
#include "sql_files.h"

enum { PAGE = 500 };

struct listing {
	struct lookback_selection *selection;
	const char *chosen; /* a parameter */
	bool json;
	int64_t left;                           /* rows that may still be shown */
	char *after_type, *after_id, *after_at; /* the last row that was read */
	struct lookback_listed listed;
	int64_t shown;
};

static void print_listed_id(struct listing *listing, const struct pg_result *rows, int i)
{
	OWNED(text_finish) struct text line = {0};

	if (listing->json) {
		field_print_json(
		    listing->shown ? ",\n" : "\n", lookback_row_json(rows, i), JSON_COMPACT, "");
	} else {
		lookback_add_row(&line, rows, i);
		fputs(line.data, stdout);
	}
	lookback_listed_add(&listing->listed, pg_value(rows, i, SELECTION_STATE));
	listing->shown++;
	listing->left--;
}

static void go_on_behind(struct listing *listing, const struct pg_result *rows, int i)
{
	free(listing->after_type);
	free(listing->after_id);
	free(listing->after_at);
	listing->after_type = xstrdup(i < 0 ? "" : pg_value(rows, i, SELECTION_TYPE));
	listing->after_id = xstrdup(i < 0 ? "" : pg_value(rows, i, SELECTION_ID));
	listing->after_at = xstrdup(i < 0 ? "-infinity" : pg_value(rows, i, LISTED_PLACE));
}

/* A page of undecided ids ends with a row that may not be meant, and the last page has no row. */
static bool print_page(struct listing *listing, bool undecided, bool *ret_more, struct err *err)
{
	int64_t asked = listing->left < PAGE ? listing->left : PAGE;
	owned_text char *most = xformat("%" PRId64, asked);
	const struct pg_param params[] = {{listing->chosen}, {listing->after_type},
	    {listing->after_id}, {listing->after_at}, {most}, {LOOKBACK_JOURNAL_ROWS}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = lookback_selection_query(listing->selection,
	    undecided ? sql_lookback_waiting : sql_lookback_list, params, undecided ? 6 : 5, err);

	if (!rows)
		return false;
	*ret_more = undecided ? pg_rows(rows) > 0 : pg_rows(rows) == asked;
	for (int i = 0; i < pg_rows(rows); i++)
		if (!undecided || text_equal(pg_value(rows, i, LISTED_MEANT), "t"))
			print_listed_id(listing, rows, i);

	/* by the last row and not by an offset: ids that leave meanwhile do not shift the next
	 * page */
	if (pg_rows(rows) > 0)
		go_on_behind(listing, rows, pg_rows(rows) - 1);
	return true;
}

/* Reads and prints a page at a time, so that memory does not grow with the number of ids. */
static bool print_listed_ids(struct listing *listing, bool undecided, struct err *err)
{
	bool done = true, more = true;

	go_on_behind(listing, NULL, -1);
	/* a closed pipe ends the reading as well */
	while (done && more && listing->left > 0 && !ferror(stdout))
		done = print_page(listing, undecided, &more, err);
	listing->listed.complete = !more;
	free(listing->after_type);
	free(listing->after_id);
	free(listing->after_at);
	listing->after_type = listing->after_id = listing->after_at = NULL;
	return done;
}

/* --- the command ----------------------------------------------------------------------------- */

static bool list_lookback_ids(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	struct listing listing = {.selection = selection,
	    .json = call_flag(call, "json"),
	    .left = call_number(call, "limit", INT64_MAX),
	    .listed.undecided = call_flag(call, "undecided")};
	owned_text char *chosen = NULL;

	if (!lookback_call_choose(call, selection, err))
		return false;
	listing.listed.chosen = json_object_size(selection->chosen) > 0;
	listing.chosen = chosen = lookback_selection_chosen(selection);
	/* before the rows: it chooses the database, which the JSON names */
	if (!lookback_selection_connect(selection, err) ||
	    !lookback_totals_count(selection->pg, selection->postgres, chosen,
		listing.listed.undecided, &listing.listed.totals, err))
		return false;
	if (listing.json)
		printf("{\"postgres\":\"%s\",\"rows\":[", selection->postgres->name);
	if (!print_listed_ids(&listing, false, err) ||
	    (listing.listed.undecided && !print_listed_ids(&listing, true, err)))
		return false;
	lookback_print_totals(&listing.listed, listing.json);
	return true;
}

/*
 * Refuses --undecided with --state or --error: a prepare that is not due has no state of its own,
 * and no service was called about it.
 */
static bool check_undecided(const struct call *call, struct err *err)
{
	const char *other = call_text(call, "state", NULL)   ? "state"
			    : call_text(call, "error", NULL) ? "error"
							     : NULL;

	return !call_flag(call, "undecided") || !other ||
	       err_set(err, ERR_REJECT, "--undecided does not go with --%s: take one of them away",
		   other);
}

static int run_lookback_list(const struct call *call)
{
	struct err err;

	if (!check_undecided(call, &err))
		return session_failed(&err);
	if (server_is_used(call))
		return lookback_server_list(call);
	return lookback_call_run(call, list_lookback_ids);
}

static const struct command_option lookback_list_options[] = {
    LOOKBACK_SELECTION_OPTIONS,
    {"undecided", NULL, "Also shows prepares that are not due yet."},
    {"json", NULL, "One JSON object; 64-bit numbers are strings."},
    {"limit", "N", "Shows at most N rows; the totals count up to 100,000.", 1, INT64_MAX},
    LOOKBACK_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_lookback_list = {
    .name = "lookback list",
    .arguments = "",
    .summary = "Lists the ids that are still undecided after their deadline.",
    .description =
	"Prints one line per id, by type and id: state, section, time of the prepare, number of "
	"requests and of answers `pending`, time of the next request, latest time of parking, "
	"URL or function that is called, and result of the last request. Totals by state follow. "
	"All selecting options must match.\n"
	"States: overdue: the relay calls the business again at the time shown. parked: the "
	"attempts or the time are used up and the relay calls no longer; an operator decides. "
	"--undecided adds the prepares that are not due yet, after the others and by their ids; "
	"that reads the whole journal.\n",
    .options = lookback_list_options,
    .example = "outbox-relay lookback list --type order --state overdue",
    .run = run_lookback_list,
};
