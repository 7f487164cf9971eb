/*
 * Any body of a request to the HTTP interface is answered once, with a status: the first byte says
 * which verb gets it. What lies behind the interface is played here: the broker acknowledges all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api_private.h"
#include "api_worker.h"
#include "cleanup.h"
#include "clock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static const struct config *config;
static struct route *route;
static struct api_caller caller = {.roles = ~0U}; /* it is not for bills */
static struct api_call *waiting;
static int parts;

static struct api_metrics metrics;
/* api_send.c counts messages and nothing else. */
static const struct metric_row rows[] = {
    {"messages", METRIC_COUNTER, METRIC_FIELD(struct api_metrics, messages), "Messages.",
	.labels = {{"verb", ""}, {"result", ""}}}};
static const struct metric_table table = {METRIC_ROWS_OF(rows)};

static const char ini[] =
    "[postgres]\ndsn = host=localhost\n[kafka]\nbootstrap.servers = localhost:1\n"
    "[check \"shop\"]\nurl = https://shop.example/\n"
    "[lookback \"orders\"]\ntypes = order, bill\ncheck = shop\n"
    "[token \"shop\"]\ntokens = 0123456789abcdef\nroles = send, operate, decide\ntypes = order\n";

/* --- what api.c and those behind it do ------------------------------------------------------- */

const char *api_process(const struct api *api)
{
	(void)api;
	return "fuzz";
}

const struct api_parts *api_parts_of(const struct api *api)
{
	static const struct api_parts nothing;

	(void)api;
	return &nothing;
}

const struct config *api_config(const struct api *api)
{
	(void)api;
	return config;
}

const struct route *api_route(const struct api *api)
{
	(void)api;
	return route;
}

const struct api_metrics *api_metrics(const struct api *api)
{
	(void)api;
	return &metrics;
}

struct api_sender *api_sender_of(const struct api *api, const struct kafka_settings *of)
{
	(void)api;
	return (void *)(uintptr_t)of;
}

struct api_database *api_database_of(const struct api *api, const struct postgres_settings *of)
{
	(void)api;
	return (void *)(uintptr_t)of;
}

struct deliver *api_deliver(const struct api *api, int place)
{
	(void)api;
	(void)place;
	return NULL;
}

void api_answer(struct api_call *call, unsigned status, json_t *value)
{
	require(value && call->status == 0 && status >= 200 && status < 600);
	char *text = json_dumps(value, JSON_COMPACT);
	require(text);
	free(text);
	call->status = status;
	json_decref(value);
}

void api_wait(struct api_call *call, int count)
{
	require(!waiting && count > 0);
	waiting = call;
	parts = count;
}

void api_part_done(struct api_call *call)
{
	require(waiting == call && parts > 0);
	parts--;
}

const char *api_argument(const struct api_call *call, const char *name)
{
	(void)call;
	(void)name;
	return NULL;
}

void api_sender_put(struct api_sender *sender, const struct api_record *record)
{
	const struct api_outcome outcome = {.partition = 1, .offset = 7};

	require(sender && record->topic && record->key && record->value);
	require(strlen(record->value) == record->length);
	record->done(record->context, &outcome);
	free(record->key);
	free(record->value);
}

int64_t api_database_payload_most(struct api_database *database)
{
	(void)database;
	return 1 << 20;
}

bool api_database_ask(struct api_database *database, struct api_question *question)
{
	require(database && question);
	return false; /* the database is busy */
}

/* One id of eight is taken by another prepare. */
bool api_database_claim(struct api_database *database, const unsigned char id[UUID_BYTES],
    const unsigned char digest[LOOKBACK_DIGEST])
{
	require(database && digest);
	return id[15] % 8 != 0;
}

void api_database_unclaim(struct api_database *database, const unsigned char id[UUID_BYTES])
{
	require(database && id);
}

void api_question_finish(struct api_question *question)
{
	for (int i = 0; i < question->param_count; i++)
		free(question->params[i]);
}

void api_preview_key(struct api *api, unsigned char ret_key[PREVIEW_KEY])
{
	(void)api;
	memset(ret_key, 7, PREVIEW_KEY);
}

/* The database of parked rows is away. */
bool api_worker_query(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*read)(struct pg *pg, void *context, struct err *err), void *context, struct err *err)
{
	(void)worker;
	require(postgres && read && context);
	return err_set(err, ERR_RETRY, "away");
}

bool api_worker_change(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*change)(struct pg *pg, void *context, struct err *err), void *context, struct err *err)
{
	return api_worker_query(worker, postgres, change, context, err);
}

void api_worker_run(
    struct api_call *call, void (*run)(struct api_call *call, struct api_worker *worker))
{
	run(call, NULL);
}

/* --- a call ---------------------------------------------------------------------------------- */

static void set_up(void)
{
	static char *const nothing[] = {NULL};
	struct err err;

	config = config_parse("relay.ini", ini, nothing, &err);
	require(config);
	route = route_create(config, &err);
	require(route);
	caller.token = config->tokens[0];
	metric_series_all(&table, NULL, &metrics, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct api_verb verbs[] = {
	    {.name = "prepare",
		.op = LOOKBACK_PREPARE,
		.begin = api_send_begin,
		.finish = api_send_finish,
		.forget = api_send_forget},
	    {.name = "commit",
		.op = LOOKBACK_COMMIT,
		.begin = api_send_begin,
		.finish = api_send_finish,
		.forget = api_send_forget},
	    {.name = "operate",
		.begin = api_operate_begin,
		.finish = api_operate_finish,
		.forget = api_look_forget},
	    {.name = "deliver",
		.begin = api_deliver_operate_begin,
		.forget = api_deliver_operate_forget},
	    {.name = "parked_preview",
		.begin = api_parked_preview_begin,
		.forget = api_parked_request_forget},
	    {.name = "parked_retry",
		.begin = api_parked_retry_begin,
		.forget = api_parked_request_forget},
	};
	struct api_call call = {.caller = &caller};

	if (!config)
		set_up();
	if (size < 1)
		return 0;
	call.verb = &verbs[data[0] % (sizeof verbs / sizeof *verbs)];
	text_append(&call.body, (const char *)data + 1, size - 1);
	waiting = NULL;
	call.verb->begin(&call);
	if (waiting) {
		require(parts == 0 && !call.status);
		call.verb->finish(&call);
	}
	require(call.status);
	if (call.work)
		call.verb->forget(&call);
	text_finish(&call.body);
	return 0;
}
