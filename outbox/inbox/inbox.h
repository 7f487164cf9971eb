#pragma once
/*
 * Consumes topics so that every message is handled, in parallel and in the order of its key, and
 * copies of what was handled are dropped. A public header of liboutbox-inbox.
 *
 *   static void charge(void *context, struct outbox_inbox *inbox,
 *       const struct outbox_inbox_message *const *messages, size_t count)
 *   {
 *           …
 *           outbox_inbox_finish(inbox, &(struct outbox_inbox_end){messages[0]->ticket}, 1, NULL);
 *   }
 *
 *   const char *kafka[] = {"bootstrap.servers", "127.0.0.1:9092", NULL};
 *   const char *topics[] = {"orders", NULL};
 *   struct outbox_inbox_settings settings = {
 *       .kafka = kafka, .group = "billing", .topics = topics, .handle = charge,
 *       .dedup = "bloom ids=50M rate=0.1% window=24h", .path = "/var/lib/billing"};
 *   struct outbox_inbox *inbox = outbox_inbox_open(&settings, &error);
 *   …                                         until the process is asked to end
 *   outbox_inbox_close(inbox);
 *
 * Order. Messages of a partition with the same key are handled one after the other, in the order of
 * their offsets, also when one is tried again; all others in parallel. Those without a key have no
 * order. Retry topics give the order up.
 *
 * Offsets are committed behind finished work only, and after what the store of dedup knows of it is
 * on the disk: handle, log, fdatasync, commit. What is finished beyond the first message that is
 * not goes along as the text of the commit, so that it is not handled again; docs/inbox.md has its
 * form. A crash between the effect and the log repeats the effect, unless it stands in one
 * transaction with the id (outbox_inbox_take).
 *
 * Threads: handlers run on threads of the inbox. All functions may be called from any thread, but
 * open and close from one.
 */
#include "dedup.h"
#include "rules.h"

struct outbox_inbox;

struct outbox_inbox_message {
	uint64_t ticket; /* of this try, to finish it by; no two are the same */
	const char *topic;
	int32_t partition;
	int64_t offset;
	int64_t time_ms; /* of the record, since 1970 */
	const void *key; /* NULL: none */
	size_t key_length;
	const void *payload; /* NULL: none */
	size_t payload_length;
	const struct outbox_rules_header *headers;
	size_t header_count;
	const void *id; /* by which copies are known; NULL: none */
	size_t id_length;
	int attempt; /* from 1; tries in other processes and in retry topics are counted as far as
			they are known */
};

enum outbox_inbox_result {
	OUTBOX_INBOX_DONE,
	OUTBOX_INBOX_DUPLICATE, /* the application had done it before: done, counted as a copy */
	OUTBOX_INBOX_RETRY,     /* it failed, and is tried again */
	OUTBOX_INBOX_WAIT,      /* it was not tried, and is tried again after after_ms */
	OUTBOX_INBOX_DEAD,      /* it can never be handled: to the dead letters */
	OUTBOX_INBOX_RESULTS
};

struct outbox_inbox_end {
	uint64_t ticket;
	enum outbox_inbox_result result;
	const char *reason; /* for people: the log, and the dead letter; NULL: none */
	int64_t after_ms;   /* of retry and wait: not before; 0: as the settings say */
};

/*
 * Gets messages to be handled, from 1 to settings.batch, no two of them with the same key. Each is
 * to be finished once, in any order, before it returns or later; until then it is valid.
 */
typedef void outbox_inbox_handler(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count);

/* With dedup, what becomes of a message in which `id` finds nothing. Told in the log once a topic.
 */
enum outbox_inbox_policy {
	OUTBOX_INBOX_TO_DEAD_LETTERS,
	OUTBOX_INBOX_PROCESS, /* each as if it had an id of its own */
	OUTBOX_INBOX_FAIL,    /* its partition stands still */
};

/* Where a group begins that has committed nothing, or whose offset is not there any more. */
enum outbox_inbox_start {
	OUTBOX_INBOX_EARLIEST,
	OUTBOX_INBOX_LATEST,
	/* The partition, until somebody sets its offset, and it is resumed or opened anew. */
	OUTBOX_INBOX_STAND_STILL,
};

/* A topic for what failed, and how long it waits there. */
struct outbox_inbox_retry_topic {
	const char *topic;
	int64_t delay_ms;
};

/* 0 and NULL: the default. All of it is copied. */
struct outbox_inbox_settings {
	const char *const
	    *kafka; /* librdkafka's properties: names and values in turn, NULL-ended */
	const char *group;
	const char *const *topics; /* NULL-ended */
	outbox_inbox_handler *handle;
	void *context;

	/*
	 * dedup.h; without path=: each partition has a folder of its own below `path`, and a store
	 * whose memory is that of `ids`. The log's inbox_dedup_memory has the total. NULL: none.
	 */
	const char *dedup;
	/* The folder of the state, made if its parent is there. Groups may have the same. */
	const char *path;
	/*
	 * What identifies a message: one of key, payload, header:NAME, json:$.order.id, or several
	 * with commas (docs/rules.md). "header:outbox-id"; the store `sequence` takes positions.
	 */
	const char *id;
	enum outbox_inbox_policy without_id;
	/*
	 * The handler takes the ids itself, in the transaction of the effect (outbox_inbox_take);
	 * `dedup` is a line of postgres.
	 */
	bool take;
	const char *const *rules; /* lines (rules.h), NULL-ended; they are judged by partition */

	int concurrency; /* messages that are being handled at once, at most; 16 */
	int batch;       /* in one call of the handler, at most; 1 */
	int threads;     /* that call the handler; as many as are needed for the two */
	int64_t most_messages, most_bytes; /* in memory, at most; 10,000 and 32 MiB */
	int64_t commit_every_ms;           /* 1000 */
	/* What is being handled has so long to finish when partitions go, or the inbox. 10,000 */
	int64_t drain_ms;
	enum outbox_inbox_start start;

	/*
	 * A failed message is tried again after first_ms, then twice as long, up to most_ms (100,
	 * 60,000), `attempts` times in all (0: without end), then through the retry topics, each
	 * once (NULL topic ends the list), then it is a dead letter. Without dead letters its
	 * partition stands still.
	 */
	int64_t retry_first_ms, retry_most_ms;
	int attempts;
	const struct outbox_inbox_retry_topic *retry_topics;
	const char *dead_letters; /* topic; NULL: none */
};

/*
 * Begins to consume. OUTBOX_CONFIG: a setting, which is named; OUTBOX_RETRY: no threads or
 * descriptors. Servers that are away are waited for.
 */
OUTBOX_PUBLIC struct outbox_inbox *outbox_inbox_open(
    const struct outbox_inbox_settings *settings, struct outbox_error *error);
/*
 * Takes nothing new, waits drain_ms for what is being handled, commits, leaves the group; then
 * waits for handlers that have not returned. No other thread may be in a function of this inbox
 * when it returns. Takes NULL.
 */
OUTBOX_PUBLIC void outbox_inbox_close(struct outbox_inbox *inbox);
/* False: it cannot go on (*error), and is to be closed. */
OUTBOX_PUBLIC bool outbox_inbox_works(struct outbox_inbox *inbox, struct outbox_error *error);

/*
 * Finishes messages, whose memory is gone then. False: some of the tickets are none of this inbox,
 * or were finished before (OUTBOX_REJECT), or their partition was taken away meanwhile, and
 * whoever has it handles them again (OUTBOX_FENCED). The others are finished all the same.
 */
OUTBOX_PUBLIC bool outbox_inbox_finish(struct outbox_inbox *inbox,
    const struct outbox_inbox_end *ends, size_t count, struct outbox_error *error);

/*
 * Is the partition of a message that is being handled this consumer's still, for all that is known
 * here? For a handler that lets messages wait, right before the effect of each. False as well from
 * when it is asked to give its partitions back, and while the group's coordinator has not answered
 * for long: then the message is best finished as OUTBOX_INBOX_WAIT.
 */
OUTBOX_PUBLIC bool outbox_inbox_holds(struct outbox_inbox *inbox, uint64_t ticket);

/*
 * outbox_dedup_take of messages that are being handled: in the transaction of the effect, on the
 * handler's own connection, with settings.take. New: have the effect. Done: have none, and finish
 * as a duplicate. A message without an id (settings.without_id) is new.
 */
OUTBOX_PUBLIC bool outbox_inbox_take(struct outbox_inbox *inbox, struct pg_conn *connection,
    const struct outbox_inbox_message *const *messages, size_t count,
    enum outbox_dedup_state *ret_states, struct outbox_error *error);

/* Takes nothing new of this topic (NULL: of all), or goes on. What is in memory is handled. */
OUTBOX_PUBLIC void outbox_inbox_pause(struct outbox_inbox *inbox, const char *topic, bool pause);

struct outbox_inbox_stats {
	/* now */
	int partitions;       /* that are this consumer's */
	int standing;         /* partitions that are blocked until an operator helps */
	uint64_t messages;    /* in memory: waiting, being handled, waiting for another try */
	uint64_t bytes;       /* of them */
	uint64_t in_progress; /* that a handler has */
	int64_t oldest_ms;    /* since the oldest of them came; 0: none */
	bool paused;          /* some of it, by outbox_inbox_pause */
	/* since it was opened */
	uint64_t handled;    /* done by a handler */
	uint64_t duplicates; /* dropped as copies, or called so by the handler */
	uint64_t refused;    /* dropped by a rule, or redelivered for another group */
	uint64_t retries;    /* tries that failed, or waited, and are repeated */
	uint64_t retry_records, dead_letters; /* written to their topics */
	uint64_t rebalances;                  /* how often partitions were given */
	uint64_t abandoned;                   /* in progress when their partition went */
	uint64_t commits, failed_commits;
	/* of all stores of dedup that are open; 0 where none has a filter */
	uint64_t filter_hits, false_hits;
	double observed_rate; /* the largest */
	int sub_slices;       /* more ids came than were planned: raise ids */
	uint64_t dedup_memory_bytes, dedup_disk_bytes;
};
OUTBOX_PUBLIC void outbox_inbox_stats(
    struct outbox_inbox *inbox, struct outbox_inbox_stats *ret_stats);
