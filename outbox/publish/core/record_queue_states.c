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

static bool has_partition_queue(const struct record *record)
{
	return record->partition >= 0 && record->partition < record->topic->partition_queue_count;
}

/* The invariants. Only an acknowledged record may have a found record in Kafka (seen). */
static bool may_be_in(
    const struct record_queue *queue, const struct record *record, enum record_state state)
{
	bool stops = record->topic->policy == STREAM_STOP && !record->from_parked;
	bool known = record->key_known, placed = has_partition_queue(record);

	switch (state) {
	case RECORD_PENDING:
		return !record->seen;
	case RECORD_HELD: /* a scheduled record never waits on a partition */
		return !record->seen && !record->later;
	case RECORD_SENT:
		return known && placed && !record->seen && !record->later && !record->is_parked &&
		       !record->convicted;
	case RECORD_WRITTEN:
		return known && placed && queue->transactions;
	case RECORD_ACKED:
		return known && placed && !record->later;
	case RECORD_PARKING:
		return known && !record->seen && !record->is_parked;
	case RECORD_PARKED:
		return !record->seen && (record->is_parked || record->state == RECORD_PARKING);
	case RECORD_REFUSED:
		return !record->seen && stops && queue->refused;
	case RECORD_BLOCKED:
		return known && !record->seen && stops;
	default:
		return false;
	}
}

void record_check_move(
    const struct record_queue *queue, const struct record *record, enum record_state state)
{
	states_check(&record_states, record->state, (int)state);
	states_expect(may_be_in(queue, record, state));
}

/* --- partition queues ----------------------------------------------------------------------- */

#undef MAY
#define MAY(state) (1U << PARTITION_##state)
/* A producer or topic may be lost in every state, and a topic may be closed in every state. */
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

/* The partition was read to its end, so its records flow and its parked rows are free. */
static bool is_recovered(const struct partition_queue *partition)
{
	return !partition->first_tail && !partition->awaited &&
	       (partition->wait.stall == STALL_NONE || partition_is_barred(partition));
}

static bool fits_its_state(
    const struct record_queue *queue, const struct partition_queue *partition)
{
	const struct cut *cut = partition->cut;
	bool is_cut = record_queue_partition_is_cut(partition), wanted = partition->prev_wanted;

	switch (partition->state) {
	case PARTITION_UNREAD: /* rows that a cut decided are undecided again */
		return wanted && queue->resumes && (!cut || (is_cut && !cut->made.settled));
	case PARTITION_READING:
		return !wanted && queue->resumes && partition->question;
	case PARTITION_UNLOGGED:
		return !wanted && partition->offset != OFFSET_NONE && partition->offset_changed &&
		       (!cut || is_cut);
	case PARTITION_OPEN:
		return !wanted && !cut && !partition->keeps_passed && is_recovered(partition);
	case PARTITION_CUT:
		return !wanted && is_cut && is_recovered(partition);
	case PARTITION_UNSOUGHT:
		return wanted && is_cut && partition->held.head &&
		       partition->under_way + partition->written == 0;
	case PARTITION_SEEKING:
		return !wanted && is_cut && partition->question;
	case PARTITION_CLOSED:
		return !wanted && !cut && !partition->found && !partition->first;
	default:
		return false;
	}
}

void partition_check(const struct record_queue *queue, const struct partition_queue *partition)
{
	states_expect(!partition->asked_end && fits_its_state(queue, partition));
}
