#pragma once
/* Between the server of bench_business.c and what it speaks. Of its thread. */
#include "text.h"

struct bench_peer {
	int fd;         /* -1: gone */
	int waiting;    /* answers that are due to it */
	struct text in; /* what came and was not read yet */
	struct bench_business *business;
	struct bench_call *calls; /* grpc: those that are coming in */
};

struct bench_dialect {
	/* What the server says first; NULL: nothing. */
	bool (*greet)(struct bench_peer *peer);
	/* Reads the whole requests of peer->in. False: the connection is of no use. */
	bool (*read)(struct bench_peer *peer);
	/* Frees what it holds of the peer; NULL: nothing. */
	void (*finish)(struct bench_peer *peer);
};

/* At once. */
bool bench_peer_write(struct bench_peer *peer, const struct text *bytes);
/* In 5 ms; takes the bytes over. */
void bench_peer_answer(struct bench_peer *peer, struct text *bytes);
/* So many bytes of peer->in are done with. */
void bench_peer_read(struct bench_peer *peer, size_t length);
/* So many messages came. */
void bench_peer_take(struct bench_peer *peer, int64_t count);
bool bench_peer_commits(const struct bench_peer *peer);
