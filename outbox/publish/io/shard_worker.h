#pragma once
/*
 * The worker of one shard of a publisher: a thread that drives a stream (stream.h) with two
 * Postgres connections (one for the log, one to read) and a Kafka producer. One thread (the
 * daemon's main one) starts and ends it; any thread may call status and retune.
 */
#include "doorbell.h"
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
	struct topic_checks *topic_checks; /* for the same cluster, shared as well; NULL: none */
	struct take_limiter *take_limiter;
	struct doorbell *doorbell; /* of publisher->postgres; shared, outlives; NULL: none */
	poison_guard_turn *turn;   /* the process's; outlives the shard_worker */
	const char *owner;         /* names the process in the log: host:pid:random */
	bool drain;                /* end once everything in the table is published */
};

/* Starts the thread. ERR_CONFIG: the configuration cannot work; ERR_FATAL: no thread. */
struct shard_worker *shard_worker_start(
    const struct shard_worker_options *options, struct err *err);

/* Asks the worker to finish and note the records in flight and release the shard; returns at once.
 */
void shard_worker_stop(struct shard_worker *shard_worker);
/* Waits for the thread and frees everything; NULL is fine. */
void shard_worker_join(struct shard_worker *shard_worker);

/* Takes over the reloadable values of a new configuration. */
void shard_worker_retune(
    struct shard_worker *shard_worker, const struct publisher_settings *publisher);

enum shard_worker_end {
	SHARD_WORKER_RUNNING,
	SHARD_WORKER_STOPPED,   /* after shard_worker_stop */
	SHARD_WORKER_ABANDONED, /* the same, but the shard was not released: the lease runs out */
	SHARD_WORKER_DRAINED,   /* options.drain: everything is published */
	SHARD_WORKER_REFUSED,   /* options.drain: Kafka refuses a record, or a rebase is needed */
	SHARD_WORKER_GONE, /* the publisher was dropped, or its number of shards changed: it may
			    * be started again
			    */
};

/* A copy of the thread's last status, with its strings. */
struct shard_worker_status {
	enum shard_worker_end end;
	const char *publisher; /* points into the settings */
	int shard;
	enum stream_state state;
	int64_t loop_ms; /* clock_ms of the loop's last status; an old one means a stalled loop */
	bool elsewhere;  /* not taken: a rebase is needed (outbox.take) */
	bool refused;    /* stopped: Kafka refuses a record permanently */
	int64_t refused_id;
	char refused_topic[256], refused_error[512];
	bool lease_over; /* an owner that could not renew its lease: it sends nothing */
	bool full;       /* the limit of unacknowledged records is reached: no more go out */
	char missing_topic[256]; /* "" or the topic, missing or denied, that records wait for */
	char postgres_error[512], kafka_error[512]; /* "" or why there is no connection now */
	char holder[128];                           /* standby: the owner of the shard, if known */
};
struct shard_worker_status shard_worker_status(struct shard_worker *shard_worker);
/* Becomes readable when `end` changes, for the daemon's poll: 8 bytes are written. */
int shard_worker_event_fd(const struct shard_worker *shard_worker);
