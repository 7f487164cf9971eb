/*
 * The brokers of the simulator and an idempotent, gapless producer. Each sender (of a producer, to
 * a partition) has a connection of its own: requests arrive in order; when it breaks, a first part
 * of those under way still arrives, answers to it are lost, and the batches without an answer are
 * sent again. A broker takes any first sequence number from a producer that it does not know, the
 * next one from one that it knows, and answers an older one as a duplicate.
 *
 * A partition that is sick answers every batch with an error that blames no record, as a broker
 * does that may not be written to, or has come upon something that it does not understand.
 *
 * Records in a transaction are hidden until it is committed. The publisher has two transactional
 * ids, whose transactions take turns, and each id is fenced on its own: what comes from a producer
 * that is not the last one to fence its id is refused.
 */
#include <string.h>
#include "simulator_world.h"

enum { REQUESTS = 5, BATCH = 24, FEW_DIGESTS = 5 };

struct batch {
	int64_t base;
	int64_t offset; /* where it was written */
	int count;
	bool answered;
	struct wire_record records[BATCH];
};

/* One sending of a batch. */
struct flight {
	struct batch *batch;
	struct sender *sender;
	int64_t connection;
	bool dropped, arrived;
	struct flight *next;
};

struct sender {
	struct wire_producer *producer;
	int id; /* of its transactions */
	int topic, partition;
	struct wire_record *queue; /* not in a batch yet */
	int queue_count, queue_first;
	int64_t queue_capacity;
	int64_t next_sequence;
	struct batch *batches[REQUESTS]; /* without an answer, in order */
	int batch_count, sent_count;     /* of them, sent on this connection */
	struct flight *flights;          /* of this connection, newest first */
	int64_t connection, last_arrival, last_answer;
	bool broken, flushing;
};

struct wire_producer {
	struct process *process; /* NULL: destroyed */
	int owner;
	bool fatal;
	bool stale; /* it fenced the owner, and its own has no log row since */
	int turn;   /* the id of the open transaction, or of the next one */
	int fences; /* ids that it has fenced */
	int64_t outstanding;
	struct sender senders[TRANSACTIONAL_IDS][TOPICS][PARTITIONS];
};

/* --- the broker ------------------------------------------------------------------------------ */

static struct watermark *watermark_of(
    struct world *world, struct partition *partition, int64_t epoch)
{
	struct watermark *watermark = partition->watermarks;
	while (watermark && watermark->epoch != epoch)
		watermark = watermark->next;
	if (watermark)
		return watermark;
	watermark = world_allocate(world, sizeof *watermark);
	watermark->epoch = epoch;
	watermark->next = partition->watermarks;
	return partition->watermarks = watermark;
}

static void check_position(struct world *world, const struct wire_record *record)
{
	struct row *row = record->row;
	struct sighting *seen = row->sightings;
	while (seen && seen->epoch != record->epoch)
		seen = seen->next;
	if (record->id != row->id)
		world_fail(
		    world, "row %lld carries id %lld", (long long)row->id, (long long)record->id);
	/*
	 * A record in the queue of a stalled owner, or of a producer that was given up, comes under
	 * its first tick although its row was parked meanwhile. A row that was in flight at a crash
	 * is parked when its key is, unless the next owner reads the tails.
	 */
	bool strict = record->owner == world->database.newest->owner &&
		      world->plan.stream.resumes && !row->mended && !row->straggled &&
		      !(row->slept && row->paused);
	if (seen && seen->tick != record->tick && strict)
		world_fail(world, "row %lld has tick %lld, had %lld in the same epoch",
		    (long long)row->id, (long long)record->tick, (long long)seen->tick);
	if (seen)
		return;
	seen = world_allocate(world, sizeof *seen);
	*seen = (struct sighting){record->epoch, record->tick, row->sightings};
	row->sightings = seen;
}

/* Those of its key that were due when it was, and came before it, are there. */
static void check_scheduled(struct world *world, const struct row *row)
{
	const struct database *database = &world->database;
	if (world->now < row->deliver_us)
		world_fail(world, "row %lld is published before its time", (long long)row->id);
	for (int64_t i = 0; i < database->history_count; i++) {
		const struct row *other = database->history[i];
		if (other->deliver_us && other->key == row->key && other->id < row->id &&
		    !other->occurrences && other->listed_n && other->listed_n <= row->listed_n)
			world_fail(world,
			    "row %lld is published before row %lld of its key, which was due",
			    (long long)row->id, (long long)other->id);
	}
}

/* Skipped rows of the key are never published: the next row expected is the one behind them. */
static void pass_skipped(struct world *world, struct key *key, const struct row *row)
{
	const struct database *database = &world->database;
	for (int64_t i = 0; i < database->history_count && key->published < row->place; i++) {
		const struct row *other = database->history[i];
		if (other->key == row->key && !other->deliver_us && other->skipped &&
		    other->place == key->published)
			key->published++;
	}
}

static void check_first(
    struct world *world, struct partition *partition, const struct wire_record *record)
{
	struct row *row = record->row;
	struct watermark *watermark = watermark_of(world, partition, record->epoch);
	bool grows = record->tick > watermark->tick ||
		     (record->tick == watermark->tick && record->id > watermark->id);
	/* what waited in the queue of a stalled owner while its cause was mended comes too late */
	bool late = row->straggled || (row->slept && row->paused) ||
		    (row->mended && record->owner != world->database.newest->owner);
	/*
	 * Keys that share a digest with a refused one wait as well, and the database tells them
	 * apart: an owner that takes over meanwhile sends them behind what had passed. A digest has
	 * 64 bits, so that only plans with hardly any of them meet that.
	 */
	bool shares_digest = world->plan.digests < FEW_DIGESTS && row->key >= 0;
	if (!grows && !late && !shares_digest)
		world_fail(world, "row %lld at (%lld, %lld) comes behind (%lld, %lld)",
		    (long long)row->id, (long long)record->tick, (long long)record->id,
		    (long long)watermark->tick, (long long)watermark->id);
	if (grows) {
		watermark->tick = record->tick;
		watermark->id = record->id;
	}
	world->published++;
	if (row->key < 0)
		return;
	if (row->deliver_us) {
		check_scheduled(world, row);
		return;
	}
	struct key *key = &world->database.keys[row->key];
	pass_skipped(world, key, row);
	if (row->place != key->published)
		world_fail(world,
		    "row %lld is the %lldth of key %d and was published as the %lldth",
		    (long long)row->id, (long long)row->place, row->key, (long long)key->published);
	key->published++;
}

static bool is_known(
    const struct row *row, const struct partition *partition, const struct knowledge *knowledge)
{
	return row->first_us < knowledge->us && row->first_on == partition &&
	       row->first_offset >= knowledge->offset && row->first_offset < knowledge->end;
}

/* What consumers see, from now on. */
static void show(struct world *world, struct partition *partition, int64_t offset)
{
	const struct wire_record *record = &partition->records[offset];
	struct row *row = record->row;
	world->result.records++;
	world_trace(world, "written: row %lld of key %d at (%lld, %lld)%s", (long long)row->id,
	    row->key, (long long)record->tick, (long long)record->id,
	    row->occurrences ? " again" : "");
	if (row->lost) /* the failover lost it, Kafka has it */
		return;
	if (!row_is_committed(row)) {
		world_fail(
		    world, "row %lld was published and is not committed", (long long)row->id);
		return;
	}
	check_position(world, record);
	if (row->occurrences++ == 0) {
		row->first_us = world->now;
		row->first_on = partition;
		row->first_offset = offset;
		check_first(world, partition, record);
		bell_check_wait(world, row);
		return;
	}
	world->result.duplicates++;
	/*
	 * Where partitions are added a key moves, and is looked for where it is not. A pause
	 * outlasts what an owner remembers of a tail: a row comes once more if its first occurrence
	 * was late, or if a failover took back that it was published.
	 */
	bool outlasts = row->paused && (row->slept || world->database.timeline > 1);
	if ((is_known(row, partition, &record->first_tail) ||
		is_known(row, partition, &record->tail)) &&
	    !world->plan.growing_topics && !row->late && !outlasts)
		world_fail(world, "row %lld stood in the tail that owner %d read, and was sent",
		    (long long)row->id, record->owner);
}

static void append(
    struct world *world, struct partition *partition, const struct wire_record *record, int id)
{
	partition->records = world_grow(world, partition->records, &partition->capacity,
	    partition->end_offset + 1, sizeof *partition->records);
	partition->records[partition->end_offset++] = *record;
	if (!world->plan.stream.transactions) {
		show(world, partition, partition->end_offset - 1);
	} else if (record->row) {
		struct wire_record *last = &partition->records[partition->end_offset - 1];
		last->hidden = last->open = true;
		last->transactional_id = id;
	}
}

/* The next transaction may be open behind the one that is committed, and never in front of it. */
static void end_on_partition(struct world *world, struct partition *partition, int id, bool commit)
{
	static const struct wire_record marker;
	int64_t end = partition->end_offset, ended = 0;
	bool overtakes = false;
	for (int64_t i = partition->stable; i < end; i++) {
		if (!partition->records[i].open)
			continue;
		overtakes |= partition->records[i].transactional_id != id;
		if (partition->records[i].transactional_id != id)
			continue;
		if (commit && overtakes)
			world_fail(
			    world, "a transaction is committed before the one in front of it");
		partition->records[i].open = false;
		partition->records[i].hidden = !commit;
		ended++;
		if (commit)
			show(world, partition, i);
	}
	if (ended)
		append(world, partition, &marker, id);
	while (partition->stable < partition->end_offset &&
	       !partition->records[partition->stable].open)
		partition->stable++;
}

static void end_transaction(struct world *world, int id, bool commit)
{
	for (int t = 0; t < TOPICS; t++)
		for (int p = 0; p < PARTITIONS; p++)
			end_on_partition(world, &world->kafka.topics[t].partitions[p], id, commit);
}

enum answer { ACCEPTED, KNOWN, REFUSED, UNCLEAR, DENIED, OUT_OF_ORDER };

static struct producer_state *state_of(struct partition *partition, const struct sender *sender)
{
	struct producer_state *state = partition->producers;
	while (state && (state->producer != sender->producer || state->id != sender->id))
		state = state->next;
	return state;
}

static bool is_paused_somewhere(const struct world *world, const struct row *row)
{
	unsigned paused = world->database.paused_topics;

	for (int i = 0; i < world->plan.processes; i++)
		paused |= world->processes[i].paused_topics;
	return paused & 1U << row->topic;
}

/*
 * Without transactions nothing stops a request of a producer that was given up, nor one of an owner
 * that slept and does not know yet that it lost the shard. A row may have been parked since, or be
 * parked just now because its topic is paused, or have another partition: it comes once more, at a
 * later position.
 */
static void note_late(
    const struct world *world, const struct wire_producer *producer, struct wire_record *record)
{
	struct row *row = record->row;

	row->slept |= record->owner != world->database.newest->owner;
	if (producer->process)
		return;
	row->straggled = true;
	row->late |= row_is_parked(world, row) || world->plan.growing_topics ||
		     is_paused_somewhere(world, row);
}

static enum answer broker_takes(struct world *world, struct partition *partition,
    const struct sender *sender, struct batch *batch)
{
	const struct wire_producer *producer = sender->producer;
	struct producer_state *state = state_of(partition, sender);
	if (world->plan.stream.transactions && world->kafka.fencers[sender->id] != producer)
		return OUT_OF_ORDER;
	if (world->now < partition->sick_until)
		return partition->sick_as_topic ? DENIED : UNCLEAR;
	for (int i = 0; i < batch->count; i++)
		if (batch->records[i].row->refused)
			return batch->records[i].row->unclear ? UNCLEAR : REFUSED;
	if (state && batch->base < state->next_sequence)
		return KNOWN;
	if (state && batch->base > state->next_sequence)
		return OUT_OF_ORDER;
	if (!state) {
		state = world_allocate(world, sizeof *state);
		state->producer = producer;
		state->id = sender->id;
		state->next = partition->producers;
		partition->producers = state;
	}
	batch->offset = partition->end_offset;
	for (int i = 0; i < batch->count; i++) {
		note_late(world, producer, &batch->records[i]);
		append(world, partition, &batch->records[i], sender->id);
	}
	state->next_sequence = batch->base + batch->count;
	return ACCEPTED;
}

/* --- the producer ---------------------------------------------------------------------------- */

static void sender_flush(struct world *world, void *object, int64_t number);

static void flush_later(struct world *world, struct sender *sender, int64_t delay)
{
	if (sender->flushing)
		return;
	sender->flushing = true;
	world_after(world, delay, sender_flush, sender, 0);
}

/* offset: of the first; -1: none */
static void report_records(struct world *world, struct sender *sender,
    const struct wire_record *records, int count, enum stream_delivery delivery, int64_t offset)
{
	struct wire_producer *producer = sender->producer;
	producer->outstanding -= count;
	for (int i = 0; i < count && producer->process; i++) {
		struct report report = {
		    records[i].sequence, delivery, offset < 0 ? -1 : offset + i};
		relay_report(world, producer->process, &report);
	}
}

/* Visits the senders of both ids. */
static struct sender *sender_at(struct wire_producer *producer, int index)
{
	enum { SENDERS = TRANSACTIONAL_IDS * TOPICS * PARTITIONS };
	return index < SENDERS ? &producer->senders[0][0][0] + index : NULL;
}

/* A fatal error: what is queued fails with it, what is on the wire may still be answered. */
static void go_fatal(struct world *world, struct wire_producer *producer)
{
	bool tells = world_chance(world, 700000);
	producer->fatal = true;
	struct sender *sender;
	for (int i = 0; (sender = sender_at(producer, i)); i++) {
		if (tells && sender->queue_count > 0)
			report_records(world, sender, sender->queue + sender->queue_first,
			    sender->queue_count, STREAM_AGAIN, -1);
		sender->queue_count = 0;
	}
	if (producer->process)
		relay_wake(world, producer->process);
}

static void drop_first_batch(struct sender *sender)
{
	for (int i = 1; i < sender->batch_count; i++)
		sender->batches[i - 1] = sender->batches[i];
	sender->batch_count--;
	sender->sent_count--;
}

static void answer_arrives(struct world *world, void *object, int64_t number)
{
	struct flight *flight = object;
	struct sender *sender = flight->sender;
	struct batch *batch = flight->batch;
	struct wire_producer *producer = sender->producer;
	if (!producer->process || flight->connection != sender->connection)
		return;
	if (relay_is_paused(world, producer->process)) {
		world_after(world,
		    producer->process->paused_until - world->now + world_below(world, 2 * MS),
		    answer_arrives, flight, number);
		return;
	}
	if (sender->batches[0] != batch) { /* an older answer was held up by a pause */
		world_after(world, 100, answer_arrives, flight, number);
		return;
	}
	drop_first_batch(sender);
	switch ((enum answer)number) {
	case ACCEPTED:
	case KNOWN:
		report_records(
		    world, sender, batch->records, batch->count, STREAM_WRITTEN, batch->offset);
		break;
	case REFUSED:
		report_records(world, sender, batch->records, batch->count, STREAM_REFUSED, -1);
		go_fatal(world, producer);
		break;
	case UNCLEAR:
		report_records(world, sender, batch->records, batch->count, STREAM_FAILED, -1);
		go_fatal(world, producer);
		break;
	case DENIED:
		report_records(world, sender, batch->records, batch->count, STREAM_DENIED, -1);
		go_fatal(world, producer);
		break;
	case OUT_OF_ORDER:
		report_records(world, sender, batch->records, batch->count, STREAM_AGAIN, -1);
		go_fatal(world, producer);
		break;
	}
	flush_later(world, sender, world_below(world, 200));
}

static void sender_breaks(struct world *world, struct sender *sender);

static void flight_arrives(struct world *world, void *object, int64_t number)
{
	struct flight *flight = object;
	struct sender *sender = flight->sender;
	struct partition *partition =
	    &world->kafka.topics[sender->topic].partitions[sender->partition];
	(void)number;
	if (flight->dropped)
		return;
	flight->arrived = true;
	if (world->now < partition->down_until) {
		if (flight->connection == sender->connection)
			sender_breaks(world, sender);
		return;
	}
	enum answer answer = broker_takes(world, partition, sender, flight->batch);
	int64_t at = world->now + world_delay(world, world->plan.kafka_us / 2);
	if (at <= sender->last_answer)
		at = sender->last_answer + 1;
	sender->last_answer = at;
	world_after(world, at - world->now, answer_arrives, flight, answer);
}

static void send_batch(struct world *world, struct sender *sender, struct batch *batch)
{
	struct flight *flight = world_allocate(world, sizeof *flight);
	int64_t at = world->now + world_delay(world, world->plan.kafka_us / 2);
	if (at <= sender->last_arrival)
		at = sender->last_arrival + 1;
	sender->last_arrival = at;
	*flight = (struct flight){.batch = batch,
	    .sender = sender,
	    .connection = sender->connection,
	    .next = sender->flights};
	sender->flights = flight;
	sender->sent_count++;
	world_after(world, at - world->now, flight_arrives, flight, 0);
}

/* Of the requests under way, which are the newest, some never arrive. */
static void cut_flights(struct world *world, struct sender *sender)
{
	int under_way = 0;
	for (struct flight *flight = sender->flights; flight && !flight->arrived;
	     flight = flight->next)
		under_way++;
	int64_t lost = under_way ? world_between(world, 0, under_way) : 0;
	struct flight *flight = sender->flights;
	for (; lost > 0; lost--, flight = flight->next)
		flight->dropped = true;
	sender->flights = NULL;
}

static void sender_breaks(struct world *world, struct sender *sender)
{
	cut_flights(world, sender);
	sender->connection++;
	sender->sent_count = 0;
	sender->last_arrival = sender->last_answer = 0;
	sender->broken = true;
	sender->flushing = false;
	flush_later(world, sender, world_delay(world, 20 * MS));
}

/* The batch is written into a request: from here on the record's memory is not needed. */
static struct batch *make_batch(struct world *world, struct sender *sender)
{
	struct batch *batch = world_allocate(world, sizeof *batch);
	batch->base = sender->next_sequence;
	while (batch->count < world->plan.batch_records && sender->queue_count) {
		struct wire_record *record = &sender->queue[sender->queue_first++];
		if (record->payload[0] != record->id || record->payload[1] != ~record->id)
			world_fail(world, "the memory of row %lld was freed under the producer",
			    (long long)record->id);
		batch->records[batch->count++] = *record;
		sender->queue_count--;
	}
	if (!sender->queue_count)
		sender->queue_first = 0;
	sender->next_sequence += batch->count;
	sender->batches[sender->batch_count++] = batch;
	return batch;
}

static void sender_flush(struct world *world, void *object, int64_t number)
{
	struct sender *sender = object;
	struct process *process = sender->producer->process;
	(void)number;
	sender->flushing = false;
	if (!process || sender->producer->fatal)
		return;
	if (relay_is_paused(world, process)) {
		flush_later(
		    world, sender, process->paused_until - world->now + world_below(world, 2 * MS));
		return;
	}
	sender->broken = false;
	while (sender->sent_count < sender->batch_count)
		send_batch(world, sender, sender->batches[sender->sent_count]);
	while (sender->queue_count && sender->batch_count < world->plan.requests)
		send_batch(world, sender, make_batch(world, sender));
}

struct wire_producer *producer_open(struct world *world, struct process *process)
{
	struct wire_producer *producer = world_allocate(world, sizeof *producer);
	producer->process = process;
	producer->owner = process->owner;
	for (int id = 0; id < TRANSACTIONAL_IDS; id++)
		for (int t = 0; t < TOPICS; t++)
			for (int p = 0; p < PARTITIONS; p++)
				producer->senders[id][t][p] = (struct sender){
				    .producer = producer, .id = id, .topic = t, .partition = p};
	return producer;
}

void producer_close(struct world *world, struct wire_producer *producer)
{
	struct sender *sender;
	producer->process = NULL;
	for (int i = 0; (sender = sender_at(producer, i)); i++)
		cut_flights(world, sender);
}

bool producer_has_room(const struct world *world, const struct wire_producer *producer)
{
	return producer->outstanding < world->plan.queue_records;
}

void producer_send(struct world *world, struct wire_producer *producer, int topic, int partition,
    const struct wire_record *record)
{
	struct sender *sender = &producer->senders[producer->turn][topic][partition];
	if (sender->queue_first &&
	    sender->queue_first + sender->queue_count >= sender->queue_capacity) {
		memmove(sender->queue, sender->queue + sender->queue_first,
		    (size_t)sender->queue_count * sizeof *sender->queue);
		sender->queue_first = 0;
	}
	sender->queue = world_grow(world, sender->queue, &sender->queue_capacity,
	    sender->queue_first + sender->queue_count + 1, sizeof *sender->queue);
	sender->queue[sender->queue_first + sender->queue_count++] = *record;
	producer->outstanding++;
	if (!sender->broken)
		flush_later(world, sender, world_below(world, world->plan.kafka_us / 2 + 1));
}

bool producer_is_broken(const struct wire_producer *producer)
{
	return producer->fatal;
}

bool producer_is_idle(const struct wire_producer *producer)
{
	return producer->fatal || producer->outstanding == 0;
}

void producer_spoil(struct wire_producer *producer)
{
	producer->fatal = true;
}

/* --- transactions ---------------------------------------------------------------------------- */

static void call_answers(struct world *world, void *object, int64_t number)
{
	struct wire_producer *producer = object;
	if (!producer->process)
		return;
	int fences = world->options.reader == READER_FENCES_HALF ? 1 : TRANSACTIONAL_IDS;
	if (number == FENCED && ++producer->fences != fences)
		return;
	producer->process->transactions = (int)number;
	relay_wake(world, producer->process);
}

static void fence_arrives(struct world *world, void *object, int64_t number)
{
	struct wire_producer *producer = object;
	int id = (int)number;
	end_transaction(world, id, false);
	world->kafka.fencers[id] = producer;
	producer->stale |= producer->owner != world->database.newest->owner;
	world_trace(world, "the producer of owner %d fences all others of id %d%s", producer->owner,
	    id, producer->stale ? ", though the shard is another's" : "");
	world_after(
	    world, world_delay(world, world->plan.kafka_us / 2), call_answers, producer, FENCED);
}

static void commit_arrives(struct world *world, void *object, int64_t number)
{
	struct wire_producer *producer = object;
	bool flawed = world_has_faults(world) && world->plan.kafka_faults;
	bool lost = flawed && world_chance(world, world->plan.rivals ? 100000 : 10000);
	int id = (int)number;
	bool fenced = world->kafka.fencers[id] != producer;
	if (!lost && !fenced) {
		world_trace(world, "a transaction of owner %d is committed", producer->owner);
		if (producer->stale)
			world_fail(world,
			    "owner %d commits, which lost the shard before it fenced owner %d",
			    producer->owner, world->database.newest->owner);
		end_transaction(world, id, true);
	}
	bool told = !lost && !fenced && !(flawed && world_chance(world, 10000));
	world_after(world, world_delay(world, world->plan.kafka_us / 2), call_answers, producer,
	    told ? COMMITTED_NOW : BROKEN);
}

void kafka_owner_wrote(struct world *world, int owner)
{
	for (int id = 0; id < TRANSACTIONAL_IDS; id++) {
		struct wire_producer *fencer = world->kafka.fencers[id];
		if (fencer && fencer->owner == owner)
			fencer->stale = false;
	}
}

/*
 * Now and then the coordinator is being elected, and the call waits for it, while the owner may
 * lose the shard and not know.
 */
static int64_t call_delay(struct world *world, struct process *process, bool fences)
{
	int64_t lease_us = world->plan.stream.lease_ms * MS;
	bool late = world->plan.rivals && world_has_faults(world);
	bool jumped = world->now - world->cut_off_us < lease_us;
	if (!late || !world_chance(world, !fences ? 50000 : jumped ? 700000 : 400000))
		return world_delay(world, world->plan.kafka_us);
	int64_t delay = world_between(world, lease_us / 3, lease_us);
	world->result.late_calls++;
	if (fences && world_chance(world, 700000))
		relay_cut_off(
		    world, process, delay - world_between(world, lease_us / 4, lease_us / 3));
	return delay;
}

void producer_fence(struct world *world, struct wire_producer *producer)
{
	for (int id = 0; id < TRANSACTIONAL_IDS; id++)
		world_after(
		    world, call_delay(world, producer->process, true), fence_arrives, producer, id);
}

/* The commit of the open transaction is about to go out; records go to the other id. */
void producer_turns(struct wire_producer *producer)
{
	producer->turn = 1 - producer->turn;
}

void producer_commit(struct world *world, struct wire_producer *producer)
{
	world_after(world, call_delay(world, producer->process, false), commit_arrives, producer,
	    1 - producer->turn);
}

/* --- tails -------------------------------------------------------------------------------------
 */

/* The end for readers of committed records. */
static int64_t first_open(const struct partition *partition)
{
	int64_t offset = partition->stable;
	while (offset < partition->end_offset && !partition->records[offset].open)
		offset++;
	return offset;
}

struct tail_reading {
	struct process *process;
	int owner, topic, partition;
	uint64_t number;
	int64_t end; /* where the partition ended at the first look; -1: there was none */
};

static void tail_answers(struct world *world, void *object, int64_t number)
{
	struct tail_reading *reading = object;
	struct process *process = reading->process;
	struct tail_question *question = &process->tails[reading->topic][reading->partition];
	const struct topic_of_kafka *topic = &world->kafka.topics[reading->topic];
	const struct partition *partition = &topic->partitions[reading->partition];
	if (!process->running || process->owner != reading->owner ||
	    question->number != reading->number)
		return;
	bool away = world->now < partition->down_until || !topic->exists;
	if (!away && reading->end < 0)
		reading->end = partition->end_offset;
	/* transactions that began before that are waited for */
	if (away || first_open(partition) < reading->end) {
		world_after(world, world_delay(world, 50 * MS), tail_answers, object, number);
		return;
	}
	question->end = reading->end;
	question->next = question->offset == STREAM_TAIL_END ? question->end : question->offset;
	question->read_us = world->now;
	process->tails_answered++;
	relay_wake(world, process);
}

void kafka_read_tail(struct world *world, struct process *process, int topic, int partition)
{
	struct tail_reading *reading = world_allocate(world, sizeof *reading);
	*reading = (struct tail_reading){
	    process, process->owner, topic, partition, process->tails[topic][partition].number, -1};
	world_after(world, world_delay(world, 2 * world->plan.kafka_us), tail_answers, reading, 0);
}

/* --- topics and faults ------------------------------------------------------------------------ */

/* Brokers tell an older state for a while; with faults, a topic is not found now and then. */
int32_t kafka_count(struct world *world, int index)
{
	const struct topic_of_kafka *topic = &world->kafka.topics[index];
	bool flickers = world_has_faults(world) && world->plan.kafka_faults;
	if (!topic->exists || (flickers && world_chance(world, 20000)))
		return 0;
	if (world->now - topic->changed_us < 500 * MS && world_chance(world, 500000))
		return topic->count_before;
	return topic->count;
}

void kafka_break(struct world *world)
{
	struct process *process = &world->processes[world_below(world, world->plan.processes)];
	if (!process->running || !process->producer || process->producer->fatal)
		return;
	struct sender *sender;
	for (int i = 0; (sender = sender_at(process->producer, i)); i++)
		if (sender->batch_count && world_chance(world, 600000))
			sender_breaks(world, sender);
}

void kafka_outage(struct world *world)
{
	int64_t until = world->now + world_delay(world, 300 * MS);
	bool all = world_chance(world, 400000);
	world_trace(world, "brokers away for %lld ms", (long long)(until - world->now) / MS);
	for (int t = 0; t < TOPICS; t++)
		for (int p = 0; p < PARTITIONS; p++)
			if (all || world_chance(world, 500000))
				world->kafka.topics[t].partitions[p].down_until = until;
}

/* One partition, or a whole topic, whose brokers may say that it is the topic. */
void kafka_sickness(struct world *world)
{
	struct topic_of_kafka *topic = &world->kafka.topics[world_below(world, world->plan.topics)];
	int64_t until = world->now + world_delay(world, 2000 * MS);
	bool all = world_chance(world, 500000), as_topic = all && world_chance(world, 500000);
	int chosen = (int)world_below(world, topic->count);
	world_trace(world, "%s sick for %lld ms", all ? "a topic is" : "a partition is",
	    (long long)(until - world->now) / MS);
	for (int p = 0; p < PARTITIONS; p++) {
		if (!all && p != chosen)
			continue;
		topic->partitions[p].sick_until = until;
		topic->partitions[p].sick_as_topic = as_topic;
	}
}

void kafka_end_faults(struct world *world)
{
	for (int t = 0; t < TOPICS; t++) {
		world->kafka.topics[t].exists = true;
		for (int p = 0; p < PARTITIONS; p++)
			world->kafka.topics[t].partitions[p].down_until =
			    world->kafka.topics[t].partitions[p].sick_until = 0;
	}
}

static void topic_appears(struct world *world, void *object, int64_t number)
{
	struct topic_of_kafka *topic = object;
	(void)number;
	topic->exists = true;
	world_trace(world, "a topic appears");
}

static void topic_grows(struct world *world, void *object, int64_t number)
{
	struct topic_of_kafka *topic = object;
	(void)number;
	if (topic->count >= PARTITIONS)
		return;
	topic->count_before = topic->count;
	topic->count += (int32_t)world_between(
	    world, 1, PARTITIONS - topic->count < 2 ? PARTITIONS - topic->count : 2);
	topic->changed_us = world->now;
	world_trace(world, "a topic has %d partitions now", topic->count);
}

void kafka_start(struct world *world)
{
	const struct plan *plan = &world->plan;
	for (int t = 0; t < TOPICS; t++) {
		struct topic_of_kafka *topic = &world->kafka.topics[t];
		topic->count = topic->count_before = (int32_t)world_between(world, 1, 4);
		topic->changed_us = -1000 * MS;
		topic->exists = !plan->late_topics || world_chance(world, 500000);
		if (!topic->exists)
			world_after(
			    world, world_below(world, plan->end_us), topic_appears, topic, 0);
		for (int i = 0; plan->growing_topics && i < 2; i++)
			world_after(world, world_below(world, plan->end_us), topic_grows, topic, 0);
	}
}
