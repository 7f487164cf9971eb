#include "take_limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "text.h"

enum {
	WAIT_PER_SHARD_MS = 500,
	TAKING_MS = 5,
	/*
	 * A database may leave a take without an answer for a whole lease. Takes in other databases
	 * must not wait so long.
	 */
	PATIENCE_MS = 1000,
};

struct take_limiter {
	pthread_mutex_t mutex;
	int wait_per_shard_ms;
	int held;
	bool taking;
	int64_t taking_until;
	int64_t next_take;
};

struct take_limiter *take_limiter_create(bool keeps_all)
{
	struct take_limiter *limiter = xcalloc(1, sizeof *limiter);
	limiter->wait_per_shard_ms = keeps_all ? 0 : WAIT_PER_SHARD_MS;
	pthread_mutex_init(&limiter->mutex, NULL);
	return limiter;
}

void take_limiter_destroy(struct take_limiter *limiter)
{
	if (!limiter)
		return;
	pthread_mutex_destroy(&limiter->mutex);
	free(limiter);
}

int take_limiter_held(struct take_limiter *limiter)
{
	pthread_mutex_lock(&limiter->mutex);
	int held = limiter->held;
	pthread_mutex_unlock(&limiter->mutex);
	return held;
}

static bool is_take_under_way(const struct take_limiter *limiter, int64_t now)
{
	return limiter->taking && now < limiter->taking_until;
}

bool take_limiter_begin(struct take_limiter *limiter, int64_t now)
{
	pthread_mutex_lock(&limiter->mutex);
	bool may = !is_take_under_way(limiter, now) && now >= limiter->next_take;
	if (may) {
		limiter->taking = true;
		limiter->taking_until = now + PATIENCE_MS;
	}
	pthread_mutex_unlock(&limiter->mutex);
	return may;
}

int64_t take_limiter_wait(struct take_limiter *limiter, int64_t now)
{
	pthread_mutex_lock(&limiter->mutex);
	int64_t at = is_take_under_way(limiter, now) ? now + TAKING_MS : limiter->next_take;
	pthread_mutex_unlock(&limiter->mutex);
	return at;
}

void take_limiter_end(struct take_limiter *limiter, int64_t now, bool taken)
{
	pthread_mutex_lock(&limiter->mutex);
	limiter->taking = false;
	if (taken) {
		limiter->held++;
		limiter->next_take = now + limiter->held * limiter->wait_per_shard_ms;
	}
	pthread_mutex_unlock(&limiter->mutex);
}

void take_limiter_lost(struct take_limiter *limiter)
{
	pthread_mutex_lock(&limiter->mutex);
	limiter->held--;
	pthread_mutex_unlock(&limiter->mutex);
}
