#pragma once
/*
 * The records of a stream between the read and the acknowledgement, and the queues of the
 * partitions that they go to. Internal to outbox/publish; one thread; no I/O. record_queue.c opens
 * with the rules.
 */
#include "pg_array.h"
#include "stream.h"

struct record_queue;

extern const struct state_table record_states, partition_queue_states;

/*
 * resumes: tails are read (record_queue_tails.c). transactions: written records count from
 * record_queue_committed on, and after the loss of a producer every tail is read again.
 */
struct record_queue *record_queue_create(const struct stream_settings *settings);
void record_queue_destroy(struct record_queue *queue);
/* Forgets all records (a fenced owner); numbers go on, so that late reports find nothing. */
void record_queue_forget(struct record_queue *queue);

/* listed: of a listed window. convicted: it kills who sends it, and is parked instead. */
void record_queue_add(struct record_queue *queue, int64_t tick, bool listed, bool convicted,
    const struct message *message);

/* --- numbers: acked <= next <= end; covered <= acked ---------------------------------------- */
/* The number that the next record gets. */
uint64_t record_queue_end(const struct record_queue *queue);
/* All records before this number are acknowledged or parked. */
uint64_t record_queue_acked(const struct record_queue *queue);
/* Passes over the next acknowledged record at the front; false: there is none. */
bool record_queue_pass(struct record_queue *queue, int64_t *ret_tick, int64_t *ret_id);
/* All before `sequence` stand in a committed log row. */
void record_queue_cover(struct record_queue *queue, uint64_t sequence);
uint64_t record_queue_covered(const struct record_queue *queue);
/* max_in_flight keeps records from going out. */
bool record_queue_is_full(const struct record_queue *queue);
int64_t record_queue_count(const struct record_queue *queue);
/* Memory of the records. */
int64_t record_queue_bytes(const struct record_queue *queue);
/* Memory of the filter and the exact keys. */
int64_t record_queue_kept_bytes(const struct record_queue *queue);
/* Records that the producer has, without a report yet. */
int64_t record_queue_under_way(const struct record_queue *queue);
/* Under way, and the producer has said nothing of them: not that they must go again either. */
int64_t record_queue_unreported(const struct record_queue *queue);
/* Records that were sent and are not covered by a log row. */
int64_t record_queue_in_flight(const struct record_queue *queue);
/* Records in the transaction that is open. */
int64_t record_queue_written(const struct record_queue *queue);
/* Records are kept back that reports may set free. */
bool record_queue_waits_for_reports(const struct record_queue *queue);
/* NULL: not in memory, or acknowledged. */
const struct message *record_queue_message(const struct record_queue *queue, uint64_t sequence);
/* NULL: there is no record. */
const struct message *record_queue_oldest(const struct record_queue *queue);

/* --- destinations --------------------------------------------------------------------------- */
/* The shard was taken with that row, which folded all that was known. */
void record_queue_taken(struct record_queue *queue, int64_t now, int64_t n);
/* Topics whose records wait until it is known what the log says of them. */
bool record_queue_wants_destinations(const struct record_queue *queue);
/* Names some of them, to be looked up in the log. */
void record_queue_load(struct record_queue *queue, struct pg_array *ret_names);
/*
 * From the log. It knows no topic that was asked for and is not reported before
 * record_queue_load_ended.
 */
void record_queue_destination(
    struct record_queue *queue, const struct stream_destination *destination);
void record_queue_load_ended(struct record_queue *queue, bool answered);
/* Checks a closed topic: the log drops it if the cluster no longer has it. */
void record_queue_check_topic(struct record_queue *queue, const char *name);
/* From the broker; 0: missing. */
void record_queue_topic(struct record_queue *queue, const char *topic, int32_t partitions);
/* The cluster answered at that time that the topic is missing. */
void record_queue_topic_answered(
    struct record_queue *queue, const char *topic, int64_t answered_at, int64_t stall_after);
/* The topic in use (unready: and not ready) whose turn was longest ago. */
const char *record_queue_next_topic(
    struct record_queue *queue, bool unready, bool *ret_ready, int32_t *ret_partitions);
int record_queue_topics(const struct record_queue *queue, bool unready);
const char *record_queue_missing_topic(const struct record_queue *queue);
/* They must be opened in the log first. */
bool record_queue_has_new_topics(const struct record_queue *queue);
/* They have another count: a new epoch begins, once nothing is under way. */
bool record_queue_has_changed_topics(const struct record_queue *queue);
/* Moves offsets of silent partitions up, and closes unused topics; each call visits some topics. */
void record_queue_visit_topics(struct record_queue *queue, int64_t now);
/* Topics that were closed, to be freed; NULL: no more. */
struct closed_topic {
	struct closed_topic *next;
	char name[];
};
struct closed_topic *record_queue_closed_topic(struct record_queue *queue);
/*
 * The changes of destinations since the last commit as JSON, with new and (if `changed`) changed
 * counts, for the row n. halves: the row says half as much, so many times. record_queue_fold_to:
 * that row folds destinations up to this one; 0: it folds none. record_queue_logged says what
 * became of it.
 */
void record_queue_destinations(
    struct record_queue *queue, int64_t n, bool changed, int halves, struct text *ret_json);
int64_t record_queue_fold_to(const struct record_queue *queue, int64_t n);
void record_queue_logged(struct record_queue *queue, int64_t n, int64_t folded_to, bool written);

/* --- tails ---------------------------------------------------------------------------------- */
/* The next question. */
bool record_queue_tail_call(struct record_queue *queue, int64_t now, struct stream_tail *ret_tail);
enum record_found {
	RECORD_FOUND_STALE, /* nobody asked */
	RECORD_FOUND,
	RECORD_FOUND_FIRST,  /* in the first tail of its partition since its topic was loaded */
	RECORD_FOUND_AGAIN,  /* known since an earlier reading */
	RECORD_FOUND_ENOUGH, /* and nothing more is to be read */
};
enum record_found record_queue_tail_record(struct record_queue *queue,
    const struct stream_question *question, int64_t offset, int64_t id, const char event_id[16]);
void record_queue_tail_end(
    struct record_queue *queue, const struct stream_question *question, int64_t end, bool beyond);
/* True: it was the newest question of its partition. */
bool record_queue_tail_failed(struct record_queue *queue, const struct stream_question *question);
/* A partition of an open topic that is not missing was not read yet. */
bool record_queue_awaits_first_tails(const struct record_queue *queue);
/* Partitions wait for a log row with their offsets. */
bool record_queue_must_log_tails(const struct record_queue *queue);
/* Forgets found records whose rows did not come by so far. */
void record_queue_forget_found(struct record_queue *queue);
/* Memory of all found records. */
int64_t record_queue_found_bytes(const struct record_queue *queue);
/* Rows that were not sent since their records were found, ever. */
int64_t record_queue_skipped(const struct record_queue *queue);
/* A topic was recreated since record_queue_epoch_begins. */
bool record_queue_recreated(const struct record_queue *queue);
void record_queue_epoch_begins(struct record_queue *queue);

/* --- sending -------------------------------------------------------------------------------- */
/* gaps_only: for good only what is in front of a record that was sent. */
bool record_queue_send(
    struct record_queue *queue, int64_t now, bool gaps_only, struct stream_record *ret_record);
/* True: record_queue_send closes the gap. */
bool record_queue_has_gap(const struct record_queue *queue);
/* True: the record was known. Sets *ret_wants_producer when only a new producer helps. */
bool record_queue_report(struct record_queue *queue, int64_t now, uint64_t sequence,
    enum stream_delivery delivery, int64_t offset, const char *error, bool *ret_wants_producer);
/* The transaction is committed: its records are acknowledged. */
void record_queue_committed(struct record_queue *queue);
void record_queue_producer_lost(struct record_queue *queue);

/* --- parking -------------------------------------------------------------------------------- */
/*
 * The shard was taken. parked: rows of it are in outbox.parked; those of windows up to
 * inherited_tick are read again.
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
/* A record of it, by its place, is parked itself, or its key is; then the end. */
void record_queue_looked_up(struct record_queue *queue, int place, bool itself);
void record_queue_lookup_end(struct record_queue *queue);
void record_queue_lookup_failed(struct record_queue *queue);
/* A page of digests for the filter is wanted: at most so many, from *ret_from on. */
bool record_queue_wants_digests(const struct record_queue *queue);
int64_t record_queue_digests_call(const struct record_queue *queue, int64_t *ret_from);
void record_queue_digest(struct record_queue *queue, int64_t digest);
void record_queue_digests_end(struct record_queue *queue, int64_t rows);
/* --- parks ---------------------------------------------------------------------------------- */
bool record_queue_has_parks(const struct record_queue *queue);
/* Records must be noted. Recovered places alone need no note: the next owner finds them, too. */
bool record_queue_keeps_back(const struct record_queue *queue);
/* The row under way keeps back all that is in memory. */
bool record_queue_notes_all(const struct record_queue *queue);
/* A refused record is to be noted before anything else goes out. */
bool record_queue_has_refusals(const struct record_queue *queue);
/*
 * The argument of outbox.park and outbox.schedule for the next log row, with `most` rows at most;
 * NULL: none. The caller frees it, and calls record_queue_logged.
 */
char *record_queue_parks_json(struct record_queue *queue, int most);
/* --- denied partitions ----------------------------------------------------------------------- */
/* Owners die so soon that a record which fails is parked at once. */
void record_queue_denials_hurry(struct record_queue *queue, bool hurries);
/* Partitions whose pause is over are tried again. */
void record_queue_denials_step(struct record_queue *queue, int64_t now);
/* When the next such pause is over; INT64_MAX: none is, or one is over now. */
int64_t record_queue_denials_due(const struct record_queue *queue, int64_t now);
/* Partitions to which nothing is sent before the next try. */
int record_queue_denied(const struct record_queue *queue);
/* A topic of which records wait for a try, and the last error; NULL: none. */
const char *record_queue_denied_topic(const struct record_queue *queue, const char **ret_error);
/* --- stalls --------------------------------------------------------------------------------- */
/*
 * Partitions that take nothing while others do, and missing topics: their records are parked. True:
 * some of them are under way, and their producer must go.
 */
bool record_queue_watch_stalls(struct record_queue *queue, int64_t now, int64_t stall_after);
/* When it looks again; INT64_MAX: there is nothing to look for, or it may look now. */
int64_t record_queue_watch_due(const struct record_queue *queue, int64_t now);
/* A former owner parked rows of this partition, or with -1 of this topic, because of a stall. */
void record_queue_stalled(
    struct record_queue *queue, const char *topic, size_t length, int32_t partition);
/*
 * The rows of a recovered place up to `last_id` are free; 0: all of them. Until then each log row
 * frees a batch of them.
 */
void record_queue_recovered(struct record_queue *queue, const char *topic, size_t length,
    int32_t partition, int64_t last_id);
/* Stalled partitions and topics. */
int record_queue_stalls(const struct record_queue *queue);
/* The partition has parked rows: they count as passed, and its tail may have their records. */
bool record_queue_partition_keeps_passed(
    struct record_queue *queue, const char *topic, int32_t partition);
/* Some are stalled, or were and their rows do not know it. */
bool record_queue_awaits_stalled(const struct record_queue *queue);

/* The listed window is published to its end. */
void record_queue_listed_closed(struct record_queue *queue);
/* Records that were parked, once each. */
int64_t record_queue_parked(const struct record_queue *queue);
/* Records that went to outbox.scheduled. */
int64_t record_queue_scheduled(const struct record_queue *queue);

struct record_queue_refusal {
	int64_t tick, id;
	char topic[256];
	char error[512];
};
/* The publisher stops at a record. */
bool record_queue_is_stopped(const struct record_queue *queue);
/* Parked records that Kafka refused. */
int64_t record_queue_refusals(const struct record_queue *queue);
/* The record it stops at, or else the last that was parked. */
const struct record_queue_refusal *record_queue_refusal(const struct record_queue *queue);
