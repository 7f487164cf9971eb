/*
 * The token of http_token.h: its request, then its answer. Begin at http_token_end, which keeps the
 * token or notes why there is none; http_token_is_due says when the next request is made.
 */
#include "http_token.h"

#include <curl/curl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
	PAUSE_FIRST_MS = 1000, /* between requests that fail */
	PAUSE_MAX_MS = 30 * 1000,
	UNSAID_LIFE_S = 300,        /* expires_in is only recommended (RFC 6749, 5.1) */
	LONGEST_LIFE_S = 24 * 3600, /* a longer one is renewed once a day all the same */
	MARGIN_MS = 10 * 1000,      /* a request takes a while to be judged */
	FRESH_MS = 10 * 1000,       /* a new token right after a new one would be refused too */
};

void http_token_wipe(struct text *text)
{
	/* All of it: a secret before may have been longer. */
	if (text->data)
		explicit_bzero(text->data, text->capacity);
	text_finish(text);
}

void http_token_finish(struct http_token *token)
{
	http_token_wipe(&token->authorization);
}

bool http_token_is_valid(const struct http_token *token, int64_t now)
{
	return token->authorization.length > 0 && now < token->expires_at;
}

bool http_token_is_due(const struct http_token *token, int64_t now)
{
	return !token->asked && now >= token->renew_at;
}

/* --- the request ---------------------------------------------------------------------------- */

/* As application/x-www-form-urlencoded. */
static void add_form_text(struct text *text, const char *name, const char *value)
{
	char *encoded = curl_easy_escape(NULL, value, 0);

	text_addf(text, "%s%s", name, encoded ? encoded : "");
	curl_free(encoded);
}

static void add_parameter(struct text *body, const char *name, const char *value)
{
	if (*value)
		add_form_text(body, name, value);
}

/* "Basic" and both in form encoding, as RFC 6749, 2.3.1 wants it. */
void http_token_write(
    const struct http_token_texts *texts, struct text *ret_authorization, struct text *ret_body)
{
	struct text pair = {0};

	add_form_text(&pair, "", texts->client_id);
	add_form_text(&pair, ":", texts->client_secret);
	text_clear(ret_authorization);
	text_add(ret_authorization, "Basic ");
	text_reserve(ret_authorization, 4 * (pair.length + 2) / 3 + 1);
	ret_authorization->length += (size_t)EVP_EncodeBlock(
	    (unsigned char *)ret_authorization->data + ret_authorization->length,
	    (const unsigned char *)pair.data, (int)pair.length);
	http_token_wipe(&pair);

	text_clear(ret_body);
	text_add(ret_body, "grant_type=client_credentials");
	add_parameter(ret_body, "&scope=", texts->scope);
	add_parameter(ret_body, "&audience=", texts->audience);
}

void http_token_begin(struct http_token *token, int64_t now)
{
	token->asked = true;
	token->asked_at = now;
}

/* --- the answer ----------------------------------------------------------------------------- */

/* libcurl writes how many milliseconds a request took, which are others each time. */
static bool differ_in_digits_only(const char *a, const char *b)
{
	static const char digits[] = "0123456789";
	size_t length;

	do {
		a += strspn(a, digits);
		b += strspn(b, digits);
		length = strcspn(a, digits);
		if (strcspn(b, digits) != length || memcmp(a, b, length) != 0)
			return false;
		a += length;
		b += length;
	} while (*a || *b);
	return true;
}

static void note_token_error(struct http_token *token, const char *error)
{
	token->changed = !differ_in_digits_only(token->error, error);
	text_copy(token->error, sizeof token->error, error);
}

void http_token_fail(struct http_token *token, int64_t now, const char *format, ...)
{
	char error[sizeof token->error];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, sizeof error, format, arguments);
	va_end(arguments);
	note_token_error(token, error);
	token->asked = false;
	token->backoff.first_ms = PAUSE_FIRST_MS;
	token->backoff.cap_ms = PAUSE_MAX_MS;
	token->renew_at = now + backoff_next_ms(&token->backoff);
}

/* Codes of RFC 6749, 5.2, of a server that the relay must not believe every byte of. */
static const char *cure_of(const char *code)
{
	static const struct {
		const char *code, *cure;
	} cures[] = {{"invalid_client", "correct client_id or client_secret"},
	    {"unauthorized_client", "allow the client the grant client_credentials"},
	    {"invalid_scope", "correct scope"}, {"access_denied", "correct scope or audience"}};

	for (size_t i = 0; i < sizeof cures / sizeof *cures; i++)
		if (text_equal(cures[i].code, code))
			return cures[i].cure;
	return "correct token_url, client_id, client_secret, scope or audience";
}

static void refuse_token_status(
    struct http_token *token, int64_t now, int status, const json_t *answer)
{
	const char *code = json_string_value(json_object_get(answer, "error"));
	struct text shown = {0};

	if (code)
		text_addf(&shown, " %.60s", code);
	for (char *at = shown.data; at && *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	if (status >= 500 || status == 429)
		http_token_fail(
		    token, now, "status %d%s; it is requested again", status, text_string(&shown));
	else
		http_token_fail(
		    token, now, "status %d%s; %s", status, text_string(&shown), cure_of(code));
	text_finish(&shown);
}

/* A token is sent as the value of a header (b64token of RFC 6750). */
static bool is_bearer_token(const char *token)
{
	return token && *token && strlen(token) < 16384 &&
	       !token[strspn(
		   token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=")];
}

/* Seconds; some servers write them as a string. */
static int64_t life_of(const json_t *answer)
{
	const json_t *expires_in = json_object_get(answer, "expires_in");
	double number = json_number_value(expires_in);
	int64_t life_s = UNSAID_LIFE_S;

	/* Compared before it is converted: any number may come. */
	if (json_is_number(expires_in))
		life_s = number < 1                ? 1
			 : number < LONGEST_LIFE_S ? (int64_t)number
						   : LONGEST_LIFE_S;
	else if (json_is_string(expires_in) &&
		 !text_to_int64(json_string_value(expires_in), 0, LONGEST_LIFE_S, &life_s))
		life_s = UNSAID_LIFE_S;
	return life_s > 0 ? life_s : 1;
}

/*
 * The life counts from the request, since nobody knows when the server made the token. A token that
 * comes after its end is a failure: requests would wait for the next one, and so on without end.
 */
static void keep_token(struct http_token *token, int64_t now, const char *text, int64_t life_s)
{
	int64_t life_ms = life_s * 1000;
	int64_t margin_ms = life_ms / 10 < MARGIN_MS ? life_ms / 10 : MARGIN_MS;

	if (now >= token->asked_at + life_ms - margin_ms) {
		http_token_fail(token, now,
		    "its tokens live %lld s, and the answer took longer; have the server give "
		    "tokens that live longer",
		    (long long)life_s);
		return;
	}
	http_token_wipe(&token->authorization);
	text_addf(&token->authorization, "Bearer %s", text);
	token->expires_at = token->asked_at + life_ms - margin_ms;
	token->renew_at = token->asked_at + life_ms * 4 / 5;
	token->asked = false;
	backoff_reset(&token->backoff);
	note_token_error(token, "");
}

static void read_token(struct http_token *token, int64_t now, const json_t *answer)
{
	const char *text = json_string_value(json_object_get(answer, "access_token"));
	const char *type = json_string_value(json_object_get(answer, "token_type"));

	if (!json_is_object(answer))
		http_token_fail(token, now, "the answer is no JSON object; correct token_url");
	else if (!is_bearer_token(text))
		http_token_fail(token, now,
		    "the answer has no access_token that fits into a header; correct token_url");
	else if (type && strcasecmp(type, "bearer") != 0)
		http_token_fail(token, now,
		    "the answer has another token_type than Bearer; have the server give those");
	else
		keep_token(token, now, text, life_of(answer));
}

void http_token_end(struct http_token *token, const struct http_response *response, int64_t now)
{
	json_t *answer;

	if (response->failure) {
		http_token_fail(token, now, "%s: %s", response->failure, response->error);
		return;
	}
	answer = json_loadb(response->body, response->body_length, 0, NULL);
	if (response->status == 200)
		read_token(token, now, answer);
	else
		refuse_token_status(token, now, response->status, answer);
	json_decref(answer);
}

void http_token_refuse(struct http_token *token, int64_t now)
{
	if (!token->asked && now >= token->asked_at + FRESH_MS)
		token->renew_at = token->expires_at = now;
}
