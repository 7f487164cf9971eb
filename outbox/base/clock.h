#pragma once
/*
 * Time. Monotonic time is CLOCK_BOOTTIME (it counts while the machine sleeps, so that a lease also
 * expires for an owner that was suspended), in milliseconds or microseconds from an arbitrary
 * origin; wall time is for people and for Kafka timestamps only.
 */
#include <stdint.h>

int64_t clock_ms(void);      /* monotonic, milliseconds */
int64_t clock_us(void);      /* monotonic, microseconds */
int64_t clock_wall_us(void); /* since 1970-01-01 UTC, microseconds */

/* A random 64-bit value from the kernel (getrandom); never 0, never negative. */
int64_t clock_random(void);
