#pragma once
/*
 * A token bucket: limits requests per second, and bursts to 1/20 s of that rate (at least one
 * request). Pure: the caller owns the clock, and passes the rate each time; 0 means no limit.
 */
#include <stdint.h>

/* Embedded on purpose. */
struct bucket {
	double tokens;
	int64_t filled_at;
};

/* The bucket starts with one token. */
void bucket_init(struct bucket *bucket, int64_t now);
/* How long until there is a token, in ms; 0: there is one now. */
int64_t bucket_wait(struct bucket *bucket, int64_t rate, int64_t now);
/* Takes one token; bucket_give_back returns it when no request was made in the end. */
void bucket_take(struct bucket *bucket, int64_t rate);
void bucket_give_back(struct bucket *bucket, int64_t rate);
