/* The world of the simulator: its clock, its dice, its faults, and the verdict. */
#include "simulator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulator_world.h"

enum { CHUNK = 1 << 18, LONGEST_DRAIN_US = 120 * 1000 * MS, MOST_EVENTS = 5000000 };

const char *const topic_names[TOPICS] = {"orders", "order.events", "stock"};

/* --- memory, dice, time ---------------------------------------------------------------------- */

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(16) char bytes[];
};

void *world_allocate(struct world *world, size_t size)
{
	size = (size + 15) & ~(size_t)15;
	struct chunk *chunk = world->chunks;
	if (!chunk || chunk->used + size > chunk->size) {
		size_t room = size > CHUNK ? size : CHUNK;
		chunk = xmalloc(sizeof *chunk + room);
		*chunk = (struct chunk){.next = world->chunks, .size = room};
		world->chunks = chunk;
	}
	char *memory = chunk->bytes + chunk->used;
	chunk->used += size;
	return memset(memory, 0, size);
}

void *world_grow(struct world *world, void *array, int64_t *capacity, int64_t needed, size_t size)
{
	if (needed <= *capacity)
		return array;
	int64_t grown = needed < 16 ? 16 : needed * 2;
	void *larger = world_allocate(world, (size_t)grown * size);
	if (*capacity)
		memcpy(larger, array, (size_t)*capacity * size);
	*capacity = grown;
	return larger;
}

/* splitmix64 */
static uint64_t roll(struct world *world)
{
	uint64_t z = (world->random += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

int64_t world_below(struct world *world, int64_t limit)
{
	return limit > 0 ? (int64_t)(roll(world) % (uint64_t)limit) : 0;
}

int64_t world_between(struct world *world, int64_t low, int64_t high)
{
	return low + world_below(world, high - low + 1);
}

bool world_chance(struct world *world, int64_t per_million)
{
	return world_below(world, 1000000) < per_million;
}

int64_t world_delay(struct world *world, int64_t typical)
{
	int64_t luck = world_below(world, 1000);
	int64_t most = luck < 5 ? 40 * typical : luck < 60 ? 6 * typical : 2 * typical;
	return 1 + world_below(world, most);
}

bool world_has_faults(const struct world *world)
{
	return world->phase == BUSY && !world->options.without_faults;
}

struct event {
	int64_t at;
	uint64_t order;
	event_function *run;
	void *object;
	int64_t number;
};

static bool is_earlier(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void world_after(
    struct world *world, int64_t delay, event_function *run, void *object, int64_t number)
{
	if (world->event_count == world->event_capacity) {
		world->event_capacity = world->event_capacity ? world->event_capacity * 2 : 256;
		world->events =
		    xrealloc(world->events, world->event_capacity * sizeof *world->events);
	}
	struct event event = {world->now + delay, world->event_order++, run, object, number};
	size_t at = world->event_count++;
	while (at > 0 && is_earlier(&event, &world->events[(at - 1) / 2])) {
		world->events[at] = world->events[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	world->events[at] = event;
}

static struct event next_event(struct world *world)
{
	struct event *events = world->events;
	struct event first = events[0], last = events[--world->event_count];
	size_t at = 0, child;
	while ((child = 2 * at + 1) < world->event_count) {
		if (child + 1 < world->event_count &&
		    is_earlier(&events[child + 1], &events[child]))
			child++;
		if (!is_earlier(&events[child], &last))
			break;
		events[at] = events[child];
		at = child;
	}
	events[at] = last;
	return first;
}

void world_trace(struct world *world, const char *format, ...)
{
	va_list arguments;
	if (!world->options.trace)
		return;
	fprintf(stderr, "%10.3f ms  ", (double)world->now / MS);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

void world_fail(struct world *world, const char *format, ...)
{
	va_list arguments;
	char *text = world->result.failure;
	if (*text)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof world->result.failure, format, arguments);
	va_end(arguments);
	world_trace(world, "FAILURE: %s", text);
}

/* --- what a seed is ----------------------------------------------------------------------------
 */

static int64_t pick(struct world *world, const int64_t *values, size_t count)
{
	return values[world_below(world, (int64_t)count)];
}
#define PICK(world, ...)                                                                           \
	pick(world, (const int64_t[]){__VA_ARGS__},                                                \
	    sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void plan_settings(struct world *world, struct stream_settings *stream)
{
	stream->max_in_flight = PICK(world, 1, 2, 5, 20, 100, 1000);
	stream->memory = PICK(world, 65536, 65536, 262144, 4194304);
	stream->tail_memory = PICK(world, 0, 100, 400, 1500);
	stream->lease_ms = PICK(world, 300, 1000, 3000);
	stream->poll_busy_ms = world_between(world, 0, 3);
	stream->poll_idle_ms = world_between(world, 10, 100);
	stream->ack_interval_ms = world_between(world, 5, 300);
	stream->stall_after_ms = PICK(world, 400, 1500, 5000);
	stream->topic_idle_ms = PICK(world, 0, 40, 300);
	stream->transactions = world_chance(world, 250000);
	stream->resumes = stream->transactions || world_chance(world, 750000);
}

static enum stream_policy policy_of(const void *context, const char *topic)
{
	const struct plan *plan = context;
	(void)topic;
	return plan->stops ? STREAM_STOP : STREAM_BLOCK;
}

static void plan_parking(struct world *world, struct plan *plan)
{
	plan->stops = world_chance(world, 300000);
	plan->digests = PICK(world, 1, 4, 1000003);
	plan->stream.parking = (struct stream_parking){
	    .retry_first_ms = PICK(world, 5, 50),
	    .retry_max_ms = PICK(world, 100, 1000),
	    .max_attempts = 1000000,
	    .batch = PICK(world, 1, 3, 500),
	    .lookups = PICK(world, 1, 3, 500),
	    .page = PICK(world, 1, 3, 5000),
	    .keys = PICK(world, 1, 3, 1024),
	    .digest = digest_of_key,
	    .policy = policy_of,
	    .context = plan,
	};
}

/* Owners that do not know of each other: what they may do then is for exactly-once to say. */
static void plan_rivals(struct world *world, struct plan *plan)
{
	plan->rivals = plan->stream.transactions = plan->stream.resumes = true;
	plan->killers = 0;
	plan->killed_all_the_time = world->had_killers = false;
	plan->processes = (int)world_between(world, 2, PROCESSES);
	plan->stream.lease_ms = PICK(world, 600, 1000, 2000);
	plan->kafka_faults = true;
	plan->late_topics = plan->growing_topics = false;
	/* rows wait, so that an owner which hears nothing of the log goes on sending */
	plan->stream.max_in_flight = PICK(world, 20, 100, 1000);
	plan->think_us = PICK(world, 10 * MS, 30 * MS);
	plan->writers = (int)world_between(world, 2, 3);
	plan->kafka_us = PICK(world, 3 * MS, 20 * MS);
	plan->batch_records = (int)PICK(world, 1, 4);
	plan->requests = 1;
	plan->end_us = world_between(world, 1500 * MS, 2500 * MS);
}

/* Messages so rare that the relay sleeps between them, and nothing else that makes them wait. */
static void plan_bell_alone(struct world *world, struct plan *plan)
{
	world->options.without_faults = true;
	plan->bell = plan->bell_alone = true;
	plan->bell_faults = world_chance(world, 500000);
	plan->silent = world_chance(world, 300000);
	plan->processes = (int)world_between(world, 1, 2);
	plan->writers = (int)world_between(world, 1, 4);
	plan->database_us = plan->kafka_us = 300;
	plan->think_us = PICK(world, 50 * MS, 200 * MS, 600 * MS);
	plan->end_us = world_between(world, 3000 * MS, 9000 * MS);
	plan->stream.max_in_flight = 1000;
	plan->stream.memory = 10 << 20;
	plan->requests = 5;
	plan->long_transaction = false;
	plan->late_topics = plan->growing_topics = plan->operators = plan->schedules = false;
	plan->stops = plan->locks = plan->failovers = false;
}

static void plan_world(struct world *world)
{
	struct plan *plan = &world->plan;
	plan_settings(world, &plan->stream);
	plan_parking(world, plan);
	plan->processes = (int)world_between(world, 1, PROCESSES);
	plan->topics = (int)world_between(world, 1, TOPICS);
	plan->keys = (int)world_between(world, 1, KEYS);
	plan->writers = (int)world_between(world, 2, WRITERS);
	plan->database_us = PICK(world, 300, 2 * MS, 8 * MS);
	plan->kafka_us = PICK(world, 500, 3 * MS, 20 * MS);
	plan->think_us = PICK(world, 5 * MS, 30 * MS, 100 * MS);
	plan->end_us = world_between(world, 300 * MS, 2500 * MS);
	plan->far_xids = PICK(world, 3, 30, 10000);
	plan->row_bytes = (int)PICK(world, 100, 1000, 20000);
	plan->batch_records = (int)PICK(world, 1, 4, 20);
	plan->requests = (int)world_between(world, 1, 5);
	plan->queue_records = (int)PICK(world, 30, 1000000, 1000000);
	plan->database_faults = world_chance(world, 600000);
	plan->kafka_faults = world_chance(world, 600000);
	plan->process_faults = world_chance(world, 600000);
	plan->locks = plan->database_faults && world_chance(world, 400000);
	plan->failovers = plan->database_faults && world_chance(world, 300000);
	plan->poison = world_chance(world, 250000);
	plan->schedules = world_chance(world, 300000);
	plan->killers = world_chance(world, 150000) ? (int)world_between(world, 1, 2) : 0;
	plan->killed_all_the_time = world_chance(world, 50000);
	world->had_killers = plan->killers > 0;
	plan->bell = world_chance(world, 400000);
	plan->bell_faults = plan->bell && world_chance(world, 500000);
	plan->silent = plan->bell && world_chance(world, 300000);
	plan->late_topics = world_chance(world, 200000);
	plan->growing_topics = world_chance(world, 250000);
	plan->operators = world_chance(world, 300000);
	plan->long_transaction = world_chance(world, 400000);
	bool alone = world->options.bell_alone || world_chance(world, 100000);
	if (alone)
		plan_bell_alone(world, plan);
	else if (world_chance(world, 200000))
		plan_rivals(world, plan);
	else if (world_chance(world, 150000))
		world->options.without_faults = true;
	if (!world->options.without_faults)
		return;
	/* slow is no fault: nothing may come near these */
	plan->stream.lease_ms = plan->stream.stall_after_ms = 60000;
	plan->queue_records = 1000000;
	plan->poison = plan->late_topics = plan->killed_all_the_time = false;
	plan->killers = 0;
}

/* --- faults --------------------------------------------------------------------------------------
 */

/* Waits a little for a statement to be under way: what became of it is the question. */
static void break_log(struct world *world, void *object, int64_t tries)
{
	struct process *process = object;
	if (!process->running || !process->log.up || world->phase != BUSY)
		return;
	if (process->log.under_way || tries == 0)
		session_break(world, &process->log);
	else
		world_after(world, world_below(world, 500), break_log, process, tries - 1);
}

static void database_fault(struct world *world, struct process *process)
{
	int64_t luck = world_below(world, 100);
	if (luck < 40)
		break_log(world, process, 100);
	else if (luck < 80 && process->running && process->read.up)
		session_break(world, &process->read);
	else if (luck < 90)
		database_restart(world);
	else if (world->plan.failovers)
		database_fail_over(world);
}

static void kafka_fault(struct world *world, struct process *process)
{
	int64_t luck = world_below(world, 100);
	if (luck < 60)
		kafka_break(world);
	else if (luck < 75)
		kafka_outage(world);
	else if (luck < 85)
		kafka_sickness(world);
	else if (process->running && process->producer)
		producer_spoil(process->producer);
}

static void process_fault(struct world *world, struct process *process)
{
	int64_t luck = world_below(world, 100);
	if (luck < 40)
		relay_kill(world, process);
	else if (luck < 80)
		relay_pause(
		    world, process, world_between(world, MS, 3 * world->plan.stream.lease_ms * MS));
	else if (!relay_is_paused(world, process))
		relay_stop(world, process);
}

static void fault_falls(struct world *world, void *object, int64_t number)
{
	const struct plan *plan = &world->plan;
	struct process *process = &world->processes[world_below(world, plan->processes)];
	(void)object;
	(void)number;
	if (world->phase != BUSY)
		return;
	world_after(world, world_between(world, 1 * MS, 500 * MS), fault_falls, NULL, 0);
	if (plan->killed_all_the_time)
		relay_kill(world, process);
	if (plan->bell_alone)
		return;
	if (world->options.without_faults) {
		if (world_chance(world, 600000))
			relay_stop(world, process);
		return;
	}
	int64_t kind = world_below(world, 3), lease_us = plan->stream.lease_ms * MS;
	if (plan->rivals && world_chance(world, 100000))
		database_clock_jumps(world, world_between(world, -2 * lease_us, 2 * lease_us));
	else if (plan->rivals && world_chance(world, 300000))
		relay_cut_off_owner(world);
	if (kind == 0 && plan->database_faults)
		database_fault(world, process);
	else if (kind == 1 && plan->kafka_faults)
		kafka_fault(world, process);
	else if (kind == 2 && plan->process_faults)
		process_fault(world, process);
}

/* An operator pauses the publisher for a while. It is not paused when the faults end. */
static void operator_pauses(struct world *world, void *object, int64_t pauses)
{
	(void)object;
	world->database.publisher_paused = pauses && world->phase == BUSY;
	world->bell_disturbed_us = world->now; /* messages wait for the end of the pause */
	world_trace(world, "the publisher is %s", pauses ? "paused" : "resumed");
	world->result.publisher_pauses += world->database.publisher_paused;
	if (world->phase == BUSY || pauses)
		world_after(world, world_between(world, 10 * MS, 3000 * MS), operator_pauses, NULL,
		    !pauses);
}

/* An operator pauses some topics, and resumes others. None is paused when the faults end. */
static void operator_pauses_topics(struct world *world, void *object, int64_t number)
{
	unsigned before = world->database.paused_topics;

	world->database.paused_topics = world->phase == BUSY && number % 2 == 0
					    ? (unsigned)world_between(world, 1, (1 << TOPICS) - 1)
					    : 0;
	world->database.once_paused |= world->database.paused_topics;
	world->bell_disturbed_us = world->now; /* messages wait for the end of the pause */
	world_trace(
	    world, "topics %x are paused, before %x", world->database.paused_topics, before);
	world->result.topic_pauses += (world->database.paused_topics & ~before) != 0;
	if (world->phase == BUSY || world->database.paused_topics)
		world_after(world, world_between(world, 10 * MS, 1000 * MS), operator_pauses_topics,
		    object, world_below(world, 3));
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void enter(struct world *world, enum phase phase)
{
	static const char *const names[] = {"busy", "draining", "healed", "stopping", "done"};
	world->phase = phase;
	world->phase_us = world->now;
	world_trace(world, "--- %s, %lld of %lld rows published", names[phase],
	    (long long)world->published, (long long)world->committed);
}

static bool writers_are_done(const struct world *world)
{
	const struct database *database = &world->database;
	for (int i = 0; i < world->plan.writers; i++)
		if (database->writers[i].transaction &&
		    &database->writers[i] != database->long_writer)
			return false;
	return true;
}

static const struct row *first_unpublished(const struct world *world)
{
	for (int64_t i = 0; i < world->database.history_count; i++)
		if (!world->database.history[i]->occurrences)
			return world->database.history[i];
	return NULL;
}

static bool comes_before(int64_t tick, int64_t id, int64_t other_tick, int64_t other_id)
{
	return tick < other_tick || (tick == other_tick && id < other_id);
}

/* A refused row stops what comes behind it and nothing before it. */
static bool is_published_up_to_refused(const struct world *world)
{
	const struct database *database = &world->database;
	int64_t stop_tick = 0, stop_id = 0;
	bool shown = false;
	for (int i = 0; i < world->plan.processes; i++)
		shown |= world->processes[i].running && world->processes[i].shows_refusal;
	if (!shown)
		return false;
	for (int64_t i = 0; i < database->history_count; i++) {
		const struct row *row = database->history[i];
		int64_t tick = row->refused || row->unsendable || row->kills
				   ? database_tick_of(world, row)
				   : 0;
		if (tick && (!stop_tick || comes_before(tick, row->id, stop_tick, stop_id))) {
			stop_tick = tick;
			stop_id = row->id;
		}
	}
	for (int64_t i = 0; i < database->history_count; i++) {
		const struct row *row = database->history[i];
		int64_t tick = row->occurrences || row->deliver_us || row_is_parked(world, row)
				   ? 0
				   : database_tick_of(world, row);
		if (tick && comes_before(tick, row->id, stop_tick, stop_id))
			return false;
	}
	return true;
}

static bool is_drained(const struct world *world)
{
	if (!writers_are_done(world) || !world->database.up)
		return false;
	if (world->plan.stops && is_published_up_to_refused(world))
		return true;
	/* Of a topic that was paused, rows that are refused are parked, whatever the policy. */
	for (int64_t i = 0; i < world->database.history_count; i++) {
		const struct row *row = world->database.history[i];
		if (!row->occurrences && !row_is_parked(world, row))
			return false;
	}
	return true;
}

static void restart_refused(struct world *world)
{
	for (int i = 0; i < world->plan.processes; i++)
		if (world->processes[i].running && world->processes[i].shows_refusal)
			relay_kill(world, &world->processes[i]);
}

/* The cause of the refusals is mended. */
static void heal(struct world *world)
{
	struct database *database = &world->database;
	for (int64_t id = 0; id < database->row_capacity; id++) {
		struct row *row = database->rows[id];
		if (!row)
			continue;
		row->mended = row->refused || row->unsendable;
		row->refused = row->unsendable = false;
		row->kills = HARMLESS;
	}
	database_end_long_transaction(world);
}

static bool owner_has_caught_up(const struct world *world)
{
	for (int i = 0; i < world->plan.processes; i++) {
		const struct process *process = &world->processes[i];
		if (process->running && process->was_caught_up &&
		    process->looked_us > world->phase_us &&
		    process->owner == world->database.newest->owner)
			return true;
	}
	return false;
}

static bool all_have_stopped(const struct world *world)
{
	for (int i = 0; i < world->plan.processes; i++)
		if (world->processes[i].running)
			return false;
	return true;
}

static void check_log(struct world *world)
{
	const struct database *database = &world->database;
	const struct log_row *newest = database->newest;
	if (newest->tick_count != 1)
		world_fail(world, "%d windows are open in the end", newest->tick_count - 1);
	if (newest->lease_until > database_clock_us(world))
		world_fail(world, "the lease was not released");
	if (newest->parked_count || newest->listed_tick)
		world_fail(world, "%d rows are parked in the end", newest->parked_count);
	for (int64_t i = 0; i < database->history_count; i++)
		if (!snapshot_sees(newest->ticks[0], database->history[i]->transaction->xid))
			world_fail(world, "row %lld is not covered by the log in the end",
			    (long long)database->history[i]->id);
}

static void check_duplicates(struct world *world)
{
	struct simulator_result *result = &world->result;
	int64_t most = stream_most_uncovered(&world->plan.stream);
	int64_t bound = result->disturbances * most;
	/* a failover may take back from where a partition is to be read; a key that moves is not
	 * found */
	if (world->plan.stream.transactions && !world->plan.failovers &&
	    !world->plan.growing_topics)
		bound = 0;
	if (result->duplicates > bound)
		world_fail(world, "%lld duplicates, %lld disturbances of %lld in flight",
		    (long long)result->duplicates, (long long)result->disturbances,
		    (long long)most);
	/* what an owner that leaves had begun may fence the next one */
	bool excused = world->excused || world->plan.stream.transactions;
	if (world->options.without_faults && result->disturbances && !excused)
		world_fail(
		    world, "%lld disturbances without a fault", (long long)result->disturbances);
}

static void give_up_late(struct world *world)
{
	const struct row *row = first_unpublished(world);
	/* each death costs a lease, and where few may be in flight each life moves on by few rows
	 */
	int64_t longest = world->had_killers ? 10 * LONGEST_DRAIN_US : LONGEST_DRAIN_US;
	if (world->now - world->phase_us < longest)
		return;
	for (int i = 0; i < world->plan.processes; i++)
		if (world->processes[i].running)
			relay_trace(world, &world->processes[i]);
	world_fail(world,
	    "phase %d lasts too long: %lld of %lld rows published; row %lld of key %d is not",
	    world->phase, (long long)world->published, (long long)world->committed,
	    row ? (long long)row->id : 0, row ? row->key : 0);
}

static void look(struct world *world, void *object, int64_t number)
{
	(void)object;
	(void)number;
	world_after(world, 20 * MS, look, NULL, 0);
	switch (world->phase) {
	case BUSY:
		if (world->now < world->plan.end_us)
			return;
		kafka_end_faults(world);
		enter(world, DRAINING);
		break;
	case DRAINING:
		if (is_drained(world)) {
			enter(world, HEALED);
			heal(world);
		}
		break;
	case HEALED:
		restart_refused(world);
		if (world->published == world->committed && owner_has_caught_up(world) &&
		    !world->database.newest->parked_count) {
			enter(world, STOPPING);
			for (int i = 0; i < world->plan.processes; i++)
				relay_stop(world, &world->processes[i]);
		}
		break;
	case STOPPING:
		if (all_have_stopped(world)) {
			check_log(world);
			enter(world, DONE);
		}
		break;
	case DONE:
		break;
	}
	give_up_late(world);
}

static void world_finish(struct world *world)
{
	for (int i = 0; i < PROCESSES; i++) {
		stream_destroy(world->processes[i].stream);
		bell_destroy(world->processes[i].bell);
	}
	while (world->chunks) {
		struct chunk *chunk = world->chunks;
		world->chunks = chunk->next;
		free(chunk);
	}
	free(world->events);
}

struct simulator_result simulator_run(const struct simulator_options *options)
{
	struct world *world = xcalloc(1, sizeof *world);
	world->options = *options;
	world->random = options->seed;
	world->failover_us = world->database.jumped_us = world->cut_off_us =
	    world->bell_disturbed_us = -3600 * 1000LL * MS;
	plan_world(world);
	database_start(world);
	kafka_start(world);
	relay_start(world);
	bell_start(world);
	look(world, NULL, 0);
	fault_falls(world, NULL, 0);
	if (options->seed % 4 == 0 && !world->plan.bell_alone)
		world_after(
		    world, world_between(world, 10 * MS, 3000 * MS), operator_pauses, NULL, true);
	if (options->seed % 3 == 0 && !world->plan.bell_alone)
		world_after(world, world_between(world, 10 * MS, 500 * MS), operator_pauses_topics,
		    NULL, 0);
	while (world->phase != DONE && !world->result.failure[0]) {
		struct event event = next_event(world);
		world->now = event.at;
		event.run(world, event.object, event.number);
		if (world->event_order > MOST_EVENTS)
			world_fail(world, "it never ends");
	}
	check_duplicates(world);
	struct simulator_result result = world->result;
	result.rows = world->committed;
	result.passed = !result.failure[0];
	world_finish(world);
	free(world);
	return result;
}
