/*
 * Lets the threads of librdkafka that wait for a timer wake a moment after it is due.
 *
 * The main thread of each Kafka client has a timer every second. It waits whole milliseconds,
 * rounded down, and then spins for the rest of the last one: up to a millisecond of CPU each time,
 * which was two fifths of all that a relay at rest spent. librdkafka waits by cnd_timedwait and has
 * no setting for this. A definition in the program takes precedence over that of the C library, and
 * no other part of the program calls this function. The timer slack of kafka_client.c is for
 * programs that only link the library; where other timers wake the processor, it has little effect.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <threads.h>
#include <time.h>

enum {
	LONG_MS = 100, /* a shorter wait may be for a record, and is not prolonged */
	LATE_NS = 1000000,
	SECOND_NS = 1000000000,
};

typedef int timedwait_function(
    cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict at);

static timedwait_function *timedwait_of_libc;
static once_flag found_timedwait = ONCE_FLAG_INIT;

static void find_timedwait(void)
{
	*(void **)&timedwait_of_libc = dlsym(RTLD_NEXT, "cnd_timedwait");
}

static int64_t milliseconds_until(const struct timespec *at)
{
	struct timespec now;

	timespec_get(&now, TIME_UTC);
	return (int64_t)(at->tv_sec - now.tv_sec) * 1000 + (at->tv_nsec - now.tv_nsec) / 1000000;
}

__attribute__((visibility("default"))) int cnd_timedwait(
    cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict at)
{
	struct timespec late = *at;

	call_once(&found_timedwait, find_timedwait);
	if (milliseconds_until(at) >= LONG_MS)
		late.tv_nsec += LATE_NS;
	if (late.tv_nsec >= SECOND_NS) {
		late.tv_nsec -= SECOND_NS;
		late.tv_sec++;
	}
	return timedwait_of_libc(condition, mutex, &late);
}
