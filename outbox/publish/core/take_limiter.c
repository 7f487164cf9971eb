#include "take_limiter.h"

#include <pthread.h>
#include <stdlib.h>

#include "text.h"

enum {
	WAIT_PER_SHARD_MS = 500,
	/* The waits of a process that takes all its shards last so long in all, or less. */
	ALL_WAITS_MS = 10000,
	TAKING_MS = 5,
	/*
	 * A database may leave a take without an answer for a whole lease. Takes in other databases
	 * must not wait so long.
	 */
	PATIENCE_MS = 1000,
};

struct take_limiter {
	pthread_mutex_t mutex;
	bool keeps_all;
	int workers; /* that may take a shard each */
	int held;
	bool taking;
	int64_t taking_until;
	int64_t next_take;
};

struct take_limiter *take_limiter_create(bool keeps_all)
{
	struct take_limiter *limiter = xcalloc(1, sizeof *limiter);
	limiter->keeps_all = keeps_all;
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

void take_limiter_count(struct take_limiter *limiter, int workers)
{
	pthread_mutex_lock(&limiter->mutex);
	limiter->workers += workers;
	pthread_mutex_unlock(&limiter->mutex);
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

/* With n workers there are waits of 1, 2, ... n times this: n * n / 2 of them. */
static double wait_per_shard_ms(const struct take_limiter *limiter)
{
	double workers = limiter->workers, fair = 2.0 * ALL_WAITS_MS / (workers * workers + 1);

	if (limiter->keeps_all)
		return 0;
	return fair < WAIT_PER_SHARD_MS ? fair : WAIT_PER_SHARD_MS;
}

void take_limiter_end(struct take_limiter *limiter, int64_t now, bool taken)
{
	pthread_mutex_lock(&limiter->mutex);
	limiter->taking = false;
	if (taken) {
		limiter->held++;
		limiter->next_take = now + (int64_t)(limiter->held * wait_per_shard_ms(limiter));
	}
	pthread_mutex_unlock(&limiter->mutex);
}

void take_limiter_lost(struct take_limiter *limiter)
{
	pthread_mutex_lock(&limiter->mutex);
	limiter->held--;
	pthread_mutex_unlock(&limiter->mutex);
}
