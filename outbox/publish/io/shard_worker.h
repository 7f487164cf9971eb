#pragma once
/*
 * One shard of a publisher at work: a thread that drives a stream (stream.h) with two Postgres
 * connections (one for the log, one to read) and a Kafka producer. Made and ended by one thread
 * (the daemon's main one); status and retune may be called from any.
 */
#include "topic_metadata.h"
#include "publisher_settings.h"
#include "stream.h"
#include "take_limiter.h"
#include "topic_checks.h"

struct shard_worker;

struct shard_worker_options {
	const struct publisher_settings *publisher; /* must outlive the shard_worker */
	int shard, shards;
	struct topic_metadata
	    *metadata; /* of publisher->kafka; shared, outlives the shard_worker */
	struct topic_checks *topic_checks; /* of the same cluster, likewise; NULL: none */
	struct take_limiter *take_limiter;
	poison_guard_turn *turn; /* of the process; outlives the shard_worker */
	const char *owner;       /* names the process in the log: host:pid:random */
	bool drain;              /* end once everything in the table is published */
};

/* Starts the thread. Only a configuration that cannot work fails here (ERR_CONFIG). */
struct shard_worker *shard_worker_start(
    const struct shard_worker_options *options, struct err *err);

/* Asks it to finish what is in flight, note it and release the shard; returns at once. */
void shard_worker_stop(struct shard_worker *shard_worker);
/* Waits for the thread and frees everything; NULL is fine. */
void shard_worker_join(struct shard_worker *shard_worker);

/* Takes over the reloadable values of a new configuration. */
void shard_worker_retune(
    struct shard_worker *shard_worker, const struct publisher_settings *publisher);

enum shard_worker_end {
	SHARD_WORKER_RUNNING,
	SHARD_WORKER_STOPPED,   /* after shard_worker_stop */
	SHARD_WORKER_ABANDONED, /* the same, but the lease could not be released: it runs out */
	SHARD_WORKER_DRAINED,   /* options.drain: nothing is left */
	SHARD_WORKER_REFUSED,   /* options.drain: Kafka refuses a record, or a rebase is needed */
	SHARD_WORKER_GONE, /* the publisher was dropped or its number of shards changed: start anew
			    * or not
			    */
};

/* A copy of what the thread last wrote down; strings are copied. */
struct shard_worker_status {
	enum shard_worker_end end;
	const char *publisher; /* the options' */
	int shard;
	enum stream_state state;
	int64_t loop_ms; /* clock_ms of the last turn of the loop: old means stalled */
	bool elsewhere;  /* not taken: a rebase is needed (outbox.take) */
	bool refused;    /* stopped: Kafka refuses a record for good */
	int64_t refused_id;
	char refused_topic[256], refused_error[512];
	bool lease_over; /* an owner that could not renew its lease: it sends nothing */
	bool full;       /* as much waits for acknowledgement as may: nothing further goes out */
	char missing_topic[256];                    /* "" or the topic that is waited for */
	char postgres_error[512], kafka_error[512]; /* "" or why there is no connection now */
	char holder[128]; /* standby: who owns the shard, as far as known */
};
struct shard_worker_status shard_worker_status(struct shard_worker *shard_worker);
/* Written (8 bytes) whenever `end` changes: for the daemon's poll. */
int shard_worker_event_fd(const struct shard_worker *shard_worker);
