#include "http_lines.h"
#include "http_private.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "clock.h"

/*
 * The client: a libcurl multi handle behind one epoll descriptor. A request takes an exchange
 * (http_exchange.c) and its options (http_request.c) in http_client_send; http_client_step serves
 * sockets and timers, collects the requests that libcurl ended, and gives up the late ones. Read
 * http_client_step first, then end_exchange, which decides whether a request is sent again.
 */

enum { EVENTS = 64, MOST_RESENDS = 3, LONGEST_WAIT_MS = 1000 };

static struct exchange *exchange_of(struct http_response *response)
{
	return (struct exchange *)(void *)((char *)response - offsetof(struct exchange, response));
}

/* --- shared sockets ---------------------------------------------------------------------- */

/*
 * libcurl sends each frame by itself, two for each request, and a packet for each frame costs more
 * than all the rest of a small request. So all frames of one step leave a connection together.
 */
static void set_cork(int fd, int on)
{
	setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

static void cork_connections(struct http_client *client, bool on)
{
	client->corked = on;
	for (int i = 0; i < client->shared_count; i++)
		set_cork(client->shared[i], on);
}

static void add_shared(struct http_client *client, int fd)
{
	if (client->shared_count == client->shared_room) {
		client->shared_room = client->shared_room * 2 + 4;
		client->shared =
		    xrealloc(client->shared, (size_t)client->shared_room * sizeof *client->shared);
	}
	client->shared[client->shared_count++] = fd;
	if (client->corked)
		set_cork(fd, true);
}

/* libcurl may keep the socket for later requests; nothing else would uncork it then. */
static void forget_shared(struct http_client *client, int fd)
{
	for (int i = 0; i < client->shared_count; i++) {
		if (client->shared[i] != fd)
			continue;
		if (client->corked)
			set_cork(fd, false);
		client->shared[i] = client->shared[--client->shared_count];
		return;
	}
}

static bool is_shared(CURL *easy)
{
	char *exchange = NULL;

	return curl_easy_getinfo(easy, CURLINFO_PRIVATE, &exchange) == CURLE_OK && exchange &&
	       ((struct exchange *)(void *)exchange)->shares;
}

/* --- the descriptor ---------------------------------------------------------------------- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *known)
{
	struct http_client *client = context;
	struct epoll_event event = {.data.fd = fd};

	if (what == CURL_POLL_REMOVE) {
		forget_shared(client, fd);
		epoll_ctl(client->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		event.events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		event.events |= EPOLLOUT;
	/* The kernel forgets a socket that was closed, so MOD may fail; then it is added again. */
	if (known && epoll_ctl(client->epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0)
		return 0;
	if (!known && is_shared(easy))
		add_shared(client, fd);
	if (epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 && errno == EEXIST)
		epoll_ctl(client->epoll_fd, EPOLL_CTL_MOD, fd, &event);
	curl_multi_assign(client->multi, fd, client);
	return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *context)
{
	struct http_client *client = context;

	(void)multi;
	client->curl_deadline = timeout_ms < 0 ? INT64_MAX : clock_ms() + timeout_ms;
	return 0;
}

int http_client_fd(const struct http_client *client)
{
	return client->epoll_fd;
}

int64_t http_client_deadline(const struct http_client *client)
{
	return client->curl_deadline < client->own_deadline ? client->curl_deadline
							    : client->own_deadline;
}

int http_client_in_flight(const struct http_client *client)
{
	return client->in_flight;
}

/* --- sending ----------------------------------------------------------------------------- */

static struct exchange *exchange_get(struct http_client *client)
{
	struct exchange *exchange = client->free;

	if (exchange) {
		client->free = exchange->next;
		return exchange;
	}
	exchange = http_exchange_create(client);
	if (exchange)
		client->all[client->made++] = exchange;
	return exchange;
}

static void exchange_put(struct http_client *client, struct exchange *exchange)
{
	http_exchange_reset(exchange);
	exchange->next = client->free;
	client->free = exchange;
}

bool http_client_send(
    struct http_client *client, const struct http_request *request, struct err *err)
{
	struct exchange *exchange;

	if (!http_request_check(request, err))
		return false;
	if (client->in_flight >= client->settings.max_in_flight)
		return err_set(err, ERR_RETRY, "%d requests are under way, as many as may be",
		    client->in_flight);
	exchange = exchange_get(client);
	if (!exchange)
		return err_set(err, ERR_RETRY, "libcurl has no memory");
	exchange->response.opaque = request->opaque;
	exchange->started_us = clock_us();
	if (!http_request_set(exchange, request) ||
	    curl_multi_add_handle(client->multi, exchange->easy) != CURLM_OK) {
		exchange_put(client, exchange);
		return err_set(err, ERR_RETRY, "libcurl has no memory");
	}
	exchange->running = true;
	/*
	 * libcurl does not end a request that waits for a connection (why_late), so the client
	 * does.
	 */
	exchange->expires_at = clock_ms() + request->limits.timeout_ms;
	if (client->own_deadline > exchange->expires_at)
		client->own_deadline = exchange->expires_at;
	client->in_flight++;
	return true;
}

/* --- the end of a request ---------------------------------------------------------------- */

/*
 * A server that ends an old connection refuses new streams by GOAWAY, and has handled none of them.
 * libcurl ends such requests with an error of the connection.
 */
static bool is_refused_stream(const struct exchange *exchange, CURLcode code)
{
	return exchange->shares && code == CURLE_HTTP2 && exchange->header_bytes == 0;
}

static bool may_resend(struct exchange *exchange)
{
	return clock_ms() < exchange->expires_at && exchange->resends++ < MOST_RESENDS;
}

static bool ended_by_peer(CURLcode code)
{
	return code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM || code == CURLE_SEND_ERROR ||
	       code == CURLE_RECV_ERROR || code == CURLE_PARTIAL_FILE || code == CURLE_GOT_NOTHING;
}

/*
 * Servers end connections of HTTP/2 that are old, or when they stop, and cut off the answers in
 * flight. libcurl 7.88 also loses the trailers of an answer that it reads together with GOAWAY, and
 * calls such an answer complete. A peer may handle a request of HTTP/2 twice, so each has a second
 * try.
 */
static bool is_cut_off(struct exchange *exchange, CURLcode code)
{
	bool has_trailers = exchange->answer_headers.length > exchange->trailers_at;
	bool cut = code ? ended_by_peer(code) : exchange->body.length && !has_trailers;

	if (!exchange->shares || !cut || exchange->resends || exchange->second_try ||
	    clock_ms() >= exchange->expires_at)
		return false;
	exchange->second_try = true;
	exchange->cut_off = code != CURLE_OK; /* else libcurl lost the trailers, not the server */
	return true;
}

/* Sends the request again, on a new connection. */
static bool restart_exchange(struct exchange *exchange)
{
	CURLM *multi = exchange->client->multi;

	curl_multi_remove_handle(multi, exchange->easy);
	http_exchange_forget_answer(exchange);
	return http_request_set_anew(exchange) &&
	       curl_multi_add_handle(multi, exchange->easy) == CURLM_OK;
}

static void finish_exchange(struct exchange *exchange, CURLcode code)
{
	struct http_client *client = exchange->client;
	struct http_response *response = &exchange->response;
	long status = 0, bytes_sent = 0;

	curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(exchange->easy, CURLINFO_REQUEST_SIZE, &bytes_sent);
	response->status = (int)status;
	/*
	 * If the last stream was refused, the service handled no attempt, also if the time passed
	 * before the last resend. An attempt that was cut off may have been handled.
	 */
	response->sent =
	    exchange->cut_off || (bytes_sent > 0 && !is_refused_stream(exchange, code));
	response->total_us = clock_us() - exchange->started_us;
	response->body = text_string(&exchange->body);
	response->body_length = exchange->body.length;

	/* libcurl takes an answer that ends within its headers for one without a body. */
	if (!code && !exchange->head_ended)
		code = CURLE_PARTIAL_FILE;
	if (code)
		http_failure_tell(exchange, code);

	curl_multi_remove_handle(client->multi, exchange->easy);
	exchange->running = false;
	exchange->next = NULL;
	*client->done_end = exchange;
	client->done_end = &exchange->next;
}

static void end_exchange(struct exchange *exchange, CURLcode code)
{
	bool again = exchange->none_kept ||
		     (is_refused_stream(exchange, code) && may_resend(exchange)) ||
		     is_cut_off(exchange, code);

	if (!again || !restart_exchange(exchange))
		finish_exchange(exchange, code);
}

/* --- the loop ---------------------------------------------------------------------------- */

static void serve_sockets(struct http_client *client)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(client->epoll_fd, events, EVENTS, 0), running;

	for (int i = 0; i < count; i++) {
		uint32_t seen = events[i].events;
		int what = 0;
		if (seen & EPOLLIN)
			what |= CURL_CSELECT_IN;
		if (seen & EPOLLOUT)
			what |= CURL_CSELECT_OUT;
		if (seen & (EPOLLERR | EPOLLHUP))
			what |= CURL_CSELECT_ERR;
		curl_multi_socket_action(client->multi, events[i].data.fd, what, &running);
	}
}

/*
 * Also asks libcurl for its next deadline: libcurl calls on_timer only when that changes, and it
 * does not change when the call came early by a fraction of a millisecond.
 */
static void serve_timer(struct http_client *client, int64_t now_ms)
{
	long timeout_ms;
	int running;

	if (now_ms < client->curl_deadline)
		return;
	curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	if (curl_multi_timeout(client->multi, &timeout_ms) == CURLM_OK)
		on_timer(client->multi, timeout_ms, client);
}

static void collect_ended(struct http_client *client)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(client->multi, &left))) {
		char *exchange;
		/* libcurl owns the message, and it is gone with the handle. */
		CURLcode code = message->data.result;
		if (message->msg == CURLMSG_DONE &&
		    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange) == 0)
			end_exchange((struct exchange *)(void *)exchange, code);
	}
}

/* Is a stretch over in which too little came? If enough came, a new stretch begins. */
static bool is_slow(struct exchange *exchange, int64_t now_ms)
{
	size_t now = http_exchange_received(exchange);

	if (now_ms < exchange->slow_at)
		return false;
	if (now - exchange->slow_bytes_then < (uint64_t)exchange->limits.slow_bytes)
		return true;
	exchange->slow_at = now_ms + exchange->limits.slow_ms;
	exchange->slow_bytes_then = now;
	return false;
}

/*
 * Why the client gives the request up now; or NULL, and when to look again. libcurl checks the
 * timeout only of requests that have a connection.
 */
static const char *why_late(struct exchange *exchange, int64_t now_ms, int64_t *ret_next)
{
	if (exchange->stage == STAGE_QUEUED) {
		*ret_next = exchange->expires_at;
		return now_ms >= exchange->expires_at ? "queue_timeout" : NULL;
	}
	if (exchange->slow_at && is_slow(exchange, now_ms))
		return "too_slow";
	*ret_next = exchange->slow_at ? exchange->slow_at : INT64_MAX;
	return NULL;
}

static void stop_late_exchanges(struct http_client *client, int64_t now_ms)
{
	if (now_ms < client->own_deadline)
		return;

	client->own_deadline = INT64_MAX;
	for (int i = 0; i < client->made; i++) {
		struct exchange *exchange = client->all[i];
		const char *why;
		int64_t next;
		/* Exchanges that are free, done or taken have no deadline. */
		if (!exchange->running)
			continue;
		why = why_late(exchange, now_ms, &next);
		if (why) {
			exchange->given_up = why;
			finish_exchange(exchange, CURLE_OPERATION_TIMEDOUT);
		} else if (next < client->own_deadline) {
			client->own_deadline = next;
		}
	}
}

void http_client_step(struct http_client *client, int64_t now_ms)
{
	cork_connections(client, true);
	serve_sockets(client);
	serve_timer(client, now_ms);
	/* Before anything else: the frames that libcurl has written must leave now. */
	cork_connections(client, false);
	collect_ended(client);
	stop_late_exchanges(client, now_ms);
}

struct http_response *http_client_take(struct http_client *client)
{
	struct exchange *exchange = client->done;

	if (!exchange)
		return NULL;
	client->done = exchange->next;
	if (!client->done)
		client->done_end = &client->done;
	return &exchange->response;
}

void http_client_release(struct http_client *client, struct http_response *response)
{
	exchange_put(client, exchange_of(response));
	client->in_flight--;
}

struct http_response *http_client_wait(struct http_client *client)
{
	struct http_response *response;

	while (!(response = http_client_take(client))) {
		struct pollfd polled = {.fd = http_client_fd(client), .events = POLLIN};
		int64_t wait = http_client_deadline(client) - clock_ms();

		poll(&polled, 1,
		    wait < 0                 ? 0
		    : wait > LONGEST_WAIT_MS ? LONGEST_WAIT_MS
					     : (int)wait);
		http_client_step(client, clock_ms());
	}
	return response;
}

static const struct exchange *exchange_behind(const struct http_response *response)
{
	return (const void *)((const char *)response - offsetof(struct exchange, response));
}

const char *http_response_header(const struct http_response *response, const char *name)
{
	return http_lines_find(&exchange_behind(response)->answer_headers, 0, name);
}

const char *http_response_trailer(const struct http_response *response, const char *name)
{
	const struct exchange *exchange = exchange_behind(response);

	return exchange->head_ended
		   ? http_lines_find(&exchange->answer_headers, exchange->trailers_at, name)
		   : NULL;
}

const char *http_response_encoding(const struct http_response *response)
{
	const char *encoding = http_response_header(response, "Content-Encoding");

	return encoding && *encoding && strcasecmp(encoding, "identity") != 0 ? encoding : NULL;
}

int64_t http_response_retry_after_ms(const struct http_response *response, int64_t wall_us)
{
	return http_lines_retry_after_ms(http_response_header(response, "Retry-After"), wall_us);
}

/* --- life -------------------------------------------------------------------------------- */

static bool set_up_multi(struct http_client *client)
{
	const struct http_client_settings *settings = &client->settings;
	CURLM *multi = client->multi;
	CURL *easy = curl_easy_init();
	bool good = easy;

#define SET(option, value) (good &= curl_multi_setopt(multi, option, value) == CURLM_OK)
	SET(CURLMOPT_SOCKETFUNCTION, on_socket);
	SET(CURLMOPT_SOCKETDATA, client);
	SET(CURLMOPT_TIMERFUNCTION, on_timer);
	SET(CURLMOPT_TIMERDATA, client);
	SET(CURLMOPT_PIPELINING, (long)CURLPIPE_MULTIPLEX);

	SET(CURLMOPT_MAXCONNECTS, (long)settings->max_connections);
	SET(CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)settings->max_connections);
	SET(CURLMOPT_MAX_HOST_CONNECTIONS, (long)settings->max_host_connections);
#undef SET
	if (good) {
		/* These texts are compiled into libcurl: they outlive the handle. */
		good = curl_easy_getinfo(easy, CURLINFO_CAINFO, &client->ca_file) == CURLE_OK &&
		       curl_easy_getinfo(easy, CURLINFO_CAPATH, &client->ca_path) == CURLE_OK;
	}
	curl_easy_cleanup(easy);
	return good;
}

struct http_client *http_client_create(const struct http_client_settings *settings, struct err *err)
{
	struct http_client *client;

	if (settings->max_in_flight < 1 || settings->max_connections < 1 ||
	    settings->max_host_connections < 1) {
		err_set(err, ERR_CONFIG, "the limits of an HTTP client are at least 1");
		return NULL;
	}
	client = xcalloc(1, sizeof *client);
	client->settings = *settings;
	client->user_agent = xstrdup(settings->user_agent);
	client->all = xcalloc((size_t)settings->max_in_flight, sizeof *client->all);
	client->done_end = &client->done;
	client->curl_deadline = client->own_deadline = INT64_MAX;
	client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	client->multi = curl_multi_init();
	if (client->epoll_fd < 0 || !client->multi || !set_up_multi(client)) {
		err_set(err, ERR_FATAL, "an HTTP client cannot be made: %s",
		    client->epoll_fd < 0 ? strerror(errno) : "libcurl has no memory");
		http_client_destroy(client);
		return NULL;
	}
	return client;
}

struct http_client *http_client_create_single(const struct http_networks *networks, struct err *err)
{
	const struct http_client_settings settings = {.max_in_flight = 1,
	    .max_connections = 1,
	    .max_host_connections = 1,
	    .user_agent = "outbox-relay/" RELAY_VERSION,
	    .networks = networks};

	return http_client_create(&settings, err);
}

void http_client_destroy(struct http_client *client)
{
	if (!client)
		return;

	for (int i = 0; i < client->made; i++) {
		curl_multi_remove_handle(client->multi, client->all[i]->easy);
		http_exchange_destroy(client->all[i]);
	}
	if (client->multi)
		curl_multi_cleanup(client->multi);
	curl_global_cleanup();

	text_finish(&client->refused);
	if (client->epoll_fd >= 0)
		close(client->epoll_fd);
	free(client->shared);
	free(client->all);
	free(client->user_agent);
	free(client);
}
