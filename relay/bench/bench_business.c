/*
 * One thread serves all connections. All answers take the same time, so they are due in the order
 * of their questions and wait in one queue.
 */
#include "bench_business.h"
#include "bench_lookback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include "cleanup.h"
#include "clock.h"

enum { ANSWER_US = 5000, MOST_PEERS = 1024, LONGEST_US = 50000, READ_BYTES = 65536 };

struct answer {
	struct answer *next;
	struct bench_peer *peer;
	int64_t due_us;
	struct text bytes;
};

struct bench_business {
	const struct bench_dialect *dialect;
	bool commits;
	atomic_llong count, first_us, last_us; /* messages that sink took, and their times */
	int fd, port;
	pthread_t thread;
	atomic_bool stopping;
	/* for the thread only */
	struct bench_peer *peers[MOST_PEERS]; /* a peer that is gone frees its place */
	int peer_count;
	struct answer *first, *last;
};

/* --- what is said ---------------------------------------------------------------------------- */

static void hang_up(struct bench_peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
}

bool bench_peer_write(struct bench_peer *peer, const struct text *bytes)
{
	for (size_t done = 0; done < bytes->length;) {
		ssize_t some =
		    send(peer->fd, bytes->data + done, bytes->length - done, MSG_NOSIGNAL);

		if (some < 0 && errno != EINTR)
			return false;
		done += some > 0 ? (size_t)some : 0;
	}
	return true;
}

void bench_peer_answer(struct bench_peer *peer, struct text *bytes)
{
	struct bench_business *business = peer->business;
	struct answer *answer = xmalloc(sizeof *answer);

	*answer = (struct answer){.peer = peer, .due_us = clock_us() + ANSWER_US, .bytes = *bytes};
	peer->waiting++;
	if (business->last)
		business->last->next = answer;
	else
		business->first = answer;
	business->last = answer;
}

static void free_first_answer(struct bench_business *business)
{
	struct answer *answer = business->first;

	answer->peer->waiting--;
	business->first = answer->next;
	if (!business->first)
		business->last = NULL;
	text_finish(&answer->bytes);
	free(answer);
}

static void send_due_answers(struct bench_business *business)
{
	int64_t now = clock_us();

	while (business->first && business->first->due_us <= now) {
		struct answer *answer = business->first;

		/* a peer that hung up gets no answer, but its place is free only after the last
		 * one */
		if (answer->peer->fd >= 0 && !bench_peer_write(answer->peer, &answer->bytes))
			hang_up(answer->peer);
		free_first_answer(business);
	}
}

bool bench_peer_commits(const struct bench_peer *peer)
{
	return peer->business->commits;
}

void bench_peer_take(struct bench_peer *peer, int64_t count)
{
	struct bench_business *business = peer->business;
	int64_t now = clock_us();

	if (atomic_load(&business->count) == 0)
		atomic_store(&business->first_us, now);
	atomic_store(&business->last_us, now);
	atomic_fetch_add(&business->count, count);
}

int64_t bench_business_taken(const struct bench_business *business, int64_t *ret_span_us)
{
	int64_t count = atomic_load(&business->count);

	*ret_span_us = atomic_load(&business->last_us) - atomic_load(&business->first_us);
	return count;
}

/* --- what is heard --------------------------------------------------------------------------- */

void bench_peer_read(struct bench_peer *peer, size_t length)
{
	peer->in.length -= length;
	memmove(peer->in.data, peer->in.data + length, peer->in.length + 1);
}

static void finish_peer(struct bench_peer *peer)
{
	if (peer->business->dialect->finish)
		peer->business->dialect->finish(peer);
	text_finish(&peer->in);
}

/* NULL: the maximum is reached. */
static struct bench_peer *vacant_peer(struct bench_business *business)
{
	for (int i = 0; i < business->peer_count; i++) {
		struct bench_peer *peer = business->peers[i];

		/* an answer that waits still points to the peer */
		if (peer->fd < 0 && !peer->waiting) {
			finish_peer(peer);
			return peer;
		}
	}
	if (business->peer_count == MOST_PEERS)
		return NULL;
	return business->peers[business->peer_count++] = xcalloc(1, sizeof(struct bench_peer));
}

static void accept_peer(struct bench_business *business)
{
	int fd = accept4(business->fd, NULL, NULL, SOCK_CLOEXEC), on = 1;
	struct bench_peer *peer;

	if (fd < 0)
		return;
	peer = vacant_peer(business);
	if (!peer) {
		close(fd);
		return;
	}
	/* the kernel would hold back small answers, and the relay would wait for them */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	*peer = (struct bench_peer){.fd = fd, .business = business};
	if (business->dialect->greet && !business->dialect->greet(peer))
		hang_up(peer);
}

static void read_peer(struct bench_peer *peer)
{
	char bytes[READ_BYTES];
	ssize_t length = recv(peer->fd, bytes, sizeof bytes, MSG_DONTWAIT);

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (length > 0) {
		text_append(&peer->in, bytes, (size_t)length);
		if (peer->business->dialect->read(peer))
			return;
	}
	/* the end of the connection, an error, or bytes that the dialect does not understand */
	hang_up(peer);
}

/* --- the thread ------------------------------------------------------------------------------ */

static void serve_once(struct bench_business *business)
{
	struct pollfd fds[MOST_PEERS + 1];
	int64_t wait = business->first ? business->first->due_us - clock_us() : LONGEST_US;
	int count = business->peer_count;

	wait = wait < 0 ? 0 : wait > LONGEST_US ? LONGEST_US : wait;

	const struct timespec timeout = {.tv_nsec = wait * 1000};

	for (int i = 0; i < count; i++)
		fds[i] = (struct pollfd){.fd = business->peers[i]->fd, .events = POLLIN};
	fds[count] = (struct pollfd){.fd = business->fd, .events = POLLIN};
	if (ppoll(fds, (nfds_t)count + 1, &timeout, NULL) < 0)
		return;
	for (int i = 0; i < count; i++)
		if (fds[i].revents)
			read_peer(business->peers[i]);
	if (fds[count].revents)
		accept_peer(business);
}

static void *serve_peers(void *context)
{
	struct bench_business *business = context;

	while (!atomic_load(&business->stopping)) {
		serve_once(business);
		send_due_answers(business);
	}
	return NULL;
}

static bool listen_here(struct bench_business *business, struct err *err)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof at;

	business->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (business->fd < 0 || bind(business->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
	    listen(business->fd, MOST_PEERS) != 0 ||
	    getsockname(business->fd, (struct sockaddr *)&at, &length) != 0)
		return err_set(
		    err, ERR_FATAL, "the bench cannot listen on 127.0.0.1: %s", strerror(errno));
	business->port = ntohs(at.sin_port);
	return true;
}

static void free_business(struct bench_business *business)
{
	while (business->first)
		free_first_answer(business);
	for (int i = 0; i < business->peer_count; i++) {
		struct bench_peer *peer = business->peers[i];

		hang_up(peer);
		finish_peer(peer);
		free(peer);
	}
	if (business->fd >= 0)
		close(business->fd);
	free(business);
}

struct bench_business *bench_business_start(
    const struct bench_dialect *dialect, bool commits, struct err *err)
{
	struct bench_business *business = xcalloc(1, sizeof *business);

	business->dialect = dialect;
	business->commits = commits;
	if (listen_here(business, err)) {
		if (pthread_create(&business->thread, NULL, serve_peers, business) == 0)
			return business;
		err_set(err, ERR_FATAL, "no thread can be started");
	}
	free_business(business);
	return NULL;
}

int bench_business_port(const struct bench_business *business)
{
	return business->port;
}

void bench_business_stop(struct bench_business *business)
{
	if (!business)
		return;
	atomic_store(&business->stopping, true);
	pthread_join(business->thread, NULL);
	free_business(business);
}
