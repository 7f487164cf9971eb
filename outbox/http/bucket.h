#pragma once
/*
 * A token bucket: so many requests a second, and no more at once than 1/20 s of them (one at
 * least). Pure: the caller owns the clock, and says the rate each time; 0 is no limit.
 */
#include <stdint.h>

/* Embedded on purpose. */
struct bucket {
	double tokens;
	int64_t filled_at;
};

/* With one token in it. */
void bucket_init(struct bucket *bucket, int64_t now);
/* How long until there is a token, in ms; 0: there is. */
int64_t bucket_wait(struct bucket *bucket, int64_t rate, int64_t now);
/* One is used, and given back when it was not in the end. */
void bucket_take(struct bucket *bucket, int64_t rate);
void bucket_give_back(struct bucket *bucket, int64_t rate);
