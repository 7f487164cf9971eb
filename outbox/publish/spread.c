#include "spread.h"

#include <pthread.h>
#include <stdlib.h>

#include "text.h"

enum {
	WAIT_PER_SHARD_MS = 500,
	TAKING_MS = 5,
	/*
	 * A take that a database does not answer must not keep the shards of the others from being
	 * taken: it may stay without an answer for a whole lease.
	 */
	PATIENCE_MS = 1000,
};

struct spread {
	pthread_mutex_t mutex;
	int wait_per_shard_ms;
	int held;
	bool taking;
	int64_t taking_until;
	int64_t next_take;
};

struct spread *spread_create(bool keeps_all)
{
	struct spread *spread = xcalloc(1, sizeof *spread);
	spread->wait_per_shard_ms = keeps_all ? 0 : WAIT_PER_SHARD_MS;
	pthread_mutex_init(&spread->mutex, NULL);
	return spread;
}

void spread_destroy(struct spread *spread)
{
	if (!spread)
		return;
	pthread_mutex_destroy(&spread->mutex);
	free(spread);
}

int spread_held(struct spread *spread)
{
	pthread_mutex_lock(&spread->mutex);
	int held = spread->held;
	pthread_mutex_unlock(&spread->mutex);
	return held;
}

static bool is_taking(const struct spread *spread, int64_t now)
{
	return spread->taking && now < spread->taking_until;
}

bool spread_begin(struct spread *spread, int64_t now)
{
	pthread_mutex_lock(&spread->mutex);
	bool may = !is_taking(spread, now) && now >= spread->next_take;
	if (may) {
		spread->taking = true;
		spread->taking_until = now + PATIENCE_MS;
	}
	pthread_mutex_unlock(&spread->mutex);
	return may;
}

int64_t spread_wait(struct spread *spread, int64_t now)
{
	pthread_mutex_lock(&spread->mutex);
	int64_t at = is_taking(spread, now) ? now + TAKING_MS : spread->next_take;
	pthread_mutex_unlock(&spread->mutex);
	return at;
}

void spread_end(struct spread *spread, int64_t now, bool taken)
{
	pthread_mutex_lock(&spread->mutex);
	spread->taking = false;
	if (taken) {
		spread->held++;
		spread->next_take = now + spread->held * spread->wait_per_shard_ms;
	}
	pthread_mutex_unlock(&spread->mutex);
}

void spread_lost(struct spread *spread)
{
	pthread_mutex_lock(&spread->mutex);
	spread->held--;
	pthread_mutex_unlock(&spread->mutex);
}
