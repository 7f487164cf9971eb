#pragma once
/*
 * The records of a stream between the read and the acknowledgement, and the queues of the
 * partitions that they go to.
 * Internal to outbox/publish; one thread; no I/O. flow.c opens with the rules.
 */
#include "pg_array.h"
#include "stream.h"

struct flow;

/*
 * resumes: tails are read (flow_tails.c). transactions: what is written counts with flow_committed
 * only, and after the loss of a producer every tail is read again.
 */
struct flow *flow_create(const struct stream_settings *settings);
void flow_destroy(struct flow *flow);
/* Forgets all records (a fenced owner); numbers go on, so that late reports find nothing. */
void flow_forget(struct flow *flow);

/* listed: of a listed window. convicted: it kills who sends it, and is parked instead. */
void flow_add(
    struct flow *flow, int64_t tick, bool listed, bool convicted, const struct message *message);

/* --- numbers: acked <= next <= end; covered <= acked ---------------------------------------- */
/* The number that the next record gets. */
uint64_t flow_end(const struct flow *flow);
/* All records before this number are acknowledged or parked. */
uint64_t flow_acked(const struct flow *flow);
/* Passes over the next acknowledged record at the front; false: there is none. */
bool flow_pass(struct flow *flow, int64_t *ret_tick, int64_t *ret_id);
/* All before `sequence` stand in a committed log row. */
void flow_cover(struct flow *flow, uint64_t sequence);
uint64_t flow_covered(const struct flow *flow);
/* max_in_flight keeps records from going out. */
bool flow_is_full(const struct flow *flow);
int64_t flow_records(const struct flow *flow);
/* Memory of the records. */
int64_t flow_bytes(const struct flow *flow);
/* Memory of the filter and the exact keys. */
int64_t flow_kept_bytes(const struct flow *flow);
/* Records that the producer has, without a report yet. */
int64_t flow_under_way(const struct flow *flow);
/* Under way, and the producer has said nothing of them: not that they must go again either. */
int64_t flow_unreported(const struct flow *flow);
/* Records that were sent and are not covered by a log row. */
int64_t flow_in_flight(const struct flow *flow);
/* Records in the transaction that is open. */
int64_t flow_written(const struct flow *flow);
/* Records are kept back that reports may set free. */
bool flow_waits_for_reports(const struct flow *flow);
/* NULL: not in memory, or acknowledged. */
const struct message *flow_message(const struct flow *flow, uint64_t sequence);
/* NULL: there is no record. */
const struct message *flow_oldest(const struct flow *flow);

/* --- destinations --------------------------------------------------------------------------- */
/* The shard was taken with that row, which folded all that was known. */
void flow_taken(struct flow *flow, int64_t now, int64_t n);
/* Topics whose records wait until it is known what the log says of them. */
bool flow_wants_destinations(const struct flow *flow);
/* Names some of them, to be looked up in the log. */
void flow_load(struct flow *flow, struct pg_array *ret_names);
/* From the log. It knows no topic that was asked for and is not reported before flow_load_ended. */
void flow_destination(struct flow *flow, const struct stream_destination *destination);
void flow_load_ended(struct flow *flow, bool answered);
/* Checks a closed topic: the log drops it if the cluster no longer has it. */
void flow_check_topic(struct flow *flow, const char *name);
/* From the broker; 0: missing. */
void flow_topic(struct flow *flow, const char *topic, int32_t partitions);
/* The cluster answered at that time that the topic is missing. */
void flow_topic_answered(
    struct flow *flow, const char *topic, int64_t answered_at, int64_t stall_after);
/* The topic in use (unready: and not ready) whose turn was longest ago. */
const char *flow_next_topic(
    struct flow *flow, bool unready, bool *ret_ready, int32_t *ret_partitions);
int flow_topics(const struct flow *flow, bool unready);
const char *flow_missing_topic(const struct flow *flow);
/* They must be opened in the log first. */
bool flow_has_new_topics(const struct flow *flow);
/* They have another count: a new epoch begins, once nothing is under way. */
bool flow_has_changed_topics(const struct flow *flow);
/* Moves offsets of silent partitions up, and closes unused topics; each call visits some topics. */
void flow_visit_topics(struct flow *flow, int64_t now);
/* Topics that were closed, to be freed; NULL: no more. */
struct closed_topic {
	struct closed_topic *next;
	char name[];
};
struct closed_topic *flow_closed_topic(struct flow *flow);
/*
 * The changes of destinations since the last commit as JSON, with new and (if `changed`) changed
 * counts, for the row n. halves: the row says half as much, so many times. flow_fold_to: that row
 * folds destinations up to this one; 0: it folds none. flow_logged says what became of it.
 */
void flow_destinations(
    struct flow *flow, int64_t n, bool changed, int halves, struct text *ret_json);
int64_t flow_fold_to(const struct flow *flow, int64_t n);
void flow_logged(struct flow *flow, int64_t n, int64_t folded_to, bool written);

/* --- tails ---------------------------------------------------------------------------------- */
/* The next question. */
bool flow_tail_call(struct flow *flow, int64_t now, struct stream_tail *ret_tail);
enum flow_found {
	FLOW_FOUND_STALE, /* nobody asked */
	FLOW_FOUND,
	FLOW_FOUND_FIRST,  /* in the first tail of its partition since its topic was loaded */
	FLOW_FOUND_AGAIN,  /* known since an earlier reading */
	FLOW_FOUND_ENOUGH, /* and nothing more is to be read */
};
enum flow_found flow_tail_record(struct flow *flow, const struct stream_question *question,
    int64_t offset, int64_t id, const char event_id[16]);
void flow_tail_end(
    struct flow *flow, const struct stream_question *question, int64_t end, bool beyond);
/* True: it was the newest question of its partition. */
bool flow_tail_failed(struct flow *flow, const struct stream_question *question);
/* A partition of an open topic that is not missing was not read yet. */
bool flow_awaits_first_tails(const struct flow *flow);
/* Partitions wait for a log row with their offsets. */
bool flow_must_log_tails(const struct flow *flow);
/* Forgets found records whose rows did not come by so far. */
void flow_forget_found(struct flow *flow);
/* Memory of all found records. */
int64_t flow_found_bytes(const struct flow *flow);
/* Rows that were not sent since their records were found, ever. */
int64_t flow_skipped(const struct flow *flow);
/* A topic was recreated since flow_epoch_begins. */
bool flow_recreated(const struct flow *flow);
void flow_epoch_begins(struct flow *flow);

/* --- sending -------------------------------------------------------------------------------- */
/* gaps_only: for good only what is in front of a record that was sent. */
bool flow_send(struct flow *flow, int64_t now, bool gaps_only, struct stream_record *ret_record);
/* True: flow_send closes the gap. */
bool flow_has_gap(const struct flow *flow);
/* True: the record was known. Sets *ret_wants_producer when only a new producer helps. */
bool flow_report(struct flow *flow, int64_t now, uint64_t sequence, enum stream_delivery delivery,
    int64_t offset, const char *error, bool *ret_wants_producer);
/* The transaction is committed: what was written is acknowledged. */
void flow_committed(struct flow *flow);
void flow_producer_lost(struct flow *flow);

/* --- parking -------------------------------------------------------------------------------- */
/*
 * The shard was taken. parked: rows of it are in outbox.parked; those of windows up to
 * inherited_tick are read again.
 */
void flow_keys_taken(struct flow *flow, bool parked, int64_t inherited_tick);
/* The last parked row of this digest is gone. */
void flow_unparked(struct flow *flow, int64_t digest);
/* --- keys (flow_keys.c) --------------------------------------------------------------------- */
bool flow_wants_lookup(const struct flow *flow);
/* The records of the next look-up; valid until flow_lookup_end or flow_lookup_failed. */
int flow_lookup_call(struct flow *flow, const struct stream_lookup **ret_asked);
/* A record of it, by its place, is parked itself, or its key is; then the end. */
void flow_looked_up(struct flow *flow, int place, bool itself);
void flow_lookup_end(struct flow *flow);
void flow_lookup_failed(struct flow *flow);
/* A page of digests for the filter is wanted: at most so many, from *ret_from on. */
bool flow_wants_digests(const struct flow *flow);
int64_t flow_digests_call(const struct flow *flow, int64_t *ret_from);
void flow_digest(struct flow *flow, int64_t digest);
void flow_digests_end(struct flow *flow, int64_t rows);
/* --- parks ---------------------------------------------------------------------------------- */
bool flow_has_parks(const struct flow *flow);
/* Records must be noted. Recovered places alone need no note: the next owner finds them, too. */
bool flow_keeps_back(const struct flow *flow);
/* The row under way keeps back all that is in memory. */
bool flow_notes_all(const struct flow *flow);
/* A refused record is to be noted before anything else goes out. */
bool flow_has_refusals(const struct flow *flow);
/*
 * The argument of outbox.park and outbox.schedule for the next log row, with `most` rows at most;
 * NULL: none. The caller frees it, and calls flow_logged.
 */
char *flow_parks(struct flow *flow, int most);
/* --- denied partitions ----------------------------------------------------------------------- */
/* Owners die so soon that a record which fails is parked at once. */
void flow_denials_hurry(struct flow *flow, bool hurries);
/* Partitions whose pause is over are tried again. */
void flow_denials_step(struct flow *flow, int64_t now);
/* When the next such pause is over; INT64_MAX: none is, or one is over now. */
int64_t flow_denials_due(const struct flow *flow, int64_t now);
/* Partitions to which nothing is sent before the next try. */
int flow_denied(const struct flow *flow);
/* A topic of which records wait for a try, and the last error; NULL: none. */
const char *flow_denied_topic(const struct flow *flow, const char **ret_error);
/* --- stalls --------------------------------------------------------------------------------- */
/*
 * Partitions that take nothing while others do, and missing topics: their records are parked. True:
 * some of them are under way, and their producer must go.
 */
bool flow_watch_stalls(struct flow *flow, int64_t now, int64_t stall_after);
/* When it looks again; INT64_MAX: there is nothing to look for, or it may look now. */
int64_t flow_watch_due(const struct flow *flow, int64_t now);
/* Of a partition, or with -1 a topic, such rows are parked since before our time. */
void flow_stalled(struct flow *flow, const char *topic, size_t length, int32_t partition);
/*
 * The rows of a recovered place up to `last_id` are free; 0: all of them. Until then each log row
 * frees a batch of them.
 */
void flow_recovered(
    struct flow *flow, const char *topic, size_t length, int32_t partition, int64_t last_id);
/* Stalled partitions and topics. */
int flow_stalls(const struct flow *flow);
/* The partition has parked rows: they count as passed, and its tail may have their records. */
bool flow_partition_keeps_passed(struct flow *flow, const char *topic, int32_t partition);
/* Some are stalled, or were and their rows do not know it. */
bool flow_awaits_stalled(const struct flow *flow);

/* The listed window is published to its end. */
void flow_listed_closed(struct flow *flow);
/* Records that were parked, once each. */
int64_t flow_parked(const struct flow *flow);
/* Records that went to outbox.scheduled. */
int64_t flow_scheduled(const struct flow *flow);

struct flow_refusal {
	int64_t tick, id;
	char topic[256];
	char error[512];
};
/* The publisher stops at a record. */
bool flow_refused(const struct flow *flow);
/* Parked records that Kafka refused. */
int64_t flow_refusals(const struct flow *flow);
/* The record it stops at, or else the last that was parked. */
const struct flow_refusal *flow_refusal(const struct flow *flow);
