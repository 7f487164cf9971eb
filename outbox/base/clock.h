#pragma once
/*
 * Time. Monotonic time is CLOCK_BOOTTIME (it counts while the machine sleeps, so that a lease also
 * expires for an owner that was suspended), in milliseconds or microseconds from an arbitrary
 * origin; wall time is for people and for Kafka timestamps only.
 */
#include <pthread.h>
#include <stdint.h>
#include <time.h>

int64_t clock_ms(void);      /* monotonic, milliseconds */
int64_t clock_us(void);      /* monotonic, microseconds */
int64_t clock_wall_us(void); /* since 1970-01-01 UTC, microseconds */

/* A random 64-bit value from the kernel (getrandom); never 0, never negative. */
int64_t clock_random(void);

/* For pthread_cond_timedwait, on CLOCK_MONOTONIC: if the wall clock is set back, nobody waits
 * longer. */
void clock_cond_init(pthread_cond_t *condition);
struct timespec clock_until(int64_t ms); /* so many milliseconds from now, at least 1 */
