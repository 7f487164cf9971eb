/*
 * Headers that the operator wrote, and an access token: reads the files of both, requests the
 * token, and gives both to the requests of a section. Begin at http_credentials_access.
 */
#include "http_credentials.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include "cleanup.h"
#include "clock.h"
#include "http_private.h"
#include "http_token.h"
#include "logging.h"

enum {
	OWN_HEADERS = HTTP_CREDENTIALS_HEADERS - 1, /* the last is for the token */
	FILE_BYTES = 64 << 10,
	TOKEN_TIMEOUT_MS = 10 * 1000,
	TOKEN_CONNECT_MS = 3 * 1000,
	TOKEN_ANSWER_BYTES = 64 << 10,
	SECRET_BYTES = 4 << 10,
};

/* Lines of headers, taken apart in place. */
struct header_list {
	struct text memory;
	struct http_header headers[OWN_HEADERS];
	size_t count;
};

struct http_credentials {
	struct http_credentials_texts texts;
	char *section;     /* texts.section, which does not live as long */
	char *token_place; /* token_url for people, without the query, which may hold a secret */
	struct header_list own;
	struct text file;  /* headers_file as it was read last */
	int64_t looked_at; /* at the file */
	bool file_failed;  /* told in the log */
	bool quiet;        /* the result of a request goes to the caller, not into the log */
	struct http_token token;
	struct http_tls token_tls;
	struct text authorization, body; /* the request for the token */
};

/* --- headers that the operator wrote -------------------------------------------------------- */

static void wipe_headers(struct header_list *list)
{
	http_token_wipe(&list->memory);
	list->count = 0;
}

/* The relay itself sets these. */
static bool is_taken_name(const char *name)
{
	static const char *const names[] = {
	    "accept", "accept-encoding", "content-encoding", "content-type", "te", "trailer"};
	static const char *const beginnings[] = {"webhook-", "ce-", "grpc-"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcasecmp(name, names[i]) == 0)
			return true;
	for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
		if (strncasecmp(name, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

static char *trim_line(char *line)
{
	size_t length;

	line += strspn(line, " \t");
	for (length = strlen(line); length > 0 && strchr(" \t\r", line[length - 1]); length--)
		line[length - 1] = '\0';
	return line;
}

/* The message repeats no value, which may be a password. */
static bool add_own_header(struct header_list *list, char *line, int number, struct err *err)
{
	char *colon = strchr(line, ':');
	struct http_header header = {.name = line};
	const char *problem;

	if (!colon)
		return err_set(
		    err, ERR_CONFIG, "line %d has no colon; write it as Name: value", number);
	*colon = '\0';
	header.value = trim_line(colon + 1);
	problem = http_header_problem(&header);
	if (!problem && is_taken_name(line))
		problem = "the relay itself sets this header; remove the line";
	if (!problem && !*header.value)
		problem = "the header has no value";
	if (!problem && list->count == OWN_HEADERS)
		problem = "there is no room for so many headers; remove some";
	if (problem)
		return err_set(err, ERR_CONFIG, "line %d: %s", number, problem);
	list->headers[list->count++] = header;
	return true;
}

/* Takes the lines apart in list->memory. Comments and empty lines are left out. */
static bool split_headers(struct header_list *list, struct err *err)
{
	char *line = list->memory.data, *next;

	list->count = 0;
	for (int number = 1; line; number++, line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		line = trim_line(line);
		if (*line && *line != '#' && !add_own_header(list, line, number, err))
			return false;
	}
	return true;
}

static bool has_authorization(const struct header_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcasecmp(list->headers[i].name, "authorization") == 0)
			return true;
	return false;
}

/* The caller finishes the text in any case. */
static bool read_credential_file(
    const char *path, size_t most, struct text *ret_content, struct err *err)
{
	owned_file FILE *file = fopen(path, "re");
	size_t length = 0;

	text_clear(ret_content);
	text_reserve(ret_content, most + 2);
	if (file)
		length = fread(ret_content->data, 1, most + 1, file);
	if (!file || ferror(file))
		return err_set(err, ERR_CONFIG, "%.300s cannot be read: %s", path, strerror(errno));
	ret_content->length = length;
	ret_content->data[length] = '\0';
	if (length > most)
		return err_set(err, ERR_CONFIG, "%.300s is larger than %zu bytes", path, most);
	if (strlen(ret_content->data) < length)
		return err_set(err, ERR_CONFIG, "%.300s holds a NUL byte; it must be text", path);
	return true;
}

static bool set_own_headers(
    struct http_credentials *credentials, const char *lines, struct err *err)
{
	struct header_list list = {0};

	text_add(&list.memory, lines);
	if (!split_headers(&list, err)) {
		wipe_headers(&list);
		return false;
	}
	if (has_authorization(&list) && credentials->texts.token_url[0]) {
		wipe_headers(&list);
		return err_set(err, ERR_CONFIG,
		    "they hold Authorization, which token_url sets as well; keep one of them");
	}
	wipe_headers(&credentials->own);
	credentials->own = list;
	return true;
}

/* Reads the file and, if it is another than before, takes its headers over. */
static bool read_headers_file(struct http_credentials *credentials, struct err *err)
{
	OWNED(http_token_wipe) struct text content = {0};
	const char *path = credentials->texts.headers_file;

	if (!read_credential_file(path, FILE_BYTES, &content, err))
		return false;
	if (credentials->file.data && text_equal(credentials->file.data, content.data))
		return true;
	if (text_is_blank(content.data))
		return err_set(err, ERR_CONFIG,
		    "%.300s is empty, as a write that has not ended leaves it; if no headers are "
		    "meant, write the comment # none into it",
		    path);
	if (!set_own_headers(credentials, content.data, err))
		return err_prefix(err, "%.300s", path);
	http_token_wipe(&credentials->file);
	text_add(&credentials->file, content.data);
	return true;
}

/* While the file is wrong, the headers of before stay. */
static void look_at_headers_file(struct http_credentials *credentials, int64_t now)
{
	struct err err;

	if (!credentials->texts.headers_file ||
	    now < credentials->looked_at + HTTP_CREDENTIALS_LOOK_MS)
		return;
	credentials->looked_at = now;
	if (read_headers_file(credentials, &err)) {
		credentials->file_failed = false;
		return;
	}
	if (!credentials->file_failed)
		log_warn("headers_file_refused", {"section", LOG_TEXT(credentials->section)},
		    {"error", LOG_TEXT(err.message)},
		    {"consequence", LOG_TEXT("the headers that were read before are used")});
	credentials->file_failed = true;
}

/* --- the token ------------------------------------------------------------------------------ */

static bool read_client_secret(
    const struct http_credentials *credentials, struct text *ret_secret, struct err *err)
{
	const char *path = credentials->texts.client_secret_file;

	if (!path) {
		text_add(ret_secret, credentials->texts.client_secret);
		return true;
	}
	if (!read_credential_file(path, SECRET_BYTES, ret_secret, err))
		return false;
	text_cut_line_end(ret_secret->data);
	return ret_secret->data[0] || err_set(err, ERR_CONFIG, "%.300s is empty", path);
}

static bool write_token_request(struct http_credentials *credentials, struct err *err)
{
	OWNED(http_token_wipe) struct text secret = {0};
	const struct http_credentials_texts *texts = &credentials->texts;

	if (!read_client_secret(credentials, &secret, err))
		return false;
	http_token_write(&(struct http_token_texts){.client_id = texts->client_id,
			     .client_secret = text_string(&secret),
			     .scope = texts->scope,
			     .audience = texts->audience},
	    &credentials->authorization, &credentials->body);
	return true;
}

static bool send_token_request(
    struct http_credentials *credentials, struct http_client *client, struct err *err)
{
	const struct http_header headers[] = {
	    {"Authorization", text_string(&credentials->authorization)},
	    {"Content-Type", "application/x-www-form-urlencoded"}, {"Accept", "application/json"}};

	return http_client_send(client,
	    &(struct http_request){.method = HTTP_POST,
		.protocol = HTTP_1_1,
		.url = credentials->texts.token_url,
		.headers = headers,
		.header_count = sizeof headers / sizeof *headers,
		.body = text_string(&credentials->body),
		.body_length = credentials->body.length,
		.tls = &credentials->token_tls,
		.limits = {.timeout_ms = TOKEN_TIMEOUT_MS,
		    .connect_timeout_ms = TOKEN_CONNECT_MS,
		    .max_body = TOKEN_ANSWER_BYTES,
		    .max_headers = TOKEN_ANSWER_BYTES},
		.opaque = credentials},
	    err);
}

static void tell_token(struct http_credentials *credentials)
{
	const struct http_token *token = &credentials->token;

	if (!token->changed || credentials->quiet)
		return;
	if (token->error[0])
		log_warn("token_refused", {"section", LOG_TEXT(credentials->section)},
		    {"token_url", LOG_TEXT(credentials->token_place)},
		    {"error", LOG_TEXT(token->error)},
		    {"consequence",
			LOG_TEXT("no request goes out once the present token has ended")});
	else
		log_info("token_received", {"section", LOG_TEXT(credentials->section)});
}

static void request_token(
    struct http_credentials *credentials, struct http_client *client, int64_t now)
{
	struct err err;

	if (write_token_request(credentials, &err) &&
	    send_token_request(credentials, client, &err)) {
		http_token_begin(&credentials->token, now);
		return;
	}
	http_token_fail(&credentials->token, now, "%s", err.message);
	tell_token(credentials);
}

/* --- access --------------------------------------------------------------------------------- */

bool http_credentials_any(const struct http_credentials *credentials)
{
	return credentials->texts.token_url[0] || credentials->texts.headers_file ||
	       credentials->own.count > 0;
}

int http_credentials_in_flight(const struct http_credentials *credentials)
{
	return credentials->texts.token_url[0] ? 1 : 0;
}

enum http_access http_credentials_access(struct http_credentials *credentials,
    struct http_client *client, int64_t now, const char **ret_error)
{
	struct http_token *token = &credentials->token;

	*ret_error = token->error;
	look_at_headers_file(credentials, now);
	if (!credentials->texts.token_url[0])
		return HTTP_ACCESS_READY;
	if (http_token_is_due(token, now))
		request_token(credentials, client, now);
	if (http_token_is_valid(token, now))
		return HTTP_ACCESS_READY;
	return token->asked ? HTTP_ACCESS_WAITS : HTTP_ACCESS_FAILED;
}

void http_credentials_add(
    const struct http_credentials *credentials, struct http_header *headers, size_t *count)
{
	for (size_t i = 0; i < credentials->own.count; i++)
		headers[(*count)++] = credentials->own.headers[i];
	if (credentials->token.authorization.length > 0)
		headers[(*count)++] = (struct http_header){
		    "Authorization", text_string(&credentials->token.authorization)};
}

bool http_credentials_take(
    struct http_credentials *credentials, const struct http_response *response, int64_t now)
{
	if (response->opaque != credentials)
		return false;
	http_token_end(&credentials->token, response, now);
	tell_token(credentials);
	return true;
}

void http_credentials_refused(struct http_credentials *credentials, int64_t now)
{
	credentials->looked_at = INT64_MIN / 2;
	http_token_refuse(&credentials->token, now);
}

void http_credentials_forget_request(struct http_credentials *credentials)
{
	credentials->token.asked = false;
}

bool http_credentials_try(
    struct http_credentials *credentials, const struct http_networks *networks, struct err *err)
{
	struct http_client *client = http_client_create_single(networks, err);
	const char *error;
	enum http_access access;

	if (!client)
		return false;
	credentials->quiet = true;
	while ((access = http_credentials_access(credentials, client, clock_ms(), &error)) ==
	       HTTP_ACCESS_WAITS) {
		struct http_response *response = http_client_wait(client);

		(void)!http_credentials_take(credentials, response, clock_ms());
		http_client_release(client, response);
	}
	http_client_destroy(client);
	return access == HTTP_ACCESS_READY ||
	       err_set(err, ERR_DENIED, "%.300s: %s", credentials->token_place, error);
}

/* --- life ----------------------------------------------------------------------------------- */

/* Keys that do nothing without token_url, and those that it needs. */
static bool check_token_keys(
    const struct http_credentials_texts *texts, const char **ret_key, struct err *err)
{
	const struct {
		const char *key, *value;
	} keys[] = {{"client_id", texts->client_id},
	    {"client_secret", texts->client_secret_file ? "set" : texts->client_secret},
	    {"scope", texts->scope}, {"audience", texts->audience}, {"token_ca", texts->token_ca}};
	enum { NEEDED = 2 };

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		if (!texts->token_url[0] && keys[i].value[0])
			return http_refuse_key(err, ret_key, keys[i].key,
			    "it does nothing without token_url; set that, or remove it");
		if (texts->token_url[0] && !keys[i].value[0] && i < NEEDED)
			return http_refuse_key(
			    err, ret_key, keys[i].key, "token_url needs it; set it");
	}
	return true;
}

static bool check_token_url(const char *url, const char **ret_key, struct err *err)
{
	struct refusal refusal;

	return !url[0] || http_guard_form(url, &refusal) ||
	       http_refuse_key(err, ret_key, "token_url", refusal.text);
}

/* One text of all lines, since each is a line of the file too. */
static bool join_own_headers(struct http_credentials *credentials, struct err *err)
{
	OWNED(http_token_wipe) struct text lines = {0};

	for (int i = 0; i < credentials->texts.header_count; i++)
		text_addf(&lines, "%s\n", credentials->texts.headers[i]);
	return set_own_headers(credentials, text_string(&lines), err);
}

static bool set_credential_files(
    struct http_credentials *credentials, const char **ret_key, struct err *err)
{
	const struct http_credentials_texts *texts = &credentials->texts;
	OWNED(http_token_wipe) struct text content = {0};

	*ret_key = texts->headers_file ? "headers_file" : "headers";
	if (!(texts->headers_file ? read_headers_file(credentials, err)
				  : join_own_headers(credentials, err)))
		return false;
	*ret_key = "client_secret_file";
	if (texts->token_url[0] && !read_client_secret(credentials, &content, err))
		return false;
	*ret_key = "token_ca";
	credentials->token_tls = (struct http_tls){
	    .ca_file = texts->token_ca[0] ? texts->token_ca : NULL, .ca_key = "token_ca"};
	return !texts->token_ca[0] || http_file_check(texts->token_ca, err);
}

struct http_credentials *http_credentials_open(
    const struct http_credentials_texts *texts, const char **ret_key, struct err *err)
{
	struct http_credentials *credentials = xcalloc(1, sizeof *credentials);

	credentials->texts = *texts;
	credentials->section = xstrdup(texts->section);
	credentials->token_place =
	    xformat("%.*s", (int)strcspn(texts->token_url, "?"), texts->token_url);
	credentials->looked_at = clock_ms();
	if (check_token_keys(texts, ret_key, err) &&
	    check_token_url(texts->token_url, ret_key, err) &&
	    set_credential_files(credentials, ret_key, err))
		return credentials;
	http_credentials_close(credentials);
	return NULL;
}

void http_credentials_close(struct http_credentials *credentials)
{
	if (!credentials)
		return;
	wipe_headers(&credentials->own);
	http_token_wipe(&credentials->file);
	http_token_finish(&credentials->token);
	http_token_wipe(&credentials->authorization);
	http_token_wipe(&credentials->body);
	free(credentials->section);
	free(credentials->token_place);
	free(credentials);
}
