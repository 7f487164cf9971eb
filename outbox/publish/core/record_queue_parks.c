/*
 * The path of a refused record: produce_fault.c in outbox/kafka classifies the error, and
 * record_sender.c reports the record with it. record_queue_report (record_queue.c) decides: a
 * record that was refused in a batch goes again alone; one that was refused alone is parked by
 * record_queue_park_refused. record_queue_parks_json passes it to the next tick, in which
 * outbox.park (sql/migrations/0007_parked.sql) writes its row.
 *
 * Parking: a record that Kafka refuses permanently, and the records of its key behind it, move from
 * the stream to outbox.parked (0007_parked.sql) in the transaction of the next log row; then they
 * count as published. From there they come back as records of listed windows. Records with a time
 * of their own go to outbox.scheduled (0009_scheduled.sql) in the same way.
 *
 * A record is parked if it was refused while alone on its partition, or if a record of its key is
 * parked and not gone yet.
 *
 * A record is parked only when all records of its partition before it are acknowledged, so that the
 * next owner cannot find one of them unpublished and queue it behind the parked one. And no record
 * goes out before a refused one is noted, nor to a partition before all records that were parked
 * because of its stall are noted. Otherwise the cause might be repaired meanwhile, and the next
 * owner would send such a record behind records of larger positions.
 */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record_queue_private.h"

enum { PLACES_A_ROW = 100 };

void record_queue_stands(struct record_queue *queue, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	record_move(queue, record, RECORD_PARKED);
	if (queue->highest_sent <= sequence)
		queue->highest_sent = sequence + 1;
	record_queue_release(queue, record);
}

/* --- records -------------------------------------------------------------------------------- */

static struct park *keep_record_back(
    struct record_queue *queue, uint64_t sequence, const char *error)
{
	if (queue->park_count == queue->park_capacity) {
		queue->park_capacity = queue->park_capacity ? queue->park_capacity * 2 : 64;
		queue->parks =
		    xrealloc(queue->parks, (size_t)queue->park_capacity * sizeof *queue->parks);
	}
	struct park *park = &queue->parks[queue->park_count++];
	*park = (struct park){.sequence = sequence, .error = error ? xstrdup(error) : NULL};
	record_move(queue, record_queue_at(queue, sequence), RECORD_PARKING);
	if (queue->highest_sent <= sequence)
		queue->highest_sent = sequence + 1;
	return park;
}

void record_queue_schedule(struct record_queue *queue, uint64_t sequence)
{
	keep_record_back(queue, sequence, NULL);
}

/* The stalled partition of a parked record; NULL: its topic was missing or paused. */
static struct partition_queue *stalled_partition(const struct record *record)
{
	const struct topic *topic = record->topic;
	bool has_queue = record->partition >= 0 && record->partition < topic->partition_queue_count;
	return has_queue ? topic->partition_queues[record->partition] : NULL;
}

static int64_t *unnoted_rows(const struct record *record)
{
	struct partition_queue *partition = stalled_partition(record);
	return partition ? &partition->unnoted : &record->topic->unnoted;
}

/*
 * A parked row of a stalled place is noted; after the last one records may flow again. If the topic
 * was loaded again meanwhile, its new partition queues count no such rows.
 */
static void note_stalled_row(struct record_queue *queue, const struct record *record)
{
	struct topic *topic = record->topic;
	struct partition_queue *partition = stalled_partition(record);
	int64_t *unnoted = unnoted_rows(record);
	if (*unnoted == 0 || --*unnoted > 0)
		return;
	if (partition)
		record_queue_list_ready(queue, partition);
	for (int32_t p = 0; p < topic->partition_queue_count && !partition; p++)
		record_queue_list_ready(queue, topic->partition_queues[p]);
}

static void park_record(
    struct record_queue *queue, uint64_t sequence, const char *error, bool stalled)
{
	struct record *record = record_queue_at(queue, sequence);
	struct parked_key *key = record_queue_key_of(queue, record, false);
	struct park *park = keep_record_back(queue, sequence, error);
	park->stalled = stalled;
	if (stalled)
		++*unnoted_rows(record);
	park->dead = error && record->convicted;
	queue->parks_refused += error && !stalled;
	if (key)
		key->parking_count++;
}

static void note_refusal(struct record_queue *queue, uint64_t sequence, const char *error)
{
	const struct record *record = record_queue_at(queue, sequence);
	queue->refusal.tick = record->tick;
	queue->refusal.id = record->message.id;
	text_copy(queue->refusal.topic, sizeof queue->refusal.topic, record->topic->name);
	text_copy(queue->refusal.error, sizeof queue->refusal.error, error);
}

/* The first refused record of a digest decides which records are behind it. */
static uint64_t first_refused(uint64_t refused, uint64_t sequence)
{
	return refused && refused < sequence ? refused : sequence;
}

/*
 * The record becomes the head of its key: later records of the key wait behind it, unless the topic
 * lets records pass. If an earlier owner parked records of the key, all records of this owner are
 * behind those.
 */
static void becomes_head(struct record_queue *queue, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	struct parked_key *key =
	    record_queue_key_of(queue, record, record->topic->policy != STREAM_PASS);
	if (key && record->from_parked)
		key->refused_again = first_refused(key->refused_again, sequence);
	else if (key && (key->refused_sequence || (!key->is_parked && !key->parking_count)))
		key->refused_sequence = first_refused(key->refused_sequence, sequence);
}

void record_queue_park_refused(struct record_queue *queue, uint64_t sequence, const char *error)
{
	struct record *record = record_queue_at(queue, sequence);
	enum stream_policy policy = record->topic->policy;

	becomes_head(queue, sequence);
	if (!queue->refused && (!record->from_parked || record->convicted))
		note_refusal(queue, sequence, error);
	if (policy == STREAM_STOP && !record->from_parked) {
		queue->refused = true;
		record_move(queue, record, RECORD_REFUSED);
	} else {
		queue->refusals += !record->from_parked || record->convicted;
		park_record(queue, sequence, error, false);
	}
}

/* The publisher stopped at the key's head. Another head is parked, because its topic was paused. */
static bool stops_at_key(const struct record_queue *queue, const struct parked_key *key)
{
	return key->refused_sequence >= queue->acked &&
	       record_queue_at(queue, key->refused_sequence)->state == RECORD_REFUSED;
}

static bool park_behind(struct record_queue *queue, uint64_t sequence, bool stalled)
{
	struct record *record = record_queue_at(queue, sequence);
	struct parked_key *key = record_queue_key_of(queue, record, false);

	if (!key)
		return false;
	uint64_t refused = record->from_parked ? key->refused_again : key->refused_sequence;
	if (refused > sequence || (record->from_parked && !refused))
		return false;
	if (!record->from_parked && stops_at_key(queue, key))
		record_move(queue, record, RECORD_BLOCKED);
	else
		park_record(queue, sequence, NULL, stalled);
	return true;
}

bool record_queue_park_behind(struct record_queue *queue, uint64_t sequence)
{
	return park_behind(queue, sequence, false);
}

void record_queue_park_convicted(struct record_queue *queue, uint64_t sequence)
{
	const struct record *record = record_queue_at(queue, sequence);
	char error[512];
	if (record->topic_refused)
		text_copy(error, sizeof error, record->topic->refusal_reason);
	else
		snprintf(error, sizeof error,
		    "the relay died %d times with this message alone in flight", DEATHS_CONVICT);
	if (!record_queue_park_behind(queue, sequence))
		record_queue_park_refused(queue, sequence, error);
}

/* The record waits in outbox.parked until its place, which record->partition names, is free again.
 */
static void park_at_place(struct record_queue *queue, uint64_t sequence, const char *error)
{
	if (park_behind(queue, sequence, true))
		return;
	becomes_head(queue, sequence);
	park_record(queue, sequence, error, true);
}

void record_queue_park_stalled(struct record_queue *queue, uint64_t sequence)
{
	struct record *record = record_queue_at(queue, sequence);
	char error[384] = "the topic was missing for stall_after";
	const char *denied = record_queue_denial_error(record->topic);

	if (record->topic->wait.stall == STALL_PARKS)
		record->partition = PLACE_MISSING;
	else if (denied)
		snprintf(error, sizeof error, "partition %d takes no records: %s",
		    record->partition, denied);
	else
		snprintf(error, sizeof error, "partition %d acknowledged nothing for stall_after",
		    record->partition);
	park_at_place(queue, sequence, error);
}

void record_queue_park_paused(struct record_queue *queue, uint64_t sequence)
{
	record_queue_at(queue, sequence)->partition = PLACE_PAUSED;
	park_at_place(queue, sequence, "an operator paused the topic");
}

/* --- the row -------------------------------------------------------------------------------- */

bool record_queue_has_parks(const struct record_queue *queue)
{
	return queue->park_count > 0 || queue->recovered_count > 0;
}

bool record_queue_keeps_back(const struct record_queue *queue)
{
	return queue->park_count > 0;
}

bool record_queue_notes_all(const struct record_queue *queue)
{
	return queue->parks_logging > 0 && queue->parks_logging == record_queue_count(queue);
}

bool record_queue_has_refusals(const struct record_queue *queue)
{
	return queue->parks_refused > 0;
}

static json_t *parked_row_json(const struct park *park, const struct record *record)
{
	json_t *row = json_pack(
	    "[I,I]", (json_int_t)record->message.id, (json_int_t)record->message.created_us);

	/* An error that is not UTF-8 must not cost the row: a plain text replaces it. */
	if (park->error && json_array_append_new(row, json_string(park->error)) != 0)
		json_array_append_new(row, json_string("refused"));
	else if (!park->error && !record->later)
		json_array_append_new(row, json_null());
	json_array_append_new(row, json_integer(record->tick));
	if (park->stalled || park->dead)
		json_array_append_new(
		    row, park->stalled ? json_integer(record->partition) : json_null());
	if (park->dead)
		json_array_append_new(row, json_true());
	return row;
}

static json_t *recovered_json(const struct record_queue *queue, bool all)
{
	int most = queue->recovered_count < PLACES_A_ROW ? queue->recovered_count : PLACES_A_ROW;
	json_t *list = json_array();
	for (int i = 0; i < most && all; i++) {
		const struct stall *place = &queue->recovered[i];
		json_array_append_new(
		    list, json_pack("[s,i,I]", place->topic->name, (int)place->partition,
			      (json_int_t)place->freed_id));
	}
	return list;
}

char *record_queue_parks_json(struct record_queue *queue, int most)
{
	int count = queue->park_count < most ? queue->park_count : most;
	if (!record_queue_has_parks(queue))
		return NULL;

	json_t *rows = json_array(), *scheduled = json_array();
	for (int i = 0; i < count; i++) {
		const struct record *record = record_queue_at(queue, queue->parks[i].sequence);
		json_array_append_new(
		    record->later ? scheduled : rows, parked_row_json(&queue->parks[i], record));
	}

	/* Recovered places are reported only when all of their rows are noted. */
	json_t *recovered = recovered_json(queue, count == queue->park_count);
	json_t *parks = json_pack("{s:o,s:o,s:o,s:I,s:I,s:I}", "rows", rows, "scheduled", scheduled,
	    "recovered", recovered, "first_ms", (json_int_t)queue->parking.retry_first_ms, "max_ms",
	    (json_int_t)queue->parking.retry_max_ms, "max_attempts",
	    (json_int_t)queue->parking.max_attempts);
	char *text = json_dumps(parks, JSON_COMPACT);
	json_decref(parks);
	queue->parks_logging = count;
	return text;
}

static void note_parked_row(struct record_queue *queue, struct park *park)
{
	struct record *record = record_queue_at(queue, park->sequence);

	assert(record->state == RECORD_PARKING);
	if (!record->later)
		record_queue_key_noted(queue, record);
	record_move(queue, record, RECORD_PARKED);
	if (park->stalled)
		note_stalled_row(queue, record);
	queue->parked += !record->from_parked && !record->later;
	queue->scheduled += record->later;
	record_queue_release(queue, record);
	queue->parks_refused -= park->error && !park->stalled;
	free(park->error);
}

void record_queue_parks_logged(struct record_queue *queue, bool written)
{
	int count = written ? queue->parks_logging : 0;
	queue->parks_logging = 0;
	for (int i = 0; i < count; i++)
		note_parked_row(queue, &queue->parks[i]);
	if (written)
		record_queue_keys_noted(queue);
	queue->park_count -= count;
	for (int i = 0; i < queue->park_count && count; i++)
		queue->parks[i] = queue->parks[i + count];
}

void record_queue_parks_forget(struct record_queue *queue)
{
	record_queue_keys_forget(queue);
	record_queue_stalls_forget(queue);
	for (int i = 0; i < queue->park_count; i++)
		free(queue->parks[i].error);
	free(queue->parks);
	queue->parks = NULL;
	queue->park_count = queue->park_capacity = queue->parks_logging = queue->parks_refused = 0;
	queue->refused = false;
}

int64_t record_queue_parked(const struct record_queue *queue)
{
	return queue->parked;
}

int64_t record_queue_scheduled(const struct record_queue *queue)
{
	return queue->scheduled;
}

int64_t record_queue_refusals(const struct record_queue *queue)
{
	return queue->refusals;
}

const struct record_queue_refusal *record_queue_refusal(const struct record_queue *queue)
{
	return &queue->refusal;
}

bool record_queue_is_stopped(const struct record_queue *queue)
{
	return queue->refused;
}
