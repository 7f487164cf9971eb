#include "api_orders.h"

#include <inttypes.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "cleanup.h"
#include "database.h"
#include "force_words.h"
#include "sql_files.h"

struct audit_order {
	const struct postgres_settings *postgres;
	struct pg_param params[5];
	int64_t id;
};

/* Finds out whether a session that was kept is lost: an insert cannot be repeated. */
static bool try_audit_session(struct pg *pg, void *context, struct err *err)
{
	struct audit_order *order = context;
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(pg, order->postgres, sql_api_payload_most, NULL, 0, err);

	return row != NULL;
}

static bool insert_audit_row(struct pg *pg, void *context, struct err *err)
{
	struct audit_order *order = context;
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(pg, order->postgres, sql_audit_add, order->params, 5, err);

	order->id = row ? pg_int(row, 0, 0) : 0;
	return row != NULL;
}

bool api_audit_add(struct api_call *call, struct api_worker *worker,
    const struct postgres_settings *postgres, const struct api_audit *audit, int64_t *ret_id,
    struct err *err)
{
	owned_text char *target = json_dumps(audit->target, JSON_COMPACT);
	struct audit_order order = {.postgres = postgres,
	    .params = {{call->caller->token.name}, {audit->verb}, {audit->publisher}, {target},
		{audit->reason}}};

	json_decref(audit->target);
	if (!api_worker_query(worker, postgres, try_audit_session, &order, err) ||
	    !api_worker_change(worker, postgres, insert_audit_row, &order, err))
		return false;
	*ret_id = order.id;
	return true;
}

/* --- orders ---------------------------------------------------------------------------------- */

static bool try_order_session(struct pg *pg, void *context, struct err *err)
{
	(void)context;
	/* finds a lost session before the order, which is not repeated */
	return pg_script(pg, "begin; commit", err);
}

bool api_change(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*change)(struct pg *pg, void *context, struct err *err), void *context, struct err *err)
{
	return api_worker_query(worker, postgres, try_order_session, context, err) &&
	       api_worker_change(worker, postgres, change, context, err);
}

void api_refuse_order(struct api_call *call, const struct err *err)
{
	if (err->kind == ERR_FENCED)
		api_refuse(call, 409, "owned", "%s", err->message);
	else if (err->kind == ERR_REJECT)
		api_refuse(call, 409, "not_applicable", "%s", err->message);
	else
		api_refuse_database(call, err);
}

char *api_force_words(struct api_call *call, const json_t *force, const char *const *known)
{
	OWNED(text_finish) struct text words = {0};
	struct err err;
	bool good = !force || json_is_array(force);

	for (size_t i = 0; good && i < json_array_size(force); i++) {
		const char *word = json_string_value(json_array_get(force, i));

		good = word && *word && !strchr(word, ',');
		text_addf(&words, "%s%s", i ? "," : "", good ? word : "");
	}
	if (good && force_words_check("force", text_string(&words), known, &err))
		return xstrdup(text_string(&words));
	api_refuse(call, 400, "bad_value", "%s", good ? err.message : "force is no list of words");
	return NULL;
}

bool api_check_order_reason(struct api_call *call, const json_t *reason, const json_t *dry_run)
{
	return (json_is_true(dry_run) && !reason) ||
	       api_check_reason(call, json_string_value(reason));
}

bool api_order_begin(
    struct api_call *call, struct api_order *order, const struct api_member *members, size_t count)
{
	if (!api_arguments_check(call, NULL, 0))
		return false;
	order->body = api_read_order(call);
	if (!order->body || !api_read_members(call, order->body, members, count))
		return false;
	order->postgres = api_named_postgres(call, json_string_value(order->postgres_name));
	return order->postgres && api_check_order_reason(call, order->reason, order->dry_run);
}

void api_order_finish(struct api_order *order)
{
	json_decref(order->body);
	free(order->words);
}

bool api_check_confirmation(struct api_call *call, const json_t *confirm, const char *question)
{
	if (text_equal(json_string_value(confirm), question))
		return true;
	api_refuse(call, confirm ? 409 : 400, confirm ? "conflicting_arguments" : "missing_field",
	    "confirm is not \"%s\": look at the plan first, with dry_run", question);
	return false;
}

bool api_audit_note(struct api_call *call, struct api_worker *worker, const struct api_audit *audit,
    int64_t *ret_id)
{
	const struct config *config = api_config(call->api);
	struct err err;

	*ret_id = 0;
	if (config->postgres_count == 0) {
		json_decref(audit->target);
		return true;
	}
	if (api_audit_add(call, worker, &config->postgres[0], audit, ret_id, &err))
		return true;
	api_refuse_database(call, &err);
	return false;
}

json_t *api_audit_id(int64_t id)
{
	return id ? json_sprintf("%" PRId64, id) : json_null();
}
