#pragma once
/*
 * Proofs of identity that a section sends to a business with each request: headers that the
 * operator wrote, and the access token of OAuth 2 client credentials (RFC 6749, 4.4). The keys have
 * the same names in every section.
 *
 * A changed headers_file is used within HTTP_CREDENTIALS_LOOK_MS. The token is requested with the
 * first request that needs it, and again after four fifths of its life, or when a business answers
 * 401; until the new one comes, the present one is used as long as it is valid. client_secret_file
 * is read for each token. Errors and log lines never contain a value of a header, a secret or a
 * token.
 *
 *   switch (http_credentials_access(credentials, client, now, &error)) {
 *   case HTTP_ACCESS_READY:  http_credentials_add(…), http_client_send(…)
 *   case HTTP_ACCESS_WAITS:  go on when the client has a response
 *   case HTTP_ACCESS_FAILED: the request fails, because of `error`
 *   }
 *   while ((response = http_client_take(client)))
 *       if (!http_credentials_take(credentials, response, now)) … a response to the caller's
 * request
 *
 * Owned by the thread of the client.
 */
#include "http_client.h"

enum {
	HTTP_CREDENTIALS_HEADERS = 17, /* the most that http_credentials_add appends */
	HTTP_CREDENTIALS_LOOK_MS = 1000,
};

/* A key that is not set is "", a file that is not set is NULL. They outlive the credentials. */
struct http_credentials_texts {
	const char *section; /* for the log: "deliver billing"; copied */
	/* "Name: value" each; NULL: headers_file has them, a line each */
	const char *const *headers;
	int header_count;
	const char *headers_file;
	const char *token_url; /* "": no token */
	const char *client_id, *client_secret;
	const char *client_secret_file; /* takes the place of client_secret */
	const char *scope, *audience;
	const char *token_ca; /* file with the authorities of token_url; "": the system's */
};

struct http_credentials;

/*
 * Reads files, and may block. NULL (ERR_CONFIG): *ret_key is the key that is wrong, and the message
 * says why.
 */
struct http_credentials *http_credentials_open(
    const struct http_credentials_texts *texts, const char **ret_key, struct err *err);
/* No request of it may be in flight: the client was destroyed. NULL is fine. */
void http_credentials_close(struct http_credentials *credentials);

/* Requests that it has in flight at once: the client needs room for them. */
int http_credentials_in_flight(const struct http_credentials *credentials);
/* Is there any header or token? Then 401 means that they are wrong. */
bool http_credentials_any(const struct http_credentials *credentials);

enum http_access { HTTP_ACCESS_READY, HTTP_ACCESS_WAITS, HTTP_ACCESS_FAILED };

/* May a request go out now? Requests a token if one is needed. now: clock_ms. */
enum http_access http_credentials_access(struct http_credentials *credentials,
    struct http_client *client, int64_t now, const char **ret_error) MUST_CHECK;

/* Appends the headers at headers[*count]; they are valid until the next call of access. */
void http_credentials_add(
    const struct http_credentials *credentials, struct http_header *headers, size_t *count);

/* True: it was the answer to a request for a token. The caller releases it in either case. */
bool http_credentials_take(struct http_credentials *credentials,
    const struct http_response *response, int64_t now) MUST_CHECK;

/* The business answered 401: the next request reads headers_file again and waits for a new token.
 */
void http_credentials_refused(struct http_credentials *credentials, int64_t now);

/* The client was destroyed with all its requests. */
void http_credentials_forget_request(struct http_credentials *credentials);

/*
 * Requests a token once, and waits for it. False: why not, with the cure. networks: as those of a
 * client. True also if there is no token_url.
 */
bool http_credentials_try(struct http_credentials *credentials,
    const struct http_networks *networks, struct err *err) MUST_CHECK;
