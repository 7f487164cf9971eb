/* Shows an id: one question to the database of the section that has the type. */
#include <inttypes.h>
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "cleanup.h"
#include "clock.h"
#include "sql_files.h"

/* --- the question ---------------------------------------------------------------------------- */

static void on_question_done(void *context)
{
	api_part_done(context);
}

void api_look_ask(struct api_call *call, const struct postgres_settings *postgres, const char *sql,
    struct api_question *question)
{
	question->sql = sql;
	question->give_up_ms = clock_ms() + API_ASK_MS;
	question->done = on_question_done;
	question->context = call;
	call->work = question;
	api_wait(call, 1);
	/* From here on the call belongs to the thread of the database. */
	if (api_database_ask(api_database_of(call->api, postgres), question))
		return;
	err_set(&question->err, ERR_RETRY, "too many questions wait for the database");
	api_part_done(call);
}

void api_log_database_error(const struct api_call *call, const struct err *err)
{
	log_warn("api_question_failed", {"verb", LOG_TEXT(call->verb->name)},
	    {"request", LOG_TEXT(call->request_id)}, {"error", LOG_TEXT(err->message)},
	    {"consequence", LOG_TEXT("the request is answered with an error")});
}

void api_refuse_database(struct api_call *call, const struct err *err)
{
	api_log_database_error(call, err);
	if (err->kind == ERR_RETRY && err->contended)
		api_refuse(call, 409, "locked",
		    "another session of the database holds a lock that the request needs; try "
		    "again");
	else if (err->kind == ERR_RETRY)
		api_refuse(call, 503, "no_database", API_DATABASE_AWAY ". Then try again.");
	else
		api_refuse(call, 500, "database_error",
		    "the database refused the query; the log of the relay says why");
}

/* Passes the JSON of the database on unchanged: our own function made it. */
void api_look_finish(struct api_call *call)
{
	const struct api_question *question = call->work;

	if (!question->well)
		api_refuse_database(call, &question->err);
	else if (!question->json)
		api_refuse(call, 404, "not_found",
		    "nothing is stored about the id %.200s, or no longer: compare its spelling "
		    "with "
		    "that of the application",
		    question->params[1]);
	else
		api_answer(call, 200, json_loads(question->json, 0, NULL));
}

void api_look_forget(struct api_call *call)
{
	api_question_finish(call->work);
	free(call->work);
}

/* --- an id ----------------------------------------------------------------------------------- */

static void refuse_type(struct api_call *call, const char *type)
{
	api_refuse(call, 404, "unknown_type",
	    "no [lookback] section has the business type %.100s: correct it, or add it to the "
	    "types "
	    "of a section",
	    type);
}

/* The rest of the path is {type}/{id}; an id may have slashes. */
void api_show_begin(struct api_call *call)
{
	const char *slash = strchr(call->rest, '/');
	owned_text char *type = xformat("%.*s", (int)(slash - call->rest), call->rest);
	static const char *const names[] = {"postgres"};
	const struct postgres_settings *postgres;
	struct api_question *question;

	if (!api_arguments_check(call, names, 1))
		return;
	postgres = api_look_postgres(call, api_argument(call, "postgres"), type, NULL);
	if (!postgres)
		return;
	if (!text_is_utf8(slash + 1, strlen(slash + 1)))
		return api_refuse(call, 400, "bad_value", "the id is not UTF-8");
	question = xcalloc(1, sizeof *question);
	question->params[0] = xstrdup(type);
	question->params[1] = xstrdup(slash + 1);
	question->param_count = 2;
	api_look_ask(call, postgres, sql_api_lookback_show, question);
}

/* --- which database --------------------------------------------------------------------------- */

static const struct config_lookback *section_of(const struct api_call *call, const char *name)
{
	const struct config *config = api_config(call->api);

	for (int i = 0; i < config->lookback_count; i++)
		if (text_equal(config->lookbacks[i].name, name))
			return &config->lookbacks[i];
	return NULL;
}

/* The only database; NULL: there are several, or none. */
static const struct postgres_settings *only_postgres(const struct config *config)
{
	const struct postgres_settings *found = NULL;

	for (int i = 0; i < config->lookback_count; i++) {
		if (found && config->lookbacks[i].postgres != found)
			return NULL;
		found = config->lookbacks[i].postgres;
	}
	return found;
}

/* Without a name the request is about all sections and types. */
static bool is_in_scope(
    struct api_call *call, const struct config_lookback *found, const char *type)
{
	if (config_token_has_type(&call->caller->token, found ? found->name : NULL, type))
		return true;
	if (found)
		api_refuse_scope(call, type ? "the business type" : "all of the section",
		    type ? type : found->name);
	else
		api_refuse_scope(call, "all ids", "of the database: name a type or a section");
	return false;
}

static const struct postgres_settings *postgres_of_look(
    struct api_call *call, const char *type, const char *section)
{
	const struct config_lookback *found = NULL;
	const struct postgres_settings *postgres = only_postgres(api_config(call->api));

	if (section && !(found = section_of(call, section))) {
		api_refuse(call, 404, "unknown_section",
		    "section: the configuration has no [lookback \"%.60s\"]", section);
		return NULL;
	}
	/* A type has one section, and so one database. */
	if (type && !(found = route_section(api_route(call->api), type))) {
		refuse_type(call, type);
		return NULL;
	}
	if (found)
		return is_in_scope(call, found, type) ? found->postgres : NULL;
	if (!is_in_scope(call, NULL, NULL))
		return NULL;
	if (!postgres)
		api_refuse(call, 400, "several_databases",
		    "the [lookback] sections have several databases: name a type, a section or "
		    "postgres");
	return postgres;
}

/* Only databases of [lookback] sections take questions. NULL: refused. */
static const struct postgres_settings *named_look_postgres(struct api_call *call, const char *name)
{
	const struct postgres_settings *named = api_named_postgres(call, name);

	if (!named || api_database_of(call->api, named))
		return named;
	api_refuse(call, 404, "unknown_section",
	    "no [lookback] section is in the database of [postgres \"%.60s\"]", name);
	return NULL;
}

const struct postgres_settings *api_look_postgres(
    struct api_call *call, const char *postgres, const char *type, const char *section)
{
	const struct postgres_settings *named, *found;

	/* It may keep ids of types and sections that this configuration does not have. */
	if (postgres && !api_is_limited(call))
		return named_look_postgres(call, postgres);
	found = postgres_of_look(call, type, section);
	if (!found || !postgres)
		return found;

	named = named_look_postgres(call, postgres);
	if (named && named != found)
		api_refuse_scope(call, "the database", postgres);
	return named == found ? found : NULL;
}
