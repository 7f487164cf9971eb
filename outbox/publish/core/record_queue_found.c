/*
 * Found records, and tails that have more records of the shard than memory can hold.
 *
 * The found records of all partitions take at most a quarter of `memory`. When this is used up at
 * an offset, the partition gets a cut there. The reading goes on, and keeps only records of rows
 * that wait on the partition at that moment: these rows are sought. At the end of the reading a row
 * is decided if
 *
 *   - its record was kept: Kafka has the row;
 *   - it waited when the cut was made, and its record was not found: Kafka does not have the row;
 *   - its id is outside the range of the ids that were not kept: the same.
 *
 * Any other row waits. When it is the first on its partition, a pass begins (record_queue_tails.c):
 * the partition is read again from the cut on. By then the rows of kept records have been read, so
 * there is memory for further records, and the new cut is at a larger offset. A pass ends as soon
 * as memory is full and no row is sought. A pass that reads to the end decides all rows that waited
 * when its cut was made. So each pass decides all rows that waited when it began, however little
 * memory there is.
 *
 * A pass begins when nothing is in flight on the partition. After the end of the previous reading
 * the partition has records that this owner wrote and that were acknowledged: the pass skips them.
 * After the loss of a producer the partition is read from the cut to the end like a first tail.
 *
 * The logged offset of the partition stays in front of the cut: the next owner begins to read
 * there.
 *
 * Read record_queue_found_take first, which keeps a record or makes a cut, then
 * record_queue_found_decides.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "record_queue_private.h"

enum {
	TAIL_SHARE = 4, /* a quarter of `memory` is for found records */
	ROWS_SHARE = 4, /* a quarter of that quarter if rows fill the rest */
	/*
	 * Sought rows are not counted: queue->bytes has RECORD_OVERHEAD for each row, which
	 * librdkafka does not use for a row that waits.
	 */
	SEEN_BYTES = sizeof(struct seen) + 32,
};

/* --- records -------------------------------------------------------------------------------- */

static struct seen *find_seen(struct seen *table, const struct seen_name *name)
{
	struct seen *seen;
	HASH_FIND(hh, table, name, sizeof *name, seen);
	return seen;
}

static struct seen_name seen_name_of(const struct record *record)
{
	struct seen_name name = {.id = record->message.id};
	memcpy(name.event_id, record->message.event_id, sizeof name.event_id);
	return name;
}

static struct seen *make_seen(const struct seen_name *name)
{
	struct seen *seen = xcalloc(1, sizeof *seen);
	seen->name = *name;
	return seen;
}

/* A reading goes forward, and may begin in front of records that an earlier reading found. */
static void add_found(struct record_queue *queue, struct partition_queue *partition,
    struct seen *seen, int64_t offset)
{
	struct seen *before = partition->newest;
	struct seen *next = before ? before->next : partition->first;
	while (next && next->offset < offset) {
		before = next;
		next = next->next;
	}

	seen->offset = offset;
	if (before)
		DL_APPEND_ELEM(partition->first, before, seen);
	else
		DL_PREPEND(partition->first, seen);
	partition->newest = seen;
	HASH_ADD(hh, partition->found, name, sizeof seen->name, seen);
	queue->found_count++;
	queue->seen_count++;
}

void record_queue_tail_passed(
    struct record_queue *queue, struct partition_queue *partition, struct seen *seen)
{
	if (partition->newest == seen)
		partition->newest = seen == partition->first ? NULL : seen->prev;
	DL_DELETE(partition->first, seen);
	HASH_DEL(partition->found, seen);
	if (seen->matched)
		record_queue_at(queue, seen->matched)->seen = NULL;
	else
		queue->found_count--;
	queue->seen_count--;
	free(seen);
}

void record_queue_found_forget(struct record_queue *queue, struct partition_queue *partition)
{
	while (partition->first)
		record_queue_tail_passed(queue, partition, partition->first);
}

struct seen *record_queue_tail_found(
    struct record_queue *queue, struct partition_queue *partition, uint64_t sequence)
{
	struct seen_name name;
	struct seen *seen;

	if (!partition->found)
		return NULL;
	name = seen_name_of(record_queue_at(queue, sequence));
	seen = find_seen(partition->found, &name);
	if (!seen || seen->matched)
		return NULL;
	seen->matched = sequence;
	queue->found_count--;
	queue->skipped++;
	return seen;
}

int64_t record_queue_found_bytes(const struct record_queue *queue)
{
	return queue->seen_count * SEEN_BYTES;
}

static bool is_found_memory_full(const struct record_queue *queue)
{
	int64_t most = queue->tail_memory ? queue->tail_memory : queue->memory / TAIL_SHARE;
	int64_t room = queue->memory - queue->bytes - record_queue_kept_bytes(queue);
	if (room < most / ROWS_SHARE)
		room = most / ROWS_SHARE;
	return record_queue_found_bytes(queue) + SEEN_BYTES > (room < most ? room : most);
}

/* --- cuts ----------------------------------------------------------------------------------- */

static const struct pass no_pass = {.from = OFFSET_NONE};

bool record_queue_partition_is_cut(const struct partition_queue *partition)
{
	return partition->cut && partition->cut->made.from != OFFSET_NONE;
}

int64_t record_queue_cut_offset(const struct partition_queue *partition)
{
	return record_queue_partition_is_cut(partition) ? partition->cut->made.from : OFFSET_NONE;
}

static void forget_sought(struct cut *cut)
{
	struct seen *seen, *next;
	HASH_ITER(hh, cut->sought, seen, next)
	{
		HASH_DEL(cut->sought, seen);
		free(seen);
	}
}

void record_queue_cut_drop(struct record_queue *queue, struct partition_queue *partition)
{
	if (!partition->cut)
		return;
	forget_sought(partition->cut);
	free(partition->cut);
	partition->cut = NULL;
	queue->cuts--;
}

void record_queue_cut_unsettle(struct record_queue *queue, struct partition_queue *partition)
{
	if (!partition->cut)
		return;
	forget_sought(partition->cut);
	partition->cut->reading = no_pass;
	partition->cut->made.settled = 0;
	if (!record_queue_partition_is_cut(partition))
		record_queue_cut_drop(queue, partition);
}

void record_queue_found_begin(struct record_queue *queue, struct partition_queue *partition)
{
	partition->newest = NULL;
	if (!partition->cut)
		return;
	forget_sought(partition->cut);
	partition->cut->reading = no_pass;
	if (!record_queue_partition_is_cut(partition))
		record_queue_cut_drop(queue, partition);
}

static void seek_record(struct partition_queue *partition, const struct record *record)
{
	struct cut *cut = partition->cut;
	struct seen_name name = seen_name_of(record);
	struct seen *seen;
	if (find_seen(partition->found, &name) || find_seen(cut->sought, &name))
		return;
	seen = make_seen(&name);
	HASH_ADD(hh, cut->sought, name, sizeof seen->name, seen);
}

/* Memory is full: from this offset on only the records of waiting rows are kept. */
static void begin_cut(struct record_queue *queue, struct partition_queue *partition, int64_t offset)
{
	struct cut *cut = partition->cut;
	if (!cut) {
		cut = partition->cut = xcalloc(1, sizeof *cut);
		cut->made = no_pass;
		queue->cuts++;
	}
	cut->reading = (struct pass){.from = offset, .least_id = INT64_MAX, .most_id = INT64_MIN};
	for (uint64_t s = partition->held.head; s; s = record_queue_at(queue, s)->next_held) {
		seek_record(partition, record_queue_at(queue, s));
		cut->reading.settled = s;
	}
}

static bool is_cutting(const struct partition_queue *partition)
{
	return partition->cut && partition->cut->reading.from != OFFSET_NONE;
}

static void keep_sought(struct record_queue *queue, struct partition_queue *partition,
    const struct seen_name *name, int64_t offset)
{
	struct cut *cut = partition->cut;
	struct pass *pass = &cut->reading;
	struct seen *seen = find_seen(cut->sought, name);

	if (seen) {
		HASH_DEL(cut->sought, seen);
		add_found(queue, partition, seen, offset);
		return;
	}
	if (name->id < pass->least_id)
		pass->least_id = name->id;
	if (name->id > pass->most_id)
		pass->most_id = name->id;
}

/* A record that comes twice is kept once, with the offset that holds back the logged one longer. */
static void keep_found(struct record_queue *queue, struct partition_queue *partition,
    const struct seen_name *name, int64_t offset)
{
	if (find_seen(partition->found, name))
		return;
	if (!is_cutting(partition) && !is_found_memory_full(queue)) {
		add_found(queue, partition, make_seen(name), offset);
		return;
	}
	if (!is_cutting(partition))
		begin_cut(queue, partition, offset);
	keep_sought(queue, partition, name, offset);
}

enum record_found record_queue_found_take(struct record_queue *queue,
    struct partition_queue *partition, const struct seen_name *name, int64_t offset)
{
	bool again = record_queue_partition_is_cut(partition) && offset < partition->cut->end;
	/* This owner's record, acknowledged since the reading before. */
	if (record_queue_partition_is_cut(partition) && !again && offset <= partition->known_offset)
		return RECORD_FOUND_AGAIN;

	keep_found(queue, partition, name, offset);
	if (partition->state == PARTITION_SEEKING && is_cutting(partition) &&
	    !partition->cut->sought)
		return RECORD_FOUND_ENOUGH;
	if (again)
		return RECORD_FOUND_AGAIN;
	return partition->first_tail ? RECORD_FOUND_FIRST : RECORD_FOUND;
}

/* Rows that were decided stay decided. */
static void end_pass(struct cut *cut, struct pass made)
{
	if (made.settled < cut->made.settled)
		made.settled = cut->made.settled;
	cut->made = made;
	cut->reading = no_pass;
}

void record_queue_cut_enough(struct partition_queue *partition)
{
	struct pass made = partition->cut->reading;
	/* The range of the previous reading, which went to the end, covers this part too. */
	made.least_id = partition->cut->made.least_id;
	made.most_id = partition->cut->made.most_id;
	end_pass(partition->cut, made);
}

bool record_queue_cut_end(
    struct record_queue *queue, struct partition_queue *partition, int64_t end)
{
	if (!is_cutting(partition)) {
		record_queue_cut_drop(queue, partition);
		return false;
	}
	end_pass(partition->cut, partition->cut->reading);
	partition->cut->end = end;
	forget_sought(partition->cut);
	return true;
}

bool record_queue_found_decides(
    const struct record_queue *queue, const struct partition_queue *partition, uint64_t sequence)
{
	const struct cut *cut = partition->cut;
	struct seen_name name;
	if (!record_queue_partition_is_cut(partition) || sequence <= cut->made.settled)
		return true;
	name = seen_name_of(record_queue_at(queue, sequence));
	return name.id < cut->made.least_id || name.id > cut->made.most_id ||
	       find_seen(partition->found, &name);
}
