#pragma once
/* The interface between the server of bench_business.c and its protocols. For its thread only. */
#include "text.h"

struct bench_peer {
	int fd;         /* -1: gone */
	int waiting;    /* answers that it is waiting for */
	struct text in; /* received bytes that were not read yet */
	struct bench_business *business;
	struct bench_call *calls; /* grpc: requests that are arriving */
};

struct bench_dialect {
	/* Sends the server's first bytes; NULL: none. */
	bool (*greet)(struct bench_peer *peer);
	/* Reads the complete requests in peer->in. False: the connection must be closed. */
	bool (*read)(struct bench_peer *peer);
	/* Frees the protocol's memory for the peer; NULL: it has none. */
	void (*finish)(struct bench_peer *peer);
};

/* Sends at once. */
bool bench_peer_write(struct bench_peer *peer, const struct text *bytes);
/* Sends in 5 ms; takes ownership of the bytes. */
void bench_peer_answer(struct bench_peer *peer, struct text *bytes);
/* Removes bytes that were read from peer->in. */
void bench_peer_read(struct bench_peer *peer, size_t length);
/* Counts messages. */
void bench_peer_take(struct bench_peer *peer, int64_t count);
bool bench_peer_commits(const struct bench_peer *peer);
