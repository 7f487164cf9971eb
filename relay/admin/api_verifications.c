/*
 * New verifications: notes one that a relay carries out (relay/daemon/verifications.c). GET
 * /v1/jobs shows it, and its result.
 */
#include <inttypes.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "logging.h"
#include "verification_order.h"

struct verification_call {
	json_t *body, *filter;
	json_t *publisher_word, *from, *to, *sequence, *no_duplicates, *memory, *reason;
	const struct publisher_settings *publisher;
	int64_t id, audit_id;
};

/* The options of the order, as they are stored. */
static bool check_verification(struct api_call *call, struct verification_call *work)
{
	struct verification_order order;
	bool conflicts;
	struct err err;

	work->filter = json_pack("{s:O*, s:O*, s:O*, s:O*, s:O*}", "from", work->from, "to",
	    work->to, "sequence", work->sequence, "no_duplicates", work->no_duplicates, "memory",
	    work->memory);
	if (verification_order_read(&order, work->filter, &conflicts, &err))
		return true;
	if (conflicts)
		api_refuse(call, 409, "conflicting_arguments", "%s", err.message);
	else
		api_refuse(call, 400, "bad_value", "%s", err.message);
	return false;
}

static bool store_verification(struct pg *pg, void *context, struct err *err)
{
	const struct api_call *call = context;
	struct verification_call *work = call->work;

	return verification_create(pg, work->publisher, work->filter,
	    json_string_value(work->reason), call->caller->token.name, &work->id, &work->audit_id,
	    err);
}

static void run_new_verification(struct api_call *call, struct api_worker *worker)
{
	struct verification_call *work = call->work;
	owned_text char *job = NULL;
	struct err err;

	if (!api_worker_change(worker, work->publisher->postgres, store_verification, call, &err))
		return api_refuse_database(call, &err);
	api_wake_jobs(call, work->publisher->postgres);
	log_info("verification_stored", {"verification", LOG_INT(work->id)},
	    {"publisher", LOG_TEXT(work->publisher->name)},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"reason", LOG_TEXT(json_string_value(work->reason))},
	    {"request", LOG_TEXT(call->request_id)});
	job = xformat("verify-%" PRId64, work->id);
	api_answer(call, 202,
	    json_pack("{s:s, s:s, s:s, s:o}", "publisher", work->publisher->name, "postgres",
		work->publisher->postgres->name, "job", job, "audit",
		json_sprintf("%" PRId64, work->audit_id)));
}

void api_verification_begin(struct api_call *call)
{
	struct verification_call *work = xcalloc(1, sizeof *work);
	const struct api_member members[] = {{"publisher", 's', &work->publisher_word},
	    {"from", 's', &work->from}, {"to", 's', &work->to}, {"sequence", 's', &work->sequence},
	    {"no_duplicates", 'b', &work->no_duplicates}, {"memory", 'i', &work->memory},
	    {"reason", 's', &work->reason}};

	call->work = work;
	if (!api_arguments_check(call, NULL, 0))
		return;
	work->body = api_read_order(call);
	if (!work->body || !api_read_members(call, work->body, members, 7) ||
	    !api_check_reason(call, json_string_value(work->reason)) ||
	    !check_verification(call, work))
		return;
	work->publisher = api_named_publisher(call, json_string_value(work->publisher_word));
	if (work->publisher)
		api_worker_run(call, run_new_verification);
}

void api_verification_forget(struct api_call *call)
{
	struct verification_call *work = call->work;

	json_decref(work->filter);
	json_decref(work->body);
	free(work);
}
