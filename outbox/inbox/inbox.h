#pragma once
/*
 * Consumes topics: every message is handled, in parallel and in the order of its key, and copies of
 * handled messages are dropped. A public header of liboutbox-inbox.
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
 *   …                                         until the process has to end
 *   outbox_inbox_close(inbox);
 *
 * Order. Messages of a partition with the same key are handled one after the other, in the order of
 * their offsets, also when one is tried again; all others are handled in parallel. Messages without
 * a key have no order. Retry topics do not keep the order.
 *
 * Offsets are committed only behind finished messages, and only after the dedup store has their ids
 * on disk: handle, log, fdatasync, commit. The text of the commit lists the messages that are
 * finished beyond the first unfinished one, so that they are not handled again; docs/guide/inbox.md
 * has its form. A crash between the effect and the log repeats the effect, unless the effect and
 * the id are in one transaction (outbox_inbox_take).
 *
 * Threads: handlers run on threads of the inbox. All functions may be called from any thread,
 * except open and close, which are called from one thread.
 */
#include "dedup.h"
#include "rules.h"

struct outbox_inbox;

struct outbox_inbox_message {
	uint64_t ticket; /* identifies this try for outbox_inbox_finish; unique */
	const char *topic;
	int32_t partition;
	int64_t offset;
	int64_t time_ms; /* time of the record, since 1970 */
	const void *key; /* NULL: none */
	size_t key_length;
	const void *payload; /* NULL: none */
	size_t payload_length;
	const struct outbox_rules_header *headers;
	size_t header_count;
	const void *id; /* identifies copies of a message; NULL: none */
	size_t id_length;
	int attempt; /* from 1; tries in other processes and in retry topics are counted as far as
			they are known */
	/*
	 * With settings.claims, the fencing token of the claim on the id: it is larger than that of
	 * any earlier try with the id, in whatever consumer. 0: there is no claim.
	 */
	int64_t token;
};

enum outbox_inbox_result {
	OUTBOX_INBOX_DONE,
	OUTBOX_INBOX_DUPLICATE, /* the application handled it before: done, counted as a copy */
	OUTBOX_INBOX_RETRY,     /* it failed, and is tried again */
	OUTBOX_INBOX_WAIT,      /* it was not tried, and is tried again after after_ms */
	OUTBOX_INBOX_DEAD,      /* it can never be handled: it becomes a dead letter */
	OUTBOX_INBOX_RESULTS
};

struct outbox_inbox_end {
	uint64_t ticket;
	enum outbox_inbox_result result;
	const char *reason; /* for people: the log, and the dead letter; NULL: none */
	int64_t after_ms;   /* for retry and wait: earliest next try; 0: the settings decide */
};

/*
 * Handles messages: from 1 to settings.batch, no two with the same key. The handler finishes each
 * message once, in any order, before or after it returns; a message is valid until then.
 */
typedef void outbox_inbox_handler(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count);

/* With dedup: the fate of a message in which `id` finds nothing. Logged once for each topic. */
enum outbox_inbox_policy {
	OUTBOX_INBOX_TO_DEAD_LETTERS,
	OUTBOX_INBOX_PROCESS, /* handle it, as if it had a unique id */
	OUTBOX_INBOX_FAIL,    /* its partition is blocked */
};

/* Where a group begins that has committed no offset, or whose committed offset no longer exists. */
enum outbox_inbox_start {
	OUTBOX_INBOX_EARLIEST,
	OUTBOX_INBOX_LATEST,
	/*
	 * The partition is blocked until somebody sets its offset and resumes it or opens it again.
	 */
	OUTBOX_INBOX_BLOCK,
};

/* A topic for failed messages, and how long they wait there. */
struct outbox_inbox_retry_topic {
	const char *topic;
	int64_t delay_ms;
};

/* 0 and NULL: the default. The inbox copies all settings. */
struct outbox_inbox_settings {
	const char *const
	    *kafka; /* librdkafka's properties: names and values in turn, NULL-ended. With the
		       suffix _file, as in sasl.password_file, the value is the path of a file
		       that holds it; such files and certificates are read again every 5 s */
	const char *group;
	const char *const *topics; /* NULL-ended */
	outbox_inbox_handler *handle;
	void *context;

	/*
	 * dedup.h; a line without path=. Each partition has a folder of its own below `path`, and a
	 * store with memory for `ids`. The log line inbox_dedup_memory has the total. NULL: none.
	 */
	const char *dedup;
	/* The state folder; created if its parent exists. Several groups may share it. */
	const char *path;
	/*
	 * What identifies a message: one of key, payload, header:NAME, json:$.order.id, or several
	 * with commas (docs/guide/rules.md). "header:outbox-id"; the store `sequence` takes
	 * positions.
	 */
	const char *id;
	enum outbox_inbox_policy without_id;
	/*
	 * The handler takes the ids itself, in the transaction of the effect (outbox_inbox_take);
	 * `dedup` must be a postgres line.
	 */
	bool take;
	/*
	 * A line of claims.h, for example "redis url=redis://127.0.0.1 name=billing lease=30s": the
	 * inbox claims the id of a message while a handler has it, and renews the claim, so that no
	 * two consumers with the same line work on one id at a time. While another consumer has the
	 * claim, the message waits. A message without an id is not claimed. NULL: no claims.
	 */
	const char *claims;
	/*
	 * The database that the messages come from, a line such as "postgres
	 * dsn=postgresql://billing@db/shop schema=outbox": the inbox reports each handled message
	 * (header outbox-id) there with outbox.unique_done before it commits the offset, so that
	 * the unique key of a writer with while_pending => 'done' may be used again. Set it in one
	 * group of a topic. Dead letters are not reported. NULL: no reports.
	 */
	const char *report;
	/*
	 * Lines, or one JSON object (rules.h), NULL-ended. Without rules_store the records lie
	 * below `path`, and limits hold for each partition. rules_store: the line of a server that
	 * has the records, and limits hold for all partitions and processes. Messages of a retry
	 * topic are not judged again.
	 */
	const char *const *rules;
	const char *rules_store;
	const char *user, *content, *channel, *zone; /* struct outbox_rules_settings */

	int concurrency; /* maximum number of messages in progress; default 16 */
	int batch;       /* maximum number of messages in one call of the handler; default 1 */
	int threads;     /* threads that call the handler; default: as many as the two need */
	int64_t most_messages, most_bytes; /* maximum in memory; default 10,000 and 32 MiB */
	int64_t commit_every_ms;           /* default 1000 */
	/* How long messages in progress may take to finish when partitions are revoked or the inbox
	 * closes. Default 10,000 */
	int64_t drain_ms;
	enum outbox_inbox_start start;

	/*
	 * A failed message is tried again after first_ms, then after twice as long each time, up to
	 * most_ms (defaults 100 and 60,000), `attempts` times in all (0: without end). Then it goes
	 * through the retry topics, each once (NULL topic ends the list), and then it becomes a
	 * dead letter. Without dead letters its partition is blocked.
	 */
	int64_t retry_first_ms, retry_most_ms;
	int attempts;
	const struct outbox_inbox_retry_topic *retry_topics;
	const char *dead_letters; /* topic; NULL: none */
};

/*
 * Begins to consume. OUTBOX_CONFIG: a setting is wrong, and the error names it; OUTBOX_RETRY: no
 * threads or descriptors. If a server is unavailable, the inbox waits for it.
 */
OUTBOX_PUBLIC struct outbox_inbox *outbox_inbox_open(
    const struct outbox_inbox_settings *settings, struct outbox_error *error);
/*
 * Takes no new messages, waits up to drain_ms for messages in progress, commits, leaves the group;
 * then waits for handlers that have not returned. No other thread may be in a function of this
 * inbox when it returns. Takes NULL.
 */
OUTBOX_PUBLIC void outbox_inbox_close(struct outbox_inbox *inbox);
/* False: the inbox cannot go on (*error), and the caller must close it. */
OUTBOX_PUBLIC bool outbox_inbox_works(struct outbox_inbox *inbox, struct outbox_error *error);

/*
 * Finishes messages and frees their memory. False: some tickets are not of this inbox or were
 * finished before (OUTBOX_REJECT), or their partition was revoked meanwhile, and its new owner
 * handles the messages again (OUTBOX_FENCED). All other messages are finished.
 */
OUTBOX_PUBLIC bool outbox_inbox_finish(struct outbox_inbox *inbox,
    const struct outbox_inbox_end *ends, size_t count, struct outbox_error *error);

/*
 * Does this consumer still own the partition of a message in progress, and its claim, as far as the
 * inbox knows? A handler that lets messages wait calls this right before the effect of each. Also
 * false once the group revokes the partitions, and while the group's coordinator has not answered
 * for long: then it is best to finish the message as OUTBOX_INBOX_WAIT.
 */
OUTBOX_PUBLIC bool outbox_inbox_holds(struct outbox_inbox *inbox, uint64_t ticket);

/*
 * outbox_dedup_take for messages in progress: in the transaction of the effect, on the handler's
 * own connection, with settings.take. If a message is new, carry out its effect. If it is done,
 * carry out nothing and finish it as a duplicate. A message without an id (settings.without_id) is
 * new.
 */
OUTBOX_PUBLIC bool outbox_inbox_take(struct outbox_inbox *inbox, struct pg_conn *connection,
    const struct outbox_inbox_message *const *messages, size_t count,
    enum outbox_dedup_state *ret_states, struct outbox_error *error);

/*
 * Pauses this topic (NULL: all topics), or resumes it, and returns at once; stats tell when it is
 * paused. Messages in memory are still handled.
 */
OUTBOX_PUBLIC void outbox_inbox_pause(struct outbox_inbox *inbox, const char *topic, bool pause);

/*
 * Replaces settings.rules, in all partitions, before the next messages are judged; the records of
 * rules that keep their name and key are kept (outbox_rules_change). OUTBOX_CONFIG: a line is
 * wrong, and nothing is changed. If a disk has no room, the change is tried again until it has.
 */
OUTBOX_PUBLIC bool outbox_inbox_change_rules(
    struct outbox_inbox *inbox, const char *const *rules, struct outbox_error *error);

struct outbox_inbox_stats {
	/* now */
	int partitions;       /* assigned to this consumer */
	int blocked;          /* partitions that are blocked until an operator helps */
	uint64_t messages;    /* in memory: waiting, being handled, waiting for another try */
	uint64_t bytes;       /* of them */
	uint64_t in_progress; /* messages that a handler has */
	int64_t oldest_ms;    /* since the oldest message in memory came; 0: none */
	bool paused;     /* a topic is paused by outbox_inbox_pause, and no more of it is read */
	int64_t turn_ms; /* since the last turn of its thread began: minutes mean that it hangs */
	/* since it was opened */
	uint64_t handled;    /* done by a handler */
	uint64_t duplicates; /* dropped as copies, or reported as such by the handler */
	uint64_t refused;    /* dropped by a rule, or redelivered for another group */
	uint64_t retries;    /* tries that failed, or waited, and are repeated */
	uint64_t retry_records, dead_letters; /* written to their topics */
	uint64_t rebalances;                  /* how often partitions were assigned */
	uint64_t abandoned;                   /* in progress when their partition was revoked */
	uint64_t commits, failed_commits;
	/* all open dedup stores together; 0 if none has a filter */
	uint64_t filter_hits, false_hits;
	double observed_rate; /* the largest */
	int sub_slices;       /* because more ids came than planned: raise ids */
	uint64_t dedup_memory_bytes, dedup_disk_bytes;
	/* stores whose filter has more false positives than the setting `alarm` allows, now; and
	 * how often that began since the inbox was opened */
	int dedup_alarms;
	uint64_t dedup_alarms_total;
	uint64_t claims_refused; /* how often another consumer had the claim; the message waited */
	uint64_t claims_lost;    /* that ended while a handler had the message */
	uint64_t reported;       /* handled messages, with settings.report */
	uint64_t unreported;     /* handled messages that are not reported yet, now */
};
OUTBOX_PUBLIC void outbox_inbox_stats(
    struct outbox_inbox *inbox, struct outbox_inbox_stats *ret_stats);
