/*
 * The doorbell of the simulator: the locks and the trigger of sql/migrations/0017_bell.sql, tested
 * one after the other as the trigger does it; and for each process a session that drives the real
 * core (bell.h) as outbox/publish/io/doorbell.c does.
 *
 * A transaction ends as in PostgreSQL: its rows become visible, then its locks are freed, then its
 * notification is sent; other things happen between these steps. In a plan with `bell_alone` no
 * other fault falls, and each row must be published soon, or within the poll of a sleeping shard if
 * nobody could ring for it (bell_check_wait).
 */
#include "simulator_world.h"

enum {
	STEP_US = 60,       /* between two steps of a trigger, or of the end of a transaction */
	SOON_US = 450 * MS, /* a row that was rung for, or that was written beside an awake relay */
	LATEST_US = 1300 * MS,    /* any row: BELL_POLL_MS, the poll and the way to Kafka */
	DEAF_US = 40 * MS,        /* of BELL_DEAF_AFTER_LOCK */
	DISTURBED_US = 2500 * MS, /* a lost ring or session concerns rows of so long */
};

static int64_t bell_now_ms(const struct world *world)
{
	return world->now / MS;
}

/* --- the locks ------------------------------------------------------------------------------- */

static bool test_bell(struct world *world, struct transaction *transaction)
{
	struct bell_locks *locks = &world->database.bell;

	if (locks->exclusive)
		return false;
	if (!transaction->holds_bell)
		locks->shared++;
	transaction->holds_bell = true;
	if (world->options.bell == BELL_TESTED_BRIEFLY) {
		locks->shared--;
		transaction->holds_bell = false;
	}
	return true;
}

static bool test_ring(struct world *world, struct transaction *transaction)
{
	struct bell_locks *locks = &world->database.bell;

	if (locks->ringer && locks->ringer != transaction)
		return false;
	locks->ringer = transaction;
	transaction->left = false;
	return true;
}

static void mark_left(struct world *world, struct transaction *transaction)
{
	transaction->left = true;
	transaction->left_us = world->now;
	if (transaction->holds_mark || world->options.bell == BELL_WITHOUT_MARKS)
		return;
	transaction->holds_mark = true;
	world->database.bell.marks++;
}

/* One step of the trigger; true: it is over. */
bool bell_trigger(struct world *world, struct transaction *transaction, int step)
{
	if (transaction->silent)
		return true;

	switch (step) {
	case 0:
	case 3:
		return test_bell(world, transaction);
	case 1:
		return test_ring(world, transaction);
	case 2:
		mark_left(world, transaction);
		return false;
	default:
		test_ring(world, transaction);
		return true;
	}
}

static void free_locks(struct world *world, struct transaction *transaction)
{
	struct bell_locks *locks = &world->database.bell;

	locks->shared -= transaction->holds_bell;
	locks->marks -= transaction->holds_mark;
	transaction->holds_bell = transaction->holds_mark = false;
	if (locks->ringer == transaction)
		locks->ringer = NULL;
}

/* --- rings ----------------------------------------------------------------------------------- */

/* Something that only the poll of a sleeping shard makes good. */
static void note_disturbance(struct world *world, const char *what)
{
	world->bell_disturbed_us = world->now;
	world_trace(world, "bell: %s", what);
}

static void ring_arrives(struct world *world, void *object, int64_t generation)
{
	struct process *process = object;
	struct bell_session *session = &process->bell_session;

	if (!process->running || session->generation != generation)
		return;
	session->rings++;
	relay_wake(world, process);
}

static void send_ring(struct world *world)
{
	if (world->plan.bell_faults && world_chance(world, 60000)) {
		note_disturbance(world, "a ring is lost");
		return;
	}
	for (int i = 0; i < world->plan.processes; i++) {
		struct process *process = &world->processes[i];
		if (process->running && process->bell_session.listens)
			world_after(world, world_delay(world, STEP_US), ring_arrives, process,
			    process->bell_session.generation);
	}
}

static void ring_is_sent(struct world *world, void *object, int64_t generation)
{
	(void)object;
	if (generation == world->database.generation)
		send_ring(world);
}

static void locks_are_freed(struct world *world, void *object, int64_t generation)
{
	struct transaction *transaction = object;
	bool rings = world->database.bell.ringer == transaction;

	if (generation != world->database.generation)
		return;
	free_locks(world, transaction);
	if (rings && transaction->state == COMMITTED)
		world_after(
		    world, world_delay(world, STEP_US), ring_is_sent, transaction, generation);
	else if (rings)
		note_disturbance(world, "a ringer rolled back");
}

static bool is_distrusted(const struct world *world)
{
	for (int i = 0; i < world->plan.processes; i++)
		if (world->processes[i].running &&
		    world->processes[i].bell_before.state == BELL_DISTRUST)
			return true;
	return false;
}

/* The rows are visible already, or gone. */
void bell_transaction_ends(struct world *world, struct transaction *transaction)
{
	const struct transaction *ringer = world->database.bell.ringer;
	if (!world->plan.bell)
		return;

	/*
	 * Those who left the ring wait for the ringer, or for nobody if it rolled back or its ring
	 * was lost. After a miss the relay polls.
	 */
	bool waits = ringer || transaction->left_us <= world->bell_disturbed_us;
	transaction->rang = ringer == transaction;
	transaction->excused =
	    (transaction->silent && !is_distrusted(world)) || (transaction->left && waits);
	if (transaction->silent || transaction->excused)
		note_disturbance(world, "nobody rings for a transaction yet");
	world_after(world, world_delay(world, STEP_US), locks_are_freed, transaction,
	    world->database.generation);
}

/* --- a stranger ------------------------------------------------------------------------------ */

/* Another process sleeps, or somebody else uses the lock. */
static void stranger_locks(struct world *world, void *object, int64_t number)
{
	struct bell_locks *locks = &world->database.bell;
	(void)object;

	if (world->phase != BUSY)
		number = 1;
	if (number == 1 && locks->exclusive == world) {
		locks->exclusive = NULL;
		world_trace(world, "bell: the stranger leaves");
	} else if (number == 0 && !locks->exclusive && !locks->shared && world->database.up) {
		locks->exclusive = world;
		world_trace(world, "bell: a stranger has the lock");
	}
	if (world->phase == BUSY)
		world_after(
		    world, world_between(world, 20 * MS, 1500 * MS), stranger_locks, NULL, !number);
}

/* --- the session of a process ---------------------------------------------------------------- */

static void server_frees_bell(struct world *world, void *object, int64_t generation)
{
	struct process *process = object;

	if (world->database.bell.exclusive == process &&
	    world->database.bell.exclusive_generation == generation)
		world->database.bell.exclusive = NULL;
}

/* The server has lost the session, and frees its lock now or later; the process hears of it later.
 */
static void lose_session(struct world *world, struct process *process)
{
	struct bell_session *session = &process->bell_session;

	server_frees_bell(world, process, session->generation);
	session->listens = false;
	session->lost = true;
	session->generation++;
	session->rings = 0;
	session->call = BELL_NOTHING;
}

static void session_is_noticed(struct world *world, void *object, int64_t generation)
{
	struct process *process = object;
	struct bell_session *session = &process->bell_session;

	if (!process->running || session->generation != generation || !session->lost)
		return;
	note_disturbance(world, "a lost session is noticed");
	session->lost = session->connected = false;
	bell_session_lost(process->bell, bell_now_ms(world));
	relay_wake(world, process);
}

static void session_breaks(struct world *world, void *object, int64_t number)
{
	struct process *process = &world->processes[world_below(world, world->plan.processes)];
	(void)object;
	(void)number;

	if (world->phase != BUSY)
		return;
	world_after(world, world_between(world, 100 * MS, 4000 * MS), session_breaks, NULL, 0);
	if (!process->running || !process->bell_session.listens)
		return;
	note_disturbance(world, "a session is lost");
	lose_session(world, process);
	world_after(world, world_between(world, 0, 800 * MS), session_is_noticed, process,
	    process->bell_session.generation);
}

/* Everybody is disconnected. */
void bell_server_ends(struct world *world)
{
	world->database.bell = (struct bell_locks){0};
	for (int i = 0; i < world->plan.processes; i++) {
		struct process *process = &world->processes[i];
		if (!process->running || !process->bell_session.connected)
			continue;
		lose_session(world, process);
		world_after(world, world_delay(world, 2 * MS), session_is_noticed, process,
		    process->bell_session.generation);
	}
}

static void session_listens(struct world *world, void *object, int64_t generation)
{
	struct process *process = object;
	struct bell_session *session = &process->bell_session;

	if (!process->running || session->generation != generation || session->lost)
		return;
	if (!world->database.up) {
		world_after(world, 30 * MS, session_listens, process, session->generation);
		return;
	}
	session->listens = true;
	bell_session_ready(process->bell, bell_now_ms(world));
	relay_wake(world, process);
}

static void open_or_close_session(struct world *world, struct process *process)
{
	struct bell_session *session = &process->bell_session;
	bool wanted = bell_wants_session(process->bell);

	if (wanted && !session->connected && !session->lost) {
		session->connected = true;
		world_after(world, world_delay(world, 2 * MS), session_listens, process,
		    session->generation);
	}
	if (!wanted && session->connected) {
		lose_session(world, process);
		session->lost = session->connected = false;
		bell_session_lost(process->bell, bell_now_ms(world));
	}
}

/* --- its calls ------------------------------------------------------------------------------- */

static void bell_call_answered(struct world *world, void *object, int64_t generation)
{
	struct process *process = object;
	struct bell_session *session = &process->bell_session;

	if (!process->running || session->generation != generation)
		return;
	session->answered = true;
	relay_wake(world, process);
}

static void lock_is_tried(struct world *world, void *object, int64_t generation)
{
	struct process *process = object;
	struct bell_session *session = &process->bell_session;
	struct bell_locks *locks = &world->database.bell;

	if (!process->running || session->generation != generation)
		return;
	session->granted = session->granted && !locks->exclusive && !locks->shared;
	if (session->granted) {
		locks->exclusive = process;
		locks->exclusive_generation = generation;
	}
	world_after(world, world_delay(world, STEP_US), bell_call_answered, process, generation);
}

static void call_reaches_server(struct world *world, void *object, int64_t generation)
{
	struct process *process = object;
	struct bell_session *session = &process->bell_session;
	const struct bell_locks *locks = &world->database.bell;

	if (!process->running || session->generation != generation)
		return;
	if (session->call == BELL_UNLOCK) {
		server_frees_bell(world, process, generation);
		world_after(
		    world, world_delay(world, STEP_US), bell_call_answered, process, generation);
		return;
	}
	session->granted = !locks->ringer && !locks->marks;
	world_after(world, world_delay(world, STEP_US), lock_is_tried, process, generation);
}

static void take_bell_answer(struct world *world, struct process *process)
{
	struct bell_session *session = &process->bell_session;
	enum bell_call call = session->call;

	session->call = BELL_NOTHING;
	session->answered = false;
	if (call == BELL_UNLOCK) {
		bell_unlocked(process->bell, bell_now_ms(world));
		return;
	}
	world_trace(world, "owner %d %s the bell", process->owner,
	    session->granted ? "gets" : "does not get");
	if (session->granted)
		session->granted_us = world->now;
	bell_tried(process->bell, bell_now_ms(world), session->granted);
	if (session->granted && world->options.bell == BELL_WITHOUT_LOOK) {
		bell_look_begins(process->bell, process->seat);
		bell_look_ends(process->bell, bell_now_ms(world), process->seat, false);
	}
}

static void send_bell_call(struct world *world, struct process *process)
{
	struct bell_session *session = &process->bell_session;

	if (!session->listens || session->call != BELL_NOTHING)
		return;
	session->call = bell_next_call(process->bell, bell_now_ms(world));
	if (session->call != BELL_NOTHING)
		world_after(world, world_delay(world, STEP_US), call_reaches_server, process,
		    session->generation);
}

/* The notification and the answer of a call may come in either order. */
static void take_events(struct world *world, struct process *process)
{
	struct bell_session *session = &process->bell_session;
	bool ring_first = world_chance(world, 500000);

	if (session->answered && !ring_first)
		take_bell_answer(world, process);
	for (; session->rings > 0; session->rings--)
		if (world->options.bell != BELL_DEAF_AFTER_LOCK ||
		    world->now > session->granted_us + DEAF_US)
			bell_rung(process->bell, bell_now_ms(world));
	if (session->answered)
		take_bell_answer(world, process);
}

/* --- the shard of a process ------------------------------------------------------------------ */

void bell_begin(struct world *world, struct process *process)
{
	const struct plan *plan = &world->plan;
	if (!plan->bell)
		return;

	process->bell = bell_create(plan->stream.poll_busy_ms);
	process->seat = bell_join(process->bell);
	process->bell_session.generation = (int64_t)world->owners * 1000000;
	bell_enable(process->bell, bell_now_ms(world), true);
}

/* The process is gone; the server hears of it at once, or when its keepalives end. */
void bell_end(struct world *world, struct process *process)
{
	struct bell_session *session = &process->bell_session;
	if (!process->bell)
		return;

	int64_t silence = world_has_faults(world) && world_chance(world, 300000)
			      ? world_between(world, 0, 3000 * MS)
			      : 0;
	if (silence)
		world_after(world, silence, server_frees_bell, process, session->generation);
	else
		server_frees_bell(world, process, session->generation);
	session->listens = false;
	bell_destroy(process->bell);
	process->bell = NULL;
}

void bell_look_is_sent(struct process *process, const struct request *request)
{
	if (process->bell && request->tick.may_open)
		bell_look_begins(process->bell, process->seat);
}

/* An answer of the log, or rows of a page, came. */
void bell_note_looks(struct world *world, struct process *process)
{
	struct stream_looks looks = stream_looks(process->stream), before = process->looks;
	if (!process->bell)
		return;

	process->looks = looks;
	if (looks.made != before.made)
		bell_look_ends(
		    process->bell, bell_now_ms(world), process->seat, looks.found != before.found);
	if (looks.rows != before.rows)
		bell_rows_came(process->bell, process->seat);
	/* Relays doze after each try. With half of the seeds shards doze later, which shows more
	 * mistakes. */
	bool looked =
	    world->options.seed % 2 ? looks.tried != before.tried : looks.made != before.made;
	if (looked && bell_may_doze(process->bell, process->seat))
		stream_doze(process->stream, bell_now_ms(world), BELL_POLL_MS);
}

static bool could_ring(const struct world *world)
{
	return world->now - world->bell_disturbed_us > DISTURBED_US;
}

static void count_changes(struct world *world, struct process *process)
{
	struct bell_status status = bell_status(process->bell);

	if (status.state == BELL_ASLEEP && process->bell_before.state != BELL_ASLEEP)
		world->result.sleeps++;
	world->result.rings += status.rung - process->bell_before.rung;
	world->result.missed += status.missed - process->bell_before.missed;
	if (status.missed != process->bell_before.missed && world->plan.bell_alone &&
	    could_ring(world))
		world_fail(world, "owner %d missed a ring that nobody lost", process->owner);
	process->bell_before = status;
}

void bell_turn(struct world *world, struct process *process)
{
	if (!process->bell)
		return;

	struct stream_status status = stream_status(process->stream, bell_now_ms(world));
	bool owns = status.state == STREAM_OWNER || status.state == STREAM_UNSURE;
	bell_own(process->bell, bell_now_ms(world), process->seat, owns);
	take_events(world, process);
	bell_step(process->bell, bell_now_ms(world));
	open_or_close_session(world, process);
	send_bell_call(world, process);
	if (bell_wakes(process->bell) != process->wakes) {
		process->wakes = bell_wakes(process->bell);
		stream_hurry(process->stream, bell_now_ms(world));
	}
	count_changes(world, process);
}

int64_t bell_due_us(const struct process *process)
{
	/* A call that is due waits for the session. */
	bool waits =
	    !process->bell || (process->bell_session.connected && !process->bell_session.listens);
	int64_t due = waits ? INT64_MAX : bell_wait(process->bell);
	return due < INT64_MAX / MS ? due * MS : INT64_MAX;
}

/* --- what must hold -------------------------------------------------------------------------- */

/* Nobody owned the shard before, and a new owner begins slowly. */
static bool is_owned_since(const struct world *world, int64_t us)
{
	for (int i = 0; i < world->plan.processes; i++) {
		const struct process *process = &world->processes[i];
		if (process->running && process->was_owner && process->taken_us + SOON_US < us)
			return true;
	}
	return false;
}

/* A row has come to Kafka for the first time. */
void bell_check_wait(struct world *world, const struct row *row)
{
	const struct transaction *transaction = row->transaction;
	int64_t waited = world->now - row->committed_us;
	if (!world->plan.bell_alone || row->deliver_us || !is_owned_since(world, row->committed_us))
		return;

	if (waited > LATEST_US)
		world_fail(world, "row %lld waited for %lld ms", (long long)row->id,
		    (long long)waited / MS);
	if (transaction->excused || !could_ring(world))
		return;
	if (waited > SOON_US)
		world_fail(world, "row %lld waited for %lld ms, although its writer %s",
		    (long long)row->id, (long long)waited / MS,
		    transaction->rang ? "rang" : "found the relay awake");
}

void bell_start(struct world *world)
{
	if (!world->plan.bell || !world->plan.bell_faults)
		return;
	world_after(world, world_between(world, 0, 2000 * MS), session_breaks, NULL, 0);
	world_after(world, world_between(world, 0, 2000 * MS), stranger_locks, NULL, 0);
}
