#pragma once
/* A connection and the server's parts, between server.c and server_connection.c. */
#include <pthread.h>
#include "server.h"
#include "server_peers.h"

enum { HEAD_BYTES = 16384, PART_BYTES = 65536 };

enum connection_state {
	CONNECTION_HEAD,    /* waits for a request, or has a part of its head */
	CONNECTION_BODY,    /* the head was taken; the body comes */
	CONNECTION_WORKING, /* the request is whole; a worker or somebody else has it */
	CONNECTION_DELAYED, /* the answer is there and is held back */
	CONNECTION_WRITING, /* the answer goes out */
	CONNECTION_LEAVING, /* our side is closed; what still comes is dropped, so that the client
			       can read the answer instead of a reset */
	CONNECTION_STATES,
};

struct server_request {
	struct server *server;
	int fd;
	enum connection_state state;
	struct peer *peer;
	int64_t begun_ms;    /* when it became idle, or its request began */
	int64_t progress_ms; /* the idlest one goes first: since when nothing of use happened */
	int64_t until_ms;    /* then its state has lasted for too long */
	uint32_t events;     /* that epoll watches */
	bool is_watched;
	bool is_served; /* had an answer before */

	char *in; /* what arrived: the head, which `head` points into, and what came behind */
	size_t in_length, in_capacity, scanned, head_length;
	struct request_head head;
	struct request_chunks chunks;
	int64_t body_left; /* of a body with a length */
	int64_t taken, dropped;

	void *call;
	bool has_call, is_answered, closes, is_gone, is_heavy;
	unsigned status;
	int64_t delay_ms;
	struct text out;
	size_t sent;

	struct server_request *prev, *next; /* of all connections, or of the closed ones */
	struct server_request *job_next;    /* of the workers' queues; the mutex */
	struct server_request *done_next;   /* of the answers that others gave; the mutex */
};

struct job_queue {
	struct server_request *first, *last;
};

struct server {
	struct server_settings settings;
	char *listen_host;
	int listen_fd, epoll_fd, wake_fd;
	pthread_t thread, *workers;
	bool runs;
	int worker_count;
	/* the server's thread */
	struct server_request *connections;
	struct server_request *closed; /* freed at the end of a turn, whose events may name them */
	struct peer *peers;
	int count, most, most_of_peer;
	int64_t unsent; /* bytes of answers */
	int64_t swept_ms, checked_ms;
	bool accepts;
	char part[PART_BYTES];
	/* guarded by the mutex */
	pthread_mutex_t mutex;
	pthread_cond_t has_job;
	struct job_queue light, heavy;
	int heavy_busy;
	struct server_request *done;
	bool quiesces, ends, workers_end;
};

/* server_connection.c; the server's thread */
void connection_open(struct server *server, int fd, const struct sockaddr_storage *from);
void connection_close(struct server_request *connection, const char *reason);
void connection_event(struct server_request *connection, uint32_t events);
/* Somebody else answered it. */
void connection_answered(struct server_request *connection);
/* Its time may be over. */
void connection_check(struct server_request *connection, int64_t now);

/* server.c */
void server_watch(struct server_request *connection, uint32_t events);
bool server_is_own_thread(const struct server *server);
/* Its thread has something to look at. Any thread. */
void server_wake(struct server *server);
/* Makes room for `bytes` more of answers. */
void server_hold(struct server *server, struct server_request *connection, int64_t bytes);
void server_count_refused(const struct server *server, const char *reason);
