#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "parked_call.h"
#include "parked_print.h"
#include "parked_request.h"
#include "parked_server.h"
#include "sql_files.h"

enum { PAGE = 500 };

struct listing {
	struct parked *parked;
	bool json;
	int64_t left, shown; /* rows that may still be shown, and that were */
};

/* Takes the row over. */
static void print_parked_row(struct listing *listing, json_t *row)
{
	OWNED(text_finish) struct text line = {0};

	if (listing->json) {
		field_print_json(listing->shown ? ",\n" : "\n", row, JSON_COMPACT, "");
	} else {
		parked_add_row(&line, row);
		fputs(line.data, stdout);
		json_decref(row);
	}
	listing->shown++;
}

/* Reads and prints a page at a time, so that memory does not grow with the number of rows. */
static bool print_parked_rows(struct listing *listing, const char *chosen, struct err *err)
{
	int64_t after = 0;
	int count;

	do {
		int64_t most = listing->left < PAGE ? listing->left : PAGE;
		owned_text char *after_text = xformat("%" PRId64, after);
		owned_text char *most_text = xformat("%" PRId64, most);
		const struct pg_param params[] = {{listing->parked->publisher->name}, {chosen},
		    {after_text}, {most_text}, {NULL}};
		OWNED(owned_pg_result_destroy)
		struct pg_result *rows =
		    parked_query(listing->parked, sql_parked_list, params, 5, err);

		if (!rows)
			return false;
		count = pg_rows(rows);
		for (int i = 0; i < count; i++)
			print_parked_row(listing, parked_row_json(rows, i));
		/* by id and not by an offset: rows that leave meanwhile do not shift the next
		 * page */
		if (count > 0)
			after = pg_int(rows, count - 1, PARKED_ID);
		listing->left -= count;
	} while (count == PAGE && listing->left > 0 && !ferror(stdout));
	return true;
}

static bool list_parked_rows(const struct call *call, struct parked *parked, struct err *err)
{
	struct listing listing = {.parked = parked,
	    .json = call_flag(call, "json"),
	    .left = call_number(call, "limit", INT64_MAX)};
	owned_text char *chosen = NULL;
	struct parked_totals totals;
	json_t *requests;

	if (!parked_choose(parked, call->arguments, call->argument_count, false, err))
		return false;
	chosen = parked_chosen(parked);
	if (!parked_count_states(parked, &totals, err))
		return false;
	if (listing.json)
		printf("{\"publisher\":\"%s\",\"rows\":[", parked->publisher->name);
	if (!print_parked_rows(&listing, chosen, err) ||
	    !parked_open_requests(parked, &requests, err))
		return false;
	if (listing.json)
		parked_print_end_json(requests, &totals);
	else
		parked_print_end(parked->publisher->name, json_object_size(parked->chosen) > 0,
		    listing.shown, requests, &totals);
	json_decref(requests);
	return true;
}

static int run_parked_list(const struct call *call)
{
	if (server_is_used(call))
		return parked_server_list(call);
	return parked_call_run(call, list_parked_rows);
}

static const struct command_option parked_list_options[] = {
    {"json", NULL, "One JSON object; 64-bit numbers are strings."},
    {"limit", "N", "Shows at most N rows; the totals count the first 100000.", 1, INT64_MAX},
    PARKED_PUBLISHER_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_parked_list = {
    .name = "parked list",
    .arguments = "[TERM…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Lists the messages that Kafka refused, and those that wait behind them.",
    .description =
	"Prints one line per message, by id: topic, key, state, attempts, time of the next "
	"attempt, time of parking, request of an operator, and error. Totals by state follow, "
	"and a line for each request in progress: how many rows it has examined, and how many of "
	"them it retried or skipped.\n" PARKED_TERMS_HELP
	"States: waiting: the relay tries it again, alone, at the time shown. dead: it was tried "
	"`max_attempts` times, or it crashes the relay; only an operator moves it. stalled: its "
	"partition accepted nothing for `stall_after` or answers with errors, or its topic is "
	"missing; it is published when the partition works again. free: it is published as soon "
	"as possible. behind: it waits for an earlier message of its topic and key.\n",
    .options = parked_list_options,
    .example = "outbox-relay parked list topic=orders state=dead",
    .run = run_parked_list,
};
