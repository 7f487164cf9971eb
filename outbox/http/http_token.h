#pragma once
/*
 * An access token of OAuth 2 client credentials: the request for it, the answer, and its life.
 * Pure: the caller sends and owns the clock. http_credentials.h has the rules.
 */
#include "backoff.h"
#include "http_client.h"
#include "text.h"

struct http_token_texts {
	const char *client_id, *client_secret; /* the client authenticates by HTTP Basic */
	const char *scope, *audience;          /* "": not sent */
};

struct http_token {
	struct text authorization; /* "Bearer …"; empty: none */
	int64_t expires_at;        /* clock_ms; with a margin for the way of a request */
	int64_t renew_at;          /* not before: a new token */
	bool asked;                /* a request is in flight */
	int64_t asked_at;
	struct backoff backoff; /* between requests that fail */
	bool changed;           /* the last result is another one; digits do not count */
	char error[512];        /* why the last request failed, and the cure; "" when it did not */
};

void http_token_finish(struct http_token *token);

bool http_token_is_valid(const struct http_token *token, int64_t now);
/* Is it time to request one? */
bool http_token_is_due(const struct http_token *token, int64_t now);

/* Writes the parts of the request. Both texts hold secrets: http_token_wipe them. */
void http_token_write(
    const struct http_token_texts *texts, struct text *ret_authorization, struct text *ret_body);
/* Empties a text that held a secret. */
void http_token_wipe(struct text *text);

/* A request for the token went out. */
void http_token_begin(struct http_token *token, int64_t now);
/* It could not go out. */
void http_token_fail(struct http_token *token, int64_t now, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The end of the request. */
void http_token_end(struct http_token *token, const struct http_response *response, int64_t now);
/* The token was refused: a new one is due, unless this one is very new. */
void http_token_refuse(struct http_token *token, int64_t now);
