/*
 * Parking. A record that Kafka refuses for good, and those of its key behind it, leave the stream
 * for outbox.parked (0007_parked.sql) in the transaction of the next log row; then they count as
 * published. From there they come back as records of listed windows. Those with a time of their own
 * go to outbox.scheduled (0009_scheduled.sql) in the same way.
 *
 *   SENT -> PARKING -> PARKED      refused while alone on its partition
 *   PENDING, HELD -> PARKING …     a record of its key is parked and not gone yet
 *
 * A record is parked only when all records of its partition before it are acknowledged, so that who
 * takes the shard next cannot find one of them unpublished and queue it up behind. And nothing goes
 * out before a refused record is noted, nor to a partition before all records that were parked for
 * its sake are noted. The cause may be mended meanwhile, and the next owner would send such a
 * record behind records of larger positions.
 */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow_private.h"

enum { PLACES_A_ROW = 100 };

void flow_stands(struct flow *flow, uint64_t sequence)
{
	struct record *record = flow_record(flow, sequence);
	record->state = PARKED;
	if (flow->highest_sent <= sequence)
		flow->highest_sent = sequence + 1;
	flow_release(flow, record);
}

/* --- records -------------------------------------------------------------------------------- */

static struct park *keep_back(struct flow *flow, uint64_t sequence, const char *error)
{
	if (flow->park_count == flow->park_capacity) {
		flow->park_capacity = flow->park_capacity ? flow->park_capacity * 2 : 64;
		flow->parks =
		    xrealloc(flow->parks, (size_t)flow->park_capacity * sizeof *flow->parks);
	}
	struct park *park = &flow->parks[flow->park_count++];
	*park = (struct park){.sequence = sequence, .error = error ? xstrdup(error) : NULL};
	flow_record(flow, sequence)->state = PARKING;
	if (flow->highest_sent <= sequence)
		flow->highest_sent = sequence + 1;
	return park;
}

void flow_schedule(struct flow *flow, uint64_t sequence)
{
	keep_back(flow, sequence, NULL);
}

/* The partition for whose sake a record is parked; NULL: for the sake of its topic, which was
 * missing.
 */
static struct partition_queue *stalled_partition(const struct record *record)
{
	const struct topic *topic = record->topic;
	bool has_queue = record->partition >= 0 && record->partition < topic->partition_queue_count;
	return has_queue ? topic->partition_queues[record->partition] : NULL;
}

static void is_unnoted(struct record *record)
{
	struct partition_queue *partition = stalled_partition(record);
	if (partition)
		partition->unnoted++;
	else
		record->topic->unnoted++;
}

/* Records may flow again. A topic that was loaded again meanwhile has new partition queues, which
 * count none.
 */
static void stall_is_noted(struct flow *flow, const struct record *record)
{
	struct topic *topic = record->topic;
	struct partition_queue *partition = stalled_partition(record);
	int64_t *unnoted = partition ? &partition->unnoted : &topic->unnoted;
	if (*unnoted == 0 || --*unnoted > 0)
		return;
	if (partition)
		flow_list_ready(flow, partition);
	for (int32_t p = 0; p < topic->partition_queue_count && !partition; p++)
		flow_list_ready(flow, topic->partition_queues[p]);
}

static void park(struct flow *flow, uint64_t sequence, const char *error, bool stalled)
{
	struct record *record = flow_record(flow, sequence);
	struct parked_key *key = flow_key_of(flow, record, false);
	struct park *park = keep_back(flow, sequence, error);
	park->stalled = stalled;
	if (stalled)
		is_unnoted(record);
	park->dead = error && record->convicted;
	flow->parks_refused += error && !stalled;
	if (key)
		key->parking++;
}

static void note_refusal(struct flow *flow, uint64_t sequence, const char *error)
{
	const struct record *record = flow_record(flow, sequence);
	flow->refusal.tick = record->tick;
	flow->refusal.id = record->message.id;
	text_copy(flow->refusal.topic, sizeof flow->refusal.topic, record->topic->name);
	text_copy(flow->refusal.error, sizeof flow->refusal.error, error);
}

/* The first refused record of a digest decides which records are behind it. */
static uint64_t first_refused(uint64_t refused, uint64_t sequence)
{
	return refused && refused < sequence ? refused : sequence;
}

/*
 * From here on later records of the key wait behind it, unless the topic lets records pass. If an
 * earlier owner parked records of the key, all records of this owner are behind those.
 */
static void becomes_head(struct flow *flow, uint64_t sequence)
{
	struct record *record = flow_record(flow, sequence);
	struct parked_key *key = flow_key_of(flow, record, record->topic->policy != STREAM_PASS);
	if (key && record->listed)
		key->refused_again = first_refused(key->refused_again, sequence);
	else if (key && (key->refused || (!key->stands && !key->parking)))
		key->refused = first_refused(key->refused, sequence);
}

void flow_park_refused(struct flow *flow, uint64_t sequence, const char *error)
{
	struct record *record = flow_record(flow, sequence);
	enum stream_policy policy = record->topic->policy;
	becomes_head(flow, sequence);
	if (!flow->refused && (!record->listed || record->convicted))
		note_refusal(flow, sequence, error);
	if (policy == STREAM_STOP && !record->listed) {
		flow->refused = true;
		record->state = REFUSED;
	} else {
		flow->refusals += !record->listed || record->convicted;
		park(flow, sequence, error, false);
	}
}

static bool park_behind(struct flow *flow, uint64_t sequence, bool stalled)
{
	struct record *record = flow_record(flow, sequence);
	struct parked_key *key = flow_key_of(flow, record, false);
	if (!key)
		return false;
	uint64_t refused = record->listed ? key->refused_again : key->refused;
	if (refused > sequence || (record->listed && !refused))
		return false;
	if (record->topic->policy == STREAM_STOP && !record->listed)
		record->state = BLOCKED;
	else
		park(flow, sequence, NULL, stalled);
	return true;
}

bool flow_park_behind(struct flow *flow, uint64_t sequence)
{
	return park_behind(flow, sequence, false);
}

void flow_park_convicted(struct flow *flow, uint64_t sequence)
{
	const struct record *record = flow_record(flow, sequence);
	char error[512];
	if (record->topic_refused)
		text_copy(error, sizeof error, record->topic->refused);
	else
		snprintf(error, sizeof error,
		    "the relay died %d times with this message alone in flight", DEATHS_CONVICT);
	if (!flow_park_behind(flow, sequence))
		flow_park_refused(flow, sequence, error);
}

void flow_park_stalled(struct flow *flow, uint64_t sequence)
{
	struct record *record = flow_record(flow, sequence);
	char error[384] = "the topic was missing for stall_after";
	const char *denied = flow_denial_error(record->topic);
	if (record->topic->wait.stalled)
		record->partition = -1;
	else if (denied)
		snprintf(error, sizeof error, "partition %d takes no records: %s",
		    record->partition, denied);
	else
		snprintf(error, sizeof error, "partition %d acknowledged nothing for stall_after",
		    record->partition);
	if (park_behind(flow, sequence, true))
		return;
	becomes_head(flow, sequence);
	park(flow, sequence, error, true);
}

/* --- the row -------------------------------------------------------------------------------- */

bool flow_has_parks(const struct flow *flow)
{
	return flow->park_count > 0 || flow->recovered_count > 0;
}

bool flow_keeps_back(const struct flow *flow)
{
	return flow->park_count > 0;
}

bool flow_notes_all(const struct flow *flow)
{
	return flow->parks_logging > 0 && flow->parks_logging == flow_records(flow);
}

bool flow_has_refusals(const struct flow *flow)
{
	return flow->parks_refused > 0;
}

static json_t *parks_row(const struct park *park, const struct record *record)
{
	json_t *row = json_pack(
	    "[I,I]", (json_int_t)record->message.id, (json_int_t)record->message.created_us);
	/* an error that is no UTF-8 is not worth a loss */
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

static json_t *recovered_json(const struct flow *flow, bool all)
{
	int most = flow->recovered_count < PLACES_A_ROW ? flow->recovered_count : PLACES_A_ROW;
	json_t *list = json_array();
	for (int i = 0; i < most && all; i++) {
		const struct stall *place = &flow->recovered[i];
		json_array_append_new(
		    list, json_pack("[s,i,I]", place->topic->name, (int)place->partition,
			      (json_int_t)place->freed_id));
	}
	return list;
}

char *flow_parks(struct flow *flow, int most)
{
	int count = flow->park_count < most ? flow->park_count : most;
	if (!flow_has_parks(flow))
		return NULL;
	json_t *rows = json_array(), *scheduled = json_array();
	for (int i = 0; i < count; i++) {
		const struct record *record = flow_record(flow, flow->parks[i].sequence);
		json_array_append_new(
		    record->later ? scheduled : rows, parks_row(&flow->parks[i], record));
	}
	/* not before the last of their rows is noted */
	json_t *recovered = recovered_json(flow, count == flow->park_count);
	json_t *parks = json_pack("{s:o,s:o,s:o,s:I,s:I,s:I}", "rows", rows, "scheduled", scheduled,
	    "recovered", recovered, "first_ms", (json_int_t)flow->parking.retry_first_ms, "max_ms",
	    (json_int_t)flow->parking.retry_max_ms, "max_attempts",
	    (json_int_t)flow->parking.max_attempts);
	char *text = json_dumps(parks, JSON_COMPACT);
	json_decref(parks);
	flow->parks_logging = count;
	return text;
}

static void park_is_noted(struct flow *flow, struct park *park)
{
	struct record *record = flow_record(flow, park->sequence);
	assert(record->state == PARKING);
	if (!record->later)
		flow_key_noted(flow, record);
	record->state = PARKED;
	if (park->stalled)
		stall_is_noted(flow, record);
	flow->parked += !record->listed && !record->later;
	flow->scheduled += record->later;
	flow_release(flow, record);
	flow->parks_refused -= park->error && !park->stalled;
	free(park->error);
}

void flow_parks_logged(struct flow *flow, bool written)
{
	int count = written ? flow->parks_logging : 0;
	flow->parks_logging = 0;
	for (int i = 0; i < count; i++)
		park_is_noted(flow, &flow->parks[i]);
	if (written)
		flow_keys_noted(flow);
	flow->park_count -= count;
	for (int i = 0; i < flow->park_count && count; i++)
		flow->parks[i] = flow->parks[i + count];
}

void flow_parks_forget(struct flow *flow)
{
	flow_keys_forget(flow);
	flow_stalls_forget(flow);
	for (int i = 0; i < flow->park_count; i++)
		free(flow->parks[i].error);
	free(flow->parks);
	flow->parks = NULL;
	flow->park_count = flow->park_capacity = flow->parks_logging = flow->parks_refused = 0;
	flow->refused = false;
}

int64_t flow_parked(const struct flow *flow)
{
	return flow->parked;
}

int64_t flow_scheduled(const struct flow *flow)
{
	return flow->scheduled;
}

int64_t flow_refusals(const struct flow *flow)
{
	return flow->refusals;
}

const struct flow_refusal *flow_refusal(const struct flow *flow)
{
	return &flow->refusal;
}

bool flow_refused(const struct flow *flow)
{
	return flow->refused;
}
