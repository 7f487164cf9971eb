/*
 * One connection of a listener: its requests arrive (take_input), become whole (take_head,
 * take_body), are handed to the workers, and their answers go out (start_answer, write_answer).
 * All of it is done by the server's thread and never waits. A connection is in one state
 * (enum connection_state); move() is the only function that changes it.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>
#include "cleanup.h"
#include "clock.h"
#include "server_private.h"

enum { FIRST_BYTES = 1024, LEAVE_MS = 5000 };

#define TO(state) (1U << (state))
static const struct {
	const char *name;
	unsigned next;   /* states that may follow; any may end */
	uint32_t events; /* that are waited for */
} states[CONNECTION_STATES] = {
    [CONNECTION_HEAD] = {"head",
	TO(CONNECTION_BODY) | TO(CONNECTION_WORKING) | TO(CONNECTION_DELAYED) |
	    TO(CONNECTION_WRITING),
	EPOLLIN},
    [CONNECTION_BODY] = {"body",
	TO(CONNECTION_WORKING) | TO(CONNECTION_DELAYED) | TO(CONNECTION_WRITING), EPOLLIN},
    [CONNECTION_WORKING] = {"working", TO(CONNECTION_DELAYED) | TO(CONNECTION_WRITING), 0},
    [CONNECTION_DELAYED] = {"delayed", TO(CONNECTION_WRITING), 0},
    [CONNECTION_WRITING] = {"writing", TO(CONNECTION_HEAD) | TO(CONNECTION_LEAVING), EPOLLOUT},
    [CONNECTION_LEAVING] = {"leaving", 0, EPOLLIN},
};

static void move(struct server_request *connection, enum connection_state next, int64_t ms)
{
	assert(states[connection->state].next & TO(next));
	connection->state = next;
	connection->until_ms = clock_ms() + ms;
	server_watch(connection, states[next].events);
}

/* --- open and close --------------------------------------------------------------------------- */

void connection_open(struct server *server, int fd, const struct sockaddr_storage *from)
{
	struct server_request *connection = xcalloc(1, sizeof *connection);
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	connection->server = server;
	connection->fd = fd;
	connection->peer = peer_find(&server->peers, from);
	connection->peer->connections++;
	connection->begun_ms = connection->progress_ms = clock_ms();
	connection->until_ms = connection->begun_ms + server->settings.head_ms;
	DL_APPEND(server->connections, connection);
	server->count++;
	server_watch(connection, EPOLLIN);
	/* Most clients have sent their request by now: it is taken before others can come. */
	connection_event(connection, EPOLLIN);
}

static void end_call(struct server_request *connection, bool was_sent)
{
	if (connection->has_call)
		connection->server->settings.callbacks.end(connection->call, was_sent);
	connection->has_call = false;
	connection->call = NULL;
}

static void drop_answer(struct server_request *connection)
{
	connection->server->unsent -= (int64_t)connection->out.length;
	text_finish(&connection->out);
	connection->out = (struct text){0};
	connection->sent = 0;
}

void connection_close(struct server_request *connection, const char *reason)
{
	struct server *server = connection->server;

	if (reason)
		server_count_refused(server, reason);
	end_call(connection, false);
	drop_answer(connection);
	connection->peer->connections--;
	close(connection->fd);
	connection->fd = -1;
	free(connection->in);
	connection->in = NULL;
	server->count--;
	DL_DELETE(server->connections, connection);
	DL_APPEND(server->closed, connection);
}

/* --- the answer goes out ---------------------------------------------------------------------- */

static const char *reason_phrase(unsigned status)
{
	static const struct {
		unsigned status;
		const char *phrase;
	} phrases[] = {{200, "OK"}, {202, "Accepted"}, {207, "Multi-Status"}, {400, "Bad Request"},
	    {401, "Unauthorized"}, {403, "Forbidden"}, {404, "Not Found"},
	    {405, "Method Not Allowed"}, {409, "Conflict"}, {413, "Content Too Large"},
	    {415, "Unsupported Media Type"}, {431, "Request Header Fields Too Large"},
	    {500, "Internal Server Error"}, {503, "Service Unavailable"}};

	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
		if (phrases[i].status == status)
			return phrases[i].phrase;
	return "Status";
}

static void add_date(struct text *out)
{
	time_t now = (time_t)(clock_wall_us() / 1000000);
	struct tm tm;
	char date[40];

	if (gmtime_r(&now, &tm) && strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm))
		text_addf(out, "Date: %s\r\n", date);
}

/* Of the thread that answers; the connection is its own until then. */
static void write_head(struct server_request *connection, const struct server_answer *answer)
{
	struct text *out = &connection->out;

	text_addf(out, "HTTP/1.1 %u %s\r\n", answer->status, reason_phrase(answer->status));
	add_date(out);
	text_addf(out,
	    "Content-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
	    "X-Content-Type-Options: nosniff\r\n%s%s\r\n",
	    answer->type, answer->body->length, answer->fields ? answer->fields : "",
	    connection->closes ? "Connection: close\r\n" : "");
}

static void note_answer(struct server_request *connection, const struct server_answer *answer)
{
	connection->status = answer->status;
	connection->delay_ms = answer->delay_ms;
	write_head(connection, answer);
	if (!text_equal(connection->head.method, "HEAD"))
		text_append(&connection->out, text_string(answer->body), answer->body->length);
	connection->is_answered = true;
}

void server_answer(struct server_request *request, const struct server_answer *answer)
{
	struct server *server = request->server;

	note_answer(request, answer);
	if (server_is_own_thread(server))
		return; /* `head` or `body`, whose caller goes on with it */
	pthread_mutex_lock(&server->mutex);
	request->done_next = server->done;
	server->done = request;
	pthread_mutex_unlock(&server->mutex);
	server_wake(server);
}

/* What came behind the request becomes the beginning of the next one. */
static void begin_next(struct server_request *connection)
{
	const struct server_settings *settings = &connection->server->settings;
	size_t rest = connection->in_length - connection->head_length;

	memmove(connection->in, connection->in + connection->head_length, rest);
	connection->in_length = rest;
	connection->scanned = connection->head_length = 0;
	connection->is_served = true;
	connection->is_answered = connection->is_heavy = false;
	connection->head = (struct request_head){0};
	connection->chunks = (struct request_chunks){0};
	connection->body_left = connection->taken = 0;
	connection->begun_ms = connection->progress_ms = clock_ms();
	move(connection, CONNECTION_HEAD, rest > 0 ? settings->head_ms : settings->idle_ms);
}

static void end_answer(struct server_request *connection)
{
	bool closes = connection->closes;

	drop_answer(connection);
	end_call(connection, true);
	if (!closes)
		return begin_next(connection);
	if (shutdown(connection->fd, SHUT_WR) != 0)
		return connection_close(connection, NULL);
	move(connection, CONNECTION_LEAVING, LEAVE_MS);
}

static void write_answer(struct server_request *connection)
{
	while (connection->sent < connection->out.length) {
		ssize_t sent = send(connection->fd, connection->out.data + connection->sent,
		    connection->out.length - connection->sent, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno != EAGAIN)
			return connection_close(connection, NULL);
		if (sent < 0)
			return;
		connection->sent += (size_t)sent;
	}
	end_answer(connection);
}

static void start_writing(struct server_request *connection)
{
	move(connection, CONNECTION_WRITING, connection->server->settings.answer_ms);
	connection->progress_ms = clock_ms();
	write_answer(connection);
}

static void start_answer(struct server_request *connection)
{
	server_hold(connection->server, connection, (int64_t)connection->out.length);
	if (connection->is_gone)
		return connection_close(connection, NULL);
	if (connection->delay_ms == 0)
		return start_writing(connection);
	move(connection, CONNECTION_DELAYED, connection->delay_ms);
	connection->progress_ms = clock_ms();
}

/* --- a request comes -------------------------------------------------------------------------- */

/* Without a call: what was read is no request, or not one for us. */
static void refuse(struct server_request *connection, unsigned status, const char *why)
{
	bool says_json = connection->server->settings.says_json;
	OWNED(text_finish) struct text body = {0};
	const struct server_answer answer = {.status = status,
	    .type = says_json ? "application/json" : "text/plain; charset=utf-8",
	    .body = &body};

	/* The texts are ours, and need no escapes. */
	text_addf(&body, says_json ? "{\"code\":\"bad_request\",\"error\":\"%s\"}\n" : "%s\n", why);
	server_count_refused(connection->server, "bad_request");
	connection->closes = true;
	note_answer(connection, &answer);
	start_answer(connection);
}

static void be_whole(struct server_request *connection)
{
	move(connection, CONNECTION_WORKING, 0);
	server_work(connection);
}

/* Bytes of the body. The call may answer at any of them. */
static void give_body(struct server_request *connection, const char *bytes, size_t length)
{
	bool closes = connection->closes;

	if (length == 0)
		return;
	connection->closes = true;
	connection->taken += (int64_t)length;
	connection->server->settings.callbacks.body(connection->call, bytes, length);
	if (!connection->is_answered)
		connection->closes = closes;
}

/* Of bytes behind the head, how many were of the request; -1: the connection has its answer. */
static ssize_t take_chunks(struct server_request *connection, const char *bytes, size_t length)
{
	size_t used = 0, taken, part;
	const char *data;
	int ended = 0;

	while (used < length && ended == 0) {
		ended = request_chunks_read(
		    &connection->chunks, bytes + used, length - used, &taken, &data, &part);
		if (ended < 0) {
			refuse(connection, 400, "the body is not chunked well");
			return -1;
		}
		give_body(connection, data, part);
		if (connection->is_answered) {
			start_answer(connection);
			return -1;
		}
		used += taken;
	}
	/* What came behind the end without the head's buffer is lost: the client sends it again. */
	if (used < length && bytes == connection->server->part)
		connection->closes = true;
	if (ended > 0)
		be_whole(connection);
	return (ssize_t)used;
}

static ssize_t take_length(struct server_request *connection, const char *bytes, size_t length)
{
	if ((int64_t)length > connection->body_left)
		length = (size_t)connection->body_left;
	connection->body_left -= (int64_t)length;
	give_body(connection, bytes, length);
	if (connection->is_answered) {
		start_answer(connection);
		return -1;
	}
	if (connection->body_left == 0)
		be_whole(connection);
	return (ssize_t)length;
}

static ssize_t take_body(struct server_request *connection, const char *bytes, size_t length)
{
	return connection->head.is_chunked ? take_chunks(connection, bytes, length)
					   : take_length(connection, bytes, length);
}

/* What came with the head. */
static void take_first_body(struct server_request *connection)
{
	char *behind = connection->in + connection->head_length;
	size_t rest = connection->in_length - connection->head_length;
	static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
	ssize_t used;

	/* A client that gets no room for it in its empty socket goes on by itself after a while. */
	if (rest == 0 && connection->head.expects_continue)
		(void)!send(connection->fd, go_on, sizeof go_on - 1, MSG_NOSIGNAL);
	used = take_body(connection, behind, rest);
	if (used < 0)
		return;
	memmove(behind, behind + used, rest - (size_t)used);
	connection->in_length -= (size_t)used;
}

static bool is_own_address(const struct server_request *connection, const char *host)
{
	struct sockaddr_storage own;
	socklen_t length = sizeof own;
	struct in6_addr six;
	struct in_addr four;

	if (getsockname(connection->fd, (struct sockaddr *)&own, &length) != 0)
		return false;
	if (own.ss_family == AF_INET)
		return inet_pton(AF_INET, host, &four) == 1 &&
		       memcmp(&four, &((struct sockaddr_in *)&own)->sin_addr, sizeof four) == 0;
	if (inet_pton(AF_INET6, host, &six) == 1)
		return memcmp(&six, &((struct sockaddr_in6 *)&own)->sin6_addr, sizeof six) == 0;
	return inet_pton(AF_INET, host, &four) == 1 &&
	       IN6_IS_ADDR_V4MAPPED(&((struct sockaddr_in6 *)&own)->sin6_addr) &&
	       memcmp(&four, ((struct sockaddr_in6 *)&own)->sin6_addr.s6_addr + 12, sizeof four) ==
		   0;
}

/*
 * A page in a browser can make a name of its own mean our address, and then send us requests as to
 * its own server. It cannot choose another name for them.
 */
static bool is_own_host(const struct server_request *connection)
{
	const struct server *server = connection->server;
	const struct config_list *hosts = server->settings.hosts;
	const char *host = connection->head.host;

	if (strcasecmp(host, "localhost") == 0 || strcasecmp(host, server->listen_host) == 0)
		return true;
	for (int i = 0; hosts && i < hosts->count; i++)
		if (strcasecmp(host, hosts->items[i]) == 0)
			return true;
	return is_own_address(connection, host);
}

static void take_head(struct server_request *connection)
{
	const struct server_settings *settings = &connection->server->settings;
	struct request_head *head = &connection->head;
	bool has_body;
	const char *why = "";

	if (!request_head_parse(connection->in, connection->head_length, head, &why))
		return refuse(connection, 400, why);
	if (!is_own_host(connection))
		return refuse(connection, 400,
		    "Host is no name of this listener; its setting host lists further ones");
	has_body = head->is_chunked || head->length > 0;
	connection->closes = !head->keeps_alive || has_body;
	connection->call = settings->callbacks.head(settings->context, connection, head);
	connection->has_call = true;
	if (connection->is_answered)
		return start_answer(connection);
	connection->closes = !head->keeps_alive;
	if (!has_body)
		return be_whole(connection);
	connection->body_left = head->length;
	move(connection, CONNECTION_BODY, connection->begun_ms + settings->request_ms - clock_ms());
	take_first_body(connection);
}

/* True: a request was taken, and another may be there. */
static bool take_request(struct server_request *connection)
{
	const char *why = "";
	ssize_t span;

	if (connection->state != CONNECTION_HEAD || connection->fd < 0 ||
	    connection->in_length == 0)
		return false;
	span = request_head_span(connection->in, connection->in_length, &connection->scanned, &why);
	if (span < 0)
		refuse(connection, 400, why);
	else if (span > 0)
		connection->head_length = (size_t)span;
	else if (connection->in_length == HEAD_BYTES)
		refuse(connection, 431, "the head is longer than 16 KiB");
	if (span <= 0)
		return false;
	take_head(connection);
	return true;
}

static void take_requests(struct server_request *connection)
{
	while (take_request(connection))
		;
}

static ssize_t receive(struct server_request *connection, char *to, size_t room)
{
	ssize_t length = recv(connection->fd, to, room, 0);

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (length > 0)
		return length;
	/* Half a request is none. */
	connection_close(connection, NULL);
	return -1;
}

static void read_head(struct server_request *connection)
{
	const struct server_settings *settings = &connection->server->settings;
	size_t room = connection->in_capacity - connection->in_length;
	bool is_first = connection->in_length == 0;
	ssize_t length;

	if (room == 0) {
		connection->in_capacity =
		    connection->in_capacity ? 4 * connection->in_capacity : FIRST_BYTES;
		connection->in = xrealloc(connection->in, connection->in_capacity);
		room = connection->in_capacity - connection->in_length;
	}
	length = receive(connection, connection->in + connection->in_length, room);
	if (length <= 0)
		return;
	connection->in_length += (size_t)length;
	/* A new connection's time began when it was opened. */
	if (is_first && connection->is_served) {
		connection->begun_ms = connection->progress_ms = clock_ms();
		connection->until_ms = connection->begun_ms + settings->head_ms;
	}
	take_requests(connection);
}

static void read_body(struct server_request *connection)
{
	size_t room = PART_BYTES;
	char *part = connection->server->part;
	ssize_t length;

	/* Nothing of a next request is taken with it. */
	if (!connection->head.is_chunked && (int64_t)room > connection->body_left)
		room = (size_t)connection->body_left;
	length = receive(connection, part, room);
	if (length > 0)
		(void)take_body(connection, part, (size_t)length);
}

static void read_rest(struct server_request *connection)
{
	ssize_t length = receive(connection, connection->server->part, PART_BYTES);

	if (length > 0)
		connection->dropped += length;
	if (length > 0 && connection->dropped > connection->server->settings.discards)
		connection_close(connection, NULL);
}

/* --- what the server calls -------------------------------------------------------------------- */

void connection_event(struct server_request *connection, uint32_t events)
{
	if (connection->fd < 0)
		return;
	switch (connection->state) {
	case CONNECTION_HEAD:
		return read_head(connection);
	case CONNECTION_BODY:
		return read_body(connection);
	case CONNECTION_LEAVING:
		return read_rest(connection);
	case CONNECTION_WRITING:
		write_answer(connection);
		if (connection->fd >= 0)
			take_requests(connection);
		return;
	case CONNECTION_DELAYED:
		if (events & (EPOLLERR | EPOLLHUP))
			connection_close(connection, NULL);
		return;
	case CONNECTION_WORKING:
		/* Somebody has the request. epoll would tell it again and again. */
		if (events & (EPOLLERR | EPOLLHUP)) {
			connection->is_gone = true;
			server_watch(connection, UINT32_MAX);
		}
		return;
	case CONNECTION_STATES:
		return;
	}
}

void connection_answered(struct server_request *connection)
{
	start_answer(connection);
	if (connection->fd >= 0)
		take_requests(connection);
}

void connection_check(struct server_request *connection, int64_t now)
{
	if (connection->state == CONNECTION_WORKING || now < connection->until_ms)
		return;
	if (connection->state == CONNECTION_DELAYED) {
		start_writing(connection);
		if (connection->fd >= 0)
			take_requests(connection);
		return;
	}
	connection_close(connection, connection->state == CONNECTION_WRITING ? "unread"
				     : connection->state == CONNECTION_BODY  ? "late"
				     : connection->state == CONNECTION_HEAD &&
					     (!connection->is_served || connection->in_length > 0)
					 ? "late"
					 : NULL);
}
