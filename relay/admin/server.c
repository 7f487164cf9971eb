/*
 * The server's thread (run_server): in each turn it takes what came for its connections, then the
 * answers that others gave, then new connections, and looks at times at the clock. The workers
 * (run_worker) run the listener's `work`.
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>
#include "cleanup.h"
#include "clock.h"
#include "listener.h"
#include "logging.h"
#include "metrics.h"
#include "server_private.h"

enum {
	TURN_EVENTS = 256,
	TURN_ACCEPTS = 64, /* so that what came for others is looked at in between */
	TICK_MS = 100,
	SWEEP_MS = 1000,
	HEAVY_BYTES = 65536, /* a request with a body of so many is work for a while */
	MOST_UNSENT = 64 << 20,
	LEAST_CONNECTIONS = 16,
};

static const struct metric_family refused = {.name = "relay_listener_refused_total",
    .type = METRIC_COUNTER,
    .help = "Connections that a listener refused or cut off, by reason: bad_request, late (the "
	    "request took too long to arrive), evicted (the idlest one made room), full (every "
	    "connection was at work), unread (the client did not read its answer).",
    .labels = {"listener", "reason"}};
static const struct metric_family connections = {.name = "relay_listener_connections",
    .type = METRIC_GAUGE,
    .help = "Open connections of a listener.",
    .labels = {"listener"}};

void server_count_refused(const struct server *server, const char *reason)
{
	const char *const labels[] = {server->settings.section, reason};

	metric_add(metric_series(&refused, labels), 1);
}

static void show_connections(const struct server *server)
{
	const char *const labels[] = {server->settings.section};

	metric_set(metric_series(&connections, labels), server->count);
}

static _Thread_local const struct server *own_server;

bool server_is_own_thread(const struct server *server)
{
	return own_server == server;
}

void server_wake(struct server *server)
{
	/* Fails only when it was woken 2^64 times. */
	(void)!eventfd_write(server->wake_fd, 1);
}

/* events UINT32_MAX: none, not even its end. */
void server_watch(struct server_request *connection, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = connection};
	int how = connection->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (events == UINT32_MAX)
		how = EPOLL_CTL_DEL;
	else if (connection->is_watched && connection->events == events)
		return;
	connection->events = events;
	connection->is_watched = events != UINT32_MAX;
	epoll_ctl(connection->server->epoll_fd, how, connection->fd, &event);
}

/* --- workers ---------------------------------------------------------------------------------- */

static void put_job(struct job_queue *queue, struct server_request *request)
{
	request->job_next = NULL;
	if (queue->last)
		queue->last->job_next = request;
	else
		queue->first = request;
	queue->last = request;
}

static struct server_request *take_job(struct job_queue *queue)
{
	struct server_request *request = queue->first;

	if (request)
		queue->first = request->job_next;
	if (!queue->first)
		queue->last = NULL;
	return request;
}

/* Heavy requests never have all workers, so that a light one waits for none of them. */
static struct server_request *next_job(struct server *server, bool *ret_heavy)
{
	struct server_request *request = take_job(&server->light);

	*ret_heavy = !request &&
		     (server->heavy_busy < server->worker_count - 1 || server->worker_count == 1);
	return *ret_heavy ? take_job(&server->heavy) : request;
}

static void *run_worker(void *context)
{
	struct server *server = context;
	struct server_request *request;
	bool heavy;

	pthread_mutex_lock(&server->mutex);
	for (;;) {
		request = next_job(server, &heavy);
		if (request) {
			server->heavy_busy += heavy;
			pthread_mutex_unlock(&server->mutex);
			server->settings.callbacks.work(request->call);
			pthread_mutex_lock(&server->mutex);
			server->heavy_busy -= heavy;
			/* A heavy one may have waited for this. */
			pthread_cond_signal(&server->has_job);
		} else if (server->workers_end) {
			break;
		} else {
			pthread_cond_wait(&server->has_job, &server->mutex);
		}
	}
	pthread_mutex_unlock(&server->mutex);
	return NULL;
}

void server_work(struct server_request *request)
{
	struct server *server = request->server;

	pthread_mutex_lock(&server->mutex);
	put_job(request->is_heavy || request->taken > HEAVY_BYTES ? &server->heavy : &server->light,
	    request);
	pthread_cond_signal(&server->has_job);
	pthread_mutex_unlock(&server->mutex);
}

/* --- room ------------------------------------------------------------------------------------- */

/* Requests at work stay; bodies come from clients that have shown a token. */
static bool may_be_evicted(const struct server_request *connection, bool bodies)
{
	return connection->state == CONNECTION_BODY ? bodies
						    : connection->state != CONNECTION_WORKING;
}

static bool goes_before(const struct server_request *one, const struct server_request *other)
{
	if (one->peer->connections != other->peer->connections)
		return one->peer->connections > other->peer->connections;
	return one->progress_ms < other->progress_ms;
}

/* The idlest connection of the address that has the most; peer: of this one. */
static struct server_request *find_idlest(
    const struct server *server, const struct peer *peer, bool bodies)
{
	struct server_request *found = NULL, *connection;

	DL_FOREACH(server->connections, connection)
	if ((!peer || connection->peer == peer) && may_be_evicted(connection, bodies) &&
	    (!found || goes_before(connection, found)))
		found = connection;
	return found;
}

static bool evict(struct server *server, const struct peer *peer)
{
	struct server_request *idlest = find_idlest(server, peer, false);

	if (!idlest)
		idlest = find_idlest(server, peer, true);
	if (!idlest)
		return false;
	connection_close(idlest, "evicted");
	return true;
}

void server_hold(struct server *server, struct server_request *connection, int64_t bytes)
{
	struct server_request *other, *oldest;

	server->unsent += bytes;
	while (server->unsent > MOST_UNSENT) {
		oldest = NULL;
		DL_FOREACH(server->connections, other)
		if (other != connection && other->state == CONNECTION_WRITING &&
		    (!oldest || other->progress_ms < oldest->progress_ms))
			oldest = other;
		if (!oldest)
			return;
		connection_close(oldest, "unread");
	}
}

static bool make_room(struct server *server, const struct sockaddr_storage *from)
{
	const struct peer *peer = peer_find(&server->peers, from);

	if (peer->connections >= server->most_of_peer)
		return evict(server, peer);
	return server->count < server->most || evict(server, NULL);
}

/* --- new connections -------------------------------------------------------------------------- */

static void refuse_connection(const struct server *server, int fd)
{
	static const char answer[] =
	    "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
	    "Connection: close\r\n\r\n";

	(void)!send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	close(fd);
	server_count_refused(server, "full");
}

static void watch_listener(struct server *server, bool accepts)
{
	struct epoll_event event = {.events = accepts ? EPOLLIN : 0, .data.ptr = server};

	if (server->listen_fd >= 0)
		epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
	server->accepts = accepts;
}

/* False: no more of them now. */
static bool accept_one(struct server *server)
{
	struct sockaddr_storage from = {0};
	socklen_t length = sizeof from;
	int fd = accept4(
	    server->listen_fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		/* The files are gone: one of ours makes room, or the next tick tries again. */
		if (!evict(server, NULL))
			watch_listener(server, false);
		return false;
	}
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR;
	if (make_room(server, &from))
		connection_open(server, fd, &from);
	else
		refuse_connection(server, fd);
	return true;
}

static void accept_some(struct server *server)
{
	for (int i = 0; i < TURN_ACCEPTS && server->listen_fd >= 0; i++)
		if (!accept_one(server))
			return;
}

/* --- the thread ------------------------------------------------------------------------------- */

static void take_answers(struct server *server)
{
	struct server_request *done, *next;
	eventfd_t told;

	(void)!eventfd_read(server->wake_fd, &told);
	pthread_mutex_lock(&server->mutex);
	done = server->done;
	server->done = NULL;
	pthread_mutex_unlock(&server->mutex);
	for (; done; done = next) {
		next = done->done_next;
		connection_answered(done);
	}
}

static void check_times(struct server *server, int64_t now)
{
	struct server_request *connection, *next;

	if (now - server->checked_ms < TICK_MS)
		return;
	server->checked_ms = now;
	DL_FOREACH_SAFE(server->connections, connection, next)
	connection_check(connection, now);
	if (!server->accepts)
		watch_listener(server, true);
	if (now - server->swept_ms < SWEEP_MS)
		return;
	server->swept_ms = now;
	peers_sweep(&server->peers, now);
}

static void free_closed(struct server *server)
{
	struct server_request *connection, *next;

	DL_FOREACH_SAFE(server->closed, connection, next)
	free(connection);
	server->closed = NULL;
}

static void stop_accepting(struct server *server)
{
	if (server->listen_fd >= 0)
		close(server->listen_fd);
	server->listen_fd = -1;
}

/* True: it goes on. */
static bool obey(struct server *server)
{
	bool quiesces, ends;

	pthread_mutex_lock(&server->mutex);
	quiesces = server->quiesces;
	ends = server->ends;
	pthread_mutex_unlock(&server->mutex);
	if (quiesces || ends)
		stop_accepting(server);
	return !ends;
}

static void *run_server(void *context)
{
	struct server *server = context;
	struct epoll_event events[TURN_EVENTS];
	bool goes_on = true;

	own_server = server;
	while (goes_on) {
		bool idle = server->count == 0 && server->accepts && !server->peers;
		int count = epoll_wait(server->epoll_fd, events, TURN_EVENTS, idle ? -1 : TICK_MS);
		bool has_guests = false;

		for (int i = 0; i < count; i++) {
			if (events[i].data.ptr == server)
				has_guests = true;
			else if (events[i].data.ptr)
				connection_event(events[i].data.ptr, events[i].events);
		}
		take_answers(server);
		if (has_guests)
			accept_some(server);
		check_times(server, clock_ms());
		goes_on = obey(server);
		free_closed(server);
		show_connections(server);
	}
	return NULL;
}

/* --- start and stop --------------------------------------------------------------------------- */

/* Half of the files that the process may open are for Kafka, Postgres and requests of its own. */
static int most_connections(int wanted)
{
	struct rlimit limit;
	int most = wanted;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < (rlim_t)wanted)
		most = (int)(limit.rlim_cur / 4);
	return most < LEAST_CONNECTIONS ? LEAST_CONNECTIONS : most;
}

static bool watch_fd(const struct server *server, int fd, void *context, struct err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = context};

	return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ||
	       err_set(err, ERR_FATAL, "[%s] no HTTP server: %s", server->settings.section,
		   strerror(errno));
}

static bool start_threads(struct server *server, struct err *err)
{
	sigset_t all, before;

	/* Signals are for the main thread, which may not have blocked them yet. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (
	    server->worker_count < server->settings.workers &&
	    pthread_create(&server->workers[server->worker_count], NULL, run_worker, server) == 0)
		server->worker_count++;
	server->runs = server->worker_count == server->settings.workers &&
		       pthread_create(&server->thread, NULL, run_server, server) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return server->runs ||
	       err_set(err, ERR_FATAL, "[%s] no thread for it", server->settings.section);
}

/* The name that the listener was given; "": an address, which the connections know better. */
static char *host_name(const char *listen)
{
	owned_text char *host = NULL, *port = NULL;
	struct in_addr four;
	struct in6_addr six;
	struct err ignored;

	if (!listener_parse(listen, &host, &port, &ignored) ||
	    inet_pton(AF_INET, host, &four) == 1 || inet_pton(AF_INET6, host, &six) == 1)
		return xstrdup("");
	return xstrdup(host);
}

/* The series are there before anything happens, so that a rule can watch them. */
static void make_series(const struct server *server)
{
	static const char *const reasons[] = {"bad_request", "late", "evicted", "full", "unread"};

	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
		const char *const labels[] = {server->settings.section, reasons[i]};

		metric_add(metric_series(&refused, labels), 0);
	}
	show_connections(server);
}

struct server *server_start(int fd, const struct server_settings *settings, struct err *err)
{
	struct server *server = xcalloc(1, sizeof *server);
	server->settings = *settings;
	server->listen_host = host_name(settings->listen);
	server->listen_fd = fd;
	server->most = most_connections(settings->connections);
	server->most_of_peer = server->most / 2;
	server->accepts = true;
	make_series(server);
	server->workers = xcalloc((size_t)settings->workers, sizeof *server->workers);
	pthread_mutex_init(&server->mutex, NULL);
	pthread_cond_init(&server->has_job, NULL);
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!watch_fd(server, fd, server, err) || !watch_fd(server, server->wake_fd, NULL, err) ||
	    !start_threads(server, err)) {
		server_stop(server);
		return NULL;
	}
	return server;
}

static void tell(struct server *server, bool *what)
{
	pthread_mutex_lock(&server->mutex);
	*what = true;
	pthread_cond_broadcast(&server->has_job);
	pthread_mutex_unlock(&server->mutex);
	server_wake(server);
}

void server_quiesce(struct server *server)
{
	tell(server, &server->quiesces);
}

void server_stop(struct server *server)
{
	if (!server)
		return;
	/* The workers first: what they answer goes out in the thread's last turn. */
	tell(server, &server->workers_end);
	for (int i = 0; i < server->worker_count; i++)
		pthread_join(server->workers[i], NULL);
	tell(server, &server->ends);
	if (server->runs)
		pthread_join(server->thread, NULL);
	while (server->connections)
		connection_close(server->connections, NULL);
	free_closed(server);
	peers_finish(&server->peers);
	stop_accepting(server);
	if (server->epoll_fd >= 0)
		close(server->epoll_fd);
	if (server->wake_fd >= 0)
		close(server->wake_fd);
	pthread_mutex_destroy(&server->mutex);
	pthread_cond_destroy(&server->has_job);
	free(server->workers);
	free(server->listen_host);
	free(server);
}

void server_set_heavy(struct server_request *request)
{
	request->is_heavy = true;
}

int64_t server_note_wrong_token(struct server_request *request)
{
	return peer_wrong_token(request->peer, clock_ms());
}
