#pragma once
/*
 * The records of a stream from the read to the acknowledgement, and the queues of their partitions.
 * Internal to outbox/publish; one thread; no I/O. record_queue.c opens with the rules.
 */
#include "pg_array.h"
#include "stream.h"

struct record_queue;

extern const struct state_table record_states, partition_queue_states;

/*
 * resumes: tails are read (record_queue_tails.c). transactions: written records count as published
 * after record_queue_committed, and after the loss of a producer every tail is read again.
 */
struct record_queue *record_queue_create(const struct stream_settings *settings);
void record_queue_destroy(struct record_queue *queue);
/* Forgets all records (a fenced owner); numbers continue, so that late reports find no record. */
void record_queue_forget(struct record_queue *queue);

/*
 * listed: the record is of a listed window. convicted: it crashes the process that sends it, and is
 * parked instead.
 */
void record_queue_add(struct record_queue *queue, int64_t tick, bool listed, bool convicted,
    const struct message *message);

/* --- numbers: acked <= next <= end; covered <= acked ---------------------------------------- */
/* The number that the next record gets. */
uint64_t record_queue_end(const struct record_queue *queue);
/* All records before this number are acknowledged or parked. */
uint64_t record_queue_acked(const struct record_queue *queue);
/* Passes over the next acknowledged record at the front; false: there is none. */
bool record_queue_pass(struct record_queue *queue, int64_t *ret_tick, int64_t *ret_id);
/* A committed log row covers all records before `sequence`. */
void record_queue_cover(struct record_queue *queue, uint64_t sequence);
uint64_t record_queue_covered(const struct record_queue *queue);
/* The limit max_in_flight is reached: no record may go out. */
bool record_queue_is_full(const struct record_queue *queue);
int64_t record_queue_count(const struct record_queue *queue);
/* Memory of the records. */
int64_t record_queue_bytes(const struct record_queue *queue);
/* Memory of the filter and the exact keys. */
int64_t record_queue_kept_bytes(const struct record_queue *queue);
/* Records in flight: the producer has them, and no report has settled them. */
int64_t record_queue_under_way(const struct record_queue *queue);
/* Records in flight without any report of the producer, not even that they must be sent again. */
int64_t record_queue_unreported(const struct record_queue *queue);
/* Records that were sent and that no log row covers. */
int64_t record_queue_in_flight(const struct record_queue *queue);
/* Records in the transaction that is open. */
int64_t record_queue_written(const struct record_queue *queue);
int64_t record_queue_committing(const struct record_queue *queue); /* of them */
/* Some records wait that a report of the producer may set free. */
bool record_queue_waits_for_reports(const struct record_queue *queue);
/* NULL: the record is not in memory, or is acknowledged or parked. */
const struct message *record_queue_message(const struct record_queue *queue, uint64_t sequence);
/* The oldest record that is neither acknowledged nor parked; NULL: none. */
const struct message *record_queue_oldest(const struct record_queue *queue);

/* --- destinations --------------------------------------------------------------------------- */
/* The shard was taken with row n, which folded all destinations. */
void record_queue_taken(struct record_queue *queue, int64_t now, int64_t n);
/* True: records of some topics wait until their destinations are read from the log. */
bool record_queue_wants_destinations(const struct record_queue *queue);
/* Names some of these topics, to be looked up in the log. */
void record_queue_load(struct record_queue *queue, struct pg_array *ret_names);
/*
 * A destination from the log. A requested topic that is not reported before record_queue_load_ended
 * is not in the log.
 */
void record_queue_destination(
    struct record_queue *queue, const struct stream_destination *destination);
void record_queue_load_ended(struct record_queue *queue, bool answered);
/* Checks a closed topic: the log drops it if the cluster no longer has it. */
void record_queue_check_topic(struct record_queue *queue, const char *name);
/* The broker's count of partitions; 0: the topic is missing. */
void record_queue_topic(struct record_queue *queue, const char *topic, int32_t partitions);
/* The cluster answered at that time that the topic is missing. */
void record_queue_topic_answered(
    struct record_queue *queue, const char *topic, int64_t answered_at, int64_t stall_after);
/* The topic in use (unready: that is not ready) whose turn was longest ago. */
const char *record_queue_next_topic(
    struct record_queue *queue, bool unready, bool *ret_ready, int32_t *ret_partitions);
int record_queue_topics(const struct record_queue *queue, bool unready);
const char *record_queue_missing_topic(const struct record_queue *queue);
/* Some topics must be opened in the log before records go to them. */
bool record_queue_has_new_topics(const struct record_queue *queue);
/* Some topics have another partition count: a new epoch begins once no record is in flight. */
bool record_queue_has_changed_topics(const struct record_queue *queue);
/* Moves offsets of silent partitions up, and closes unused topics; each call visits some topics. */
void record_queue_visit_topics(struct record_queue *queue, int64_t now);
/* Returns a topic that was closed; the caller frees it. NULL: no more. */
struct closed_topic {
	struct closed_topic *next;
	char name[];
};
struct closed_topic *record_queue_closed_topic(struct record_queue *queue);
/*
 * Adds the changes of destinations since the last commit as JSON, with new and (if `changed`)
 * changed counts, for the row n. halves: how often the amount of changes is halved.
 * record_queue_fold_to: row n folds destinations up to this row; 0: none. record_queue_logged
 * reports whether row n was written.
 */
void record_queue_destinations(
    struct record_queue *queue, int64_t n, bool changed, int halves, struct text *ret_json);
int64_t record_queue_fold_to(const struct record_queue *queue, int64_t n);
void record_queue_logged(struct record_queue *queue, int64_t n, int64_t folded_to, bool written);

/* --- tails ---------------------------------------------------------------------------------- */
/* The next tail to read. */
bool record_queue_tail_call(struct record_queue *queue, int64_t now, struct stream_tail *ret_tail);
enum record_found {
	RECORD_FOUND_STALE, /* the question is not the newest one of its partition */
	RECORD_FOUND,
	RECORD_FOUND_FIRST,  /* in the first tail of its partition since its topic was loaded */
	RECORD_FOUND_AGAIN,  /* known from an earlier reading */
	RECORD_FOUND_ENOUGH, /* the rest of the tail need not be read */
};
enum record_found record_queue_tail_record(struct record_queue *queue,
    const struct stream_question *question, int64_t offset, int64_t id, const char event_id[16]);
void record_queue_tail_end(
    struct record_queue *queue, const struct stream_question *question, int64_t end, bool beyond);
/* True: it was the newest question of its partition. */
bool record_queue_tail_failed(struct record_queue *queue, const struct stream_question *question);
/* Some partition of an open topic that is not missing was not read yet. */
bool record_queue_awaits_first_tails(const struct record_queue *queue);
/* Partitions wait for a log row with their offsets. */
bool record_queue_must_log_tails(const struct record_queue *queue);
/* Forgets the found records. */
void record_queue_forget_found(struct record_queue *queue);
/* Memory of all found records. */
int64_t record_queue_found_bytes(const struct record_queue *queue);
/* Number of rows that were not sent because their records were found. */
int64_t record_queue_skipped(const struct record_queue *queue);
/* A topic was recreated since record_queue_epoch_begins. */
bool record_queue_recreated(const struct record_queue *queue);
void record_queue_epoch_begins(struct record_queue *queue);

/* --- sending -------------------------------------------------------------------------------- */
/* gaps_only: sends only records in front of one that was sent. */
bool record_queue_send(
    struct record_queue *queue, int64_t now, bool gaps_only, struct stream_record *ret_record);
/* True: a record waits in front of one that was sent, and record_queue_send can send it. */
bool record_queue_has_gap(const struct record_queue *queue);
/* True: the record was known. Sets *ret_wants_producer if a new producer is needed. */
bool record_queue_report(struct record_queue *queue, int64_t now, uint64_t sequence,
    enum stream_delivery delivery, int64_t offset, const char *error, bool *ret_wants_producer);
/* The commit of the open transaction begins. The next transaction has another producer. */
void record_queue_commits(struct record_queue *queue);
/* It is committed: its records are acknowledged. */
void record_queue_committed(struct record_queue *queue);
void record_queue_producer_lost(struct record_queue *queue);

/* --- parking -------------------------------------------------------------------------------- */
/*
 * The shard was taken. parked: it has rows in outbox.parked; rows of windows up to inherited_tick
 * are read again, also those that are parked.
 */
void record_queue_keys_taken(struct record_queue *queue, bool parked, int64_t inherited_tick);
/* The last parked row of this digest is gone. */
void record_queue_unparked(struct record_queue *queue, int64_t digest);
/* --- keys (record_queue_keys.c) ------------------------------------------------------------- */
bool record_queue_wants_lookup(const struct record_queue *queue);
/*
 * The records of the next look-up; valid until record_queue_lookup_end or
 * record_queue_lookup_failed.
 */
int record_queue_lookup_call(struct record_queue *queue, const struct stream_lookup **ret_asked);
/* A record of the look-up, by its place, is parked (itself), or its key is; then the end. */
void record_queue_looked_up(struct record_queue *queue, int place, bool itself);
void record_queue_lookup_end(struct record_queue *queue);
void record_queue_lookup_failed(struct record_queue *queue);
/* A page of digests for the filter is wanted; digests_call returns its maximum and beginning. */
bool record_queue_wants_digests(const struct record_queue *queue);
int64_t record_queue_digests_call(const struct record_queue *queue, int64_t *ret_from);
void record_queue_digest(struct record_queue *queue, int64_t digest);
void record_queue_digests_end(struct record_queue *queue, int64_t rows);
/* --- parks ---------------------------------------------------------------------------------- */
bool record_queue_has_parks(const struct record_queue *queue);
/* Kept back records must be noted. Recovered places need no note: the next owner finds them, too.
 */
bool record_queue_keeps_back(const struct record_queue *queue);
/* The log row in flight notes all records in memory as kept back. */
bool record_queue_notes_all(const struct record_queue *queue);
/* A refused record must be noted before any other record goes out. */
bool record_queue_has_refusals(const struct record_queue *queue);
/*
 * The argument of outbox.park and outbox.schedule for the next log row, with at most `most` rows;
 * NULL: none. The caller frees it, and calls record_queue_logged.
 */
char *record_queue_parks_json(struct record_queue *queue, int most);
/* --- denied partitions ----------------------------------------------------------------------- */
/* hurries: owners die so soon that a record must be parked at its first failure. */
void record_queue_denials_hurry(struct record_queue *queue, bool hurries);
/* Lets partitions whose pause is over be tried again. */
void record_queue_denials_step(struct record_queue *queue, int64_t now);
/* When the next such pause ends; INT64_MAX: there is none, or one is over now. */
int64_t record_queue_denials_due(const struct record_queue *queue, int64_t now);
/* Number of partitions that get no records before their next try. */
int record_queue_denied(const struct record_queue *queue);
/* A topic with records that wait for a try, and the last error; NULL: none. */
const char *record_queue_denied_topic(const struct record_queue *queue, const char **ret_error);
/* --- stalls --------------------------------------------------------------------------------- */
/*
 * Looks for stalls: partitions that acknowledge nothing while others do, and missing topics. Their
 * records are parked. True: some of these records are in flight, and their producer must go.
 */
bool record_queue_watch_stalls(struct record_queue *queue, int64_t now, int64_t stall_after);
/* When to look for stalls again; INT64_MAX: there are no records, or it may look now. */
int64_t record_queue_watch_due(const struct record_queue *queue, int64_t now);
/* A former owner parked rows of this partition because of a stall; or (-1) of this topic because it
 * was missing, or (-2) paused. */
void record_queue_stalled(
    struct record_queue *queue, const char *topic, size_t length, int32_t partition);
/*
 * The rows of a recovered place up to `last_id` are free; 0: all of its rows are. Until then each
 * log row frees a batch of them.
 */
void record_queue_recovered(struct record_queue *queue, const char *topic, size_t length,
    int32_t partition, int64_t last_id);
/* Stalled partitions and topics. */
int record_queue_stalls(const struct record_queue *queue);
/* See stream_pause_topics; and the number of them. */
void record_queue_pause_topics(struct record_queue *queue, const char *topics);
int record_queue_paused_topics(const struct record_queue *queue);
/* The partition has parked rows, which count as passed: its tail may have their records. */
bool record_queue_partition_keeps_passed(
    struct record_queue *queue, const char *topic, int32_t partition);
/* Some places are stalled, or have recovered and their rows are not all free yet. */
bool record_queue_awaits_stalled(const struct record_queue *queue);

/* The listed window is published to its end. */
void record_queue_listed_closed(struct record_queue *queue);
/* Number of parked records, each counted once. */
int64_t record_queue_parked(const struct record_queue *queue);
/* Number of records that went to outbox.scheduled. */
int64_t record_queue_scheduled(const struct record_queue *queue);

struct record_queue_refusal {
	int64_t tick, id;
	char topic[256];
	char error[512];
};
/* The publisher has stopped at a refused record. */
bool record_queue_is_stopped(const struct record_queue *queue);
/* Number of parked records that Kafka refused. */
int64_t record_queue_refusals(const struct record_queue *queue);
/* The record at which the publisher stopped, or else the last refused one that was parked. */
const struct record_queue_refusal *record_queue_refusal(const struct record_queue *queue);
