#include "http_private.h"
#include <string.h>
#include <sys/socket.h>
#include "clock.h"
#include "http_lines.h"

/* A buffer that grew beyond this size is not kept for the next request. */
enum { KEPT_CAPACITY = 64 << 10 };

/* --- callbacks of libcurl ---------------------------------------------------------------- */

/*
 * False for an exchange that may only use a kept connection (http_request_set): libcurl wants to
 * open one, so it found none.
 */
static bool may_connect(struct exchange *exchange)
{
	exchange->none_kept = exchange->only_kept;
	return !exchange->only_kept;
}

static int on_resolve(void *resolver, void *reserved, void *context)
{
	struct exchange *exchange = context;

	(void)resolver;
	(void)reserved;
	exchange->stage = STAGE_RESOLVING;
	return !may_connect(exchange);
}

/* The last moment before a packet goes to the address, which is known here. */
static curl_socket_t on_open(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct exchange *exchange = context;
	const char *why;

	(void)purpose;
	if (!may_connect(exchange))
		return CURL_SOCKET_BAD;
	exchange->stage = STAGE_CONNECTING;
	/*
	 * A name may resolve to another address each time, so a check before this call proves
	 * nothing.
	 */
	why = http_guard_address(&address->addr, exchange->client->settings.networks);
	if (why) {
		exchange->refused = why;
		return CURL_SOCKET_BAD;
	}
	exchange->tried = true;
	return socket(
	    address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
}

static int on_connected(void *context, char *peer, char *own, int peer_port, int own_port)
{
	struct exchange *exchange = context;

	(void)peer;
	(void)own;
	(void)peer_port;
	(void)own_port;
	exchange->stage = STAGE_CONNECTED;
	return CURL_PREREQFUNC_OK;
}

static size_t give_up_exchange(struct exchange *exchange, const char *why)
{
	exchange->given_up = why;
	return 0;
}

size_t http_exchange_received(const struct exchange *exchange)
{
	return exchange->header_bytes + exchange->body.length;
}

/* The first byte of an answer starts the first stretch of limits.slow_ms. */
static void answer_began(struct exchange *exchange)
{
	struct http_client *client = exchange->client;

	if (!exchange->response.first_byte_us)
		exchange->response.first_byte_us = clock_us() - exchange->started_us;
	if (exchange->slow_at || !exchange->limits.slow_bytes)
		return;
	exchange->slow_at = clock_ms() + exchange->limits.slow_ms;
	exchange->slow_bytes_then = http_exchange_received(exchange);
	if (client->own_deadline > exchange->slow_at)
		client->own_deadline = exchange->slow_at;
}

/* Takes one header line; libcurl calls it for trailers too, after the body. */
static size_t on_header(char *line, size_t size, size_t count, void *context)
{
	struct exchange *exchange = context;
	size_t length = size * count;

	answer_began(exchange);
	exchange->header_bytes += length;
	if (exchange->header_bytes > exchange->limits.max_headers)
		return give_up_exchange(exchange, "headers_too_large");

	/* The empty line that ends the headers; the next lines are trailers, unless it was a 1xx.
	 */
	if (length <= 2 && line[0] != ' ' && !exchange->head_ended) {
		exchange->head_ended = true;
		exchange->trailers_at = exchange->answer_headers.length;
	}
	if (length > 5 && memcmp(line, "HTTP/", 5) == 0) {
		exchange->head_ended = false;
		text_clear(&exchange->answer_headers); /* the answer before was a 1xx */
	} else {
		http_lines_add(&exchange->answer_headers, line, length);
	}
	return length ? length : 1;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
	struct exchange *exchange = context;
	size_t length = size * count;

	answer_began(exchange);
	/* Subtracted rather than added: max_body may be SIZE_MAX, and a sum would overflow. */
	if (length > exchange->limits.max_body - exchange->body.length)
		return give_up_exchange(exchange, "too_large");
	text_append(&exchange->body, bytes, length);
	return length;
}

/* --- life -------------------------------------------------------------------------------- */

/* Sets the options that are the same for every request. */
static bool set_always(struct exchange *exchange)
{
	const struct http_client *client = exchange->client;
	CURL *easy = exchange->easy;
	bool good = true;

#define SET(option, value) (good &= curl_easy_setopt(easy, option, value) == CURLE_OK)
	SET(CURLOPT_PRIVATE, exchange);
	SET(CURLOPT_ERRORBUFFER, exchange->error);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_NOPROGRESS, 1L);
	/* When a request is over, libcurl does not wait for a resolver thread that hangs. */
	SET(CURLOPT_QUICK_EXIT, 1L);
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
	SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	SET(CURLOPT_PATH_AS_IS, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_PROXY, "");
	SET(CURLOPT_NOPROXY, "*");
	SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	SET(CURLOPT_SSL_VERIFYPEER, 1L);
	SET(CURLOPT_SSL_VERIFYHOST, 2L);
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	SET(CURLOPT_TCP_NODELAY, 1L);
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_HTTP09_ALLOWED, 0L);
	SET(CURLOPT_USERAGENT, client->user_agent);
	SET(CURLOPT_RESOLVER_START_FUNCTION, on_resolve);
	SET(CURLOPT_RESOLVER_START_DATA, exchange);
	SET(CURLOPT_OPENSOCKETFUNCTION, on_open);
	SET(CURLOPT_OPENSOCKETDATA, exchange);
	SET(CURLOPT_PREREQFUNCTION, on_connected);
	SET(CURLOPT_PREREQDATA, exchange);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, exchange);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, exchange);
	return good;
#undef SET
}

void http_exchange_destroy(struct exchange *exchange)
{
	if (exchange->easy)
		curl_easy_cleanup(exchange->easy);
	curl_slist_free_all(exchange->connect_to);
	free(exchange->lines);
	text_finish(&exchange->line_text);
	text_finish(&exchange->body);
	text_finish(&exchange->answer_headers);
	free(exchange);
}

struct exchange *http_exchange_create(struct http_client *client)
{
	struct exchange *exchange = xcalloc(1, sizeof *exchange);

	exchange->client = client;
	exchange->easy = curl_easy_init();
	if (!exchange->easy || !set_always(exchange)) {
		http_exchange_destroy(exchange);
		return NULL;
	}
	return exchange;
}

static void text_reuse(struct text *text)
{
	if (text->capacity > KEPT_CAPACITY)
		text_finish(text);
	text_clear(text);
}

void http_exchange_forget_answer(struct exchange *exchange)
{
	text_reuse(&exchange->body);
	text_reuse(&exchange->answer_headers);
	exchange->header_bytes = exchange->trailers_at = 0;
	exchange->stage = STAGE_QUEUED;
	exchange->head_ended = false;
	exchange->slow_at = 0;
	exchange->response.first_byte_us = 0;
	exchange->error[0] = '\0';
}

void http_exchange_reset(struct exchange *exchange)
{
	http_exchange_forget_answer(exchange);
	text_reuse(&exchange->line_text);
	exchange->only_kept = exchange->none_kept = false;
	exchange->tried = exchange->second_try = exchange->cut_off = false;
	exchange->refused = exchange->given_up = NULL;
	exchange->resends = 0;
	exchange->response = (struct http_response){0};
}
