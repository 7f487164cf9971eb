#include "gate_peers.h"

#include <netinet/in.h>
#include <string.h>
#include "text.h"

enum {
	MOST_IDLE = 4096,  /* addresses without a connection that are remembered */
	FREE_OF_DELAY = 3, /* wrong tokens without a delay, for mistakes of people */
	FIRST_DELAY_MS = 100,
	MOST_DELAY_MS = 5000,
	HALVED_MS = 10000,
};

static void make_key(const struct sockaddr_storage *name, unsigned char key[16])
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

	memset(key, 0, 16);
	if (name->ss_family == AF_INET) {
		memcpy(key, mapped, sizeof mapped);
		memcpy(key + 12, &((const struct sockaddr_in *)name)->sin_addr, 4);
	} else if (name->ss_family == AF_INET6) {
		const struct in6_addr *address = &((const struct sockaddr_in6 *)name)->sin6_addr;

		/* A client of IPv6 usually has a whole /64: its addresses count as one. */
		memcpy(key, address,
		    IN6_IS_ADDR_V4MAPPED(address) || IN6_IS_ADDR_LOOPBACK(address) ? 16 : 8);
	}
}

struct peer *peer_find(struct peer **peers, const struct sockaddr_storage *name)
{
	unsigned char key[16];
	struct peer *peer;

	make_key(name, key);
	HASH_FIND(hh, *peers, key, sizeof key, peer);
	if (!peer) {
		peer = xcalloc(1, sizeof *peer);
		memcpy(peer->address, key, sizeof key);
		HASH_ADD(hh, *peers, address, sizeof key, peer);
	}
	return peer;
}

static void halve_wrong_tokens(struct peer *peer, int64_t now)
{
	for (; peer->wrong_tokens > 0 && now - peer->wrong_at >= HALVED_MS;
	     peer->wrong_at += HALVED_MS)
		peer->wrong_tokens /= 2;
}

int64_t peer_wrong_token(struct peer *peer, int64_t now)
{
	int64_t delay = FIRST_DELAY_MS;

	halve_wrong_tokens(peer, now);
	if (peer->wrong_tokens == 0)
		peer->wrong_at = now;
	/* A higher count would only take longer to be forgotten. */
	if (peer->wrong_tokens < 64)
		peer->wrong_tokens++;
	if (peer->wrong_tokens <= FREE_OF_DELAY)
		return 0;
	for (int i = FREE_OF_DELAY + 1; i < peer->wrong_tokens && delay < MOST_DELAY_MS; i++)
		delay *= 2;
	return delay < MOST_DELAY_MS ? delay : MOST_DELAY_MS;
}

static void forget_peer(struct peer **peers, struct peer *peer)
{
	HASH_DELETE(hh, *peers, peer);
	free(peer);
}

void peers_sweep(struct peer **peers, int64_t now)
{
	struct peer *peer, *next;
	int idle = 0;

	/*
	 * The loop follows the order of arrival: if there are too many, the newest may be removed.
	 */
	HASH_ITER(hh, *peers, peer, next)
	{
		halve_wrong_tokens(peer, now);
		/* Connections point to their peer. */
		if (peer->connections > 0)
			continue;
		if (peer->wrong_tokens == 0 || ++idle > MOST_IDLE)
			forget_peer(peers, peer);
	}
}

void peers_finish(struct peer **peers)
{
	struct peer *peer, *next;

	HASH_ITER(hh, *peers, peer, next)
	forget_peer(peers, peer);
}
