#pragma once
/* The structs and functions that the files of the HTTP client share. */
#include <curl/curl.h>
#include "http_client.h"
#include "text.h"

/*
 * Each request has an exchange: an easy handle with its buffers, used again and again. An exchange
 * is free, running (in the multi handle), done (its response waits to be taken) or taken.
 */
enum stage { STAGE_QUEUED, STAGE_RESOLVING, STAGE_CONNECTING, STAGE_CONNECTED };

struct exchange {
	struct http_response response; /* the caller's view; first, see exchange_of */
	struct http_client *client;
	struct exchange *next; /* in the list `free` or `done` of the client */
	CURL *easy;
	struct curl_slist *lines; /* the request's header lines: room for line_room */
	size_t line_room;
	struct text line_text;         /* the text of the lines */
	struct curl_slist *connect_to; /* NULL: none, see http_request.connect_to */
	struct http_limits limits;
	struct text body;
	struct text answer_headers; /* name NUL value NUL … of the final answer */
	size_t trailers_at;         /* from this offset on they are trailers */
	size_t header_bytes;        /* header lines of all answers, 1xx too */
	enum stage stage;
	bool running;
	bool shares;          /* shares its connection with other requests: HTTP/2 */
	bool head_ended;      /* the empty line after the final answer's headers came */
	bool only_kept;       /* may not open a connection, see http_request_set */
	bool none_kept;       /* only_kept, and no kept connection was found */
	int resends;          /* sent again because GOAWAY refused the stream */
	bool second_try;      /* sent again because the answer was cut off or lost its trailers */
	bool cut_off;         /* the first answer was cut off */
	bool tried;           /* the guard allowed an address */
	const char *refused;  /* why the guard refused the last address that it refused */
	const char *given_up; /* why the client gave the request up itself */
	const char *ca_key;   /* http_tls.ca_key */
	const char *pinned_file; /* http_tls.pinned_file */
	int64_t started_us, expires_at;
	int64_t slow_at;        /* end of the current stretch; 0: none has begun */
	size_t slow_bytes_then; /* bytes received when the stretch began */
	char error[CURL_ERROR_SIZE];
};

struct http_client {
	CURLM *multi;
	int epoll_fd;
	int64_t curl_deadline, own_deadline;
	struct http_client_settings settings;
	char *user_agent;
	const char *ca_file, *ca_path; /* the system's authorities, as libcurl knows them */
	struct exchange **all;         /* max_in_flight places; the first `made` are filled */
	int made, in_flight;
	struct exchange *free;
	struct exchange *done, **done_end;
	int *shared; /* sockets of HTTP/2 that libcurl waits for */
	int shared_count, shared_room;
	bool corked;         /* the shared sockets are corked */
	struct text refused; /* targets whose refused address was logged, a line each */
};

/* NULL: out of memory. */
struct exchange *http_exchange_create(struct http_client *client);
/* The exchange must no longer be in the multi handle. */
void http_exchange_destroy(struct exchange *exchange);
/* Forgets the answer so far, so that the request can be sent again. */
void http_exchange_forget_answer(struct exchange *exchange);
/* Forgets the request; the handle and small buffers stay. */
void http_exchange_reset(struct exchange *exchange);
/* Bytes of the answer so far. */
size_t http_exchange_received(const struct exchange *exchange);

/* NULL: a request may have this header; otherwise why it may not. */
const char *http_header_problem(const struct http_header *header);
/* ERR_REJECT as http_client_send says. */
bool http_request_check(const struct http_request *request, struct err *err) MUST_CHECK;
/* False: out of memory. */
bool http_request_set(struct exchange *exchange, const struct http_request *request) MUST_CHECK;
/* Sets the request again, to be sent on a new connection. False: out of memory. */
bool http_request_set_anew(struct exchange *exchange) MUST_CHECK;

/* ERR_CONFIG about a key of a section; always returns false. */
bool http_refuse_key(struct err *err, const char **ret_key, const char *key, const char *why);
/* False (ERR_CONFIG): the file cannot be read, or is empty. It may block. */
bool http_file_check(const char *path, struct err *err) MUST_CHECK;

/* Fills in failure and error of the response; its `sent` must be set already. */
void http_failure_tell(struct exchange *exchange, CURLcode code);
