#include "lookback_call.h"

#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "confirm.h"
#include "lookback_print.h"
#include "lookback_server.h"
#include "session.h"

enum { SAMPLE = 10 };

int lookback_call_run(const struct call *call,
    bool (*work)(const struct call *call, struct lookback_selection *selection, struct err *err))
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	OWNED(lookback_selection_finish) struct lookback_selection selection = {0};

	if (!config)
		return session_failed(&err);
	lookback_selection_init(&selection, config, call_text(call, "postgres", NULL));
	return lookback_selection_name(&selection, call->arguments, call->argument_count, &err) &&
		       work(call, &selection, &err)
		   ? 0
		   : session_failed(&err);
}

/* --- options that select --------------------------------------------------------------------- */

/* A filter that is not UTF-8 is an error: left out, it would select more ids. */
static bool choose_by_option(const struct call *call, struct lookback_selection *selection,
    const char *name, struct err *err)
{
	const char *value = call_text(call, name, NULL);
	json_t *string = value ? json_string(value) : NULL;

	if (!value)
		return true;

	/* an empty value may be a shell variable that is not set, and would select other ids */
	if (!string || !*value) {
		json_decref(string);
		return err_set(err, ERR_REJECT, "--%s %s", name,
		    *value ? "is not UTF-8" : "is empty: leave it out, or say which");
	}
	json_object_set_new(selection->chosen, name, string);
	return true;
}

static bool choose_range(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	char from[MOMENT_SIZE] = "", to[MOMENT_SIZE] = "";
	int64_t from_us, to_us;

	if (!session_range(call, &from_us, &to_us, from, to, err))
		return false;
	if (*from)
		json_object_set_new(selection->chosen, "from", json_string(from));
	if (*to)
		json_object_set_new(selection->chosen, "to", json_string(to));
	return true;
}

bool lookback_call_choose(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	static const char *const names[] = {"type", "section", "state", "service", "error"};
	const char *state = call_text(call, "state", "parked");
	const char *type = call_text(call, "type", NULL);

	if (type && !lookback_selection_check_type(type, err))
		return err_prefix(err, "--type");
	if (!text_equal(state, "parked") && !text_equal(state, "overdue"))
		return err_set(
		    err, ERR_REJECT, "--state %.60s is not known: write overdue or parked", state);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!choose_by_option(call, selection, names[i], err))
			return false;
	return choose_range(call, selection, err);
}

const char *lookback_call_first_option(const struct call *call)
{
	static const char *const names[] = {
	    "type", "section", "state", "service", "error", "from", "to"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (call_flag(call, names[i]))
			return names[i];
	return NULL;
}

/* --- `lookback commit`, `rollback` and `retry` ----------------------------------------------- */

bool lookback_call_check(
    const struct call *call, const struct lookback_selection *selection, struct err *err)
{
	bool all = call_flag(call, "all"), named = selection->id_count > 0;
	const char *option = lookback_call_first_option(call);

	/* checks before anything is read: a mistake here decides more ids than were meant */
	if (named && all)
		return err_set(
		    err, ERR_REJECT, "--all does not go with ids: take one of them away");
	if (named && option)
		return err_set(err, ERR_REJECT,
		    "--%s does not go with ids: name them, or choose with --all", option);

	/* an order about everything must be said: leaving out the ids is not enough */
	if (!named && !all)
		return err_set(err, ERR_REJECT,
		    "nothing says which ids: name them (TYPE ID…), or say --all, which takes what "
		    "is overdue or parked; --type, --state, --error, … choose among it");
	return true;
}

static bool print_selected_sample(const struct lookback_order *order, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = lookback_order_sample(order, SAMPLE, err);
	OWNED(text_finish) struct text out = {0};

	if (!rows)
		return false;
	for (int i = 0; i < pg_rows(rows) && i < SAMPLE; i++)
		lookback_add_row(&out, rows, i);
	fputs(text_string(&out), stdout);
	if (order->matching > SAMPLE)
		puts("…");
	fflush(stdout);
	return true;
}

static void print_carried_out(const struct lookback_order *order)
{
	printf("request %" PRId64 ": %s of %" PRId64 " id%s is done", order->id, order->word,
	    order->done, text_plural(order->done));
	if (order->done < order->matching)
		printf("; others decided %" PRId64 " meanwhile", order->matching - order->done);
	if (order->duplicates > 0)
		printf("; %" PRId64
		       " of them wrote no message, since another message has the unique key",
		    order->duplicates);
	puts("");
}

static bool confirm_and_carry_out(
    const struct call *call, struct lookback_order *order, struct err *err)
{
	static const char *const questions[] = {[LOOKBACK_COMMIT] = "Commit",
	    [LOOKBACK_ROLLBACK] = "Roll back",
	    [LOOKBACK_RETRY] = "Ask again about"};
	owned_text char *question = NULL;

	if (!lookback_order_count(order, err))
		return false;
	printf(
	    "%s of %" PRId64 " id%s\n", order->word, order->matching, text_plural(order->matching));
	fflush(stdout);
	/* with --yes nobody reads the sample before the order */
	if ((call_flag(call, "dry-run") || !call_flag(call, "yes")) &&
	    !print_selected_sample(order, err))
		return false;
	if (call_flag(call, "dry-run")) {
		puts("nothing was changed: --dry-run");
		return true;
	}
	question = xformat("%s %" PRId64 " id%s?", questions[order->verb], order->matching,
	    text_plural(order->matching));
	if (!confirm_call(call, question, err) ||
	    !lookback_order_carry_out(order, confirm_reason(call), err))
		return false;
	print_carried_out(order);
	return true;
}

static bool order_about_selected(const struct call *call, struct lookback_selection *selection,
    enum lookback_verb verb, struct err *err)
{
	OWNED(lookback_order_finish) struct lookback_order order = {0};

	if (!lookback_call_check(call, selection, err) ||
	    !lookback_call_choose(call, selection, err) || !confirm_check(call, err))
		return false;
	lookback_order_init(&order, selection, verb);
	return confirm_and_carry_out(call, &order, err);
}

static bool commit_selected(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	return order_about_selected(call, selection, LOOKBACK_COMMIT, err);
}

static bool roll_back_selected(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	return order_about_selected(call, selection, LOOKBACK_ROLLBACK, err);
}

static bool retry_selected(
    const struct call *call, struct lookback_selection *selection, struct err *err)
{
	return order_about_selected(call, selection, LOOKBACK_RETRY, err);
}

int lookback_call_order(const struct call *call, enum lookback_verb verb)
{
	if (server_is_used(call))
		return lookback_server_order(call, verb);
	return lookback_call_run(call, verb == LOOKBACK_COMMIT     ? commit_selected
				       : verb == LOOKBACK_ROLLBACK ? roll_back_selected
								   : retry_selected);
}

const struct command_option lookback_order_options[] = {
    {"all", NULL, "Selects every overdue or parked id that the other options match."},
    LOOKBACK_SELECTION_OPTIONS,
    CONFIRM_OPTIONS,
    LOOKBACK_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};
