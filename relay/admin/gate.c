/*
 * A connection is a guest, from accept_one to close_guest: read_guest_head looks at it,
 * hand_guest_over gives a copy of its socket to libmicrohttpd, whose callbacks tell how far the
 * request is (gate_await_body, gate_whole, gate_answer, gate_stream); on_connection tells that it
 * is done with the copy, and begin_leaving closes our side. make_room_for_guest and check_times end
 * connections before that. The callbacks run in threads of libmicrohttpd, everything else in the
 * gate's thread, under one mutex.
 */
#include "gate.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>
#include "api_problem.h"
#include "cleanup.h"
#include "clock.h"
#include "gate_peers.h"
#include "listen_address.h"
#include "logging.h"
#include "metrics.h"
#include "request_head.h"
#include "tls_front.h"

enum {
	HEAD_BYTES = 16384,
	SERVER_BYTES = 2 * HEAD_BYTES, /* memory of a connection in libmicrohttpd */
	MOST_SERVERS = 16,
	LEAST_CONNECTIONS = 16,
	MOST_UNREAD = 64 << 20, /* bytes of answers that clients have not read */
	LEAVE_MS = 5000,
	LEAVE_TLS_MS = 10000, /* the client reads what is left of its answer in this time */
	TICK_MS = 100,
	SWEEP_MS = 1000,
	TURN_EVENTS = 64,
	TURN_ACCEPTS = 64,
	STREAM_BYTES = 4096, /* a piece of a stream */
};

enum guest_state {
	GUEST_HEAD,    /* its head arrives; the gate looks at it */
	GUEST_WORKING, /* libmicrohttpd has it, and we work on the answer; never ended */
	GUEST_BODY,    /* the head was taken; the body arrives */
	GUEST_DELAYED, /* the answer to a wrong token is held back */
	GUEST_WRITING, /* the client reads its answer */
	GUEST_LEAVING, /* our side is closed; bytes that still come are dropped, because a reset
			  could cost the client its answer */
	GUEST_STATES,
};

#define TO(state) (1U << (state))
static const unsigned next_states[GUEST_STATES] = {
    [GUEST_HEAD] = TO(GUEST_WORKING) | TO(GUEST_LEAVING),
    [GUEST_WORKING] = TO(GUEST_BODY) | TO(GUEST_DELAYED) | TO(GUEST_WRITING) | TO(GUEST_LEAVING),
    [GUEST_BODY] = TO(GUEST_WORKING) | TO(GUEST_LEAVING),
    [GUEST_DELAYED] = TO(GUEST_WORKING) | TO(GUEST_WRITING) | TO(GUEST_LEAVING),
    [GUEST_WRITING] = TO(GUEST_LEAVING),
};

struct server {
	struct MHD_Daemon *daemon;
	int guests;
};

struct guest {
	struct gate *gate;
	int fd; /* the gate's own: it names this connection until the gate closes it */
	struct sockaddr_storage from, own;
	socklen_t from_length;
	struct peer *peer;
	enum guest_state state;
	int64_t came_ms, since_ms, until_ms; /* until: of its state; INT64_MAX: no limit */
	size_t scanned;
	int64_t dropped, unread;
	bool has_body;
	bool is_cut;           /* shut down, and no longer counted; its server ends it */
	struct server *server; /* NULL: libmicrohttpd does not have it */
	int server_fd;         /* its copy of fd */
	void (*then)(void *context);
	void *then_context;
	struct guest *prev, *next, *done_next;
	UT_hash_handle hh; /* by server_fd */
};

struct gate_metrics {
	struct metric *connections, *refused;
};

struct gate {
	struct gate_settings settings;
	char *listen_host; /* a name; "": an address, which each connection knows better */
	struct gate_metrics metrics;
	int epoll_fd, wake_fd;
	pthread_t thread;
	bool runs;
	struct tls_front *tls; /* NULL: plain HTTP */
	struct server servers[MOST_SERVERS];
	int most, most_of_peer;
	pthread_mutex_t mutex; /* guards all that follows */
	int listen_fd;
	bool accepts, lacks_files;
	struct guest *guests;
	struct guest *served; /* a hash of those that libmicrohttpd has */
	struct guest *done;   /* that it has no longer */
	struct peer *peers;
	int count, all; /* guests that are not cut; with those */
	int64_t unread, checked_ms, swept_ms;
	bool quiesces, ends;
	char bytes[HEAD_BYTES];
};

#define SERIES(member) METRIC_FIELD(struct gate_metrics, member)

static const struct metric_row gate_rows[] = {
    {"relay_listener_connections", METRIC_GAUGE, SERIES(connections),
	"Open connections of the listener."},
    {"relay_listener_refused_total", METRIC_COUNTER, SERIES(refused),
	"Connections that the listener closed, by the reason.",
	.labels = {{"reason",
	    "`bad_request`; `late`: a time limit was over; `evicted`: it was idle, and made "
	    "room for another; `full`: there was no room; `unread`: the client did not "
	    "read its answer"}}},
};

const struct metric_table gate_metric_table = {
    .title = "Listeners",
    .about = "The admin endpoint and the HTTP interface each have one listener.",
    .labels = {{"listener", "`admin`, `api`"}},
    METRIC_ROWS_OF(gate_rows),
};

static void count_refused(const struct gate *gate, const char *reason)
{
	metric_add(METRIC_LABELLED(gate->metrics.refused, reason), 1);
}

static void show_connections(const struct gate *gate)
{
	metric_set(gate->metrics.connections, gate->count);
}

static void move_guest(struct guest *guest, enum guest_state next, int64_t ms)
{
	assert(next_states[guest->state] & TO(next));
	guest->state = next;
	guest->since_ms = clock_ms();
	guest->until_ms = ms == INT64_MAX ? ms : guest->since_ms + ms;
}

/* --- the end of a connection ------------------------------------------------------------------ */

static void uncount_guest(struct guest *guest)
{
	guest->gate->count--;
	guest->peer->connections--;
}

static void close_guest(struct guest *guest, const char *reason)
{
	struct gate *gate = guest->gate;

	if (reason)
		count_refused(gate, reason);
	if (!guest->is_cut)
		uncount_guest(guest);
	/*
	 * The descriptor is removed explicitly: epoll would not forget it while libmicrohttpd has
	 * its copy.
	 */
	epoll_ctl(gate->epoll_fd, EPOLL_CTL_DEL, guest->fd, NULL);
	close(guest->fd);
	DL_DELETE(gate->guests, guest);
	gate->all--;
	free(guest);
}

static void resume_guest(struct guest *guest)
{
	void (*then)(void *) = guest->then;

	guest->then = NULL;
	guest->until_ms = INT64_MAX;
	if (then)
		then(guest->then_context);
}

/* Its server notices that the socket is shut down, and lets go of it. */
static void cut_guest(struct guest *guest, const char *reason)
{
	count_refused(guest->gate, reason);
	uncount_guest(guest);
	guest->is_cut = true;
	guest->until_ms = INT64_MAX;
	shutdown(guest->fd, SHUT_RDWR);
	resume_guest(guest);
}

static void end_guest(struct guest *guest, const char *reason)
{
	if (guest->server)
		cut_guest(guest, reason);
	else
		close_guest(guest, reason);
}

/* Bytes that still come are dropped, up to a limit. */
static void drop_rest(struct guest *guest)
{
	ssize_t length = recv(guest->fd, guest->gate->bytes, sizeof guest->gate->bytes, 0);

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	guest->dropped += length;
	if (length <= 0 || guest->dropped > guest->gate->settings.discards)
		close_guest(guest, NULL);
}

static void begin_leaving(struct guest *guest)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = guest};

	if (guest->is_cut || shutdown(guest->fd, SHUT_WR) != 0 ||
	    epoll_ctl(guest->gate->epoll_fd, EPOLL_CTL_ADD, guest->fd, &event) != 0)
		return close_guest(guest, NULL);
	move_guest(guest, GUEST_LEAVING, LEAVE_MS);
	drop_rest(guest);
}

/* The caller frees. */
static char *refusal_body(
    const struct gate_settings *settings, unsigned status, const char *why, const char *request_id)
{
	json_t *problem;
	char *text, *body;

	if (!settings->says_problems)
		return xformat("%s\n", why);
	problem = api_problem(status == 503 ? "busy" : "bad_request", status, why, request_id);
	text = json_dumps(problem, JSON_COMPACT);
	body = xformat("%s\n", text);
	free(text);
	json_decref(problem);
	return body;
}

/* Only before it was handed over. */
static void refuse_guest(struct guest *guest, unsigned status, const char *reason, const char *why)
{
	const struct gate_settings *settings = &guest->gate->settings;
	const char *phrase = status == 400   ? "Bad Request"
			     : status == 408 ? "Request Timeout"
			     : status == 413 ? "Content Too Large"
			     : status == 431 ? "Request Header Fields Too Large"
					     : "Service Unavailable";
	char request_id[API_REQUEST_ID];
	owned_text char *body = NULL, *answer = NULL;

	/* Its own id may be what is wrong with the request, so it gets a new one. */
	api_request_id(request_id);
	body = refusal_body(settings, status, why, request_id);
	answer =
	    xformat("HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
		    "X-Request-Id: %s\r\nCache-Control: no-store\r\n%sConnection: close\r\n\r\n%s",
		status, phrase, settings->says_problems ? API_PROBLEM_MEDIA_TYPE : "text/plain",
		strlen(body), request_id, status == 503 ? "Retry-After: 1\r\n" : "", body);

	count_refused(guest->gate, reason);
	log_debug("listener_refused", {"listener", LOG_TEXT(settings->section)},
	    {"status", LOG_INT(status)}, {"why", LOG_TEXT(why)}, {"request", LOG_TEXT(request_id)});
	epoll_ctl(guest->gate->epoll_fd, EPOLL_CTL_DEL, guest->fd, NULL);
	/* An empty socket has room for it. */
	(void)!send(guest->fd, answer, strlen(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
	begin_leaving(guest);
}

/* --- a head arrives --------------------------------------------------------------------------- */

static bool is_own_address(const struct guest *guest, const char *host)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	const struct sockaddr_storage *own = &guest->own;
	struct in6_addr name = {0}, address = {0};

	/* An IPv4 address counts as the IPv6 address that holds it. */
	if (own->ss_family == AF_INET) {
		memcpy(address.s6_addr, mapped, sizeof mapped);
		memcpy(address.s6_addr + 12, &((const struct sockaddr_in *)own)->sin_addr, 4);
	} else {
		address = ((const struct sockaddr_in6 *)own)->sin6_addr;
	}
	if (inet_pton(AF_INET, host, name.s6_addr + 12) == 1)
		memcpy(name.s6_addr, mapped, sizeof mapped);
	else if (inet_pton(AF_INET6, host, &name) != 1)
		return false;
	return memcmp(&name, &address, sizeof name) == 0;
}

/*
 * A page in a browser can make a name of its own mean our address, and then send us requests as to
 * its own server. It cannot choose another name for them.
 */
static bool is_own_host(const struct guest *guest, const char *host)
{
	const struct gate *gate = guest->gate;
	const struct config_list *hosts = gate->settings.hosts;

	if (strcasecmp(host, "localhost") == 0 || strcasecmp(host, gate->listen_host) == 0)
		return true;
	for (int i = 0; hosts && i < hosts->count; i++)
		if (strcasecmp(host, hosts->items[i]) == 0)
			return true;
	/* An address is no name that a page could choose for itself. */
	return is_own_address(guest, host);
}

static struct server *idlest_server(struct gate *gate)
{
	struct server *idlest = &gate->servers[0];

	for (int i = 1; i < gate->settings.servers; i++)
		if (gate->servers[i].guests < idlest->guests)
			idlest = &gate->servers[i];
	return idlest;
}

static void forget_server(struct guest *guest)
{
	struct gate *gate = guest->gate;

	HASH_DEL(gate->served, guest);
	guest->server->guests--;
	guest->server = NULL;
	gate->unread -= guest->unread;
	guest->done_next = gate->done;
	gate->done = guest;
}

/*
 * libmicrohttpd gets a copy of the socket and closes it when it likes. It announces the close,
 * unless it had no memory for the connection: then the number of the copy appears again, for
 * another copy.
 */
static void hand_guest_over(struct guest *guest)
{
	struct gate *gate = guest->gate;
	int copy = fcntl(guest->fd, F_DUPFD_CLOEXEC, 0);
	struct guest *stale;

	if (copy < 0)
		return refuse_guest(guest, 503, "full", "too many connections; try again");
	HASH_FIND_INT(gate->served, &copy, stale);
	if (stale)
		forget_server(stale);
	/* From here on libmicrohttpd alone reads the socket, until forget_server. */
	epoll_ctl(gate->epoll_fd, EPOLL_CTL_DEL, guest->fd, NULL);
	move_guest(guest, GUEST_WORKING, INT64_MAX);
	guest->server = idlest_server(gate);
	guest->server->guests++;
	guest->server_fd = copy;
	HASH_ADD_INT(gate->served, server_fd, guest);
	if (MHD_add_connection(guest->server->daemon, copy, (struct sockaddr *)&guest->from,
		guest->from_length) != MHD_YES)
		forget_server(guest);
}

static void check_guest_head(struct guest *guest, size_t length)
{
	struct request_head head;
	const char *why = "";

	if (!request_head_parse(guest->gate->bytes, length, &head, &why))
		return refuse_guest(guest, 400, "bad_request", why);
	if (!is_own_host(guest, head.host))
		return refuse_guest(guest, 400, "bad_request",
		    "Host is no name of this listener; its setting host lists further ones");
	/* Nobody would read the body. */
	if (head.has_body && !guest->gate->settings.takes_bodies)
		return refuse_guest(guest, 413, "bad_request", "requests have no body here");
	guest->has_body = head.has_body;
	hand_guest_over(guest);
}

/*
 * The bytes stay in the socket: epoll is edge-triggered, so that they are read again only when more
 * have come.
 */
static void read_guest_head(struct guest *guest, bool is_ended)
{
	char *bytes = guest->gate->bytes;
	ssize_t length = recv(guest->fd, bytes, HEAD_BYTES, MSG_PEEK), span;
	const char *why = "";

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (length <= 0)
		return close_guest(guest, NULL);
	span = request_head_span(bytes, (size_t)length, &guest->scanned, &why);
	if (span > 0)
		check_guest_head(guest, (size_t)span);
	else if (span < 0)
		refuse_guest(guest, 400, "bad_request", why);
	else if (length == HEAD_BYTES)
		refuse_guest(guest, 431, "bad_request", "the head is longer than 16 KiB");
	/* The client has closed its side, so the head will never be whole. */
	else if (is_ended)
		close_guest(guest, NULL);
}

static void on_event(struct guest *guest, uint32_t events)
{
	if (guest->state == GUEST_HEAD)
		read_guest_head(guest, events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR));
	else
		drop_rest(guest);
}

/* --- room ------------------------------------------------------------------------------------- */

/* Connections that wait for a body come last: their head was accepted. */
static bool goes_before(const struct guest *one, const struct guest *other)
{
	bool brings = one->state == GUEST_BODY, other_brings = other->state == GUEST_BODY;

	if (brings != other_brings)
		return other_brings;
	if (one->peer->connections != other->peer->connections)
		return one->peer->connections > other->peer->connections;
	return one->since_ms < other->since_ms;
}

/* The idlest connection of the address that has the most; peer: of this one. NULL: none is idle. */
static struct guest *find_idlest(const struct gate *gate, const struct peer *peer)
{
	struct guest *found = NULL, *guest;

	DL_FOREACH(gate->guests, guest)
	if ((!peer || guest->peer == peer) && !guest->is_cut && guest->state != GUEST_WORKING &&
	    (!found || goes_before(guest, found)))
		found = guest;
	return found;
}

static bool evict_idlest_guest(struct gate *gate, const struct peer *peer)
{
	struct guest *idlest = find_idlest(gate, peer);

	if (idlest)
		end_guest(idlest, "evicted");
	return idlest != NULL;
}

static void make_room_for_guest(struct gate *gate, const struct peer *peer)
{
	/* An address with half of the table displaces one of its own connections first. */
	if (peer->connections >= gate->most_of_peer && evict_idlest_guest(gate, peer))
		return;
	if (gate->count >= gate->most)
		(void)evict_idlest_guest(gate, NULL);
}

/* Limits the memory of answers that nobody reads. */
static void limit_unread(struct gate *gate, const struct guest *newest)
{
	struct guest *guest, *oldest;

	while (gate->unread > MOST_UNREAD) {
		oldest = NULL;
		DL_FOREACH(gate->guests, guest)
		/* The newest has had no time to read; the oldest has had the most. */
		if (guest != newest && guest->state == GUEST_WRITING && !guest->is_cut &&
		    (!oldest || guest->since_ms < oldest->since_ms))
			oldest = guest;
		if (!oldest)
			return;
		gate->unread -= oldest->unread;
		oldest->unread = 0;
		cut_guest(oldest, "unread");
	}
}

/* --- new connections -------------------------------------------------------------------------- */

static void open_guest(struct gate *gate, int fd, const struct guest *like)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
	struct guest *guest = xcalloc(1, sizeof *guest);
	int on = 1;

	*guest = *like;
	guest->fd = fd;
	guest->came_ms = guest->since_ms = clock_ms();
	guest->until_ms = guest->came_ms + gate->settings.head_ms;
	guest->peer->connections++;
	DL_APPEND(gate->guests, guest);
	gate->count++;
	gate->all++;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	event.data.ptr = guest;
	if (epoll_ctl(gate->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		return close_guest(guest, "full");
	/* Most clients have sent their request by now: it is taken before others can come. */
	read_guest_head(guest, false);
}

/* A connection of ours makes room, or the next tick tries again. */
static void lack_files(struct gate *gate)
{
	(void)evict_idlest_guest(gate, NULL);
	gate->lacks_files = true;
}

/* False: no more connections now. */
static bool accept_one(struct gate *gate)
{
	struct guest like = {.gate = gate, .from_length = sizeof like.from};
	socklen_t own_length = sizeof like.own;
	int fd = accept4(gate->listen_fd, (struct sockaddr *)&like.from, &like.from_length,
	    SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		lack_files(gate);
		return false;
	}
	/* The client left before it was accepted; any other error waits for the next turn. */
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR;
	if (getsockname(fd, (struct sockaddr *)&like.own, &own_length) != 0)
		like.own = (struct sockaddr_storage){0};
	if (gate->tls)
		fd = tls_front_add(gate->tls, fd);
	if (fd < 0) {
		count_refused(gate, "full");
		lack_files(gate);
		return false;
	}
	like.peer = peer_find(&gate->peers, &like.from);
	make_room_for_guest(gate, like.peer);
	open_guest(gate, fd, &like);
	return true;
}

/*
 * While every place has a request at work, callers wait in the kernel's queue: their turn comes.
 * Connections that are cut keep their files until libmicrohttpd has let go of them, and those of
 * TLS until its thread has noticed.
 */
static bool has_places(const struct gate *gate)
{
	return !gate->lacks_files && gate->all < gate->most + gate->most / 4 &&
	       (!gate->tls || tls_front_count(gate->tls) < 2 * gate->most) &&
	       (gate->count < gate->most || find_idlest(gate, NULL));
}

static void accept_some(struct gate *gate)
{
	for (int i = 0; i < TURN_ACCEPTS && gate->listen_fd >= 0 && has_places(gate); i++)
		if (!accept_one(gate))
			return;
}

static void watch_listener(struct gate *gate)
{
	bool accepts = has_places(gate);
	struct epoll_event event = {.events = accepts ? EPOLLIN : 0, .data.ptr = gate};

	if (gate->listen_fd < 0 || accepts == gate->accepts)
		return;
	gate->accepts = accepts;
	epoll_ctl(gate->epoll_fd, EPOLL_CTL_MOD, gate->listen_fd, &event);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void wake_gate(const struct gate *gate)
{
	(void)!eventfd_write(gate->wake_fd, 1);
}

static void end_done(struct gate *gate)
{
	struct guest *done = gate->done, *next;

	gate->done = NULL;
	for (; done; done = next) {
		next = done->done_next;
		begin_leaving(done);
	}
}

static void check_guest(struct guest *guest)
{
	switch (guest->state) {
	case GUEST_HEAD:
		return refuse_guest(guest, 408, "late", "the head did not arrive in time");
	case GUEST_BODY:
		return cut_guest(guest, "late");
	case GUEST_WRITING:
		return cut_guest(guest, "unread");
	case GUEST_DELAYED:
		return resume_guest(guest);
	case GUEST_LEAVING:
		return close_guest(guest, NULL);
	case GUEST_WORKING:
	case GUEST_STATES:
		return;
	}
}

static void check_times(struct gate *gate, int64_t now)
{
	struct guest *guest, *next;

	if (now - gate->checked_ms < TICK_MS)
		return;
	gate->checked_ms = now;
	gate->lacks_files = false;
	DL_FOREACH_SAFE(gate->guests, guest, next)
	/* At the end nobody waits for a delay, which only slows down guessing. */
	if (now >= guest->until_ms || (gate->quiesces && guest->state == GUEST_DELAYED))
		check_guest(guest);
	if (now - gate->swept_ms < SWEEP_MS)
		return;
	gate->swept_ms = now;
	peers_sweep(&gate->peers, now);
}

static void stop_accepting(struct gate *gate)
{
	if (gate->listen_fd >= 0)
		close(gate->listen_fd);
	gate->listen_fd = -1;
}

/* Evictions come last: they free guests whose events may be in the same list. */
static void take_turn(struct gate *gate, const struct epoll_event *events, int count)
{
	bool has_callers = false;
	eventfd_t told;

	for (int i = 0; i < count; i++) {
		if (events[i].data.ptr == gate)
			has_callers = true;
		else if (events[i].data.ptr)
			on_event(events[i].data.ptr, events[i].events);
		else
			(void)!eventfd_read(gate->wake_fd, &told);
	}
	end_done(gate);
	if (gate->quiesces)
		stop_accepting(gate);
	if (has_callers)
		accept_some(gate);
	check_times(gate, clock_ms());
	watch_listener(gate);
	show_connections(gate);
}

static void *run_gate(void *context)
{
	struct gate *gate = context;
	struct epoll_event events[TURN_EVENTS];
	bool is_idle = true, ends = false;

	while (!ends) {
		int count = epoll_wait(gate->epoll_fd, events, TURN_EVENTS, is_idle ? -1 : TICK_MS);

		pthread_mutex_lock(&gate->mutex);
		take_turn(gate, events, count);
		/* Without a guest, a peer to forget or a listener to reopen, only events matter. */
		is_idle = gate->all == 0 && !gate->peers && gate->accepts;
		ends = gate->ends;
		pthread_mutex_unlock(&gate->mutex);
	}
	return NULL;
}

/* --- libmicrohttpd's callbacks ---------------------------------------------------------------- */

static void on_connection(void *context, struct MHD_Connection *connection, void **guest_at,
    enum MHD_ConnectionNotificationCode what)
{
	struct gate *gate = context;
	int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	struct guest *guest;

	pthread_mutex_lock(&gate->mutex);
	HASH_FIND_INT(gate->served, &fd, guest);
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		*guest_at = guest;
	/* The number of a closed copy may be another guest's by now. */
	else if (guest && guest == *guest_at)
		forget_server(guest);
	pthread_mutex_unlock(&gate->mutex);
	if (what == MHD_CONNECTION_NOTIFY_CLOSED)
		wake_gate(gate);
}

static struct guest *guest_of(struct MHD_Connection *connection)
{
	return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
	    ->socket_context;
}

void gate_await_body(struct MHD_Connection *connection)
{
	struct guest *guest = guest_of(connection);
	int64_t until = guest->came_ms + guest->gate->settings.arrival_ms;

	if (!guest->has_body)
		return;
	pthread_mutex_lock(&guest->gate->mutex);
	move_guest(guest, GUEST_BODY, until - clock_ms());
	pthread_mutex_unlock(&guest->gate->mutex);
}

void gate_whole(struct MHD_Connection *connection)
{
	struct guest *guest = guest_of(connection);

	pthread_mutex_lock(&guest->gate->mutex);
	/* Without a body it never left this state. */
	if (guest->state != GUEST_WORKING)
		move_guest(guest, GUEST_WORKING, INT64_MAX);
	pthread_mutex_unlock(&guest->gate->mutex);
}

static void note_answer(struct guest *guest, int64_t bytes)
{
	struct gate *gate = guest->gate;

	pthread_mutex_lock(&gate->mutex);
	move_guest(guest, GUEST_WRITING, guest->is_cut ? INT64_MAX : gate->settings.answer_ms);
	guest->unread = bytes;
	gate->unread += bytes;
	limit_unread(gate, guest);
	pthread_mutex_unlock(&gate->mutex);
}

static bool has_field(const struct gate_field *fields, const char *name)
{
	for (; fields && fields->name; fields++)
		if (text_equal(fields->name, name))
			return true;
	return false;
}

/* Queues the response, which it takes over; NULL: there was no memory for it. */
static enum MHD_Result queue_answer(struct MHD_Connection *connection, unsigned status,
    const char *type, struct MHD_Response *response, const struct gate_field *fields)
{
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "Content-Type", type);
	if (!has_field(fields, "Cache-Control"))
		MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	/* One request a connection: nothing passes the gate without its look. */
	MHD_add_response_header(response, "Connection", "close");
	for (; fields && fields->name; fields++)
		MHD_add_response_header(response, fields->name, fields->value);
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

enum MHD_Result gate_answer(struct MHD_Connection *connection, unsigned status, const char *type,
    const struct text *body, const struct gate_field *fields)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
	    body->length, (void *)text_string(body), MHD_RESPMEM_MUST_COPY);

	if (response)
		note_answer(guest_of(connection), (int64_t)body->length);
	return queue_answer(connection, status, type, response, fields);
}

enum MHD_Result gate_stream(struct MHD_Connection *connection, const char *type,
    MHD_ContentReaderCallback read, void (*cut)(void *context), void *context,
    const struct gate_field *fields)
{
	struct MHD_Response *response =
	    MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, read, context, NULL);
	struct guest *guest = guest_of(connection);

	if (!response)
		return MHD_NO;
	note_answer(guest, 0);
	pthread_mutex_lock(&guest->gate->mutex);
	guest->then = cut;
	guest->then_context = context;
	if (guest->is_cut)
		resume_guest(guest);
	pthread_mutex_unlock(&guest->gate->mutex);
	return queue_answer(connection, MHD_HTTP_OK, type, response, fields);
}

void gate_stream_goes_on(struct MHD_Connection *connection)
{
	struct guest *guest = guest_of(connection);

	pthread_mutex_lock(&guest->gate->mutex);
	if (!guest->is_cut) {
		guest->since_ms = clock_ms();
		guest->until_ms = guest->since_ms + guest->gate->settings.answer_ms;
	}
	pthread_mutex_unlock(&guest->gate->mutex);
}

void gate_stream_over(struct MHD_Connection *connection)
{
	struct guest *guest = guest_of(connection);

	pthread_mutex_lock(&guest->gate->mutex);
	guest->then = NULL;
	pthread_mutex_unlock(&guest->gate->mutex);
}

int64_t gate_wrong_token(struct MHD_Connection *connection)
{
	struct guest *guest = guest_of(connection);
	int64_t ms;

	pthread_mutex_lock(&guest->gate->mutex);
	/* The address of a guest that was cut may be gone. */
	ms = guest->is_cut ? 0 : peer_wrong_token(guest->peer, clock_ms());
	pthread_mutex_unlock(&guest->gate->mutex);
	return ms;
}

void gate_delay(
    struct MHD_Connection *connection, int64_t ms, void (*then)(void *context), void *context)
{
	struct guest *guest = guest_of(connection);
	struct gate *gate = guest->gate;

	pthread_mutex_lock(&gate->mutex);
	move_guest(guest, GUEST_DELAYED, ms);
	guest->then = then;
	guest->then_context = context;
	/* Nobody waits for the end of the delay any longer. */
	if (guest->is_cut || gate->quiesces)
		resume_guest(guest);
	pthread_mutex_unlock(&gate->mutex);
}

/* --- start and stop --------------------------------------------------------------------------- */

/* Logs the messages of libmicrohttpd for debugging only: they are about mistakes of clients. */
static void on_listener_log(void *context, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));
static void on_listener_log(void *context, const char *format, va_list arguments)
{
	const struct gate *gate = context;
	char line[256];

	vsnprintf(line, sizeof line, format, arguments);
	log_debug("listener_log", {"listener", LOG_TEXT(gate->settings.section)},
	    {"text", LOG_TEXT(line)});
}

static bool start_server(struct gate *gate, struct server *server)
{
	const struct gate_settings *settings = &gate->settings;

	server->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL |
					      MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG |
					      MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME,
	    0, NULL, NULL, settings->on_request, settings->context, MHD_OPTION_EXTERNAL_LOGGER,
	    on_listener_log, gate, MHD_OPTION_CONNECTION_LIMIT, (unsigned)gate->most * 2,
	    MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)SERVER_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
	    settings->on_completed, settings->context, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
	    gate, MHD_OPTION_END);
	return server->daemon != NULL;
}

static bool watch_fd(const struct gate *gate, int fd, void *context)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = context};

	return epoll_ctl(gate->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/*
 * The threads block all signals: the main thread handles them, and may not have blocked them yet.
 */
static bool start_gate_threads(struct gate *gate)
{
	sigset_t every, before;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	gate->runs = true;
	for (int i = 0; i < gate->settings.servers; i++)
		gate->runs = gate->runs && start_server(gate, &gate->servers[i]);
	gate->runs = gate->runs && pthread_create(&gate->thread, NULL, run_gate, gate) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return gate->runs;
}

/*
 * A connection takes two files, with TLS four, and up to six while others leave; three
 * quarters are for Kafka, Postgres and the other listener.
 */
static int most_connections(int wanted, bool has_tls)
{
	struct rlimit limit;
	int most = wanted, share = has_tls ? 24 : 8;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / share < (rlim_t)wanted)
		most = (int)(limit.rlim_cur / share);
	return most < LEAST_CONNECTIONS ? LEAST_CONNECTIONS : most;
}

static char *host_name(const char *listen)
{
	owned_text char *host = NULL, *port = NULL;
	struct in_addr four;
	struct in6_addr six;
	struct err ignored;

	if (!listen_address_parse(listen, &host, &port, &ignored) ||
	    inet_pton(AF_INET, host, &four) == 1 || inet_pton(AF_INET6, host, &six) == 1)
		return xstrdup("");
	return xstrdup(host);
}

/* Creates the series before the first event, so that an alerting rule can watch them. */
static void make_series(struct gate *gate)
{
	static const char *const reasons[] = {"bad_request", "late", "evicted", "full", "unread"};

	metric_series_all(&gate_metric_table, &gate->settings.section, &gate->metrics, NULL);
	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
		METRIC_LABELLED(gate->metrics.refused, reasons[i]);
}

/* True also without TLS. */
static bool start_tls(struct gate *gate, struct err *err)
{
	const struct gate_settings *settings = &gate->settings;
	const struct tls_front_settings tls = {.section = settings->section,
	    .certificate = settings->tls_certificate,
	    .key = settings->tls_key,
	    .leaving = gate->most / 2,
	    .leave_ms = LEAVE_TLS_MS};

	if (!settings->tls_certificate[0])
		return true;
	gate->tls = tls_front_start(&tls, err);
	return gate->tls;
}

struct gate *gate_start(
    struct listener *listener, const struct gate_settings *settings, struct err *err)
{
	struct gate *gate = xcalloc(1, sizeof *gate);

	gate->settings = *settings;
	gate->listen_host = host_name(settings->listen);
	gate->listen_fd = listener->fd;
	listener->fd = -1;
	gate->most = most_connections(settings->connections, settings->tls_certificate[0]);
	gate->most_of_peer = gate->most / 2;
	gate->accepts = true;
	make_series(gate);
	pthread_mutex_init(&gate->mutex, NULL);
	gate->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	gate->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!start_tls(gate, err)) {
		gate_stop(gate);
		return NULL;
	}
	if (watch_fd(gate, gate->listen_fd, gate) && watch_fd(gate, gate->wake_fd, NULL) &&
	    start_gate_threads(gate))
		return gate;
	err_set(err, ERR_FATAL, "[%s] listen = %s: no HTTP server: %s", settings->section,
	    settings->listen, strerror(errno));
	gate_stop(gate);
	return NULL;
}

static void tell_gate(struct gate *gate, bool *what)
{
	pthread_mutex_lock(&gate->mutex);
	*what = true;
	pthread_mutex_unlock(&gate->mutex);
	wake_gate(gate);
}

void gate_quiesce(struct gate *gate)
{
	tell_gate(gate, &gate->quiesces);
}

void gate_stop(struct gate *gate)
{
	if (!gate)
		return;

	/*
	 * The thread ends first: it hands connections to the servers. Their callbacks may still
	 * move guests, so guests are closed last.
	 */
	tell_gate(gate, &gate->quiesces);
	tell_gate(gate, &gate->ends);
	if (gate->runs)
		pthread_join(gate->thread, NULL);

	for (int i = 0; i < gate->settings.servers; i++)
		if (gate->servers[i].daemon)
			MHD_stop_daemon(gate->servers[i].daemon);
	while (gate->guests)
		close_guest(gate->guests, NULL);
	peers_finish(&gate->peers);
	tls_front_stop(gate->tls);

	stop_accepting(gate);
	if (gate->epoll_fd >= 0)
		close(gate->epoll_fd);
	if (gate->wake_fd >= 0)
		close(gate->wake_fd);
	pthread_mutex_destroy(&gate->mutex);
	free(gate->listen_host);
	free(gate);
}
