#pragma once
/*
 * Recognises what came before: at-least-once delivery brings the same id more than once, and this
 * tells the copies from the first. A public header of liboutbox; no Kafka in it.
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
 * An id is new, then pending (the first check says new, each one until the end says pending), then
 * done. Only what is done drops a copy. What is done is durable after the next checkpoint (with
 * `sequence` as far as nothing before it is open); commit no offset before, nor beyond what is not
 * done, and all that is lost in a crash comes again and is handled again.
 *
 * The line begins with the store that remembers the ids. docs/explain/dedup.md compares the stores
 * and has all settings; outbox_dedup_promise() says in words what each promises. A store that takes
 * new ids for done ones is lossy, and the line has to say so.
 *
 * Owned by one thread at a time. Functions that fail return false (NULL), fill *error, and have
 * changed nothing unless they say otherwise; the answer to a failed check is never "new".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

struct outbox_dedup;

enum outbox_dedup_state { OUTBOX_DEDUP_NEW, OUTBOX_DEDUP_PENDING, OUTBOX_DEDUP_DONE };

enum { OUTBOX_DEDUP_ID_MAX = 1024 }; /* bytes of an id; of a longer one use a digest */

struct outbox_dedup_id {
	const void *id; /* any bytes */
	size_t length;  /* 1 to OUTBOX_DEDUP_ID_MAX */
	/*
	 * Of its record, in milliseconds since 1970: the same on redelivery, and what windows go
	 * by. Below 0: now. What is later than now is taken as now.
	 */
	int64_t time_ms;
	int64_t offset; /* of its record; -1: it has none */
};

/* NULL and error: OUTBOX_CONFIG for the line or what is in the folder, OUTBOX_FENCED when another
 * process has it open, OUTBOX_RETRY when a disk or a server does not answer. */
OUTBOX_PUBLIC struct outbox_dedup *outbox_dedup_open(const char *line, struct outbox_error *error);
/* Forgets what is pending, and what was done since the last checkpoint may be lost. Takes NULL. */
OUTBOX_PUBLIC void outbox_dedup_close(struct outbox_dedup *dedup);

/*
 * ret_states: one for each id, in their order. Of two copies among them the first is new and the
 * second pending. OUTBOX_REJECT: an id that is empty or too long; OUTBOX_RETRY: the store does not
 * answer, or more are pending than the line allows; OUTBOX_FATAL: what it remembers is damaged, or
 * lost by a server: only opening anew says what is left.
 */
OUTBOX_PUBLIC bool outbox_dedup_check(struct outbox_dedup *dedup, const struct outbox_dedup_id *ids,
    size_t count, enum outbox_dedup_state *ret_states, struct outbox_error *error);

/*
 * They are done: all of them are pending here, else OUTBOX_REJECT. OUTBOX_RETRY: they are pending
 * still, and some of them may be remembered as done: call it again, with them or a part of them;
 * what is released instead may be done all the same, as what was handled is. OUTBOX_FENCED:
 * somebody else took some of them meanwhile (shared stores, after a lease or a lost connection):
 * none is pending any more.
 */
OUTBOX_PUBLIC bool outbox_dedup_done(struct outbox_dedup *dedup, const struct outbox_dedup_id *ids,
    size_t count, struct outbox_error *error);

struct pg_conn; /* libpq's PGconn, by its tag: PQconnectdb() returns one */
/*
 * Makes the effect exactly once, where it is in a Postgres: with the store `postgres`, in the
 * transaction that has the effect, on the caller's own connection to the database that has the
 * table.
 *
 *   begin
 *   outbox_dedup_take(dedup, connection, &id, 1, &state, &error);
 *   the effect, if the state is new
 *   commit                                     then the offset
 *
 * New: it is recorded in this transaction, and done when that commits; when it rolls back, it is
 * new for the next. Done: a copy was processed, or came before in this call. Nothing is pending,
 * and done, release and checkpoint have nothing to do. While another transaction has one of the
 * ids it waits for its end, as long as the caller's lock_timeout and statement_timeout let it.
 *
 * The level is READ COMMITTED, and at most 1,000 ids are taken in a transaction. OUTBOX_REJECT: it
 * is another level, or more of them, or no transaction is open, or one of the ids is pending here
 * (outbox_dedup_check); OUTBOX_CONFIG: another store; OUTBOX_RETRY: the server, a timeout, or a
 * deadlock with a transaction that takes twice. When the server refused it, the transaction has
 * failed: roll it back.
 */
OUTBOX_PUBLIC bool outbox_dedup_take(struct outbox_dedup *dedup, struct pg_conn *connection,
    const struct outbox_dedup_id *ids, size_t count, enum outbox_dedup_state *ret_states,
    struct outbox_error *error);

/*
 * They are new again: the pending ones everywhere, the done ones where the store can, else
 * OUTBOX_REJECT.
 */
OUTBOX_PUBLIC bool outbox_dedup_release(struct outbox_dedup *dedup,
    const struct outbox_dedup_id *ids, size_t count, struct outbox_error *error);

/*
 * Makes durable what is done. offset: that of the next record, all before it are done; -1: not
 * known. Stores that keep it tell it after a restart (outbox_dedup_stats). OUTBOX_RETRY: again
 * later; OUTBOX_FATAL: the disk failed in a way that only opening anew can judge.
 */
OUTBOX_PUBLIC bool outbox_dedup_checkpoint(
    struct outbox_dedup *dedup, int64_t offset, struct outbox_error *error);

/*
 * Hands what is done to the kernel, which keeps it when the process is killed; durable it is after
 * a checkpoint. A write() for each file with news; nothing for stores that keep no log.
 */
OUTBOX_PUBLIC bool outbox_dedup_flush(struct outbox_dedup *dedup, struct outbox_error *error);

/*
 * Of the store `sequence`: all that is done, as a line of text, for the metadata of the offset's
 * commit; so that the partition's next owner, wherever it runs, goes on from there. Made by the
 * last checkpoint, it is true of that one's offset. About 60 bytes for each (publisher, shard,
 * epoch).
 *
 * outbox_dedup_mark returns its length without NUL; if that is size or more, what does not fit is
 * left out, and it is of no use. 0: another store. outbox_dedup_resume comes before the first
 * check; OUTBOX_REJECT: it is no such text; OUTBOX_CONFIG: another store.
 */
OUTBOX_PUBLIC size_t outbox_dedup_mark(
    const struct outbox_dedup *dedup, char *ret_text, size_t size);
OUTBOX_PUBLIC bool outbox_dedup_resume(
    struct outbox_dedup *dedup, const char *text, struct outbox_error *error);

struct outbox_dedup_stats {
	const char *store;
	/* what there is now; 0 where the store cannot tell (shared ones) */
	uint64_t ids, pending;
	uint64_t memory_bytes, disk_bytes;
	int slices;        /* of windows, with sub-slices */
	int sub_slices;    /* of them: more ids came than were planned, or `alarm`; raise ids */
	int64_t newest_ms; /* the window's time; -1: none */
	int64_t offset;    /* the largest that a checkpoint made durable; -1: none */
	/* since it was opened */
	uint64_t found_new, found_pending, found_done;
	uint64_t filter_hits, false_hits; /* what a filter may have; of these, what it had not */
	int rebuilt;                      /* slices that were made anew from their log */
	/* of false positives of the filter: as planned for its load, and as seen */
	double planned_rate, observed_rate;
	bool alarm; /* the observed rate is beyond the setting `alarm`: slices are split */
};
OUTBOX_PUBLIC void outbox_dedup_stats(
    const struct outbox_dedup *dedup, struct outbox_dedup_stats *ret_stats);

/* What a store promises, in words for people: the rows of the table in docs/explain/dedup.md. */
struct outbox_dedup_promise {
	const char *store; /* as a line begins */
	bool lossy;        /* a new id may be taken for one that is done; the line must say so */
	bool releases;     /* what is done, too */
	bool shared;       /* between machines */
	const char *false_positives, *false_negatives, *restart, *scope, *memory, *disk;
};
/* number: from 0; NULL: there are no more. */
OUTBOX_PUBLIC const struct outbox_dedup_promise *outbox_dedup_promise(int number);
