/*
 * The states of a record: what each one means, which may follow, and what must hold in it. A test
 * build checks both before each move.
 */
#include "record_queue_private.h"

#define MAY(state) (1U << RECORD_##state)

static const struct state_row record_rows[RECORD_STATES] = {
    [RECORD_PENDING] = {"pending",
	MAY(PENDING) | MAY(HELD) | MAY(SENT) | MAY(ACKED) | MAY(PARKING) | MAY(PARKED) |
	    MAY(REFUSED) | MAY(BLOCKED),
	"was read from the database, and its turn has not come"},
    [RECORD_HELD] = {"held",
	MAY(PENDING) | MAY(HELD) | MAY(SENT) | MAY(ACKED) | MAY(PARKING) | MAY(PARKED) |
	    MAY(REFUSED) | MAY(BLOCKED),
	"waits for its topic or its partition, or for records in front of it there"},
    [RECORD_SENT] = {"sent",
	MAY(PENDING) | MAY(HELD) | MAY(WRITTEN) | MAY(ACKED) | MAY(PARKING) | MAY(REFUSED),
	"the producer has it, and Kafka has not acknowledged it"},
    [RECORD_WRITTEN] = {"written", MAY(PENDING) | MAY(ACKED),
	"Kafka has it in a transaction that is still open"},
    [RECORD_ACKED] = {"acked", 0, "Kafka has acknowledged it; the next log row notes that"},
    [RECORD_PARKING] = {"parking", MAY(PARKED),
	"the next log row moves it to `outbox.parked` or `outbox.scheduled`"},
    [RECORD_PARKED] = {"parked", 0, "its row is in `outbox.parked` or `outbox.scheduled`"},
    [RECORD_REFUSED] = {"refused", 0,
	"Kafka refused it, and the publisher stops because its topic says `stop`"},
    [RECORD_BLOCKED] = {"blocked", 0, "waits behind a refused record of its key"},
};

const struct state_table record_states = {
    "record of the publisher", record_rows, RECORD_STATES, RECORD_PENDING};

/* Whether its partition has a queue here. */
static bool has_partition_queue(const struct record *record)
{
	return record->partition >= 0 && record->partition < record->topic->partition_queue_count;
}

void record_check_move(
    const struct record_queue *queue, const struct record *record, enum record_state state)
{
	bool stops = record->topic->policy == STREAM_STOP && !record->from_parked;
	states_check(&record_states, record->state, (int)state);
	switch (state) {
	case RECORD_PENDING:
		assert(!record->found && !record->later);
		break;
	case RECORD_HELD: /* a scheduled record needs no place on a partition */
		assert(!record->found && !record->later);
		break;
	case RECORD_SENT:
		assert(record->key_known && !record->stands && !record->later);
		assert(!record->convicted && !record->found && has_partition_queue(record));
		break;
	case RECORD_WRITTEN:
		assert(queue->transactions && record->key_known && has_partition_queue(record));
		break;
	case RECORD_ACKED:
		assert(record->key_known && !record->later && has_partition_queue(record));
		break;
	case RECORD_PARKING: /* what Kafka has is not parked */
		assert(record->key_known && !record->found && !record->stands);
		break;
	case RECORD_PARKED:
		assert(!record->found && (record->stands || record->state == RECORD_PARKING));
		break;
	case RECORD_REFUSED:
		assert(queue->refused && stops && !record->found);
		break;
	case RECORD_BLOCKED:
		assert(stops && record->key_known && !record->found);
		break;
	default:
		assert(!"a state of a record");
	}
}
