#pragma once
/*
 * peers-load: the one writer and the one consumer of every system in the comparison. Speaks to
 * tests/bench/peers/run in JSON lines on stdout.
 *
 * A message has a number; its payload begins with {"n":NUMBER,"t":MICROSECONDS, where t is
 * this process's monotonic clock right before its transaction was sent (0: filled in by SQL).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOAD_KEYS = 10000 };

struct load_options {
	const char *brokers, *topic, *dsn, *sql;
	int64_t partitions;
	int64_t first,
	    count;  /* the numbers that matter; what else is in the topic is passed over */
	int64_t at; /* so many seen: an event; 0: none */
	int64_t rate, warm, seconds, connections; /* a second; seconds; seconds */
};

/* Says why on stderr and ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void load_die(const char *format, ...);
int64_t load_clock_us(void);

/* --- watch.c: the consumer. One thread may step it; the arrays are read when it has ended. --- */

struct watch;
/* Stands at the end of every partition when this returns. */
struct watch *watch_create(const struct load_options *options);
void watch_destroy(struct watch *watch);
/* Takes what is there, waiting at most timeout_ms for the first. False: nothing came. */
bool watch_step(struct watch *watch, int timeout_ms);
/* Different numbers seen; may be asked from any thread. */
int64_t watch_distinct(const struct watch *watch);
/* When the number was seen first, and the t of its payload; 0: never. */
int64_t watch_seen_us(const struct watch *watch, int64_t number);
int64_t watch_sent_us(const struct watch *watch, int64_t number);
int64_t watch_twice(const struct watch *watch);
/* Numbers seen for the first time after a larger one of their key. */
int64_t watch_backwards(const struct watch *watch);
/* From the first to the last number seen for the first time. */
int64_t watch_span_us(const struct watch *watch);

/* --- write.c: the writer -----------------------------------------------------------------------
 */

struct written {
	int64_t count, warm;   /* messages in all, and of the warm-up, which come first */
	double held;           /* committed in time of what was due */
	int64_t *committed_us; /* by number - first: when COMMIT returned */
};
/* One row a transaction, until the time is over. Returns when everything is committed. */
void write_at_rate(const struct load_options *options, struct written *ret_written);
