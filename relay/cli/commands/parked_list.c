#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "parked_call.h"
#include "parked_print.h"
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

/* --- requests of operators ------------------------------------------------------------------- */

/* Columns of parked_requests.sql. */
enum {
	ASKED_ID,
	ASKED_VERB,
	ASKED_FILTER,
	ASKED_WHO,
	ASKED_AT,
	ASKED_REASON,
	ASKED_ABOUT,
	ASKED_LOOKED,
	ASKED_DONE,
	ASKED_PUBLISHED,
	ASKED_REFUSED
};

static void print_request(const struct pg_result *rows, int i)
{
	const char *filter = pg_value(rows, i, ASKED_FILTER);
	bool retry = text_equal(pg_value(rows, i, ASKED_VERB), "retry");
	OWNED(text_finish) struct text line = {0};

	text_addf(&line, "request %s, %s %s: %s of about %s rows looked at, %s %s",
	    pg_value(rows, i, ASKED_ID), pg_value(rows, i, ASKED_VERB),
	    text_equal(filter, "{}") ? "--all" : filter, pg_value(rows, i, ASKED_LOOKED),
	    pg_value(rows, i, ASKED_ABOUT), pg_value(rows, i, ASKED_DONE),
	    retry ? "retried" : "skipped");
	if (retry)
		text_addf(&line, ", of which %s were published and %s refused again",
		    pg_value(rows, i, ASKED_PUBLISHED), pg_value(rows, i, ASKED_REFUSED));
	text_addf(
	    &line, "; by %s at %s: ", pg_value(rows, i, ASKED_WHO), pg_value(rows, i, ASKED_AT));
	text_add_line(&line, pg_value(rows, i, ASKED_REASON));
	puts(text_string(&line));
}

static void print_request_json(const struct pg_result *rows, int i)
{
	static const struct {
		const char *name;
		int column;
	} texts[] = {{"id", ASKED_ID}, {"verb", ASKED_VERB}, {"who", ASKED_WHO}, {"at", ASKED_AT},
	    {"reason", ASKED_REASON}, {"about", ASKED_ABOUT}, {"looked_at", ASKED_LOOKED},
	    {"done", ASKED_DONE}, {"published", ASKED_PUBLISHED}, {"refused", ASKED_REFUSED}};
	json_t *object = json_object();

	for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
		json_object_set_new(object, texts[k].name, field_json(rows, i, texts[k].column));
	json_object_set_new(object, "filter", field_json_parsed(rows, i, ASKED_FILTER));
	field_print_json(i ? ",\n" : "\n", object, JSON_COMPACT, "");
}

/* Prints the requests that are not finished. */
static bool print_requests(const struct listing *listing, struct err *err)
{
	const struct pg_param params[] = {{listing->parked->publisher->name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_query(listing->parked, sql_parked_requests, params, 1, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		(listing->json ? print_request_json : print_request)(rows, i);
	return rows != NULL;
}

static bool list_parked_rows(const struct call *call, struct parked *parked, struct err *err)
{
	struct listing listing = {.parked = parked,
	    .json = call_flag(call, "json"),
	    .left = call_number(call, "limit", INT64_MAX)};
	owned_text char *chosen = NULL;
	struct parked_totals totals;

	if (!parked_choose(parked, call->arguments, call->argument_count, false, err))
		return false;
	chosen = parked_chosen(parked);
	if (!parked_count_states(parked, &totals, err))
		return false;
	if (listing.json)
		printf("{\"publisher\":\"%s\",\"rows\":[", parked->publisher->name);
	if (!print_parked_rows(&listing, chosen, err))
		return false;
	if (!listing.json)
		parked_print_totals(parked->publisher->name, json_object_size(parked->chosen) > 0,
		    listing.shown, &totals);
	else
		printf("\n],\"requests\":[");
	if (!print_requests(&listing, err))
		return false;
	if (listing.json)
		parked_print_totals_json(&totals);
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
