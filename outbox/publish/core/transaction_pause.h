#pragma once
/*
 * The pause between the commit of a Kafka transaction and the first record of the next one.
 *
 * When a commit returns, the coordinator has noted it, and continues: it writes markers into the
 * partitions, then a note that they are complete. Until then it refuses partitions of the next
 * transaction, and librdkafka tries again after TRANSACTION_RETRY_US. No answer tells how long a
 * cluster takes for this, so the pause is learned from the first report of each transaction: one
 * that took as long as such a retry makes the pause longer, and each other one makes it shorter, by
 * less than a 250th of that. So fewer than one transaction in 250 is refused.
 */
#include <stdint.h>

enum {
	TRANSACTION_RETRY_US = 20000,
	TRANSACTION_PAUSE_FIRST_US = 2000,
};

/* The next pause, in microseconds, after a transaction whose first report took that long. */
int64_t transaction_pause_next(int64_t pause_us, int64_t first_report_us);
