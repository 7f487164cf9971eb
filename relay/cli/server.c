/*
 * Requests to the HTTP interface of a relay. Begin at server_ask: it finds the address and the
 * token, sends the request, and turns a refusal into an error with an exit status.
 */
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cleanup.h"
#include "confirm.h"
#include "field.h"
#include "http_client.h"

enum { ANSWER_MS = 30000, LOOK_MS = 500, MOST_BYTES = 64 << 20, TOKEN_BYTES = 4096 };

/* --- where and as whom ----------------------------------------------------------------------- */

static const char *given_or_variable(const char *given, const char *variable)
{
	const char *value = given ? given : getenv(variable);

	return value && *value ? value : NULL;
}

static const char *server_url(const struct call *call)
{
	return given_or_variable(call->server, "OUTBOX_RELAY_SERVER");
}

bool server_is_used(const struct call *call)
{
	return server_url(call) != NULL;
}

/* The first line of the file. NULL: an error. The caller frees. */
static char *read_token_file(const char *path, struct err *err)
{
	FILE *file = fopen(path, "re");
	char line[TOKEN_BYTES];
	bool done;

	if (!file) {
		err_set(err, ERR_CONFIG, "--token-file %s: %s", path, strerror(errno));
		return NULL;
	}
	done = fgets(line, sizeof line, file) != NULL;
	fclose(file);
	line[done ? strcspn(line, "\r\n") : 0] = '\0';
	if (line[0])
		return xstrdup(line);
	err_set(err, ERR_CONFIG, "--token-file %s: its first line has no token", path);
	return NULL;
}

/* NULL: an error. The caller frees. */
static char *server_token(const struct call *call, struct err *err)
{
	const char *file = given_or_variable(call->token_file, "OUTBOX_RELAY_TOKEN_FILE");
	const char *token = getenv("OUTBOX_RELAY_TOKEN");

	if (file)
		return read_token_file(file, err);
	if (token && *token)
		return xstrdup(token);
	err_set(err, ERR_CONFIG,
	    "--server needs a token of a [token] section of that relay: name its file with "
	    "--token-file, or set OUTBOX_RELAY_TOKEN");
	return NULL;
}

/* "https://relay.example.com:9188", without a path. NULL: an error. The caller frees. */
static char *base_of_url(const char *url, struct err *err)
{
	const char *rest = strstr(url, "://");
	size_t length = strlen(url);

	while (length > 0 && url[length - 1] == '/')
		length--;
	if (rest && (text_starts(url, "http://") || text_starts(url, "https://")) && rest[3] &&
	    rest[3] != '/' && !strpbrk(rest + 3, "?#@"))
		return xformat("%.*s", (int)length, url);
	err_set(err, ERR_REJECT,
	    "--server %.200s is no address of a relay: write http:// or https://, its name, and "
	    "the port of [api] listen, as in https://relay.example.com:9188",
	    url);
	return NULL;
}

/* --- the request ----------------------------------------------------------------------------- */

struct server_request {
	char *url, *bearer, *body;
	const char *ca;
};

static void server_request_finish(struct server_request *request)
{
	free(request->url);
	free(request->bearer);
	free(request->body);
}

static bool prepare_server_request(struct server_request *request, const struct call *call,
    const char *path, const json_t *body, struct err *err)
{
	owned_text char *base = base_of_url(server_url(call), err);
	owned_text char *token = base ? server_token(call, err) : NULL;

	if (!token)
		return false;
	request->url = xformat("%s%s", base, path);
	request->bearer = xformat("Bearer %s", token);
	request->body = body ? json_dumps(body, JSON_COMPACT) : NULL;
	request->ca = given_or_variable(call->server_ca, "OUTBOX_RELAY_SERVER_CA");
	return true;
}

static bool send_server_request(
    struct http_client *client, const struct server_request *request, struct err *err)
{
	const struct http_tls tls = {.ca_file = request->ca, .ca_key = "--server-ca"};
	const struct http_header headers[] = {{"Authorization", request->bearer},
	    {"Accept", "application/json"}, {"Content-Type", "application/json"}};

	return http_client_send(client,
	    &(struct http_request){.method = request->body ? HTTP_POST : HTTP_GET,
		.protocol = HTTP_1_1,
		.url = request->url,
		.headers = headers,
		.header_count = request->body ? 3 : 2,
		.body = request->body,
		.body_length = request->body ? strlen(request->body) : 0,
		.tls = &tls,
		.limits = {.timeout_ms = ANSWER_MS,
		    .connect_timeout_ms = ANSWER_MS / 3,
		    .max_body = MOST_BYTES,
		    .max_headers = 1 << 20}},
	    err);
}

/* --- the answer ------------------------------------------------------------------------------ */

static enum err_kind kind_of_status(int status)
{
	if (status == 401 || status == 403)
		return ERR_DENIED;
	if (status == 429 || status == 502 || status == 503 || status == 504)
		return ERR_RETRY;
	return status >= 500 ? ERR_FATAL : ERR_REJECT;
}

/* Two conflicts that the command knows from the database as well have the same exit status there.
 */
static enum err_kind kind_of_problem(int status, const json_t *problem)
{
	const char *type = json_string_value(json_object_get(problem, "type"));

	if (type && text_equal(type, "urn:outbox-relay:problem:owned"))
		return ERR_FENCED;
	if (type && text_equal(type, "urn:outbox-relay:problem:locked"))
		return ERR_RETRY;
	return kind_of_status(status);
}

static bool judge_server_answer(
    const struct call *call, int status, const json_t *answer, struct err *err)
{
	const char *detail = json_string_value(json_object_get(answer, "detail"));

	if (status >= 200 && status < 300 && answer)
		return true;
	if (!detail)
		return err_set(err, kind_of_status(status),
		    "%s answers with status %d, and not as a relay does: is it the address of its "
		    "[api] listen?",
		    server_url(call), status);
	return err_set(err, kind_of_problem(status, answer), "the relay refuses: %s", detail);
}

static bool take_server_answer(const struct call *call, const struct http_response *response,
    json_t **ret_answer, struct err *err)
{
	json_t *answer;

	if (response->failure)
		return err_set(err, ERR_RETRY, "no answer from the relay: %s", response->error);
	answer = json_loadb(response->body, response->body_length, 0, NULL);
	if (judge_server_answer(call, response->status, answer, err)) {
		*ret_answer = answer;
		return true;
	}
	json_decref(answer);
	return false;
}

static bool exchange_with_server(struct http_client *client, const struct call *call,
    const struct server_request *request, json_t **ret_answer, struct err *err)
{
	struct http_response *response;
	bool done;

	if (!send_server_request(client, request, err))
		return false;
	response = http_client_wait(client);
	done = take_server_answer(call, response, ret_answer, err);
	http_client_release(client, response);
	return done;
}

bool server_ask(const struct call *call, const char *path, const json_t *body, json_t **ret_answer,
    struct err *err)
{
	OWNED(server_request_finish) struct server_request request = {0};
	struct http_networks anywhere = {0};
	struct http_client *client;
	bool done;

	if (!prepare_server_request(&request, call, path, body, err) ||
	    !http_networks_parse("0.0.0.0/0, ::/0", &anywhere, err))
		return false;
	client = http_client_create_single(&anywhere, err);
	done = client && exchange_with_server(client, call, &request, ret_answer, err);
	http_client_destroy(client);
	http_networks_finish(&anywhere);
	return done;
}

bool server_ask_job(const struct call *call, const char *id, const char *postgres, json_t **ret_job,
    struct err *err)
{
	OWNED(text_finish) struct text path = {0};

	text_addf(&path, "/v1/jobs/%s", id);
	server_add_argument(&path, "postgres", postgres);
	return server_ask(call, text_string(&path), NULL, ret_job, err);
}

bool server_job_is_over(const json_t *job)
{
	return json_is_string(json_object_get(job, "ended_at"));
}

void server_print_job(const json_t *job, const char *what)
{
	printf("%s: %s, %" PRId64 " of %" PRId64 " %s", field_member(job, "id"),
	    field_member(job, "state"), field_number(job, "done"), field_number(job, "total"),
	    what);
	if (json_is_string(json_object_get(job, "error")))
		printf(", error: %s", field_member(job, "error"));
	puts("");
	fflush(stdout);
}

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

static bool refuse_interrupted(const char *id, struct err *err)
{
	return err_set(err, ERR_RETRY,
	    "%s goes on at the relay: GET /v1/jobs/%s shows it, and POST /v1/jobs/%s/cancel with a "
	    "reason cancels it",
	    id, id, id);
}

static bool follow_until_over(const struct call *call, const char *id, const char *postgres,
    void (*show)(void *context, const json_t *job), void *context, json_t **ret_job,
    struct err *err)
{
	const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};

	for (;;) {
		json_t *job;

		if (!server_ask_job(call, id, postgres, &job, err))
			return interrupted ? refuse_interrupted(id, err) : false;
		json_decref(*ret_job);
		*ret_job = job;
		show(context, job);
		if (server_job_is_over(job))
			break;
		if (!interrupted)
			nanosleep(&pause, NULL);
		if (interrupted)
			return refuse_interrupted(id, err);
	}
	return text_equal(field_member(*ret_job, "state"), "finished") ||
	       err_set(err, ERR_REJECT, "%s is %s: %s", id, field_member(*ret_job, "state"),
		   field_member(*ret_job, "error"));
}

bool server_follow_job(const struct call *call, const char *id, const char *postgres,
    void (*show)(void *context, const json_t *job), void *context, json_t **ret_job,
    struct err *err)
{
	/* a second Ctrl-C ends the command at once */
	const struct sigaction note = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};
	struct sigaction before;
	bool done;

	*ret_job = NULL;
	interrupted = 0;
	sigaction(SIGINT, &note, &before);
	done = follow_until_over(call, id, postgres, show, context, ret_job, err);
	sigaction(SIGINT, &before, NULL);
	return done;
}

struct job_print {
	const char *what;
	int64_t shown; /* `done` of the last line */
};

static void print_job_change(void *context, const json_t *job)
{
	struct job_print *print = context;

	if (field_number(job, "done") != print->shown || server_job_is_over(job))
		server_print_job(job, print->what);
	print->shown = field_number(job, "done");
}

bool server_watch_job(const struct call *call, const char *id, const char *postgres,
    const char *what, struct err *err)
{
	struct job_print print = {what, -1};
	json_t *job;
	bool done = server_follow_job(call, id, postgres, print_job_change, &print, &job, err);

	json_decref(job);
	return done;
}

/* --- paths ----------------------------------------------------------------------------------- */

static void add_encoded(struct text *path, const char *value, const char *kept)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "-._~";

	for (; *value; value++) {
		if (strchr(plain, *value) || strchr(kept, *value))
			text_append(path, value, 1);
		else
			text_addf(path, "%%%02X", (unsigned char)*value);
	}
}

void server_add_argument(struct text *path, const char *name, const char *value)
{
	if (!value)
		return;
	text_addf(path, "%c%s=", strchr(text_string(path), '?') ? '&' : '?', name);
	add_encoded(path, value, "");
}

void server_add_name(struct text *path, const char *name)
{
	add_encoded(path, name, "/");
}

/* --- lists ----------------------------------------------------------------------------------- */

void server_turn_page(const json_t *page, char **after)
{
	const char *next = json_string_value(json_object_get(page, "next"));

	free(*after);
	*after = next ? xstrdup(next) : NULL;
}

static bool add_listed_page(
    const struct call *call, const char *list, char **after, json_t *rows, struct err *err)
{
	OWNED(text_finish) struct text path = {0};
	json_t *page;

	text_add(&path, list);
	server_add_argument(&path, "limit", "1000");
	server_add_argument(&path, "after", *after);
	if (!server_ask(call, text_string(&path), NULL, &page, err))
		return false;

	json_array_extend(rows, json_object_get(page, "rows"));
	server_turn_page(page, after);
	json_decref(page);
	return true;
}

bool server_ask_list(const struct call *call, const char *path, json_t **ret_rows, struct err *err)
{
	owned_text char *after = NULL;
	json_t *rows = json_array();

	do {
		if (!add_listed_page(call, path, &after, rows, err)) {
			json_decref(rows);
			return false;
		}
	} while (after);
	*ret_rows = rows;
	return true;
}

/* --- members of an order --------------------------------------------------------------------- */

bool server_add_reason(json_t *body, const struct call *call, struct err *err)
{
	const char *reason = call_has_option(call->command, "yes") ? confirm_reason(call)
								   : call_text(call, "reason", "");

	/* a dry run changes nothing */
	if (json_is_true(json_object_get(body, "dry_run")) ||
	    json_object_set_new(body, "reason", json_string(reason)) == 0)
		return true;
	return err_set(err, ERR_REJECT, "the reason is not UTF-8");
}

void server_add_force(json_t *body, const struct call *call)
{
	json_t *words = json_array();

	for (const char *word = call_text(call, "force", ""); *word;) {
		size_t length = strcspn(word, ",");

		json_array_append_new(words, json_stringn(word, length));
		word += length + (word[length] == ',');
	}
	if (json_array_size(words) > 0)
		json_object_set(body, "force", words);
	json_decref(words);
}

void server_add_postgres(json_t *body, const struct call *call)
{
	const char *postgres = call_text(call, "postgres", NULL);

	if (postgres)
		json_object_set_new(body, "postgres", json_string(postgres));
}

void server_add_confirm(json_t *body, const char *question)
{
	if (question)
		json_object_set_new(body, "confirm", json_string(question));
	else
		json_object_set_new(body, "dry_run", json_true());
}
