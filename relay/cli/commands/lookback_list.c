#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "lookback_call.h"
#include "lookback_print.h"
#include "lookback_server.h"
#include "sql_files.h"

enum { PAGE = 500, STATES = LOOKBACK_STATES, LIST_PLACE = SELECTION_COLUMNS };

struct listing {
	struct lookback_selection *selection;
	const char *chosen, *with_undecided; /* parameters */
	bool json, undecided;
	int64_t left, shown;                    /* rows that may still be shown, and that were */
	char *after_type, *after_id, *after_at; /* the last row that was */
};

static void print_listed_id(struct listing *listing, const struct pg_result *rows, int i)
{
	OWNED(text_finish) struct text line = {0};

	if (!listing->json) {
		lookback_add_row(&line, rows, i);
		fputs(line.data, stdout);
		return;
	}
	field_print_json(
	    listing->shown ? ",\n" : "\n", lookback_row_json(rows, i), JSON_COMPACT, "");
}

static void go_on_behind(struct listing *listing, const struct pg_result *rows, int i)
{
	free(listing->after_type);
	free(listing->after_id);
	free(listing->after_at);
	listing->after_type = xstrdup(i < 0 ? "" : pg_value(rows, i, SELECTION_TYPE));
	listing->after_id = xstrdup(i < 0 ? "" : pg_value(rows, i, SELECTION_ID));
	listing->after_at = xstrdup(i < 0 ? "-infinity" : pg_value(rows, i, LIST_PLACE));
}

static bool print_page(struct listing *listing, const char *sql, int *ret_count, struct err *err)
{
	owned_text char *most = xformat("%" PRId64, listing->left < PAGE ? listing->left : PAGE);
	const struct pg_param params[] = {{listing->chosen}, {listing->after_type},
	    {listing->after_id}, {listing->after_at}, {most}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = lookback_selection_query(listing->selection, sql, params, 5, err);

	if (!rows)
		return false;
	*ret_count = pg_rows(rows);
	for (int i = 0; i < *ret_count; i++, listing->shown++)
		print_listed_id(listing, rows, i);

	/* by the last row and not by an offset: ids that leave meanwhile do not shift the next
	 * page */
	if (*ret_count > 0)
		go_on_behind(listing, rows, *ret_count - 1);
	listing->left -= *ret_count;
	return true;
}

/* Reads and prints a page at a time, so that memory does not grow with the number of ids. */
static bool print_listed_ids(struct listing *listing, const char *sql, struct err *err)
{
	bool done = true;
	int count = PAGE;

	go_on_behind(listing, NULL, -1);
	/* a page that is not full is the last one; a closed pipe ends the reading as well */
	while (done && count == PAGE && listing->left > 0 && !ferror(stdout))
		done = print_page(listing, sql, &count, err);
	free(listing->after_type);
	free(listing->after_id);
	free(listing->after_at);
	listing->after_type = listing->after_id = listing->after_at = NULL;
	return done;
}

/* --- how many of each state ------------------------------------------------------------------ */

static bool count_lookback_states(struct listing *listing, int64_t counts[STATES], struct err *err)
{
	const struct pg_param params[] = {{listing->chosen}, {listing->with_undecided}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    lookback_selection_query(listing->selection, sql_lookback_totals, params, 2, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		for (int k = 0; k < STATES; k++)
			if (text_equal(lookback_states[k], pg_value(rows, i, 0)))
				counts[k] = pg_int(rows, i, 1);
	return rows != NULL;
}

/* --- the command ----------------------------------------------------------------------------- */

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

static bool list_lookback_ids(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	struct listing listing = {.selection = selection,
	    .with_undecided = call_flag(call, "undecided") ? "true" : "false",
	    .json = call_flag(call, "json"),
	    .undecided = call_flag(call, "undecided"),
	    .left = call_number(call, "limit", INT64_MAX)};
	owned_text char *chosen = NULL;
	int64_t counts[STATES] = {0};

	if (!check_undecided(call, err) || !lookback_call_choose(call, selection, err))
		return false;
	listing.chosen = chosen = lookback_selection_chosen(selection);
	/* before the rows: the first query chooses the database, which the JSON names */
	if (!count_lookback_states(&listing, counts, err))
		return false;
	if (listing.json)
		printf("{\"postgres\":\"%s\",\"rows\":[", selection->postgres->name);
	if (!print_listed_ids(&listing, sql_lookback_list, err) ||
	    (listing.undecided && !print_listed_ids(&listing, sql_lookback_waiting, err)))
		return false;
	if (listing.json)
		lookback_print_totals_json(counts, listing.undecided);
	else
		lookback_print_totals(counts, listing.undecided,
		    json_object_size(selection->chosen) > 0, listing.shown);
	return true;
}

static int run_lookback_list(const struct call *call)
{
	if (server_is_used(call))
		return lookback_server_list(call);
	return lookback_call_run(call, list_lookback_ids);
}

static const struct command_option lookback_list_options[] = {
    LOOKBACK_SELECTION_OPTIONS,
    {"undecided", NULL, "Also shows prepares that are not due yet."},
    {"json", NULL, "One JSON object; 64-bit numbers are strings."},
    {"limit", "N", "Shows at most N rows; the totals count all.", 1, INT64_MAX},
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
