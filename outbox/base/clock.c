#include "clock.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static int64_t now_us(clockid_t which)
{
	struct timespec now;

	if (clock_gettime(which, &now) != 0)
		abort();
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t clock_us(void)
{
	return now_us(CLOCK_BOOTTIME);
}

int64_t clock_ms(void)
{
	return clock_us() / 1000;
}

int64_t clock_wall_us(void)
{
	return now_us(CLOCK_REALTIME);
}

int64_t clock_random(void)
{
	int64_t value = 0;

	while (value == 0) {
		ssize_t got = getrandom(&value, sizeof value, 0);
		if (got < 0 && errno != EINTR)
			abort();
		value = got == sizeof value ? value & INT64_MAX : 0;
	}
	return value;
}

void clock_cond_init(pthread_cond_t *condition)
{
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

struct timespec clock_until(int64_t ms)
{
	struct timespec until;
	int64_t ns = (ms > 0 ? ms : 1) * 1000000;
	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	return until;
}
