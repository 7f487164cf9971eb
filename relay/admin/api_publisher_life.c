/* Creates and drops publishers, which the configuration of the process need not have. */
#include <inttypes.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_orders.h"
#include "cleanup.h"
#include "logging.h"
#include "partitions.h"
#include "publisher_drop.h"
#include "publisher_orders.h"

enum { MOST_SHARDS = 64 };

struct publisher_life {
	struct api_order shared;
	json_t *name, *shards, *start;
	char at[MOMENT_SIZE]; /* the start, as the database takes it */
	struct publisher_creation creation;
	struct publisher_drop drop;
};

void api_publisher_life_forget(struct api_call *call)
{
	struct publisher_life *life = call->work;

	api_order_finish(&life->shared);
	free(life);
}

/* False: it is no name (400), or the caller's token is not for it (403). */
static bool check_publisher_name(struct api_call *call, const char *name)
{
	struct err err;

	if (!publisher_name_check(name ? name : "", &err))
		api_refuse(call, 400, "bad_value", "%s", err.message);
	else if (!api_may_see_publisher(call, name))
		api_refuse_scope(call, "the publisher", name);
	else
		return true;
	return false;
}

static void log_publisher_life(
    const struct api_call *call, const char *publisher, const char *reason, int64_t audit)
{
	log_info("publisher_operated", {"verb", LOG_TEXT(call->verb->name)},
	    {"publisher", LOG_TEXT(publisher)}, {"reason", LOG_TEXT(reason)},
	    {"caller", LOG_TEXT(call->caller->token.name)}, {"audit", LOG_INT(audit)},
	    {"request", LOG_TEXT(call->request_id)});
}

/* --- create ---------------------------------------------------------------------------------- */

static bool change_by_creation(struct pg *pg, void *context, struct err *err)
{
	struct publisher_life *life = context;

	return publisher_create(pg, life->shared.postgres, &life->creation, err);
}

static void run_publisher_creation(struct api_call *call, struct api_worker *worker)
{
	struct publisher_life *life = call->work;
	struct publisher_creation *creation = &life->creation;
	struct err err;

	if (!api_change(worker, life->shared.postgres, change_by_creation, life, &err))
		return api_refuse_order(call, &err);
	log_publisher_life(call, creation->publisher, creation->reason, creation->audit);
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:i, s:o}", "publisher", creation->publisher, "postgres",
		life->shared.postgres->name, "shards", creation->shards, "audit",
		api_audit_id(creation->audit)));
}

static bool read_creation(struct api_call *call, struct publisher_life *life)
{
	json_int_t shards = life->shards ? json_integer_value(life->shards) : 1;
	const char *start = life->start ? json_string_value(life->start) : "beginning";
	struct err err;

	life->creation = (struct publisher_creation){.publisher = json_string_value(life->name),
	    .start = life->at,
	    .reason = json_string_value(life->shared.reason),
	    .caller = call->caller->token.name,
	    .shards = (int)shards};
	if (!check_publisher_name(call, life->creation.publisher))
		return false;
	if (shards >= 1 && shards <= MOST_SHARDS) {
		if (publisher_start_read(start, life->at, &err))
			return true;
		api_refuse(call, 400, "bad_value", "%s", err.message);
		return false;
	}
	api_refuse(call, 400, "bad_value", "shards is no whole number from 1 to %d", MOST_SHARDS);
	return false;
}

void api_publisher_create_begin(struct api_call *call)
{
	struct publisher_life *life = xcalloc(1, sizeof *life);
	const struct api_member members[] = {{"name", 's', &life->name},
	    {"shards", 'i', &life->shards}, {"start", 's', &life->start},
	    {"postgres", 's', &life->shared.postgres_name}, {"reason", 's', &life->shared.reason}};

	call->work = life;
	if (api_order_begin(call, &life->shared, members, sizeof members / sizeof *members) &&
	    read_creation(call, life))
		api_worker_run(call, run_publisher_creation);
}

/* --- drop ------------------------------------------------------------------------------------ */

static bool read_drop_plan(struct pg *pg, void *context, struct err *err)
{
	struct publisher_life *life = context;

	return publisher_drop_plan(pg, &life->drop, err);
}

static bool change_by_drop(struct pg *pg, void *context, struct err *err)
{
	struct publisher_life *life = context;

	return publisher_drop(pg, &life->drop, err);
}

static void run_publisher_dropping(struct api_call *call, struct api_worker *worker)
{
	struct publisher_life *life = call->work;
	struct publisher_drop *drop = &life->drop;
	bool dry = json_is_true(life->shared.dry_run);
	struct err err;

	if (!api_worker_query(worker, life->shared.postgres, read_drop_plan, life, &err) ||
	    (!dry && !api_change(worker, life->shared.postgres, change_by_drop, life, &err)))
		return drop->is_missing
			   ? api_refuse(call, 404, "unknown_publisher", "%s", err.message)
			   : api_refuse_order(call, &err);
	if (!dry)
		log_publisher_life(call, drop->publisher, drop->reason, drop->audit);
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:b, s:o, s:o, s:b, s:o}", "publisher", drop->publisher,
		"postgres", life->shared.postgres->name, "dry_run", dry, "parked",
		json_sprintf("%" PRId64, drop->parked), "scheduled",
		json_sprintf("%" PRId64, drop->scheduled), "exact",
		drop->parked < COUNTED_ROWS && drop->scheduled < COUNTED_ROWS, "audit",
		api_audit_id(drop->audit)));
}

void api_publisher_drop_begin(struct api_call *call)
{
	struct publisher_life *life = xcalloc(1, sizeof *life);
	const struct api_member members[] = {{"confirm", 's', &life->shared.confirm},
	    {"force", 'o', &life->shared.force}, {"dry_run", 'b', &life->shared.dry_run},
	    {"postgres", 's', &life->shared.postgres_name}, {"reason", 's', &life->shared.reason}};
	owned_text char *question = publisher_drop_question(call->rest);

	call->work = life;
	if (!check_publisher_name(call, call->rest) ||
	    !api_order_begin(call, &life->shared, members, sizeof members / sizeof *members))
		return;
	life->shared.words = api_force_words(call, life->shared.force, publisher_drop_force);
	if (!life->shared.words)
		return;
	if (!json_is_true(life->shared.dry_run) &&
	    !api_check_confirmation(call, life->shared.confirm, question))
		return;

	life->drop = (struct publisher_drop){.config = api_config(call->api),
	    .postgres = life->shared.postgres,
	    .publisher = call->rest,
	    .reason = json_string_value(life->shared.reason),
	    .force = life->shared.words,
	    .caller = call->caller->token.name};
	api_worker_run(call, run_publisher_dropping);
}
