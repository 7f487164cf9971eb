/*
 * Shows the publishers of every database of the configuration, or one publisher, with the shards
 * and the lag that `outbox-relay status` shows. [JSON] makes the answer from the results of [the
 * questions], which [the calls] begin.
 */
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "logging.h"
#include "status_json.h"

/* Rows that are counted one by one: a page of a browser asks every few seconds. */
enum { COUNTED = 10000 };

/* --- JSON ------------------------------------------------------------------------------------ */

static const struct status_parked *parked_of(
    const struct status_postgres *database, const char *publisher)
{
	for (int i = 0; i < database->parked_count; i++)
		if (text_equal(database->parked[i].publisher, publisher))
			return &database->parked[i];
	return NULL;
}

static json_t *publisher_shards_json(const struct status_postgres *database, const char *publisher)
{
	json_t *list = json_array();

	for (int i = 0; i < database->shard_count; i++)
		if (text_equal(database->shards[i].publisher, publisher))
			json_array_append_new(list, status_shard_json(&database->shards[i]));
	return list;
}

/* A part that could not be read is null. */
static json_t *publisher_json(
    const struct config *config, const struct status_postgres *database, const char *publisher)
{
	const struct status_parked *parked = parked_of(database, publisher);
	const struct status_scheduled *scheduled = status_scheduled_of(database, publisher);
	const struct config_publisher *section = config_find_publisher(config, publisher);
	json_t *object = json_object();

	json_object_set_new(object, "name", json_string(publisher));
	json_object_set_new(object, "postgres", json_string(database->section->name));
	json_object_set_new(object, "configured",
	    json_boolean(section && section->settings.postgres == database->section));
	json_object_set_new(object, "source", json_string("database"));
	json_object_set_new(object, "shards",
	    database->shards ? publisher_shards_json(database, publisher) : json_null());
	json_object_set_new(object, "parked", parked ? status_parked_json(parked) : json_null());
	json_object_set_new(
	    object, "scheduled", scheduled ? status_scheduled_json(scheduled) : json_null());
	return object;
}

/* The list of parked rows has every publisher; without it, only those with shards are known. */
static void add_publishers(
    const struct api_call *call, json_t *list, const struct status_postgres *database)
{
	const struct config *config = api_config(call->api);
	const char *last = "";

	for (int i = 0; i < database->parked_count; i++) {
		const char *name = database->parked[i].publisher;

		if (api_may_see_publisher(call, name))
			json_array_append_new(list, publisher_json(config, database, name));
	}
	for (int i = 0; !database->parked && i < database->shard_count; i++) {
		const char *name = database->shards[i].publisher;

		/* the shards are sorted by publisher */
		if (!text_equal(name, last) && api_may_see_publisher(call, name))
			json_array_append_new(list, publisher_json(config, database, name));
		last = name;
	}
}

json_t *api_postgres_json(const struct status_postgres *database, const char *error)
{
	return json_pack("{s:s, s:s?, s:o}", "name", database->section->name, "error", error,
	    "unknown", status_lines_json(text_string(&database->unknown)));
}

/* --- the questions --------------------------------------------------------------------------- */

static bool read_publishers(struct pg *pg, void *context, struct err *err)
{
	struct status_postgres *database = context;
	const struct status_postgres asked = {.section = database->section,
	    .publisher = database->publisher,
	    .count_bound = database->count_bound};

	if (status_publishers_take(pg, database, err))
		return true;
	status_postgres_finish(database);
	*database = asked;
	return false;
}

static void run_publishers(struct api_call *call, struct api_worker *worker)
{
	const struct config *config = api_config(call->api);
	json_t *databases = json_array(), *publishers = json_array();
	struct err err;
	int answered = 0;

	for (int i = 0; i < config->postgres_count; i++) {
		OWNED(status_postgres_finish)
		struct status_postgres database = {
		    .section = &config->postgres[i], .count_bound = COUNTED};
		bool done =
		    api_worker_query(worker, database.section, read_publishers, &database, &err);

		answered += done;
		if (done)
			add_publishers(call, publishers, &database);
		else
			api_log_database_error(call, &err);
		json_array_append_new(
		    databases, api_postgres_json(&database, done ? NULL : API_DATABASE_AWAY));
	}

	/* one database that is away does not hide the others */
	if (answered > 0)
		return api_answer(call, 200,
		    json_pack("{s:o, s:o}", "postgres", databases, "publishers", publishers));
	json_decref(databases);
	json_decref(publishers);
	api_refuse_database(call, &err);
}

static void run_publisher(struct api_call *call, struct api_worker *worker)
{
	const struct config *config = api_config(call->api);
	const struct publisher_settings *publisher =
	    &config_find_publisher(config, call->rest)->settings;
	OWNED(status_postgres_finish)
	struct status_postgres database = {
	    .section = publisher->postgres, .publisher = publisher->name, .count_bound = COUNTED};
	struct err err;
	json_t *answer;

	if (!api_worker_query(worker, database.section, read_publishers, &database, &err))
		return api_refuse_database(call, &err);
	if (database.parked && !parked_of(&database, publisher->name))
		return api_refuse(call, 404, "unknown_publisher",
		    "the database has no publisher %s: run `outbox-relay publisher create %s`",
		    publisher->name, publisher->name);

	answer = publisher_json(config, &database, publisher->name);
	json_object_set_new(answer, "unknown", status_lines_json(text_string(&database.unknown)));
	api_answer(call, 200, answer);
}

/* --- the calls ------------------------------------------------------------------------------- */

void api_publishers_begin(struct api_call *call)
{
	if (api_arguments_check(call, NULL, 0))
		api_worker_run(call, run_publishers);
}

void api_publisher_begin(struct api_call *call)
{
	if (api_arguments_check(call, NULL, 0) && api_named_publisher(call, call->rest))
		api_worker_run(call, run_publisher);
}
