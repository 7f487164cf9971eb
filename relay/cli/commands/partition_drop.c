#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "commands.h"
#include "confirm.h"
#include "field.h"
#include "partition_orders.h"
#include "server.h"
#include "session.h"

struct drop_plan {
	int64_t rows, bytes;
	const char *from, *to;
};

/* Shows the plan and asks. False with *ret_dry: the plan is all. */
static bool confirm_partition_drop(
    const struct call *call, const struct drop_plan *plan, bool *ret_dry, struct err *err)
{
	const char *name = call->arguments[0];
	bool detach = call_flag(call, "detach");
	owned_text char *question = partition_order_question(name, detach);

	printf("%s of %s: %s%" PRId64 " row%s from %s to %s, %" PRId64 " bytes\n",
	    detach ? "detach" : "drop", name, plan->rows == COUNTED_ROWS ? "at least " : "",
	    plan->rows, text_plural(plan->rows), plan->from, plan->to, plan->bytes);
	*ret_dry = call_flag(call, "dry-run");
	if (*ret_dry)
		puts("nothing was changed: --dry-run");
	return !*ret_dry && confirm_call(call, question, err);
}

static void print_partition_gone(const struct call *call)
{
	printf("%s %s\n", call->arguments[0], call_flag(call, "detach") ? "detached" : "dropped");
}

static bool ask_and_drop(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	OWNED(partition_order_finish)
	struct partition_order order = {.pg = session->pg,
	    .postgres = session->postgres,
	    .request = {.name = call->arguments[0],
		.detach = call_flag(call, "detach"),
		.force = call_text(call, "force", ""),
		.reason = confirm_reason(call)}};
	struct drop_plan plan = {.from = order.from, .to = order.to};
	bool dry;

	/* contradictions are reported before a missing --yes or --reason */
	if (!partition_order_plan(&order, err) || !confirm_check(call, err))
		return false;
	plan.rows = order.rows;
	plan.bytes = order.bytes;
	if (!confirm_partition_drop(call, &plan, &dry, err))
		return dry;
	if (!partition_order_carry_out(&order, err))
		return false;
	print_partition_gone(call);
	return true;
}

static bool check_drop_force(const struct call *call, struct err *err)
{
	return confirm_check_force(call, partition_drop_force, err);
}

/* --- over --server --------------------------------------------------------------------------- */

static bool send_drop_order(
    const struct call *call, const char *confirm, json_t **ret_answer, struct err *err)
{
	OWNED(text_finish) struct text path = {0};
	json_t *body = json_object();
	bool done;

	text_add(&path, "/v1/partitions/");
	server_add_name(&path, call->arguments[0]);
	text_add(&path, "/drop");
	if (call_flag(call, "detach"))
		json_object_set_new(body, "detach", json_true());
	server_add_force(body, call);
	server_add_postgres(body, call);
	server_add_confirm(body, confirm);
	done = server_add_reason(body, call, err) &&
	       server_ask(call, text_string(&path), body, ret_answer, err);
	json_decref(body);
	return done;
}

static bool confirm_server_drop(
    const struct call *call, const json_t *answer, bool *ret_dry, struct err *err)
{
	const struct drop_plan plan = {.rows = field_number(answer, "rows"),
	    .bytes = field_number(answer, "bytes"),
	    .from = field_member(answer, "from"),
	    .to = field_member(answer, "to")};

	*ret_dry = false;
	return confirm_check(call, err) && confirm_partition_drop(call, &plan, ret_dry, err);
}

static bool drop_partition_over_server(const struct call *call, struct err *err)
{
	owned_text char *question =
	    partition_order_question(call->arguments[0], call_flag(call, "detach"));
	json_t *answer;
	bool dry, sure;

	if (!check_drop_force(call, err) || !send_drop_order(call, NULL, &answer, err))
		return false;
	sure = confirm_server_drop(call, answer, &dry, err);
	json_decref(answer);
	if (!sure)
		return dry;
	if (!send_drop_order(call, question, &answer, err))
		return false;
	json_decref(answer);
	print_partition_gone(call);
	return true;
}

static int run_partition_drop(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return drop_partition_over_server(call, &err) ? 0 : session_failed(&err);
	return session_run(call, check_drop_force, ask_and_drop);
}

static const struct command_option partition_drop_options[] = {
    {"detach", NULL, "Keeps the partition as a table of its own, to be archived."},
    CONFIRM_OPTIONS,
    {"force", "WORD,…",
	"Drops the partition despite: retain (it is younger than `retain`), retention "
	"(`retention = detach` or `archive`), unpublished (a publisher has not published its "
	"rows), undecided "
	"(an undecided prepare), window (a consumer's window has not passed)."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_partition_drop = {
    .name = "partition drop",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Drops a partition whose rows are no longer needed.",
    .description =
	"`run` drops partitions by itself after `retain`. The command shows the partition's rows "
	"and asks. It refuses a partition that is younger than `retain`, that has a message "
	"which some publisher has not published, an undecided prepare, or an id of a consumer "
	"whose window has not passed, unless --force names that reason. Unpublished rows of a "
	"dropped partition are never published. No writer waits longer than 50 ms for the "
	"command; if it cannot get the lock that way within 8 s, it exits with 69. outbox.audit "
	"stores the operator and the reason.\n",
    .options = partition_drop_options,
    .example = "outbox-relay partition drop message_p20260102 --detach",
    .run = run_partition_drop,
};
