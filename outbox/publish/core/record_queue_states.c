/*
 * The states of a record and of a partition queue: the meaning of each state, the states that may
 * follow, and its invariant. A test build checks each move and the invariant: for a record before
 * it moves, for a partition queue after its lists and counters are up to date.
 */
#include "record_queue_private.h"

/* --- records -------------------------------------------------------------------------------- */

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
		assert(!record->seen);
		break;
	case RECORD_HELD: /* a scheduled record needs no place on a partition */
		assert(!record->seen && !record->later);
		break;
	case RECORD_SENT:
		assert(record->key_known && !record->stands && !record->later);
		assert(!record->convicted && !record->seen && has_partition_queue(record));
		break;
	case RECORD_WRITTEN:
		assert(queue->transactions && record->key_known && has_partition_queue(record));
		break;
	case RECORD_ACKED:
		assert(record->key_known && !record->later && has_partition_queue(record));
		break;
	case RECORD_PARKING: /* no record is parked that Kafka has */
		assert(record->key_known && !record->seen && !record->stands);
		break;
	case RECORD_PARKED:
		assert(!record->seen && (record->stands || record->state == RECORD_PARKING));
		break;
	case RECORD_REFUSED:
		assert(queue->refused && stops && !record->seen);
		break;
	case RECORD_BLOCKED:
		assert(stops && record->key_known && !record->seen);
		break;
	default:
		assert(!"a state of a record");
	}
}

/* --- partition queues ----------------------------------------------------------------------- */

#undef MAY
#define MAY(state) (1U << PARTITION_##state)
/* The loss of a producer, or of the topic, and the end of the topic may come in every state. */
#define ALWAYS (MAY(UNREAD) | MAY(CLOSED))

static const struct state_row partition_rows[PARTITION_STATES] = {
    [PARTITION_UNREAD] = {"unread", MAY(READING) | ALWAYS,
	"its records wait, because an earlier owner or producer may have written some of them"},
    [PARTITION_READING] = {"reading", MAY(UNLOGGED) | MAY(OPEN) | MAY(CUT) | ALWAYS,
	"its tail is being read up to the end of the partition"},
    [PARTITION_UNLOGGED] = {"unlogged", MAY(OPEN) | MAY(CUT) | ALWAYS,
	"its tail is read, and its end must be in the log before records are sent"},
    [PARTITION_OPEN] = {"open", MAY(OPEN) | ALWAYS, "its records flow"},
    [PARTITION_CUT] = {"cut", MAY(CUT) | MAY(UNSOUGHT) | MAY(OPEN) | ALWAYS,
	"memory holds only a part of its tail: only records that this part decides flow"},
    [PARTITION_UNSOUGHT] = {"unsought", MAY(SEEKING) | MAY(CUT) | MAY(OPEN) | ALWAYS,
	"its first record must be looked for in the rest of the tail"},
    [PARTITION_SEEKING] = {"seeking", MAY(UNLOGGED) | MAY(CUT) | MAY(OPEN) | ALWAYS,
	"its tail is being read again from the cut on"},
    [PARTITION_CLOSED] = {"closed", 0, "its topic is closed or forgotten, and so is the queue"},
};

const struct state_table partition_queue_states = {
    "partition queue of the publisher", partition_rows, PARTITION_STATES, PARTITION_OPEN};

void partition_check(const struct record_queue *queue, const struct partition_queue *partition)
{
	bool is_cut = record_queue_partition_is_cut(partition);
	bool wanted = partition->prev_wanted, owed = partition->wait.stall != STALL_NONE;
	assert(!partition->asked_end);
	switch (partition->state) {
	case PARTITION_UNREAD:
		assert(queue->resumes && wanted);
		assert(!partition->cut || (is_cut && !partition->cut->made.settled));
		break;
	case PARTITION_READING:
		assert(queue->resumes && !wanted && partition->question);
		break;
	case PARTITION_UNLOGGED:
		assert(!wanted && partition->offset != OFFSET_NONE);
		assert(partition->offset_changed && (is_cut || !partition->cut));
		break;
	case PARTITION_OPEN:
		assert(!wanted && !partition->cut && !partition->keeps_passed);
		assert(!partition->first_tail && !partition->awaited);
		assert(!owed || partition_is_barred(partition));
		break;
	case PARTITION_CUT:
		assert(!wanted && is_cut && !partition->first_tail && !partition->awaited);
		assert(!owed || partition_is_barred(partition));
		break;
	case PARTITION_UNSOUGHT:
		assert(queue->resumes && wanted && is_cut && partition->held.head);
		assert(partition->under_way + partition->written == 0);
		break;
	case PARTITION_SEEKING:
		assert(!wanted && is_cut && partition->question);
		break;
	case PARTITION_CLOSED: /* only what was covered when the topic went */
		assert(!wanted && !partition->cut && !partition->found && !partition->first);
		break;
	default:
		assert(!"a state of a partition queue");
	}
}
