#pragma once
/* The addresses that connections come from. Used under the mutex of the gate. */
#include <sys/socket.h>
#include <uthash.h>
#include "text.h"

/* An IPv6 network of 64 bits counts as one address: one machine has as many as it likes of it. */
struct peer {
	unsigned char address[16];
	int connections;
	int wrong_tokens; /* halved every ten seconds */
	int64_t wrong_at; /* clock_ms, when that was last done */
	UT_hash_handle hh;
};

struct peer *peer_find(struct peer **peers, const struct sockaddr_storage *name);
/* Counts a wrong token: the delay of its answer. */
int64_t peer_wrong_token(struct peer *peer, int64_t now);
/* Forgets addresses without connections and without recent wrong tokens. */
void peers_sweep(struct peer **peers, int64_t now);
void peers_finish(struct peer **peers);
