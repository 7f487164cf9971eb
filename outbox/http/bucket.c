#include "bucket.h"

enum { BURST_PARTS = 20 };

void bucket_init(struct bucket *bucket, int64_t now)
{
	*bucket = (struct bucket){.tokens = 1, .filled_at = now};
}

static void fill_bucket(struct bucket *bucket, double rate, int64_t now)
{
	double most = rate / BURST_PARTS > 1 ? rate / BURST_PARTS : 1;

	bucket->tokens += rate * (double)(now - bucket->filled_at) / 1000;
	bucket->filled_at = now;
	if (bucket->tokens > most)
		bucket->tokens = most;
}

int64_t bucket_wait(struct bucket *bucket, int64_t rate, int64_t now)
{
	if (rate == 0)
		return 0;
	fill_bucket(bucket, (double)rate, now);
	if (bucket->tokens >= 1)
		return 0;
	return 1 + (int64_t)((1 - bucket->tokens) * 1000 / (double)rate);
}

void bucket_take(struct bucket *bucket, int64_t rate)
{
	if (rate > 0)
		bucket->tokens -= 1;
}

void bucket_give_back(struct bucket *bucket, int64_t rate)
{
	if (rate > 0)
		bucket->tokens += 1;
}
