/*
 * The sections of the sidecar: lists the states of those in this process, and on request those that
 * the database knows of other processes; pauses or resumes one, or reloads its rules. With a
 * [postgres] section a pause is an order in the database, which any process takes and every process
 * that runs the section carries out (pause_watch.h).
 */
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_orders.h"
#include "cleanup.h"
#include "database.h"
#include "field_json.h"
#include "logging.h"
#include "sql_files.h"

DEFINE_OWNED(struct config, config_destroy)

/* --- list ------------------------------------------------------------------------------------ */

static json_t *section_json(const char *name, struct deliver *deliver)
{
	const struct deliver_status status = deliver_status(deliver);

	return json_pack("{s:s, s:b, s:b, s:s?, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:o, s:o}",
	    "section", name, "works", status.works, "paused", status.paused, "paused_at",
	    status.paused_at[0] ? status.paused_at : NULL, "breaker",
	    breaker_states[status.sends.breaker], "partitions", status.partitions, "blocked",
	    status.blocked, "messages", (json_int_t)status.messages, "in_progress",
	    (json_int_t)status.in_progress, "handled", (json_int_t)status.handled, "dead_letters",
	    (json_int_t)status.dead_letters, "error", api_text(status.error), "last_error",
	    api_text(status.last_error));
}

json_t *api_deliver_sections(const struct api_call *call)
{
	const struct config *config = api_config(call->api);
	json_t *sections = json_array();

	for (int i = 0; i < config->deliver_count; i++) {
		struct deliver *deliver = api_deliver(call->api, i);

		if (deliver &&
		    config_token_has_section(&call->caller->token, config->delivers[i].name))
			json_array_append_new(
			    sections, section_json(config->delivers[i].name, deliver));
	}
	return sections;
}

static json_t *deliver_list_json(struct api_call *call)
{
	return json_pack(
	    "{s:s, s:o}", "source", api_process(call->api), "sections", api_deliver_sections(call));
}

/* --- the sections of all processes ----------------------------------------------------------- */

struct section_look {
	struct api_call *call;
	json_t *rows;
};

/* Columns of deliver_sections.sql. */
enum { KNOWN_SECTION, KNOWN_PAUSED_AT, KNOWN_PROCESSES };

static bool read_known_sections(struct pg *pg, void *context, struct err *err)
{
	struct section_look *look = context;
	const struct api_call *call = look->call;
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(
	    pg, &api_config(call->api)->postgres[0], sql_deliver_sections, NULL, 0, err);

	if (!rows)
		return false;
	look->rows = json_array();
	for (int i = 0; i < pg_rows(rows); i++)
		if (config_token_has_section(
			&call->caller->token, pg_value(rows, i, KNOWN_SECTION)))
			json_array_append_new(
			    look->rows, json_pack("{s:o, s:o, s:o}", "section",
					    field_json(rows, i, KNOWN_SECTION), "paused_at",
					    field_json(rows, i, KNOWN_PAUSED_AT), "processes",
					    field_json_parsed(rows, i, KNOWN_PROCESSES)));
	return true;
}

static void run_section_look(struct api_call *call, struct api_worker *worker)
{
	struct section_look *look = call->work;
	struct err err;
	json_t *answer;

	if (!api_worker_query(
		worker, &api_config(call->api)->postgres[0], read_known_sections, look, &err))
		return api_refuse_database(call, &err);
	answer = deliver_list_json(call);
	json_object_set(answer, "known", look->rows);
	api_answer(call, 200, answer);
}

void api_deliver_list_forget(struct api_call *call)
{
	struct section_look *look = call->work;

	if (look)
		json_decref(look->rows);
	free(look);
}

/* Without `all` the list needs no database: it shows a sidecar whose database is away. */
void api_deliver_list_begin(struct api_call *call)
{
	static const char *const names[] = {"all"};
	struct section_look *look;
	bool all = false;

	if (!api_arguments_check(call, names, 1) || !api_argument_yes(call, "all", &all))
		return;
	if (!all || api_config(call->api)->postgres_count == 0) {
		json_t *answer = deliver_list_json(call);

		if (all)
			json_object_set_new(answer, "known", json_array());
		return api_answer(call, 200, answer);
	}
	look = xcalloc(1, sizeof *look);
	look->call = call;
	call->work = look;
	api_worker_run(call, run_section_look);
}

/* --- orders --------------------------------------------------------------------------------- */

struct section_order {
	json_t *body; /* which has the texts */
	const char *verb, *section, *reason;
	struct deliver *deliver; /* NULL: it does not run in this process */
	bool is_known;           /* the configuration of this process has it */
	/* results of an order in the database */
	bool changed;
	int64_t audit;
};

/* Until the section of this process has the order that was stored. */
enum { HEED_MS = 2000 };

static const struct {
	const char *verb, *audited;
} section_verbs[] = {
    {"pause", "deliver pause"},
    {"resume", "deliver resume"},
    {"reload_rules", "rules reload"},
};

/* NULL: there is no such verb. */
static const char *audited_verb(const char *verb)
{
	for (size_t i = 0; i < sizeof section_verbs / sizeof *section_verbs; i++)
		if (text_equal(section_verbs[i].verb, verb))
			return section_verbs[i].audited;
	return NULL;
}

static bool is_valid_order(struct api_call *call, const struct section_order *order)
{
	if (!audited_verb(order->verb))
		api_refuse(
		    call, 400, "bad_value", "verb is none of pause, resume and reload_rules");
	else if (!order->section)
		api_refuse(call, 400, "bad_value", "section names no [deliver] section");
	else
		return api_check_reason(call, order->reason);
	return false;
}

static void find_deliver_section(struct api_call *call, struct section_order *order)
{
	const struct config *config = api_config(call->api);

	for (int i = 0; i < config->deliver_count; i++)
		if (text_equal(config->delivers[i].name, order->section)) {
			order->deliver = api_deliver(call->api, i);
			order->is_known = true;
		}
}

static bool reloads_rules(const struct section_order *order)
{
	return text_equal(order->verb, "reload_rules");
}

/* Does the database keep the order? Otherwise it is one for this process. */
static bool is_for_all_processes(const struct api_call *call, const struct section_order *order)
{
	return !reloads_rules(order) && api_config(call->api)->postgres_count > 0;
}

static bool may_operate_section(struct api_call *call, struct section_order *order)
{
	if (!config_token_has_section(&call->caller->token, order->section)) {
		api_refuse_scope(call, "the section", order->section);
		return false;
	}
	find_deliver_section(call, order);
	if (order->deliver || is_for_all_processes(call, order))
		return true;
	api_refuse(call, 404, "not_found",
	    "no such [deliver] section runs in this process; send the order to the process that "
	    "runs it");
	return false;
}

static void log_section_order(const struct api_call *call, const struct section_order *order)
{
	log_info("deliver_operated", {"verb", LOG_TEXT(order->verb)},
	    {"section", LOG_TEXT(order->section)}, {"reason", LOG_TEXT(order->reason)},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"request", LOG_TEXT(call->request_id)});
}

/* False: the call was refused. */
static bool note_section_order(struct api_call *call, struct api_worker *worker, int64_t *ret_audit)
{
	const struct section_order *order = call->work;
	const struct api_audit audit = {.verb = audited_verb(order->verb),
	    .reason = order->reason,
	    .target = json_pack(
		"{s:s, s:s}", "section", order->section, "process", api_process(call->api))};

	log_section_order(call, order);
	return api_audit_note(call, worker, &audit, ret_audit);
}

static void reload_section_rules(struct api_call *call, struct api_worker *worker)
{
	const struct section_order *order = call->work;
	struct err err;
	int64_t audit;
	OWNED(owned_config_destroy)
	struct config *fresh = config_load(api_config(call->api)->path, &err);
	const struct config_deliver *section =
	    fresh ? config_find_deliver(fresh, order->section, &err) : NULL;

	if (!section)
		return api_refuse(call, 400, "bad_rules", "%s", err.message);
	if (!note_section_order(call, worker, &audit))
		return;
	if (!deliver_change_rules(order->deliver, section, &err))
		return api_refuse(call, 400, "bad_rules", "%s", err.message);
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:i, s:o}", "section", order->section, "source",
		api_process(call->api), "rules", section->rules.count, "audit",
		api_audit_id(audit)));
}

static bool pauses_section(const struct section_order *order)
{
	return text_equal(order->verb, "pause");
}

static void pause_in_process(struct api_call *call, struct api_worker *worker)
{
	const struct section_order *order = call->work;
	const bool pause = pauses_section(order);
	const bool changed = deliver_status(order->deliver).paused != pause;
	int64_t audit;

	if (!note_section_order(call, worker, &audit))
		return;
	deliver_pause(order->deliver, pause, "");
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:b, s:b, s:o}", "section", order->section, "source",
		api_process(call->api), "paused", pause, "changed", changed, "audit",
		api_audit_id(audit)));
}

struct section_change {
	struct api_call *call;
	struct section_order *order;
};

static bool store_section_order(struct pg *pg, void *context, struct err *err)
{
	const struct section_change *change = context;
	struct section_order *order = change->order;
	const struct pg_param params[] = {{order->section}, {pauses_section(order) ? "t" : "f"},
	    {order->is_known ? "t" : "f"}, {api_process(change->call->api)}, {order->reason},
	    {change->call->caller->token.name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row = database_query(
	    pg, &api_config(change->call->api)->postgres[0], sql_deliver_order, params, 6, err);

	if (!row)
		return false;
	order->changed = text_equal(pg_value(row, 0, 0), "t");
	order->audit = pg_int(row, 0, 1);
	return true;
}

static void pause_in_database(struct api_call *call, struct api_worker *worker)
{
	struct section_order *order = call->work;
	struct section_change change = {call, order};
	struct pause_watch *pauses = api_parts_of(call->api)->pauses;
	struct err err;

	if (!api_change(
		worker, &api_config(call->api)->postgres[0], store_section_order, &change, &err)) {
		if (err.kind == ERR_REJECT)
			api_refuse(call, 404, "not_found", "%s", err.message);
		else
			api_refuse_database(call, &err);
		return;
	}
	log_section_order(call, order);
	/* the next list of this process shows it */
	if (pauses)
		pause_watch_look(pauses, HEED_MS);
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:b, s:b, s:o}", "section", order->section, "source", "database",
		"paused", pauses_section(order), "changed", order->changed, "audit",
		api_audit_id(order->audit)));
}

static bool read_section_order(struct api_call *call, struct section_order *order)
{
	json_t *verb = NULL, *section = NULL, *reason = NULL;
	const struct api_member members[] = {
	    {"verb", 's', &verb}, {"section", 's', &section}, {"reason", 's', &reason}};

	if (!api_read_members(call, order->body, members, sizeof members / sizeof *members))
		return false;
	order->verb = json_string_value(verb);
	order->section = json_string_value(section);
	order->reason = json_string_value(reason);
	return is_valid_order(call, order);
}

void api_deliver_operate_begin(struct api_call *call)
{
	struct section_order *order = xcalloc(1, sizeof *order);

	call->work = order;
	order->body = api_read_order(call);
	if (order->body && read_section_order(call, order) && may_operate_section(call, order))
		api_worker_run(call, reloads_rules(order)                ? reload_section_rules
				     : is_for_all_processes(call, order) ? pause_in_database
									 : pause_in_process);
}

void api_deliver_operate_forget(struct api_call *call)
{
	struct section_order *order = call->work;

	json_decref(order->body);
	free(order);
}
