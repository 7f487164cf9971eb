#pragma once
/* What the files of the HTTP client share. */
#include <curl/curl.h>
#include "http_client.h"
#include "text.h"

/*
 * Each request has an exchange: an easy handle with its buffers, used again and again. It is free,
 * running (in the multi handle), done (waits to be taken) or taken.
 */
enum stage { STAGE_QUEUED, STAGE_RESOLVING, STAGE_CONNECTING, STAGE_CONNECTED };

struct exchange {
	struct http_response response; /* the caller's view; first, see exchange_of */
	struct http_client *client;
	struct exchange *next; /* on the list of the free or of the done */
	CURL *easy;
	struct curl_slist *lines; /* of the request's headers, line_room of them */
	size_t line_room;
	struct text line_text; /* what stands in them */
	struct http_limits limits;
	struct text body;
	struct text answer_headers; /* name NUL value NUL … of the final answer */
	size_t trailers_at;         /* those from there on came behind its head */
	size_t header_bytes;        /* of every answer, 1xx too */
	enum stage stage;
	bool running;
	bool shares;          /* its connection with other requests: HTTP/2 */
	bool head_ended;      /* the final answer's, by an empty line */
	bool only_kept;       /* opens no connection, see http_request_set */
	bool none_kept;       /* there was none */
	int resends;          /* after GOAWAY refused its stream */
	bool second_try;      /* after an answer that was cut off or lost its trailers */
	bool cut_off;         /* the first one was */
	bool tried;           /* an address was let through */
	const char *refused;  /* why the last one was not */
	const char *given_up; /* why we did, in a callback */
	int64_t started_us, expires_at;
	int64_t slow_at;        /* the stretch ends then; 0: the answer has not begun */
	size_t slow_bytes_then; /* received when it began */
	char error[CURL_ERROR_SIZE];
};

struct http_client {
	CURLM *multi;
	int epoll_fd;
	int64_t curl_deadline, own_deadline;
	struct http_client_settings settings;
	char *user_agent;
	const char *ca_file, *ca_path; /* the system's, as libcurl knows them */
	struct exchange **all;         /* max_in_flight places, `made` of them filled */
	int made, in_flight;
	struct exchange *free;
	struct exchange *done, **done_end;
	int *shared; /* sockets of HTTP/2 that libcurl waits for */
	int shared_count, shared_room;
	bool corked;         /* they are */
	struct text refused; /* targets whose refused address is in the log, a line each */
};

/* NULL: out of memory. */
struct exchange *http_exchange_create(struct http_client *client);
/* It must not be in the multi handle any more. */
void http_exchange_destroy(struct exchange *exchange);
/* Forgets the answer so far, so that the request can be sent again. */
void http_exchange_forget_answer(struct exchange *exchange);
/* Forgets the request; the handle and small buffers stay. */
void http_exchange_reset(struct exchange *exchange);
/* Bytes of the answer so far. */
size_t http_exchange_received(const struct exchange *exchange);

/* ERR_REJECT: what http_client_send says. */
bool http_request_check(const struct http_request *request, struct err *err) MUST_CHECK;
/* False: out of memory. */
bool http_request_set(struct exchange *exchange, const struct http_request *request) MUST_CHECK;
/* What is set found no connection that it might use: now it opens one. False: out of memory. */
bool http_request_set_anew(struct exchange *exchange) MUST_CHECK;

/* Fills in failure and error of the response, whose `sent` is there already. */
void http_failure_tell(struct exchange *exchange, CURLcode code);
