#include "api.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "api_private.h"
#include "cleanup.h"
#include "clock.h"
#include "logging.h"
#include "metrics.h"
#include "server.h"

enum {
	WORKERS = 4,
	CONNECTIONS = 1024,
	HEAD_MS = 10000,
	IDLE_MS = 30000,
	ANSWER_MS = 30000,
	BODIES = 64 << 20,
	STOP_MS = API_SEND_MS + 1000,
	LEAVE_MS = 2000, /* for answers on their way */
	RETRY_AFTER_S = 1,
};

static const double seconds[] = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, INFINITY};
static const struct metric_family requests = {.name = "relay_api_requests_total",
    .type = METRIC_COUNTER,
    .help = "Requests of the HTTP interface by their HTTP status; 499: the client went away.",
    .labels = {"verb", "code"}};
static const struct metric_family duration = {.name = "relay_api_duration_seconds",
    .type = METRIC_HISTOGRAM,
    .help = "From a request's head to its answer.",
    .labels = {"verb"},
    .buckets = seconds};

static const struct metric_family wrong_tokens = {.name = "relay_api_wrong_tokens_total",
    .type = METRIC_COUNTER,
    .help = "Requests with a token that nobody has."};

struct api {
	const struct config *config;
	struct route *route;
	struct api_auth *auth;
	struct api_sender **senders;     /* as config->kafka; NULL: no look-back there */
	struct api_desk **desks;         /* as config->postgres */
	struct deliver *const *delivers; /* as config->delivers; NULL: none runs here */
	struct server *server;
	char *address;
	atomic_llong held; /* bytes of bodies */
	pthread_mutex_t mutex;
	pthread_cond_t answered;
	/* guarded by the mutex */
	int open; /* calls whose request is there, and their answers not out */
	bool ending;
};

static const struct api_verb verbs[] = {
    {"prepare", "POST", "/v1/lookback/prepare", API_SEND, LOOKBACK_PREPARE, api_send_begin,
	api_send_finish, api_send_forget},
    {"commit", "POST", "/v1/lookback/commit", API_SEND, LOOKBACK_COMMIT, api_send_begin,
	api_send_finish, api_send_forget},
    {"rollback", "POST", "/v1/lookback/rollback", API_SEND, LOOKBACK_ROLLBACK, api_send_begin,
	api_send_finish, api_send_forget},
    {"operate", "POST", "/v1/lookback/operate", API_OPERATE, 0, api_operate_begin,
	api_operate_finish, api_look_forget},
    {"list", "GET", "/v1/lookback", API_READ | API_OPERATE, 0, api_list_begin, api_look_finish,
	api_look_forget},
    {"deliver_list", "GET", "/v1/deliver", API_READ | API_OPERATE, 0, api_deliver_list_begin, NULL,
	NULL},
    {"deliver_operate", "POST", "/v1/deliver/operate", API_OPERATE, 0, api_deliver_operate_begin,
	NULL, NULL},
    /* of any path behind, that has a type and an id */
    {"show", "GET", "/v1/lookback/", API_READ | API_OPERATE, 0, api_show_begin, api_look_finish,
	api_look_forget},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* --- for the files of the verbs -------------------------------------------------------------- */

const struct config *api_config(const struct api *api)
{
	return api->config;
}

const struct route *api_route(const struct api *api)
{
	return api->route;
}

struct api_sender *api_sender_of(const struct api *api, const struct config_kafka *kafka)
{
	return api->senders[kafka - api->config->kafka];
}

struct api_desk *api_desk_of(const struct api *api, const struct config_postgres *postgres)
{
	return api->desks[postgres - api->config->postgres];
}

struct deliver *api_deliver(const struct api *api, int place)
{
	return api->delivers ? api->delivers[place] : NULL;
}

void api_answer(struct api_call *call, unsigned status, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT);

	call->status = status;
	text_clear(&call->answer);
	text_addf(&call->answer, "%s\n", text ? text : "{}");
	free(text);
	json_decref(value);
}

json_t *api_text(const char *text)
{
	json_t *json = NULL;

	for (size_t length = strlen(text); !json; length--)
		json = json_stringn(text, length); /* an empty one is always taken */
	return json;
}

void api_refuse(struct api_call *call, unsigned status, const char *code, const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	api_answer(call, status, json_pack("{s:s, s:o}", "code", code, "error", api_text(text)));
}

void api_wait(struct api_call *call, int parts)
{
	/* One more is on_work's own, so that the call outlives the verb that hands it over. */
	atomic_store(&call->left, parts + 1);
}

void api_part_done(struct api_call *call)
{
	struct server_request *request = call->request;

	if (atomic_fetch_sub(&call->left, 1) == 1)
		server_work(request);
}

const char *api_argument(const struct api_call *call, const char *name)
{
	return request_head_argument(call->head, name);
}

/* --- a request comes ------------------------------------------------------------------------- */

/* The row of the path; several rows have one path never. */
static const struct api_verb *find_verb(const char *path)
{
	const struct api_verb *show = &verbs[VERBS - 1];
	const char *rest, *slash;

	for (int i = 0; i < VERBS - 1; i++)
		if (text_equal(verbs[i].path, path))
			return &verbs[i];
	if (!text_starts(path, show->path))
		return NULL;
	rest = path + strlen(show->path);
	slash = strchr(rest, '/');
	return slash && slash > rest && slash[1] ? show : NULL;
}

static bool is_method(const struct api_verb *verb, const char *method)
{
	return text_equal(verb->method, method) ||
	       (text_equal(verb->method, "GET") && text_equal(method, "HEAD"));
}

static const char *header(const struct api_call *call, const char *name)
{
	return request_head_field(call->head, name);
}

/* The client's own if it is a plain one. */
static void name_request(struct api_call *call)
{
	const char *given = header(call, "X-Request-Id");
	size_t length = given ? strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					      "0123456789._-")
			      : 0;

	if (length > 0 && given[length] == '\0' && length < sizeof call->request_id)
		text_copy(call->request_id, sizeof call->request_id, given);
	else
		snprintf(call->request_id, sizeof call->request_id, "%016" PRIx64,
		    (uint64_t)clock_random());
}

/* "application/json", with parameters or without. */
static bool is_json(const char *type)
{
	static const char wanted[] = "application/json";

	return type && strncasecmp(type, wanted, strlen(wanted)) == 0 &&
	       (type[strlen(wanted)] == '\0' || strchr("; \t", type[strlen(wanted)]));
}

static void refuse_size(struct api_call *call)
{
	api_refuse(call, 413, "too_large", "the body has more than %" PRId64 " bytes",
	    call->api->config->api.max_body);
}

static void judge_body(struct api_call *call)
{
	const char *coding = header(call, "Content-Encoding");
	const char *length = header(call, "Content-Length");
	int64_t bytes;

	if (!is_json(header(call, "Content-Type")))
		api_refuse(call, 415, "unsupported_media_type",
		    "the body is to be Content-Type: application/json");
	else if (coding && strcasecmp(coding, "identity") != 0)
		api_refuse(call, 415, "unsupported_media_type", "the body is not to be encoded");
	else if (length && !text_to_int64(length, 0, call->api->config->api.max_body, &bytes))
		refuse_size(call);
}

/* Somebody may guess: each wrong token makes the next answer to its address later. */
static void refuse_token(struct api_call *call)
{
	api_refuse(call, 401, "unauthorized", "a token is needed, as in Authorization: Bearer …");
	if (!api_auth_has_token(header(call, "Authorization")))
		return;
	metric_add(metric_series(&wrong_tokens, NULL), 1);
	call->delay_ms = server_note_wrong_token(call->request);
}

/* By its head alone. */
static void judge_head(struct api_call *call, const char *method)
{
	unsigned roles;

	if (!call->verb)
		return api_refuse(call, 404, "not_found", "there is no such path");
	if (!is_method(call->verb, method))
		return api_refuse(
		    call, 405, "method_not_allowed", "this path takes %s", call->verb->method);
	roles = api_auth_roles(call->api->auth, header(call, "Authorization"));
	if (!roles)
		return refuse_token(call);
	if (!(roles & call->verb->roles))
		return api_refuse(
		    call, 403, "forbidden", "this token is not for %s", call->verb->name);
	if (text_equal(call->verb->method, "POST"))
		judge_body(call);
}

static struct api_call *call_create(
    struct api *api, struct server_request *request, const struct request_head *head)
{
	struct api_call *call = xcalloc(1, sizeof *call);

	call->api = api;
	call->request = request;
	call->head = head;
	call->begun_us = clock_us();
	call->verb = find_verb(head->path);
	call->rest = xstrdup(call->verb ? head->path + strlen(call->verb->path) : "");
	name_request(call);
	judge_head(call, head->method);
	return call;
}

static void drop_body(struct api_call *call)
{
	atomic_fetch_sub(&call->api->held, call->held);
	call->held = 0;
	text_finish(&call->body);
	call->body = (struct text){0};
}

/* Room for what comes beside what others sent. */
static bool hold(struct api_call *call, int64_t bytes)
{
	int64_t most = 2 * call->api->config->api.max_body;

	if (most < BODIES)
		most = BODIES;
	call->held += bytes;
	return atomic_fetch_add(&call->api->held, bytes) + bytes <= most;
}

/* --- and is answered ------------------------------------------------------------------------- */

/* The call may be gone when it returns. */
static void respond(struct api_call *call)
{
	OWNED(text_finish) struct text fields = {0};
	struct server_answer answer = {.status = call->status,
	    .type = "application/json",
	    .body = &call->answer,
	    .delay_ms = call->delay_ms};

	text_addf(&fields, "X-Request-Id: %s\r\n", call->request_id);
	if (call->status == 401)
		text_add(&fields, "WWW-Authenticate: Bearer\r\n");
	if (call->status == 405)
		text_addf(&fields, "Allow: %s\r\n",
		    text_equal(call->verb->method, "GET") ? "GET, HEAD" : call->verb->method);
	if (call->status == 503)
		text_addf(&fields, "Retry-After: %d\r\n", RETRY_AFTER_S);
	answer.fields = text_string(&fields);
	server_answer(call->request, &answer);
}

static void *on_head(void *context, struct server_request *request, const struct request_head *head)
{
	struct api_call *call = call_create(context, request, head);

	if (call->status)
		respond(call);
	return call;
}

static void on_body(void *context, const char *bytes, size_t length)
{
	struct api_call *call = context;

	call->taken += (int64_t)length;
	if (call->status)
		return;
	if (call->taken > call->api->config->api.max_body)
		refuse_size(call);
	else if (!hold(call, (int64_t)length))
		api_refuse(call, 503, "busy", "too many bodies at once");
	else
		text_append(&call->body, bytes, length);
	if (!call->status)
		return;
	drop_body(call);
	respond(call);
}

static void begin(struct api_call *call)
{
	struct api *api = call->api;
	bool ending;

	call->is_whole = true;
	pthread_mutex_lock(&api->mutex);
	api->open++;
	ending = api->ending;
	pthread_mutex_unlock(&api->mutex);
	if (ending)
		api_refuse(call, 503, "ending", "the relay ends; another one may be there already");
	else
		call->verb->begin(call);
}

static void on_work(void *context)
{
	struct api_call *call = context;

	if (!call->is_whole) {
		begin(call);
		/* The verb handed it over: it comes back when the last part is there. */
		if (atomic_load(&call->left) > 0)
			return api_part_done(call);
	}
	if (!call->status)
		call->verb->finish(call);
	respond(call);
}

static void count_call(const struct api_call *call, bool was_read)
{
	const char *verb = call->verb ? call->verb->name : "none";
	owned_text char *code = xformat("%u", was_read && call->status ? call->status : 499);
	const char *const labels[] = {verb, code};
	double took = (double)(clock_us() - call->begun_us) / 1e6;

	metric_add(metric_series(&requests, labels), 1);
	metric_observe(metric_series(&duration, labels), took, 1);
	log_debug("api_request", {"verb", LOG_TEXT(verb)}, {"status", LOG_INT(call->status)},
	    {"request", LOG_TEXT(call->request_id)}, {"us", LOG_INT((int64_t)(took * 1e6))});
}

static void on_end(void *context, bool was_sent)
{
	struct api_call *call = context;
	struct api *api = call->api;

	count_call(call, was_sent);
	if (call->work)
		call->verb->forget(call);
	drop_body(call);
	if (call->is_whole) {
		pthread_mutex_lock(&api->mutex);
		api->open--;
		pthread_cond_signal(&api->answered);
		pthread_mutex_unlock(&api->mutex);
	}
	text_finish(&call->answer);
	free(call->rest);
	free(call);
}

/* --- start ----------------------------------------------------------------------------------- */

static bool start_section(struct api *api, const struct config_lookback *section,
    struct catalog *const *catalogs, struct err *err)
{
	ptrdiff_t kafka = section->kafka - api->config->kafka;
	ptrdiff_t postgres = section->postgres - api->config->postgres;

	if (!api->senders[kafka])
		api->senders[kafka] = api_sender_start(section->kafka, catalogs[kafka], err);
	if (api->senders[kafka] && !api->desks[postgres])
		api->desks[postgres] = api_desk_start(section->postgres, err);
	return api->senders[kafka] && api->desks[postgres];
}

static bool start_server(struct api *api, struct listener *listener, struct err *err)
{
	const struct config_api *config = &api->config->api;
	const struct server_settings settings = {.section = "api",
	    .listen = config->listen,
	    .hosts = &config->host,
	    .workers = WORKERS,
	    .connections = CONNECTIONS,
	    .head_ms = config->arrival_ms < HEAD_MS ? config->arrival_ms : HEAD_MS,
	    .request_ms = config->arrival_ms,
	    .idle_ms = IDLE_MS,
	    .answer_ms = ANSWER_MS,
	    .discards = 2 * config->max_body,
	    .says_json = true,
	    .callbacks = {on_head, on_body, on_work, on_end},
	    .context = api};

	api->address = listener->address;
	api->server = server_start(listener->fd, &settings, err);
	*listener = (struct listener){.fd = -1};
	return api->server != NULL;
}

static struct api *create(const struct config *config)
{
	struct api *api = xcalloc(1, sizeof *api);
	pthread_condattr_t attributes;

	api->config = config;
	api->auth = api_auth_create(&config->api);
	metric_add(metric_series(&wrong_tokens, NULL), 0);
	api->senders = xcalloc((size_t)config->kafka_count, sizeof(void *));
	api->desks = xcalloc((size_t)config->postgres_count, sizeof(void *));
	pthread_mutex_init(&api->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&api->answered, &attributes);
	pthread_condattr_destroy(&attributes);
	return api;
}

struct api *api_start(struct listener *listener, const struct config *config,
    struct catalog *const *catalogs, struct deliver *const *delivers, struct err *err)
{
	struct api *api = create(config);

	api->delivers = delivers;
	api->route = route_create(config, err);
	if (!api->route)
		goto fail;
	for (int i = 0; i < config->lookback_count; i++)
		if (!start_section(api, &config->lookbacks[i], catalogs, err))
			goto fail;
	if (!start_server(api, listener, err))
		goto fail;
	return api;
fail:
	api_stop(api);
	return NULL;
}

const char *api_address(const struct api *api)
{
	return api->address;
}

/* --- stop ------------------------------------------------------------------------------------ */

static void wait_for_answers(struct api *api, int64_t ms)
{
	struct timespec until;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	pthread_mutex_lock(&api->mutex);
	api->ending = true;
	while (api->open > 0 && error == 0)
		error = pthread_cond_timedwait(&api->answered, &api->mutex, &until);
	pthread_mutex_unlock(&api->mutex);
}

static void stop_others(struct api *api)
{
	for (int i = 0; i < api->config->kafka_count; i++)
		api_sender_stop(api->senders[i]);
	for (int i = 0; i < api->config->postgres_count; i++)
		api_desk_stop(api->desks[i]);
}

/* The senders' and the desks' last answers are out before the server, which may not hold resting
 * calls, ends. */
static void stop_server(struct api *api)
{
	server_quiesce(api->server);
	wait_for_answers(api, STOP_MS);
	stop_others(api);
	wait_for_answers(api, LEAVE_MS);
	server_stop(api->server);
}

void api_stop(struct api *api)
{
	if (!api)
		return;
	if (api->server)
		stop_server(api);
	else
		stop_others(api);
	free(api->senders);
	free(api->desks);
	free(api->address);
	api_auth_destroy(api->auth);
	route_destroy(api->route);
	pthread_cond_destroy(&api->answered);
	pthread_mutex_destroy(&api->mutex);
	free(api);
}
