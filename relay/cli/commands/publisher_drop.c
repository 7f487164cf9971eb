#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "commands.h"
#include "confirm.h"
#include "field.h"
#include "partitions.h"
#include "publisher_call.h"
#include "publisher_drop.h"
#include "server.h"
#include "session.h"

/* parked and scheduled: counted up to COUNTED_ROWS. */
static void print_drop_plan(const char *name, int64_t parked, int64_t scheduled)
{
	printf("drop of publisher %s: its progress is forgotten, and with it go %s%" PRId64
	       " parked and %s%" PRId64 " scheduled messages\n",
	    name, parked == COUNTED_ROWS ? "at least " : "", parked,
	    scheduled == COUNTED_ROWS ? "at least " : "", scheduled);
}

/* Shows the plan. False with *ret_dry: that is all. */
static bool confirm_publisher_drop(
    const struct call *call, int64_t parked, int64_t scheduled, bool *ret_dry, struct err *err)
{
	const char *name = call->arguments[0];
	owned_text char *question = publisher_drop_question(name);

	print_drop_plan(name, parked, scheduled);
	*ret_dry = call_flag(call, "dry-run");
	if (*ret_dry)
		puts("nothing was changed: --dry-run");
	return !*ret_dry && confirm_call(call, question, err);
}

static bool drop_on_database(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	struct publisher_drop drop = {.config = session->config,
	    .postgres = session->postgres,
	    .publisher = call->arguments[0],
	    .force = call_text(call, "force", ""),
	    .reason = confirm_reason(call)};
	bool dry;

	/* the checks come before the question, so that a yes is not refused afterwards */
	if (!publisher_drop_plan(session->pg, &drop, err) || !confirm_check(call, err))
		return false;
	if (!confirm_publisher_drop(call, drop.parked, drop.scheduled, &dry, err))
		return dry;
	if (!publisher_drop(session->pg, &drop, err))
		return false;
	printf("publisher %s dropped\n", drop.publisher);
	return true;
}

static bool check_publisher_force(const struct call *call, struct err *err)
{
	return confirm_check_force(call, publisher_drop_force, err);
}

/* --- over --server --------------------------------------------------------------------------- */

static bool send_drop(
    const struct call *call, const char *confirm, json_t **ret_answer, struct err *err)
{
	json_t *body = json_object();

	server_add_force(body, call);
	server_add_postgres(body, call);
	server_add_confirm(body, confirm);
	return publisher_call_send(call, call->arguments[0], "drop", body, ret_answer, err);
}

static bool drop_publisher_over_server(const struct call *call, struct err *err)
{
	owned_text char *question = publisher_drop_question(call->arguments[0]);
	json_t *plan = NULL, *answer = NULL;
	int64_t parked, scheduled;
	bool dry;

	if (!check_publisher_force(call, err) || !send_drop(call, NULL, &plan, err))
		return false;
	parked = field_number(plan, "parked");
	scheduled = field_number(plan, "scheduled");
	json_decref(plan);
	if (!confirm_check(call, err))
		return false;
	if (!confirm_publisher_drop(call, parked, scheduled, &dry, err))
		return dry;
	if (!send_drop(call, question, &answer, err))
		return false;
	json_decref(answer);
	printf("publisher %s dropped\n", call->arguments[0]);
	return true;
}

static int run_publisher_drop(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return drop_publisher_over_server(call, &err) ? 0 : session_failed(&err);
	return session_run(call, check_publisher_force, drop_on_database);
}

static const struct command_option publisher_drop_options[] = {
    CONFIRM_OPTIONS,
    {"force", "WORD,…",
	"owned: also while a process owns one of its shards (the process then releases it); "
	"last: also the last publisher; configured: also one that the configuration names."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_publisher_drop = {
    .name = "publisher drop",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Drops a publisher and its progress.",
    .description =
	"The command shows everything that it would drop, and asks; outbox.audit stores the "
	"operator and the reason. The publisher's unpublished rows are not published by it any "
	"longer; they stay in the table until their partition is dropped. A new publisher of the "
	"same name begins where its `--start` says.\n",
    .options = publisher_drop_options,
    .example = "outbox-relay publisher drop billing",
    .run = run_publisher_drop,
};
