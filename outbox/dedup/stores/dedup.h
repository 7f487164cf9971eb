#pragma once
/*
 * Recognises duplicates: at-least-once delivery brings the same id more than once, and this library
 * tells the copies from the first message. A public header of liboutbox, without Kafka.
 *
 *   struct outbox_error error;
 *   struct outbox_dedup *dedup = outbox_dedup_open(
 *       "bloom ids=50M rate=0.1% window=24h path=/var/lib/billing/dedup", &error);
 *   ...
 *   outbox_dedup_check(dedup, &id, 1, &state, &error);   new: handle it; done: drop it;
 *                                                        pending: ask later
 *   outbox_dedup_done(dedup, &id, 1, &error);            or _release, when handling failed
 *   outbox_dedup_checkpoint(dedup, offset, &error);      then commit the offset
 *
 * An id is new, then pending, then done: the first check returns new, and later checks return
 * pending until the id is done or released. Only a done id drops a copy. Done ids are durable after
 * the next checkpoint (with `sequence` only those before the first position that is open). Commit
 * no offset before that checkpoint, and none beyond a message that is not done: then each message
 * whose id is lost in a crash comes again and is handled again. A queue without offsets, such as
 * RabbitMQ, acknowledges a message after the checkpoint instead (docs/examples/rabbitmq.c).
 *
 * The line begins with the store that remembers the ids. docs/reference/dedup.md compares the
 * stores and has all settings; outbox_dedup_promise() has the promises of each store in words. A
 * store that takes some new ids for done ones is lossy, and must be enabled with the word `lossy`.
 *
 * Owned by one thread at a time. Functions that fail return false (NULL), fill *error (which may be
 * NULL), and have changed nothing unless their comment says otherwise; a failed check never answers
 * "new".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

struct outbox_dedup;

enum outbox_dedup_state { OUTBOX_DEDUP_NEW, OUTBOX_DEDUP_PENDING, OUTBOX_DEDUP_DONE };

enum { OUTBOX_DEDUP_ID_MAX = 1024 }; /* bytes of an id; instead of a longer one use its digest */

struct outbox_dedup_id {
	const void *id; /* any bytes */
	size_t length;  /* 1 to OUTBOX_DEDUP_ID_MAX */
	/*
	 * Time of the record, in milliseconds since 1970. Windows go by it, so it must be the same
	 * on redelivery. Below 0: now. A time later than now is taken as now.
	 */
	int64_t time_ms;
	int64_t offset; /* offset of the record; -1: it has none */
};

/* NULL and error: OUTBOX_CONFIG for the line or the content of the folder, OUTBOX_FENCED when
 * another process has the folder open, OUTBOX_RETRY when a disk or a server does not answer. */
OUTBOX_PUBLIC struct outbox_dedup *outbox_dedup_open(const char *line, struct outbox_error *error);
/* Forgets pending ids; ids that were done since the last checkpoint may be lost. Takes NULL. */
OUTBOX_PUBLIC void outbox_dedup_close(struct outbox_dedup *dedup);

/*
 * ret_states: one for each id, in their order. If a new id is twice in the call, the first is new
 * and the second pending. OUTBOX_REJECT: an id is empty or too long; OUTBOX_RETRY: the store does
 * not answer, or more ids would be pending than the line allows; OUTBOX_FATAL: the store's data is
 * damaged, or a server has lost it: only opening the store again shows what is left.
 */
OUTBOX_PUBLIC bool outbox_dedup_check(struct outbox_dedup *dedup, const struct outbox_dedup_id *ids,
    size_t count, enum outbox_dedup_state *ret_states, struct outbox_error *error);

/*
 * Marks the ids as done. All of them must be pending here, else OUTBOX_REJECT. OUTBOX_RETRY: they
 * are still pending, and some of them may already be remembered as done: call again, with all or
 * some of them. An id that is released instead may stay done, which is right, since its message was
 * handled. OUTBOX_FENCED: another process took some of them meanwhile (shared stores, after a lease
 * or a lost connection): none of them is pending here now.
 */
OUTBOX_PUBLIC bool outbox_dedup_done(struct outbox_dedup *dedup, const struct outbox_dedup_id *ids,
    size_t count, struct outbox_error *error);

struct pg_conn; /* libpq's PGconn, by its tag: PQconnectdb() returns one */
/*
 * Makes an effect in PostgreSQL exactly once: records the ids in the transaction that has the
 * effect, on the caller's own connection to the database that has the table. Only for the store
 * `postgres`.
 *
 *   begin
 *   outbox_dedup_take(dedup, connection, &id, 1, &state, &error);
 *   the effect, if the state is new
 *   commit                                     then the offset
 *
 * New: the id is recorded in this transaction, and is done when it commits; after a rollback it is
 * new for the next transaction. Done: a copy was processed, or came earlier in this call. No id
 * becomes pending, so done, release and checkpoint have nothing to do. While another transaction
 * has one of the ids, the call waits for that transaction's end, as long as the caller's
 * lock_timeout and statement_timeout allow.
 *
 * The isolation level must be READ COMMITTED, and a transaction takes at most 1,000 ids.
 * OUTBOX_REJECT: another level, more ids, no open transaction, or an id that is pending here
 * (outbox_dedup_check); OUTBOX_CONFIG: another store; OUTBOX_RETRY: a failure of the server, a
 * timeout, or a deadlock with a transaction that takes ids twice. If the server refused the call,
 * the transaction has failed: roll it back.
 */
OUTBOX_PUBLIC bool outbox_dedup_take(struct outbox_dedup *dedup, struct pg_conn *connection,
    const struct outbox_dedup_id *ids, size_t count, enum outbox_dedup_state *ret_states,
    struct outbox_error *error);

/*
 * Makes ids new again. Every store releases pending ids; if the store cannot release done ids, they
 * are OUTBOX_REJECT.
 */
OUTBOX_PUBLIC bool outbox_dedup_release(struct outbox_dedup *dedup,
    const struct outbox_dedup_id *ids, size_t count, struct outbox_error *error);

/*
 * Makes done ids durable. offset: the offset of the next record, if all records before it are done;
 * -1: not known. Stores that keep the offset report it after a restart (outbox_dedup_stats).
 * OUTBOX_RETRY: call again later; OUTBOX_FATAL: the disk failed, and only opening the store again
 * shows what is durable.
 */
OUTBOX_PUBLIC bool outbox_dedup_checkpoint(
    struct outbox_dedup *dedup, int64_t offset, struct outbox_error *error);

/*
 * Hands done ids to the kernel, which keeps them when the process is killed; they are durable after
 * a checkpoint. Costs a write() for each file with new ids; nothing for stores without a log.
 */
OUTBOX_PUBLIC bool outbox_dedup_flush(struct outbox_dedup *dedup, struct outbox_error *error);

/*
 * For the store `sequence`: the mark is a line of text with all that is done, for the metadata of
 * the offset commit, so that the partition's next owner continues from there on any machine. The
 * last checkpoint made the mark, which is true for that checkpoint's offset. It has about 70 bytes
 * for each (publisher, shard, epoch).
 *
 * outbox_dedup_mark returns the mark's length without NUL; if that is size or more, the text is cut
 * off and useless. 0: another store, or nothing is done yet. outbox_dedup_resume must come before
 * the first check; OUTBOX_REJECT: the text is no mark; OUTBOX_CONFIG: another store.
 */
OUTBOX_PUBLIC size_t outbox_dedup_mark(
    const struct outbox_dedup *dedup, char *ret_text, size_t size);
OUTBOX_PUBLIC bool outbox_dedup_resume(
    struct outbox_dedup *dedup, const char *text, struct outbox_error *error);

struct outbox_dedup_stats {
	const char *store;
	/* current figures; 0 if the store does not know them (shared stores) */
	uint64_t ids, pending;
	uint64_t memory_bytes, disk_bytes;
	int slices;        /* slices of a window, including sub-slices */
	int sub_slices;    /* made when more ids came than planned, or by `alarm`: raise ids */
	int64_t newest_ms; /* the window's time; -1: none */
	int64_t offset;    /* the largest offset that a checkpoint made durable; -1: none */
	/* since the store was opened */
	uint64_t found_new, found_pending, found_done;
	uint64_t filter_hits, false_hits; /* hits of filters; those that were false positives */
	int rebuilt;                      /* slices that were rebuilt from their logs */
	/* rates of the filter's false positives: as planned for its load, and as observed */
	double planned_rate, observed_rate;
	bool alarm;        /* the observed rate is beyond the setting `alarm` */
	bool repairing;    /* the next checkpoints measure and repair filters */
	uint64_t alarms;   /* how often `alarm` became true */
	double alarm_rate; /* the observed rate of the last alarm */
	uint64_t repairs;  /* filters that checkpoints made anew from their logs after an alarm */
	/* counters of `counting` that are at their maximum, and stay there until their slice ends
	 */
	uint64_t saturated;
};
OUTBOX_PUBLIC void outbox_dedup_stats(
    const struct outbox_dedup *dedup, struct outbox_dedup_stats *ret_stats);

/* The promises of a store, in words for people: a row of the table in docs/reference/dedup.md. */
struct outbox_dedup_promise {
	const char *store; /* the beginning of a line */
	bool lossy;        /* may take a new id for a done one; the line needs the word `lossy` */
	bool releases;     /* can release done ids, too */
	bool shared;       /* between machines */
	const char *false_positives, *false_negatives, *restart, *scope, *memory, *disk;
};
/* number: counts from 0; NULL: there are no more. */
OUTBOX_PUBLIC const struct outbox_dedup_promise *outbox_dedup_promise(int number);
