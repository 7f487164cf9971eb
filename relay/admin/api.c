/*
 * The HTTP interface on libmicrohttpd. [a request comes] checks a request before its body is read;
 * [and is answered] runs its verb, waits for its parts, and answers. [start] and [stop] build and
 * end it; the calls at the top serve the files of the verbs.
 */
#include "api.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "api_export.h"
#include "api_private.h"
#include "api_session.h"
#include "api_watch.h"
#include "api_worker.h"
#include "cleanup.h"
#include "clock.h"
#include "gate.h"
#include "logging.h"
#include "metrics.h"

enum {
	SERVERS = 8,
	CONNECTIONS = 1024,
	HEAD_MS = 10000,
	ANSWER_MS = 30000,
	BODIES = 64 << 20,
	STOP_MS = API_SEND_MS + 1000,
	LEAVE_MS = 2000,  /* for answers on their way */
	OPEN_BODY = 4096, /* bytes of a login: nobody knows its caller yet */
	RETRY_AFTER_S = 1,
	WORKERS = 4,
	MOST_WAITING = 64,
	READERS = 2, /* of Kafka; each call takes seconds at most, and so does waiting for one */
	MOST_WAITING_READS = 2,
};

static const double seconds[] = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, INFINITY};

#define SERIES(member) METRIC_FIELD(struct api_metrics, member)
#define VERB "verb", "operationId of openapi.json; `none` for an unknown path"

static const struct metric_row api_rows[] = {
    {"relay_api_requests_total", METRIC_COUNTER, SERIES(requests),
	"Requests, by the HTTP status of the answer.",
	.labels = {{VERB}, {"code", "the HTTP status; `499` when the client disconnected"}}},
    {"relay_api_duration_seconds", METRIC_HISTOGRAM, SERIES(duration),
	"Time from the head of a request to its answer.", .labels = {{VERB}}, .buckets = seconds},
    {"relay_api_messages_total", METRIC_COUNTER, SERIES(messages),
	"Messages received, by their result.",
	.labels = {{"verb", "`prepare`, `commit`, `rollback`"},
	    {"result", "`acknowledged`, or the code of the refusal"}}},
    {"relay_api_wrong_tokens_total", METRIC_COUNTER, SERIES(wrong_tokens),
	"Requests with an unknown token.",
	.alert = "it rises quickly: somebody is guessing tokens"},
};

const struct metric_table api_metric_table = {
    .title = "HTTP interface",
    .about = "Requests to [the HTTP interface](api.md).",
    METRIC_ROWS_OF(api_rows),
};

struct api {
	struct api_parts parts;
	int64_t started_us;          /* since 1970 */
	const struct config *config; /* of the parts */
	struct route *route;
	struct api_auth *auth;
	struct api_sender **senders;     /* as config->kafka; NULL: no look-back there */
	struct api_database **databases; /* as config->postgres */
	struct api_workers *workers, *readers;
	struct api_watch *watch;
	struct gate *gate;
	struct api_metrics metrics;
	char *address;
	struct config_list hosts; /* names of requests, besides those of listen */
	atomic_llong held;        /* bytes of bodies */
	pthread_mutex_t mutex;
	pthread_cond_t answered;
	/* guarded by the mutex */
	int open; /* calls whose request has arrived and whose answer is not out */
	bool ending;
	unsigned char preview_key[PREVIEW_KEY];
	struct api_preflight preflight;
};

static const struct api_verb verbs[] = {
    {"prepare", "POST", "/v1/lookback/prepare", ROLE_SEND, LOOKBACK_PREPARE, api_send_begin,
	api_send_finish, api_send_forget},
    {"commit", "POST", "/v1/lookback/commit", ROLE_SEND, LOOKBACK_COMMIT, api_send_begin,
	api_send_finish, api_send_forget},
    {"rollback", "POST", "/v1/lookback/rollback", ROLE_SEND, LOOKBACK_ROLLBACK, api_send_begin,
	api_send_finish, api_send_forget},
    {"operate", "POST", "/v1/lookback/operate", ROLE_OPERATE | ROLE_DECIDE, 0, api_operate_begin,
	api_operate_finish, api_look_forget},
    {"lookback_preview", "POST", "/v1/lookback/preview", ROLE_OPERATE | ROLE_DECIDE, 0,
	api_lookback_preview_begin, api_lookback_preview_finish, api_look_forget},
    {"list", "GET", "/v1/lookback", ROLE_READ, 0, api_list_begin, NULL, api_list_forget},
    {"deliver_list", "GET", "/v1/deliver", ROLE_READ, 0, api_deliver_list_begin, NULL,
	api_deliver_list_forget},
    {"deliver_operate", "POST", "/v1/deliver/operate", ROLE_OPERATE, 0, api_deliver_operate_begin,
	NULL, api_deliver_operate_forget},
    {"parked", "GET", "/v1/parked", ROLE_READ, 0, api_parked_begin, NULL, api_parked_forget},
    {"parked_show", "GET", "/v1/parked/", ROLE_READ, 0, api_parked_show_begin, NULL,
	api_parked_show_forget, .names = 1},
    {"dedup", "GET", "/v1/dedup", ROLE_READ, 0, api_dedup_begin, NULL, NULL},
    {"preflight", "GET", "/v1/preflight", ROLE_READ, 0, api_preflight_begin, NULL,
	api_preflight_forget},
    {"overview", "GET", "/v1/overview", ROLE_READ, 0, api_overview_begin, NULL, NULL},
    {"series", "GET", "/v1/series", ROLE_READ, 0, api_series_begin, NULL, NULL},
    {"events", "GET", "/v1/events", ROLE_READ, 0, api_events_begin, NULL, api_events_forget},
    {"scheduled", "GET", "/v1/scheduled", ROLE_READ, 0, api_scheduled_begin, NULL,
	api_scheduled_forget},
    {"dead_letters", "GET", "/v1/dead-letters", ROLE_READ, 0, api_dead_letters_begin, NULL,
	api_dead_letters_forget},
    {"redrive_preview", "POST", "/v1/dead-letters/preview", ROLE_OPERATE, 0,
	api_redrive_preview_begin, NULL, api_dead_letters_forget},
    {"redrive", "POST", "/v1/dead-letters/redrive", ROLE_OPERATE, 0, api_redrive_begin, NULL,
	api_dead_letters_forget},
    {"messages", "GET", "/v1/messages", ROLE_READ, 0, api_messages_begin, NULL,
	api_messages_forget},
    {"jobs", "GET", "/v1/jobs", ROLE_READ, 0, api_jobs_begin, NULL, api_jobs_forget},
    {"replays", "GET", "/v1/replays", ROLE_READ, 0, api_replays_begin, NULL, api_jobs_forget},
    {"replay_preview", "POST", "/v1/replays/preview", ROLE_OPERATE, 0, api_replay_preview_begin,
	NULL, api_replay_forget},
    {"replay", "POST", "/v1/replays", ROLE_OPERATE, 0, api_replay_begin, NULL, api_replay_forget},
    {"verification", "POST", "/v1/verifications", ROLE_OPERATE, 0, api_verification_begin, NULL,
	api_verification_forget},
    {"job", "GET", "/v1/jobs/", ROLE_READ, 0, api_job_begin, NULL, api_jobs_forget, .names = 1},
    {"job_cancel", "POST", "/v1/jobs/", ROLE_OPERATE | ROLE_DECIDE, 0, api_job_cancel_begin, NULL,
	api_jobs_forget, .names = 1, .tail = "/cancel"},
    {"job_resume", "POST", "/v1/jobs/", ROLE_OPERATE | ROLE_DECIDE, 0, api_job_resume_begin, NULL,
	api_jobs_forget, .names = 1, .tail = "/resume"},
    {"audit", "GET", "/v1/audit", ROLE_READ, 0, api_audit_begin, NULL, api_audit_forget},
    {"publishers", "GET", "/v1/publishers", ROLE_READ, 0, api_publishers_begin, NULL, NULL},
    {"publisher_pause", "POST", "/v1/publishers/", ROLE_OPERATE, 0, api_publisher_pause_begin, NULL,
	api_publisher_order_forget, .names = 1, .tail = "/pause"},
    {"publisher_resume", "POST", "/v1/publishers/", ROLE_OPERATE, 0, api_publisher_resume_begin,
	NULL, api_publisher_order_forget, .names = 1, .tail = "/resume"},
    {"publisher_split", "POST", "/v1/publishers/", ROLE_DECIDE, 0, api_publisher_split_begin, NULL,
	api_publisher_order_forget, .names = 1, .tail = "/split"},
    {"publisher_rebase", "POST", "/v1/publishers/", ROLE_DECIDE, 0, api_publisher_rebase_begin,
	NULL, api_publisher_order_forget, .names = 1, .tail = "/rebase"},
    {"publisher_create", "POST", "/v1/publishers", ROLE_OPERATE, 0, api_publisher_create_begin,
	NULL, api_publisher_life_forget},
    {"publisher_drop", "POST", "/v1/publishers/", ROLE_DECIDE, 0, api_publisher_drop_begin, NULL,
	api_publisher_life_forget, .names = 1, .tail = "/drop"},
    {"partitions", "GET", "/v1/partitions", ROLE_READ, 0, api_partitions_begin, NULL,
	api_partitions_forget},
    {"partition_make", "POST", "/v1/partitions", ROLE_OPERATE, 0, api_partition_make_begin, NULL,
	api_partitions_forget},
    {"partition_drop", "POST", "/v1/partitions/", ROLE_DECIDE, 0, api_partition_drop_begin, NULL,
	api_partitions_forget, .names = 1, .tail = "/drop"},
    {"publisher", "GET", "/v1/publishers/", ROLE_READ, 0, api_publisher_begin, NULL, NULL,
	.names = 1},
    {"parked_preview", "POST", "/v1/parked/preview", ROLE_OPERATE | ROLE_DECIDE, 0,
	api_parked_preview_begin, NULL, api_parked_request_forget},
    {"parked_retry", "POST", "/v1/parked/retry", ROLE_OPERATE, 0, api_parked_retry_begin, NULL,
	api_parked_request_forget},
    {"parked_skip", "POST", "/v1/parked/skip", ROLE_DECIDE, 0, api_parked_skip_begin, NULL,
	api_parked_request_forget},
    /* a type and an id follow */
    {"show", "GET", "/v1/lookback/", ROLE_READ, 0, api_show_begin, api_look_finish, api_look_forget,
	.names = 2},
    {"console_login", "POST", "/console/login", 0, 0, api_console_login_begin, NULL, NULL,
	.is_console = true, .is_open = true},
    {"console_session", "GET", "/console/session", 0, 0, api_console_session_begin, NULL, NULL,
	.is_console = true},
    {"console_logout", "DELETE", "/console/session", 0, 0, api_console_logout_begin, NULL, NULL,
	.is_console = true},
    {"console_page", "GET", "/", 0, 0, api_console_redirect_begin, NULL, NULL, .is_console = true,
	.is_open = true},
    {"console_page", "GET", "/console", 0, 0, api_console_redirect_begin, NULL, NULL,
	.is_console = true, .is_open = true},
    {"console_page", "GET", "/console/", 0, 0, api_console_page_begin, NULL, NULL,
	.is_console = true, .is_open = true},
    {"console_page", "GET", "/console/", 0, 0, api_console_page_begin, NULL, NULL, .names = 1,
	.is_console = true, .is_open = true},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* --- for the files of the verbs -------------------------------------------------------------- */

const struct config *api_config(const struct api *api)
{
	return api->config;
}

const struct api_metrics *api_metrics(const struct api *api)
{
	return &api->metrics;
}

const struct route *api_route(const struct api *api)
{
	return api->route;
}

struct api_sender *api_sender_of(const struct api *api, const struct kafka_settings *kafka)
{
	return api->senders[kafka - api->config->kafka];
}

struct api_database *api_database_of(
    const struct api *api, const struct postgres_settings *postgres)
{
	return api->databases[postgres - api->config->postgres];
}

struct api_workers *api_workers_of(const struct api *api)
{
	return api->workers;
}

struct api_preflight *api_preflight(struct api *api)
{
	return &api->preflight;
}

struct api_workers *api_readers_of(const struct api *api)
{
	return api->readers;
}

struct api_watch *api_watch_of(const struct api *api)
{
	return api->watch;
}

const struct api_parts *api_parts_of(const struct api *api)
{
	return &api->parts;
}

const char *api_process(const struct api *api)
{
	return api->parts.process;
}

int64_t api_started_us(const struct api *api)
{
	return api->started_us;
}

void api_preview_key(struct api *api, unsigned char ret_key[PREVIEW_KEY])
{
	pthread_mutex_lock(&api->mutex);
	memcpy(ret_key, api->preview_key, PREVIEW_KEY);
	pthread_mutex_unlock(&api->mutex);
}

struct deliver *api_deliver(const struct api *api, int place)
{
	return api->parts.delivers ? api->parts.delivers[place] : NULL;
}

void api_answer(struct api_call *call, unsigned status, json_t *value)
{
	char *text = NULL;

	call->status = status;
	if (call->export && status < 400)
		return api_export_take(call, value);
	text = json_dumps(value, JSON_COMPACT);
	text_clear(&call->answer);
	text_addf(&call->answer, "%s\n", text ? text : "{}");
	free(text);
	json_decref(value);
}

void api_wait(struct api_call *call, int parts)
{
	atomic_store(&call->left, parts);
	call->rests = true;
	MHD_suspend_connection(call->connection);
}

void api_part_done(struct api_call *call)
{
	struct MHD_Connection *connection = call->connection;

	/* The connection and its call rest until the last part is done and resumes them. */
	if (atomic_fetch_sub(&call->left, 1) == 1)
		MHD_resume_connection(connection);
}

const char *api_request_header(const struct api_call *call, const char *name)
{
	return MHD_lookup_connection_value(call->connection, MHD_HEADER_KIND, name);
}

const char *api_argument(const struct api_call *call, const char *name)
{
	const char *value;

	if (api_export_argument(call, name, &value))
		return value;
	return MHD_lookup_connection_value(call->connection, MHD_GET_ARGUMENT_KIND, name);
}

struct api_caller *api_caller_of_token(
    const struct api *api, const char *token, char ret_fingerprint[SESSION_HEX + 1])
{
	return api_auth_find_token(api->auth, token, ret_fingerprint);
}

struct api_caller *api_caller_of_session(const struct api *api, const struct session *session)
{
	return api_auth_find_session(api->auth, session);
}

void api_session_key(const struct api *api, unsigned char ret_key[SIGNING_KEY])
{
	api_auth_session_key(api->auth, ret_key);
}

void api_add_field(struct api_call *call, const char *name, const char *value)
{
	struct gate_field *at = call->fields;

	while (at->name)
		at++;
	assert(at < &call->fields[API_FIELDS - 1]);
	*at = (struct gate_field){name, value};
}

/* --- a request comes ------------------------------------------------------------------------- */

/* No name is empty. */
static bool has_names(const char *rest, int count)
{
	for (; count > 1; count--) {
		const char *slash = strchr(rest, '/');

		if (!slash || slash == rest)
			return false;
		rest = slash + 1;
	}
	return *rest != '\0';
}

/* The rest ends with the tail, and something is in front of it. */
static bool has_tail(const char *rest, const char *tail)
{
	size_t length = strlen(rest), tail_length = strlen(tail);

	return length > tail_length && text_equal(rest + length - tail_length, tail);
}

static bool is_path(const struct api_verb *verb, const char *path)
{
	const char *rest = path + strlen(verb->path);

	if (verb->names == 0)
		return text_equal(verb->path, path);
	if (!text_starts(path, verb->path))
		return false;
	return verb->tail ? has_tail(rest, verb->tail) : has_names(rest, verb->names);
}

static bool is_method(const struct api_verb *verb, const char *method)
{
	return text_equal(verb->method, method) ||
	       (text_equal(verb->method, "GET") && text_equal(method, "HEAD"));
}

/* A path without names comes before one with: commit is no type. A tail comes before a name. */
static int path_rank(const struct api_verb *verb)
{
	return verb->names == 0 ? 0 : verb->tail ? 1 : 2;
}

/* The row of the path, with the method if there is one. */
static const struct api_verb *find_verb(const struct api *api, const char *path, const char *method)
{
	const struct api_verb *found = NULL;

	for (int i = 0; i < VERBS; i++) {
		const struct api_verb *verb = &verbs[i];

		if (!is_path(verb, path) || (verb->is_console && !api->config->api.console))
			continue;
		if (!found || path_rank(verb) < path_rank(found) ||
		    (path_rank(verb) == path_rank(found) && is_method(verb, method)))
			found = verb;
	}
	return found;
}

/* The methods that a path takes, for the field Allow. */
static char *allowed_methods(const struct api_verb *verb)
{
	OWNED(text_finish) struct text methods = {0};

	for (int i = 0; i < VERBS; i++)
		if (text_equal(verbs[i].path, verb->path) &&
		    path_rank(&verbs[i]) == path_rank(verb) &&
		    text_equal(verbs[i].tail, verb->tail))
			text_addf(&methods, "%s%s%s", methods.length > 0 ? ", " : "",
			    verbs[i].method, text_equal(verbs[i].method, "GET") ? ", HEAD" : "");
	return xstrdup(text_string(&methods));
}

/* Uses the client's own request id if it fits and has only letters, digits, '.', '_' and '-'. */
static void name_request(struct api_call *call)
{
	const char *given = api_request_header(call, "X-Request-Id");
	size_t length = given ? strspn(given, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					      "0123456789._-")
			      : 0;

	if (length > 0 && given[length] == '\0' && length < sizeof call->request_id)
		text_copy(call->request_id, sizeof call->request_id, given);
	else
		api_request_id(call->request_id);
}

/* "application/json", with parameters or without. */
static bool is_json_media_type(const char *type)
{
	static const char wanted[] = "application/json";

	return type && strncasecmp(type, wanted, strlen(wanted)) == 0 &&
	       (type[strlen(wanted)] == '\0' || strchr("; \t", type[strlen(wanted)]));
}

static int64_t most_body(const struct api_call *call)
{
	return call->verb && call->verb->is_open ? OPEN_BODY : call->api->config->api.max_body;
}

static void refuse_size(struct api_call *call)
{
	api_refuse(call, 413, "too_large", "the body has more than %" PRId64 " bytes; %s",
	    most_body(call),
	    call->verb->is_open ? "no token is as long"
				: "send less at once, or raise [api] max_body");
}

static void judge_body_headers(struct api_call *call)
{
	const char *coding = api_request_header(call, "Content-Encoding");
	const char *length = api_request_header(call, "Content-Length");
	int64_t bytes;

	if (!is_json_media_type(api_request_header(call, "Content-Type")))
		api_refuse(call, 415, "unsupported_media_type",
		    "send the body with Content-Type: application/json");
	else if (coding && strcasecmp(coding, "identity") != 0)
		api_refuse(
		    call, 415, "unsupported_media_type", "send the body without Content-Encoding");
	/* A chunked body has no length here: take_body counts its bytes. */
	else if (length && !text_to_int64(length, 0, most_body(call), &bytes))
		refuse_size(call);
}

/* Slows down guessing: each wrong token delays the next such answer to its address further. */
static void refuse_token(struct api_call *call)
{
	api_refuse(call, 401, "unauthorized", "a token is needed, as in Authorization: Bearer …");
	/* No token is no guess: it costs the address nothing. */
	if (!api_auth_has_token(api_request_header(call, "Authorization")))
		return;
	metric_add(call->api->metrics.wrong_tokens, 1);
	call->delay_ms = gate_wrong_token(call->connection);
}

static void end_delay(void *context)
{
	api_part_done(context);
}

void api_refuse_login(struct api_call *call)
{
	api_refuse(call, 401, "unauthorized",
	    "no [token] section has this token: copy it again, or ask an administrator of the "
	    "relay");
	metric_add(call->api->metrics.wrong_tokens, 1);
	call->delay_ms = gate_wrong_token(call->connection);
	if (call->delay_ms == 0)
		return;
	api_wait(call, 1);
	gate_delay(call->connection, call->delay_ms, end_delay, call);
}

/* Finds the caller, or refuses. A token comes before a session: it needs no CSRF token. */
static void judge_caller(struct api_call *call, const char *method)
{
	bool is_unsafe = !text_equal(method, "GET") && !text_equal(method, "HEAD");

	if (api_session_is_shown(call))
		return api_session_judge(call, is_unsafe);
	call->caller = api_auth_find(call->api->auth, api_request_header(call, "Authorization"));
	if (!call->caller)
		refuse_token(call);
}

/* Checks a request by its head alone. */
static void judge_head(struct api_call *call, const char *method)
{
	if (!call->verb)
		return api_refuse(call, 404, "not_found", "there is no such path");
	if (!is_method(call->verb, method)) {
		owned_text char *allowed = allowed_methods(call->verb);

		return api_refuse(call, 405, "method_not_allowed", "this path takes %s", allowed);
	}

	/* Before anything else is judged: a stranger learns only which paths exist. */
	if (!call->verb->is_open)
		judge_caller(call, method);
	else if (text_equal(method, "POST") && !api_session_check_origin(call))
		return;
	if (call->status)
		return;

	if (call->verb->roles && !(call->caller->roles & call->verb->roles))
		return api_refuse_role(call);
	if (text_equal(call->verb->method, "POST"))
		judge_body_headers(call);
}

static struct api_call *call_create(
    struct api *api, struct MHD_Connection *connection, const char *path, const char *method)
{
	struct api_call *call = xcalloc(1, sizeof *call);

	call->api = api;
	call->connection = connection;
	call->begun_us = clock_us();
	call->verb = find_verb(api, path, method);
	call->rest = xstrdup(call->verb ? path + strlen(call->verb->path) : "");
	if (call->verb && call->verb->tail)
		call->rest[strlen(call->rest) - strlen(call->verb->tail)] = '\0';
	name_request(call);
	judge_head(call, method);
	return call;
}

/* The body that a refused client goes on sending has a limit, too. */
static bool is_flood(const struct api_call *call, int64_t bytes)
{
	return bytes > 2 * call->api->config->api.max_body;
}

static void drop_body(struct api_call *call)
{
	atomic_fetch_sub(&call->api->held, call->held);
	call->held = 0;
	text_finish(&call->body);
	call->body = (struct text){0};
}

/* Counts the bytes; false: all bodies together are too large. */
static bool hold_body_bytes(struct api_call *call, int64_t bytes)
{
	int64_t most = 2 * call->api->config->api.max_body;

	if (most < BODIES)
		most = BODIES;
	call->held += bytes;
	return atomic_fetch_add(&call->api->held, bytes) + bytes <= most;
}

static enum MHD_Result take_body(struct api_call *call, const char *bytes, size_t length)
{
	call->taken += (int64_t)length;
	/* A refusal goes out only behind the body, so the rest is dropped, up to a limit. */
	if (is_flood(call, call->taken))
		return MHD_NO;
	if (call->status)
		return MHD_YES;

	/* Content-Length was checked with the head; a chunked body shows its size only here. */
	if (call->taken > most_body(call)) {
		refuse_size(call);
		drop_body(call);
	} else if (!hold_body_bytes(call, (int64_t)length)) {
		api_refuse(call, 503, "busy", "the relay holds too many bodies at once; try again");
		drop_body(call);
	} else {
		text_append(&call->body, bytes, length);
	}
	return MHD_YES;
}

/* --- and is answered ------------------------------------------------------------------------- */

static const char *answer_type(const struct api_call *call)
{
	if (call->media_type)
		return call->media_type;
	return call->status < 400 ? "application/json" : API_PROBLEM_MEDIA_TYPE;
}

static enum MHD_Result respond_to_call(struct api_call *call)
{
	owned_text char *retry_after = xformat("%d", RETRY_AFTER_S);
	owned_text char *allow = call->status == 405 ? allowed_methods(call->verb) : NULL;

	api_add_field(call, "X-Request-Id", call->request_id);
	if (call->status == 401)
		api_add_field(call, "WWW-Authenticate", "Bearer");
	if (allow)
		api_add_field(call, "Allow", allow);
	if (call->status == 503 || call->status == 429)
		api_add_field(call, "Retry-After", retry_after);
	if (call->cookie)
		api_add_field(call, "Set-Cookie", call->cookie);
	if (call->export && call->status < 400)
		return api_export_respond(call);
	if (call->streams)
		return api_events_respond(call, call->fields);
	return gate_answer(
	    call->connection, call->status, answer_type(call), &call->answer, call->fields);
}

static void on_whole(struct api_call *call)
{
	struct api *api = call->api;
	bool ending;

	call->is_whole = true;
	gate_whole(call->connection);
	pthread_mutex_lock(&api->mutex);
	/* Counted before it can rest: api_stop must not end the servers while a call rests. */
	api->open++;
	ending = api->ending;
	pthread_mutex_unlock(&api->mutex);
	if (ending && !call->status)
		api_refuse(call, 503, "ending",
		    "the relay is stopping; try again, another one may have started already");
	call->rests = false; /* it rested if its head was refused late */
	if (!call->status)
		api_export_begin(call);
	if (!call->status)
		call->verb->begin(call);
}

/* A request that is refused by its head is answered at once; the gate drops its body. */
static enum MHD_Result on_head(struct api_call *call)
{
	if (!call->status) {
		gate_await_body(call->connection);
		return MHD_YES;
	}
	if (call->delay_ms == 0)
		return respond_to_call(call);
	api_wait(call, 1);
	gate_delay(call->connection, call->delay_ms, end_delay, call);
	return MHD_YES;
}

static enum MHD_Result on_api_request(void *context, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *upload,
    size_t *upload_size, void **seen)
{
	struct api_call *call = *seen;

	(void)version;
	if (!call) {
		call = *seen = call_create(context, connection, path, method);
		return on_head(call);
	}
	if (*upload_size > 0) {
		size_t length = *upload_size;

		*upload_size = 0;
		return take_body(call, upload, length);
	}
	if (!call->is_whole) {
		on_whole(call);
		/* It comes back below. Another thread may have set its status already. */
		if (call->rests)
			return MHD_YES;
	}
	if (atomic_load(&call->left) > 0) /* also makes writes of others visible here */
		return MHD_YES;
	if (!call->status)
		call->verb->finish(call);
	return respond_to_call(call);
}

static void count_call(const struct api_call *call, bool was_read)
{
	const struct api_metrics *metrics = &call->api->metrics;
	const char *verb = call->verb ? call->verb->name : "none";
	owned_text char *code = xformat("%u", was_read && call->status ? call->status : 499);
	double took = (double)(clock_us() - call->begun_us) / 1e6;

	metric_add(METRIC_LABELLED(metrics->requests, verb, code), 1);
	/* A stream lasts as long as its client likes. */
	if (!call->streams && !call->export)
		metric_observe(METRIC_LABELLED(metrics->duration, verb), took, 1);
	log_debug("api_request", {"verb", LOG_TEXT(verb)}, {"status", LOG_INT(call->status)},
	    {"request", LOG_TEXT(call->request_id)}, {"us", LOG_INT((int64_t)(took * 1e6))});
}

static void on_completed(void *context, struct MHD_Connection *connection, void **seen,
    enum MHD_RequestTerminationCode how)
{
	struct api *api = context;
	struct api_call *call = *seen;

	(void)connection;
	if (!call)
		return;
	count_call(call, how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
	/* No suspended connection is completed, so no other thread has the call now. */
	api_export_forget(call);
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
	session_finish(&call->session);
	free(call->cookie);
	api_caller_release(call->caller);
	free(call->rest);
	free(call);
	*seen = NULL;
}

/* --- start ----------------------------------------------------------------------------------- */

static bool start_section_threads(struct api *api, const struct config_lookback *section,
    struct topic_metadata *const *topic_metadata, struct err *err)
{
	ptrdiff_t kafka = section->kafka - api->config->kafka;
	ptrdiff_t postgres = section->postgres - api->config->postgres;

	if (!api->senders[kafka])
		api->senders[kafka] = api_sender_start(section->kafka, topic_metadata[kafka], err);
	if (api->senders[kafka] && !api->databases[postgres])
		api->databases[postgres] = api_database_start(section->postgres, err);
	return api->senders[kafka] && api->databases[postgres];
}

/* Behind a proxy, browsers name the host of public_url. */
static void add_public_host(struct config_list *hosts, const char *public_url)
{
	const char *at = strstr(public_url, "://");
	size_t length;

	if (!at)
		return;
	at += strlen("://");
	/* the gate has taken the brackets and the port off */
	length = *at == '[' ? strcspn(++at, "]") : strcspn(at, ":/");
	hosts->items = xrealloc(hosts->items, (size_t)(hosts->count + 2) * sizeof *hosts->items);
	hosts->items[hosts->count++] = xformat("%.*s", (int)length, at);
}

static bool start_gate(struct api *api, struct listener *listener, struct err *err)
{
	const struct config_api *config = &api->config->api;
	const struct gate_settings settings = {.section = "api",
	    .listen = config->listen,
	    .hosts = &api->hosts,
	    .tls_certificate = config->tls.certificate,
	    .tls_key = config->tls.key,
	    .servers = SERVERS,
	    .connections = CONNECTIONS,
	    .head_ms = config->arrival_ms < HEAD_MS ? config->arrival_ms : HEAD_MS,
	    .arrival_ms = config->arrival_ms,
	    .answer_ms = ANSWER_MS,
	    .discards = 2 * config->max_body,
	    .takes_bodies = true,
	    .says_problems = true,
	    .on_request = on_api_request,
	    .on_completed = on_completed,
	    .context = api};

	config_list_copy(&api->hosts, &config->host);
	add_public_host(&api->hosts, config->public_url);
	api->address = xstrdup(listener->address);
	api->gate = gate_start(listener, &settings, err);
	return api->gate != NULL;
}

static struct api *create_api(const struct api_parts *parts)
{
	const struct config *config = parts->config;
	struct api *api = xcalloc(1, sizeof *api);
	pthread_condattr_t attributes;

	api->parts = *parts;
	api->started_us = clock_wall_us();
	api->config = config;
	metric_series_all(&api_metric_table, NULL, &api->metrics, NULL);
	api->auth = api_auth_create(config);
	preview_key(config, api->preview_key);
	api->senders = xcalloc((size_t)config->kafka_count, sizeof(void *));
	api->databases = xcalloc((size_t)config->postgres_count, sizeof(void *));
	pthread_mutex_init(&api->mutex, NULL);
	api->preflight.check = parts->checks;
	pthread_mutex_init(&api->preflight.mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&api->answered, &attributes);
	pthread_condattr_destroy(&attributes);
	return api;
}

struct api *api_start(struct listener *listener, const struct api_parts *parts, struct err *err)
{
	const struct config *config = parts->config;
	struct api *api = create_api(parts);

	api->route = route_create(config, err);
	if (!api->route)
		goto fail;
	for (int i = 0; i < config->lookback_count; i++)
		if (!start_section_threads(api, &config->lookbacks[i], parts->topic_metadata, err))
			goto fail;
	api->workers = api_workers_start(config, WORKERS, MOST_WAITING, err);
	api->readers =
	    api->workers ? api_workers_start(config, READERS, MOST_WAITING_READS, err) : NULL;
	api->watch = api->readers ? api_watch_start(parts, err) : NULL;
	if (!api->watch || !start_gate(api, listener, err))
		goto fail;
	return api;
fail:
	api_stop(api);
	return NULL;
}

void api_reload(struct api *api, const struct config *config)
{
	unsigned char key[PREVIEW_KEY];

	preview_key(config, key);
	pthread_mutex_lock(&api->mutex);
	memcpy(api->preview_key, key, sizeof key);
	pthread_mutex_unlock(&api->mutex);
	api_auth_reload(api->auth, config);
	/* Their clients come again, with a token that is still one. */
	events_end(api_watch_events(api->watch), false);
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
		api_database_stop(api->databases[i]);
	api_workers_end(api->workers); /* they pass calls to the readers */
	api_workers_end(api->readers);
}

/*
 * The servers may not end while calls rest: so the last answers of the senders, of the
 * databases and of the workers go out first.
 */
static void stop_gate(struct api *api)
{
	gate_quiesce(api->gate);
	events_end(api_watch_events(api->watch), true);
	wait_for_answers(api, STOP_MS);
	stop_others(api);
	wait_for_answers(api, LEAVE_MS);
	gate_stop(api->gate);
}

void api_stop(struct api *api)
{
	if (!api)
		return;

	if (api->gate)
		stop_gate(api);
	else
		stop_others(api);

	api_workers_destroy(api->workers);
	api_workers_destroy(api->readers);
	api_watch_stop(api->watch);
	free(api->senders);
	free(api->databases);
	free(api->address);
	config_list_finish(&api->hosts);
	api_auth_destroy(api->auth);
	route_destroy(api->route);
	pthread_cond_destroy(&api->answered);
	pthread_mutex_destroy(&api->mutex);
	pthread_mutex_destroy(&api->preflight.mutex);
	json_decref(api->preflight.report);
	free(api);
}
