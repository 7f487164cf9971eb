/*
 * Limits how much a server that is not trusted can make libpq read and keep.
 *
 * libpq buffers a whole message, of up to 1 GiB, and has no limit of its own for a message, a
 * result or notices. So pg_consume counts the bytes in the socket before libpq reads them. But
 * within a long message PQconsumeInput reads until the socket is empty, which a fast server may
 * never let happen. A guard watches the bytes of such a call, and ends the connection when they
 * exceed the limit.
 */
#include "pg_private.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "clock.h"

enum { LOOK_NS = 1000000 };

struct guard {
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t ended;
	bool has_ended, tripped; /* under mutex */
	int fd;                  /* a duplicate: libpq may close its own meanwhile */
	uint64_t most;           /* bytes of the connection, as the kernel counts them */
};

void pg_limit_answer(struct pg *pg, int64_t bytes)
{
	pg->answer_limit = bytes;
}

bool pg_is_flooded(const struct pg *pg)
{
	return pg->flooded;
}

bool pg_is_within_limit(struct pg *pg)
{
	int waiting = 0;

	if (pg->answer_limit == 0)
		return true;
	if (ioctl(PQsocket(pg->connection), FIONREAD, &waiting) == 0)
		pg->received += waiting;
	pg->flooded = pg->received > pg->answer_limit;
	return !pg->flooded;
}

/* False for a Unix socket, whose server is on this machine. */
static bool bytes_received(int fd, uint64_t *ret_bytes)
{
	struct tcp_info info = {0};
	socklen_t length = sizeof info;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
		return false;
	*ret_bytes = info.tcpi_bytes_received;
	return true;
}

static void *watch_received_bytes(void *context)
{
	struct guard *guard = context;
	struct timespec until;
	uint64_t received;

	pthread_mutex_lock(&guard->mutex);
	while (!guard->has_ended) {
		if (bytes_received(guard->fd, &received) && received > guard->most) {
			guard->tripped = true;
			shutdown(guard->fd, SHUT_RDWR); /* the kernel resets at the next byte */
			break;
		}
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += LOOK_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&guard->ended, &guard->mutex, &until);
	}
	pthread_mutex_unlock(&guard->mutex);
	return NULL;
}

/* Monotonic: if the wall clock is set back, the guard must not wait for that long. */
static void init_guard_ended(struct guard *guard)
{
	clock_cond_init(&guard->ended);
}

static bool guard_begin(struct guard *guard, const struct pg *pg)
{
	uint64_t received;

	*guard =
	    (struct guard){.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = dup(PQsocket(pg->connection))};
	if (guard->fd < 0)
		return false;
	init_guard_ended(guard);
	/* A Unix socket is not guarded: its server is on this machine. */
	if (bytes_received(guard->fd, &received)) {
		guard->most = received + (uint64_t)(pg->answer_limit - pg->received);
		if (pthread_create(&guard->thread, NULL, watch_received_bytes, guard) == 0)
			return true;
	}
	pthread_cond_destroy(&guard->ended);
	close(guard->fd);
	return false;
}

static bool guard_end(struct guard *guard)
{
	pthread_mutex_lock(&guard->mutex);
	guard->has_ended = true;
	pthread_cond_signal(&guard->ended);
	pthread_mutex_unlock(&guard->mutex);
	pthread_join(guard->thread, NULL);
	pthread_cond_destroy(&guard->ended);
	close(guard->fd);
	return guard->tripped;
}

bool pg_consume(struct pg *pg)
{
	/* The first read of an answer goes into libpq's usual buffer, which is small. */
	bool may_be_long = pg->answer_limit > 0 && pg->received > 0;
	struct guard guard;
	bool consumed;

	if (!pg_is_within_limit(pg))
		return false;
	bool guarded = may_be_long && guard_begin(&guard, pg);
	consumed = PQconsumeInput(pg->connection);
	if (guarded && guard_end(&guard))
		pg->flooded = true;
	return consumed && !pg->flooded;
}
