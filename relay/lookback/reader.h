#pragma once
/*
 * A reader of one [lookback] section, on a thread of its own: takes the records of the look-back
 * topic as a member of the section's consumer group, a batch at a time, and stores their effects
 * together with the offset, in one transaction (journal.h). Any number of relays may run any number
 * of them; Kafka divides the partitions among them, and the database's fence keeps one that has
 * lost a partition and does not know it yet from doing anything.
 *
 * A record that is refused becomes a dead letter, in the same transaction. After any other failure
 * the reader forgets the records that it holds and begins again at the offset in the database. A
 * partition that cannot be read does not delay the others; its offset is asked for again now and
 * then.
 *
 * A prepare is made overdue only when its partition was read as far as it had been written after
 * the prepare was due: a reader that lags behind does not know yet what has been decided.
 *
 * Made and ended by one thread; reader_status may be called from any.
 */
#include "config.h"
#include "errors.h"
#include "route.h"

struct reader;

/*
 * name: the name of the process, for the log table. event_fd is written when the reader has ended.
 * All arguments must outlive the reader.
 */
struct reader *reader_start(const struct config_lookback *lookback, const struct route *route,
    const char *name, int event_fd, struct err *err);
/* Asks the reader to end, and cancels its running statements; returns at once. */
void reader_stop(struct reader *reader);
/* Waits for the reader, leaves the group and frees everything. NULL is fine. */
void reader_join(struct reader *reader);

struct reader_status {
	bool ended;
	int64_t turn_ms;  /* clock_ms of the last turn of its loop */
	int partitions;   /* partitions that it has now; -1: it is no member yet */
	char error[1024]; /* why it makes no progress; "" */
};
struct reader_status reader_status(struct reader *reader);
