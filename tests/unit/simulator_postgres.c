/*
 * The database of the simulator: writers, row locks on keys, xids, ids from a sequence, snapshots;
 * the log with take and tick in the steps of sql/migrations/0003_log.sql. A statement of a relay
 * runs in three steps, each at its own time: it looks, it inserts (and has an xid from then on), it
 * commits.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "simulator_world.h"

/* --- transactions and snapshots ----------------------------------------------------------- */

bool snapshot_sees(const struct snapshot *snapshot, int64_t xid)
{
	if (xid >= snapshot->xmax)
		return false;
	for (int i = 0; xid >= snapshot->xmin && i < snapshot->count; i++)
		if (snapshot->xip[i] == xid)
			return false;
	return true;
}

bool snapshot_equal(const struct snapshot *a, const struct snapshot *b)
{
	return a->xmin == b->xmin && a->xmax == b->xmax && a->count == b->count &&
	       memcmp(a->xip, b->xip, (size_t)a->count * sizeof *a->xip) == 0;
}

/* `cut`: no xid from there on counts as seen; 0: a real snapshot. */
static struct snapshot *snapshot_now(struct world *world, int64_t cut)
{
	const struct database *database = &world->database;
	int count = 0;
	for (struct transaction *t = database->running; t; t = t->next_running)
		count++;
	struct snapshot *snapshot =
	    world_allocate(world, sizeof *snapshot + (size_t)count * sizeof *snapshot->xip);
	snapshot->xmin = snapshot->xmax = cut ? cut : database->next_xid;
	for (struct transaction *t = database->running; t; t = t->next_running) {
		if (t->xid >= snapshot->xmax)
			continue;
		snapshot->xip[snapshot->count++] = t->xid;
		if (t->xid < snapshot->xmin)
			snapshot->xmin = t->xid;
	}
	return snapshot;
}

static void assign_xid(struct world *world, struct transaction *transaction)
{
	struct database *database = &world->database;
	if (transaction->xid)
		return;
	transaction->xid = database->next_xid++;
	transaction->next_running = database->running;
	database->running = transaction;
}

static void end_transaction(
    struct world *world, struct transaction *transaction, enum transaction_state state)
{
	struct transaction **at = &world->database.running;
	while (*at && *at != transaction)
		at = &(*at)->next_running;
	if (*at)
		*at = transaction->next_running;
	transaction->state = state;
}

bool row_is_committed(const struct row *row)
{
	return row && row->transaction->state == COMMITTED && !row->undone && !row->lost;
}

/* --- writers -------------------------------------------------------------------------------- */

static void writer_begin(struct world *world, void *object, int64_t generation);
static void writer_step(struct world *world, void *object, int64_t generation);

static void add(struct writer *writer, enum operation_kind kind, int64_t number)
{
	if (writer->length < OPERATIONS - 1)
		writer->script[writer->length++] = (struct operation){kind, number};
}

static void add_rows(struct world *world, struct writer *writer, int key, int64_t most)
{
	for (int64_t i = world_between(world, 1, most); i > 0; i--)
		add(writer, INSERT, key);
}

/* Keys are locked in ascending order: no deadlocks. */
static void write_script(struct world *world, struct writer *writer, bool stays_open)
{
	bool huge = world_chance(world, 15000);
	writer->length = writer->at = 0;
	writer->drawn_id = 0;
	if (stays_open || world_chance(world, 250000))
		add(writer, ASSIGN_XID, 0);
	if (world_chance(world, 200000))
		add_rows(world, writer, -1, 2);
	if (stays_open) {
		add_rows(world, writer, -1, 2);
		return;
	}
	if (world_chance(world, 60000))
		add(writer, SLEEP, world_between(world, 5 * MS, 1500 * MS));
	int64_t groups = world_between(world, 0, huge ? 6 : 3);
	for (int key = 0; groups > 0 && key < world->plan.keys; key++) {
		if (!world_chance(world, 1000000 * groups / (world->plan.keys - key)))
			continue;
		groups--;
		add(writer, LOCK, key);
		add_rows(world, writer, key, huge ? 30 : 3);
		if (world_chance(world, 80000))
			add(writer, UNDO, world_between(world, 1, 2));
		if (world_chance(world, 30000))
			add(writer, SLEEP, world_between(world, 1 * MS, 400 * MS));
	}
	if (world_chance(world, 50000))
		add_rows(world, writer, -1, huge ? 40 : 3);
	add(writer, world_chance(world, 120000) ? ROLLBACK : COMMIT, 0);
}

static void writer_goes_on(struct world *world, struct writer *writer, int64_t delay)
{
	world_after(world, delay, writer_step, writer, writer->generation);
}

static void writer_begin(struct world *world, void *object, int64_t generation)
{
	struct writer *writer = object;
	bool stays_open = writer == world->database.long_writer;
	if (generation != writer->generation || world->phase != BUSY)
		return;
	if (!world->database.up) {
		world_after(world, 20 * MS, writer_begin, writer, generation);
		return;
	}
	writer->transaction = world_allocate(world, sizeof *writer->transaction);
	writer->transaction->silent = world->plan.silent && world_chance(world, 50000);
	writer->triggers = false;
	write_script(world, writer, stays_open);
	writer_goes_on(world, writer, 0);
}

static void release_locks(struct world *world, struct writer *writer)
{
	for (int i = 0; i < KEYS; i++) {
		struct key *key = &world->database.keys[i];
		if (key->holder != writer)
			continue;
		key->holder = key->waiting;
		if (!key->holder)
			continue;
		key->waiting = key->holder->next_waiting;
		key->holder->next_waiting = NULL;
		writer_goes_on(world, key->holder, world_delay(world, world->plan.database_us / 8));
	}
}

/* What is wrong with a row is drawn with it. */
static void insert_row(struct world *world, struct writer *writer, int key)
{
	struct database *database = &world->database;
	struct transaction *transaction = writer->transaction;
	struct row *row = world_allocate(world, sizeof *row);
	row->id = writer->drawn_id;
	row->transaction = transaction;
	row->key = key;
	row->topic =
	    key >= 0 ? key % world->plan.topics : (int)world_below(world, world->plan.topics);
	row->partition = key < 0 && world_chance(world, 200000) ? 0 : -1;
	row->bytes = (int)world_between(world, 40, world->plan.row_bytes);
	row->refused = world->plan.poison && world_chance(world, 12000);
	row->unclear = row->refused && !world->plan.stops && world_chance(world, 400000);
	row->unsendable = world->plan.poison && world_chance(world, 8000);
	if (world->plan.killers && world_chance(world, 10000)) {
		world->plan.killers--;
		row->kills = world_chance(world, 500000) ? KILLS_WHO_READS : KILLS_WHO_SENDS;
	}
	if (world->plan.schedules && world_chance(world, 200000))
		row->deliver_us = world->now + world_between(world, -50 * MS, 1500 * MS);
	database->rows = world_grow(
	    world, database->rows, &database->row_capacity, row->id + 1, sizeof *database->rows);
	database->rows[row->id] = row;
	if (transaction->last_row)
		transaction->last_row->next = row;
	else
		transaction->rows = row;
	transaction->last_row = row;
	writer->drawn_id = 0;
}

static void undo_rows(struct transaction *transaction, int64_t count)
{
	int64_t total = 0;
	for (struct row *row = transaction->rows; row; row = row->next)
		total++;
	for (struct row *row = transaction->rows; row; row = row->next)
		if (total-- <= count)
			row->undone = true;
}

static void commit_rows(struct world *world, struct transaction *transaction)
{
	struct database *database = &world->database;
	for (struct row *row = transaction->rows; row; row = row->next) {
		if (row->undone)
			continue;
		row->committed_us = world->now;
		if (row->key >= 0 && !row->deliver_us)
			row->place = database->keys[row->key].committed++;
		database->history =
		    world_grow(world, database->history, &database->history_capacity,
			database->history_count + 1, sizeof *database->history);
		database->history[database->history_count++] = row;
		world->committed++;
		world_trace(world, "row %lld of key %d committed, xid %lld", (long long)row->id,
		    row->key, (long long)transaction->xid);
	}
	transaction->order = database->commits++;
}

static void writer_ends(struct world *world, struct writer *writer, bool commits)
{
	struct transaction *transaction = writer->transaction;
	end_transaction(world, transaction, commits ? COMMITTED : ABORTED);
	if (commits)
		commit_rows(world, transaction);
	bell_transaction_ends(world, transaction);
	writer->transaction = NULL;
	release_locks(world, writer);
	world_after(world, world_delay(world, world->plan.think_us), writer_begin, writer,
	    writer->generation);
}

/* True: the lock is there. Otherwise the writer is woken by whoever holds it. */
static bool lock_key(struct world *world, struct writer *writer, struct key *key)
{
	if (world_chance(world, 500000))
		assign_xid(world, writer->transaction);
	if (key->holder && key->holder != writer) {
		struct writer **at = &key->waiting;
		while (*at)
			at = &(*at)->next_waiting;
		*at = writer;
		writer->next_waiting = NULL;
		return false;
	}
	key->holder = writer;
	assign_xid(world, writer->transaction);
	return true;
}

static void writer_step(struct world *world, void *object, int64_t generation)
{
	struct writer *writer = object;
	struct transaction *transaction = writer->transaction;
	int64_t delay = world_delay(world, world->plan.database_us / 4);
	/* no transaction: the long one was ended while a step of it was on its way */
	if (generation != writer->generation || !transaction || writer->at >= writer->length)
		return;
	const struct operation *operation = &writer->script[writer->at];
	switch (operation->kind) {
	case ASSIGN_XID:
		assign_xid(world, transaction);
		break;
	case LOCK:
		if (!lock_key(world, writer, &world->database.keys[operation->number]))
			return;
		break;
	case INSERT:
		if (writer->triggers) {
			writer->triggers =
			    !bell_trigger(world, transaction, writer->trigger_step++);
			if (!writer->triggers)
				break;
			writer_goes_on(world, writer, world_delay(world, 100));
			return;
		}
		if (!writer->drawn_id) {
			writer->drawn_id = ++world->database.last_id;
			/* the id is drawn before the xid is, and others come between */
			if (!transaction->xid && world_chance(world, 500000)) {
				writer_goes_on(world, writer, delay);
				return;
			}
		}
		assign_xid(world, transaction);
		insert_row(world, writer, (int)operation->number);
		if (!world->plan.bell)
			break;
		writer->triggers = true;
		writer->trigger_step = 0;
		writer_goes_on(world, writer, world_delay(world, 100));
		return;
	case UNDO:
		undo_rows(transaction, operation->number);
		break;
	case SLEEP:
		delay = world->phase == BUSY ? operation->number : 0;
		break;
	case COMMIT:
	case ROLLBACK:
		writer_ends(world, writer, operation->kind == COMMIT);
		return;
	}
	writer->at++;
	writer_goes_on(world, writer, delay);
}

void database_end_long_transaction(struct world *world)
{
	struct writer *writer = world->database.long_writer;
	world->database.long_writer = NULL;
	if (writer && writer->transaction)
		writer_ends(world, writer, true);
}

/* --- reading --------------------------------------------------------------------------------- */

/* The rows of a window by its boundaries, as the functions in SQL select them. */
static bool window_has(const struct world *world, const struct row *row,
    const struct snapshot *before, const struct snapshot *upto)
{
	int64_t xid = row->transaction->xid;
	if (!row_is_committed(row))
		return false;
	switch (world->options.reader) {
	case READER_BEYOND_LAST_ID:
		return row->id > before->last_id && snapshot_sees(upto, xid);
	case READER_BARRIER_BY_XID:
	case READER_BARRIER_BY_ID:
		return xid >= before->xmin && xid < upto->xmin;
	default:
		break;
	}
	if (xid >= before->xmax)
		return snapshot_sees(upto, xid);
	return !snapshot_sees(before, xid) && snapshot_sees(upto, xid);
}

static bool comes_before(const struct world *world, const struct row *a, const struct row *b)
{
	bool by_xid = world->options.reader == READER_BARRIER_BY_XID ||
		      world->options.reader == READER_WINDOWS_BY_XID;
	if (by_xid && a->transaction->xid != b->transaction->xid)
		return a->transaction->xid < b->transaction->xid;
	return a->id < b->id;
}

/* Insertion into the sorted answer: windows are small here, and mostly sorted already. */
static void answer_row(struct world *world, struct request *request, struct row *row, int64_t limit)
{
	int at = request->row_count;
	while (at > 0 && comes_before(world, row, request->rows[at - 1]))
		at--;
	if (at >= limit)
		return;
	if (request->row_count == limit)
		request->row_count--;
	for (int i = request->row_count; i > at; i--)
		request->rows[i] = request->rows[i - 1];
	request->rows[at] = row;
	request->row_count++;
}

static void read_window(struct world *world, struct request *request, const struct snapshot *before,
    const struct snapshot *upto, int64_t after_id, int64_t limit)
{
	const struct database *database = &world->database;
	const struct row *after = after_id ? database->rows[after_id] : NULL;
	if (limit > database->last_id)
		limit = database->last_id;
	request->rows = world_allocate(world, (size_t)(limit + 1) * sizeof *request->rows);
	request->row_count = 0;
	for (int64_t id = 1; id <= database->last_id && id < database->row_capacity; id++) {
		struct row *row = database->rows[id];
		if (row && window_has(world, row, before, upto) &&
		    (!after || comes_before(world, after, row)))
			answer_row(world, request, row, limit);
	}
}

static struct log_row *log_row_at(const struct world *world, int64_t n)
{
	return n >= 0 && n < world->database.log_capacity ? world->database.log[n] : NULL;
}

static struct log_row *committed_log_row(const struct world *world, int64_t n, int64_t nonce)
{
	struct log_row *row = log_row_at(world, n);
	if (!row || row->transaction->state != COMMITTED)
		return NULL;
	return row->nonce == nonce || world->options.reader == READER_UNFENCED ? row : NULL;
}

int64_t database_tick_of(const struct world *world, const struct row *row)
{
	for (int64_t n = 0; n <= world->database.newest->n; n++) {
		const struct log_row *log = log_row_at(world, n);
		for (int i = 1; log && i < log->tick_count; i++)
			if (snapshot_sees(log->ticks[i], row->transaction->xid))
				return log->first_tick + i;
	}
	return 0;
}

/* --- the statements of the relays ------------------------------------------------------------ */

static void request_arrives_back(struct world *world, void *object, int64_t number)
{
	struct request *request = object;
	struct session *session = request->session;
	if (request->session_generation != session->generation)
		return;
	if (world->now < session->silent_until) {
		world_after(world, session->silent_until - world->now, request_arrives_back,
		    request, number);
		return;
	}
	if (request == session->ending) {
		session_break(world, session);
		return;
	}
	session->answer = request;
	session->fed = 0;
	session->cut_at = -1;
	if (request->kind == ASK_PAGE && world_has_faults(world) && world->plan.database_faults &&
	    world_chance(world, 30000))
		session->cut_at = (int)world_below(world, request->row_count + 1);
	relay_wake(world, session->process);
}

static void answer(struct world *world, struct request *request)
{
	int64_t delay = world_delay(world, world->plan.database_us / 4);
	if (world_has_faults(world) && world->plan.database_faults && world_chance(world, 2000))
		delay += world_below(world, 2 * world->plan.stream.lease_ms * MS);
	if (request->kind == ASK_PAGE)
		delay += world_delay(world, world->plan.database_us);
	world_after(world, delay, request_arrives_back, request, 0);
}

static void fail_request(struct world *world, struct request *request, bool conflict)
{
	request->failed = true;
	request->conflict = conflict;
	answer(world, request);
}

static bool server_is_gone(const struct world *world, const struct request *request)
{
	return !world->database.up || request->server_generation != world->database.generation;
}

/* It waits for a lock, or for a standby, for longer than its owner has time. */
static int64_t long_wait(struct world *world)
{
	bool waits = world->plan.locks && world_has_faults(world) && world_chance(world, 15000);
	int64_t longest = 3 * world->plan.stream.lease_ms * MS;
	int64_t left = world->plan.end_us - world->now;
	/* who has stopped does not know that it took the shard: no take is carried out after that
	 */
	return waits && left > 0 ? world_below(world, left < longest ? left : longest) : 0;
}

/* True: the cancel came in time, or the server ended what took too long by itself. */
static bool is_cut_short(struct world *world, struct request *request)
{
	if (!request->cancelled)
		return false;
	if (request->row)
		end_transaction(world, request->row->transaction, ABORTED);
	fail_request(world, request, false);
	return true;
}

static void statement_commits(struct world *world, void *object, int64_t number)
{
	struct request *request = object;
	struct database *database = &world->database;
	(void)number;
	if (server_is_gone(world, request))
		return;
	struct log_row *row = request->row;
	end_transaction(world, row->transaction, COMMITTED);
	if (row->n != database->newest->n + 1 && world->options.reader != READER_UNFENCED)
		world_fail(world, "log row %lld follows %lld", (long long)row->n,
		    (long long)database->newest->n);
	if (request->kind == ASK_TAKE && !request->previous->released)
		world->result.disturbances++;
	for (int i = 0; request->lists && i < request->row_count; i++)
		if (find_kept(request->listed_in, request->rows[i])->state == SCHEDULED)
			request->rows[i]->listed_n = row->n;
	for (int i = 0; i < request->skipped_count; i++) {
		request->skipped[i]->skipped = true;
		world->published += request->skipped[i]->occurrences++ == 0;
	}
	row->transaction->order = database->commits++;
	database->newest = row;
	kafka_owner_wrote(world, row->owner);
	world->result.renewals += request->kind == ASK_RENEW;
	world_trace(world, "log row %lld of owner %d: first tick %lld, %d open, acked %lld%s",
	    (long long)row->n, row->owner, (long long)row->first_tick, row->tick_count - 1,
	    (long long)row->acked_id, request->opens ? ", opened" : "");
	answer(world, request);
}

/* --- parked rows ------------------------------------------------------------------------------ */

static int find_parked(const struct log_row *log, const struct row *row)
{
	for (int i = 0; i < log->parked_count; i++)
		if (log->parked[i].row == row)
			return i;
	return -1;
}

const struct parked_row *find_kept(const struct log_row *log, const struct row *row)
{
	int at = find_parked(log, row);
	return at < 0 ? NULL : &log->parked[at];
}

bool row_is_parked(const struct world *world, const struct row *row)
{
	return find_parked(world->database.newest, row) >= 0;
}

static void drop_parked(struct log_row *log, int at)
{
	memmove(&log->parked[at], &log->parked[at + 1],
	    (size_t)(--log->parked_count - at) * sizeof *log->parked);
}

/* They stand by id. */
static void insert_parked(struct log_row *log, struct parked_row parked)
{
	int at = log->parked_count++;

	for (; at > 0 && log->parked[at - 1].row->id > parked.row->id; at--)
		log->parked[at] = log->parked[at - 1];
	log->parked[at] = parked;
}

/* Does it stand in the queue of outbox.parked that the row is, or would be, in? */
static bool is_one_queue(const struct parked_row *parked, const struct row *row)
{
	const struct row *other = parked->row;
	return parked->state != SCHEDULED &&
	       (other == row ||
		   (other->key >= 0 && other->key == row->key && other->topic == row->topic));
}

/* outbox.parked_free: the first of the queue goes when nothing is known against it. */
static void free_first(struct world *world, struct log_row *log, const struct row *row)
{
	for (int i = 0; i < log->parked_count; i++) {
		struct parked_row *parked = &log->parked[i];
		if (!is_one_queue(parked, row))
			continue;
		if (parked->state == BEHIND)
			*parked = (struct parked_row){
			    parked->row, FREE, parked->stalled, world->now, parked->tick};
		return;
	}
}

/* The row is the head of its queue now, or behind the head: one that was free comes behind it. */
static void hold_next(struct log_row *log, const struct row *row)
{
	for (int i = find_parked(log, row) + 1; i < log->parked_count; i++) {
		if (!is_one_queue(&log->parked[i], row))
			continue;
		if (log->parked[i].state == FREE)
			log->parked[i].state = BEHIND;
		return;
	}
}

static bool is_first_of_queue(const struct log_row *log, int at)
{
	for (int i = 0; i < at; i++)
		if (is_one_queue(&log->parked[i], log->parked[at].row))
			return false;
	return true;
}

/* outbox.parked_recover of one place */
static void recover(struct world *world, struct log_row *log, struct place *place, int64_t *batch)
{
	world_trace(world, "partition %d of topic %d recovers", place->partition, place->topic);
	int64_t freed_id = 0;
	for (int i = 0; i<log->parked_count && * batch> 0; i++) {
		struct parked_row *parked = &log->parked[i];
		if (parked->state != (place->partition == TOPIC_PAUSED ? PAUSED : STALLED) ||
		    parked->row->topic != place->topic || parked->stalled != place->partition ||
		    parked->row->id <= place->freed_id)
			continue;
		*parked =
		    (struct parked_row){parked->row, is_first_of_queue(log, i) ? FREE : BEHIND,
			parked->stalled, world->now, parked->tick};
		--*batch;
		freed_id = parked->row->id;
	}
	place->freed_id = *batch > 0 ? 0 : freed_id;
}

static void recover_places(struct world *world, struct request *request, struct log_row *log)
{
	int64_t batch = request->tick.batch;
	while (batch > 0 && request->recovered_looked < request->recovered_count)
		recover(world, log, &request->recovered[request->recovered_looked++], &batch);
}

/* A row that became visible late may stand in front of the place where the last list ended. */
static void note_list_end(struct log_row *log, const struct parked_row *scheduled)
{
	if (scheduled->next_at <= log->due.at && scheduled->row->id < log->due.id)
		log->due.id = scheduled->row->id;
}

/* outbox.park, outbox.schedule */
static void note_parks(struct world *world, const struct request *request, struct log_row *log)
{
	const struct stream_parking *parking = &world->plan.stream.parking;
	for (int i = 0; i < request->park_count; i++) {
		struct parked_row park = request->parks[i];
		int at = find_parked(log, park.row);
		if (park.state == DEAD && !park.row->kills)
			world_fail(world, "row %lld is convicted and kills nobody",
			    (long long)park.row->id);
		world->result.paused_rows += park.state == PAUSED;
		park.row->paused |= world->database.once_paused >> park.row->topic & 1;
		park.row->late |= park.row->straggled;
		world_trace(world, "row %lld of key %d is %s", (long long)park.row->id,
		    park.row->key,
		    park.state == SCHEDULED ? "scheduled"
		    : park.state == WAITING ? "parked, refused"
		    : park.state == STALLED ? "parked, stalled"
		    : park.state == PAUSED  ? "parked, paused"
		    : park.state == DEAD    ? "parked, dead"
					    : "parked");
		park.next_at =
		    world->now +
		    world_between(world, parking->retry_first_ms, parking->retry_max_ms) * MS;
		if (park.state == SCHEDULED)
			park.next_at = park.row->deliver_us;
		if (at >= 0 && log->parked[at].state == SCHEDULED && park.state != SCHEDULED) {
			drop_parked(log, at);
			at = -1;
		}
		if (at < 0 && park.state == SCHEDULED)
			note_list_end(log, &park);
		if (at < 0)
			insert_parked(log, park);
		else if (park.state == BEHIND && log->parked[at].state == FREE)
			log->parked[at].state = BEHIND;
		else if (park.state == WAITING || park.state == STALLED || park.state == PAUSED ||
			 park.state == DEAD)
			log->parked[at] = (struct parked_row){
			    park.row, park.state, park.stalled, park.next_at, log->parked[at].tick};
		if (park.state == SCHEDULED)
			continue;
		hold_next(log, park.row);
		free_first(world, log, park.row);
	}
}

static bool is_parked_again(const struct request *request, const struct row *row)
{
	for (int i = 0; i < request->park_count; i++)
		if (request->parks[i].row == row)
			return true;
	return false;
}

/* Behind one of its key that is refused again: it stays behind it. */
static bool follows_refused(
    const struct request *request, const struct log_row *log, const struct row *row)
{
	int at = find_parked(log, row);
	for (int i = 0; at >= 0 && log->parked[at].state == BEHIND && i < at; i++)
		if (is_one_queue(&log->parked[i], row) &&
		    is_parked_again(request, log->parked[i].row))
			return true;
	return false;
}

int64_t digest_of_key(
    const void *context, const char *topic, size_t topic_length, const char *key, size_t key_length)
{
	const struct plan *plan = context;
	int64_t number = topic[topic_length - 1];
	for (size_t i = 0; i < key_length; i++)
		number = number * 31 + key[i];
	return number % plan->digests - plan->digests / 2;
}

int64_t row_digest(const struct world *world, const struct row *row)
{
	const char key[2] = {(char)('a' + row->key % 16), (char)('a' + row->key / 16)};
	const char *topic = topic_names[row->topic];
	return digest_of_key(&world->plan, topic, strlen(topic), key, sizeof key);
}

static bool has_digest(const struct world *world, const struct log_row *log, int64_t digest)
{
	for (int i = 0; i < log->parked_count; i++)
		if (log->parked[i].state != SCHEDULED && log->parked[i].row->key >= 0 &&
		    row_digest(world, log->parked[i].row) == digest)
			return true;
	return false;
}

static int by_id(const void *a, const void *b)
{
	const struct row *const *left = a, *const *right = b;
	return (*left)->id < (*right)->id ? -1 : (*left)->id > (*right)->id;
}

/* outbox.unpark of what the listed window has published */
static void unpark(struct world *world, struct request *request, struct log_row *log)
{
	const struct log_row *previous = request->previous;
	int64_t passed = previous->first_tick + request->tick.closed, gone = 0;
	int left = 0;
	qsort(log->listed, (size_t)log->listed_count, sizeof *log->listed, by_id);
	if (!log->listed_count)
		return;
	request->emptied = world_allocate(world, ((size_t)log->listed_count + 1) * sizeof(int64_t));
	for (int i = 0; i < log->listed_count; i++) {
		struct row *row = log->listed[i];
		bool published =
		    previous->listed_tick <= passed ||
		    (previous->listed_tick == passed + 1 && row->id <= request->tick.acked_id);
		bool goes = published && gone++ < 2 * request->tick.batch;
		int at = goes ? find_parked(log, row) : -1;
		if (!goes)
			log->listed[left++] = row;
		if (at < 0)
			continue;
		world_trace(world, "row %lld is kept back no more", (long long)row->id);
		bool was_scheduled = log->parked[at].state == SCHEDULED;
		drop_parked(log, at);
		if (was_scheduled)
			continue;
		free_first(world, log, row);
		if (row->key >= 0 && !has_digest(world, log, row_digest(world, row)))
			request->emptied[request->emptied_count++] = row_digest(world, row);
	}
	log->listed_count = left;
}

static bool has_parked(const struct log_row *log)
{
	for (int i = 0; i < log->parked_count; i++)
		if (log->parked[i].state != SCHEDULED)
			return true;
	return false;
}

/* Of outbox.listed_wait: does the next list begin with a row of an open window? */
static bool list_is_blocked(const struct log_row *log, int64_t id)
{
	for (int i = 0; i < log->parked_count; i++)
		if (log->parked[i].state == SCHEDULED && log->parked[i].row->id == id)
			return log->parked[i].tick > log->first_tick;
	return false;
}

/* outbox.parked_asked */
static bool has_work(const struct world *world, const struct log_row *log)
{
	return log->work.done < world->database.asked && log->work.waits_for <= log->first_tick;
}

static int64_t due_ms(
    const struct world *world, const struct log_row *log, const struct list_end *end)
{
	int64_t due = INT64_MAX;
	bool leaves = end->id && end->id < INT64_MAX;
	if (leaves)
		due = list_is_blocked(log, end->id) ? world->now + 50 * MS : world->now;
	for (int i = 0; i < log->parked_count; i++) {
		const struct parked_row *parked = &log->parked[i];
		int64_t at = parked->next_at;
		if (parked->state == SCHEDULED && (leaves || (end->id && at <= end->at)))
			continue;
		if (parked->tick > log->first_tick && at < world->now + 50 * MS)
			at = world->now + 50 * MS;
		if (parked->state == DEAD) /* an operator asks for it one day */
			at = world->now + 50 * MS;
		if (parked->state != BEHIND && parked->state != STALLED &&
		    parked->state != PAUSED && at < due)
			due = at;
	}
	if (log->work.done < world->database.asked) {
		int64_t at = world->now + (has_work(world, log) ? 0 : 50 * MS);
		due = at < due ? at : due;
	}
	if (due == INT64_MAX)
		return -1;
	return due > world->now ? (due - world->now + MS - 1) / MS : 0;
}

/* False: it would be too many, or too large; the first one never is. */
static bool list_row(struct request *request, struct row *row, int64_t *bytes)
{
	const struct stream_tick *tick = &request->tick;
	int64_t rows = tick->max_rows < 2 * tick->batch ? tick->max_rows : 2 * tick->batch;
	*bytes += row->bytes + 1000;
	if (request->row_count && (*bytes > tick->max_bytes || request->row_count >= rows))
		return false;
	request->rows[request->row_count++] = row;
	return true;
}

static bool may_be_listed(
    const struct world *world, const struct log_row *log, const struct parked_row *parked)
{
	bool due = parked->state == DEAD ? world->phase > DRAINING : parked->next_at <= world->now;
	return due && parked->tick <= log->first_tick;
}

/* outbox.parked_next: due heads alone, free ones with those behind them up to another head */
static void list_parked(struct world *world, struct request *request)
{
	const struct log_row *log = request->previous;
	int64_t bytes = 0;
	bool room = true;
	for (int i = 0; i < log->parked_count && room; i++) {
		const struct parked_row *head = &log->parked[i];
		if (head->state == BEHIND || head->state == SCHEDULED || head->state == STALLED ||
		    head->state == PAUSED || !may_be_listed(world, log, head))
			continue;
		room = list_row(request, head->row, &bytes);
		for (int k = i + 1; head->state == FREE && k < log->parked_count && room; k++) {
			const struct parked_row *next = &log->parked[k];
			if (!is_one_queue(next, head->row))
				continue;
			if (next->state != BEHIND || next->tick > log->first_tick)
				break;
			room = list_row(request, next->row, &bytes);
		}
	}
}

/* What a look for scheduled rows finds. */
struct due_rows {
	struct row **rows;
	int count;
	int64_t blocked; /* the smallest id of those whose window is open */
};

static void add_due(
    const struct log_row *log, const struct parked_row *parked, struct due_rows *due)
{
	if (parked->tick <= log->first_tick)
		due->rows[due->count++] = parked->row;
	else if (parked->row->id < due->blocked)
		due->blocked = parked->row->id;
}

/*
 * Those from the place on where the last list ended, and those in front of it that became due
 * since: all that are due, or somebody forgot one.
 */
static void find_due(struct world *world, const struct log_row *log, const struct list_end *end,
    struct due_rows *due)
{
	due->rows = world_allocate(world, ((size_t)log->parked_count + 1) * sizeof(void *));
	due->blocked = INT64_MAX;
	for (int i = 0; i < log->parked_count; i++) {
		const struct parked_row *parked = &log->parked[i];
		if (parked->state != SCHEDULED || parked->next_at > world->now)
			continue;
		if (parked->row->id >= end->id || parked->next_at > end->at)
			add_due(log, parked, due);
		else
			world_fail(world, "row %lld is due and stands in front of the next list",
			    (long long)parked->row->id);
	}
	qsort(due->rows, (size_t)due->count, sizeof *due->rows, by_id);
}

/* outbox.scheduled_next: by id among those that are due, within bounds of their own */
static void list_scheduled(struct world *world, struct request *request)
{
	struct request due = {.tick = request->tick, .rows = request->rows + request->row_count};
	struct due_rows found = {0};
	int64_t bytes = 0;
	find_due(world, request->previous, &request->previous->due, &found);
	/* a walk that ends after many regions of ids comes to none of them, or to some */
	int most =
	    world_chance(world, 50000) ? (int)world_between(world, 0, found.count) : found.count;
	while (due.row_count < most && list_row(&due, found.rows[due.row_count], &bytes))
		;
	request->due = (struct list_end){
	    due.row_count < found.count ? found.rows[due.row_count]->id : INT64_MAX, world->now};
	if (found.blocked < request->due.id)
		request->due.id = found.blocked;
	request->row_count += due.row_count;
}

/* outbox.listed_next */
static void look_for_listed(struct world *world, struct request *request)
{
	const struct log_row *log = request->previous;
	request->due = log->due;
	if (!request->tick.may_list)
		return;
	if (log->listed_tick > log->first_tick)
		world_fail(world, "a second listed window is asked for");
	if (log->listed_tick) { /* rows of the one before are yet to go */
		request->tick.must_write = true;
		return;
	}
	request->rows = world_allocate(world, ((size_t)log->parked_count + 1) * sizeof(void *));
	request->row_count = 0;
	request->works = has_work(world, log);
	request->tick.must_write |= request->works;
	/* a skip under way may mean the rows that a list would name */
	if (!request->works || !world->database.requests[log->work.done].skips)
		list_parked(world, request);
	list_scheduled(world, request);
	qsort(request->rows, (size_t)request->row_count, sizeof *request->rows, by_id);
	request->listed_in = log;
	request->lists = request->opens = request->row_count > 0;
	request->due_ms = request->lists ? 0 : due_ms(world, log, &request->due);
	request->snapshot = (struct snapshot *)log->ticks[log->tick_count - 1];
}

/* A row that killed the relay is not retried: it would kill again. */
static void retry_row(const struct world *world, struct parked_row *parked)
{
	if (parked->state != WAITING && parked->state != STALLED)
		return;
	parked->state = WAITING;
	parked->next_at = world->now;
}

static void skip_row(struct world *world, struct request *request, struct log_row *log, int at)
{
	struct row *row = log->parked[at].row;
	world_trace(world, "row %lld is skipped", (long long)row->id);
	request->skipped[request->skipped_count++] = row;
	drop_parked(log, at);
	free_first(world, log, row);
	if (row->key >= 0 && !has_digest(world, log, row_digest(world, row)))
		request->emptied[request->emptied_count++] = row_digest(world, row);
}

/*
 * outbox.parked_requests: `batch` rows of the first request. They come in the order in which they
 * were parked: a row behind one with a larger id may be left to the next request.
 */
static void work_off(struct world *world, struct request *request, struct log_row *log)
{
	struct asked_work *work = &log->work;
	const struct asked *asked = &world->database.requests[work->done];
	int64_t left_tick = 0, count = 0;
	size_t size = ((size_t)log->parked_count + 1) * sizeof(int64_t);
	request->emptied = world_allocate(world, size);
	request->skipped = world_allocate(world, size);
	for (int i = 0; i < log->parked_count; i++) {
		struct parked_row *parked = &log->parked[i];
		if (parked->state == SCHEDULED || parked->row->id <= work->last_id)
			continue;
		if (asked->key >= 0 && parked->row->key != asked->key)
			continue;
		if (count++ == request->tick.batch)
			return;
		work->last_id = parked->row->id;
		if (!asked->skips) {
			retry_row(world, parked);
		} else if (parked->tick <= request->previous->first_tick) {
			skip_row(world, request, log, i--);
		} else {
			work->left_id = work->left_id ? work->left_id : parked->row->id;
			if (!left_tick || parked->tick < left_tick)
				left_tick = parked->tick;
		}
	}
	if (work->left_id) {
		work->last_id = work->left_id - 1;
		work->waits_for = left_tick ? left_tick : request->previous->first_tick + 1;
	} else {
		*work = (struct asked_work){.done = work->done + 1};
	}
	work->left_id = 0;
}

static void note_parked(struct world *world, struct request *request, struct log_row *row)
{
	const struct log_row *previous = request->previous;
	row->parked = world_allocate(
	    world, ((size_t)previous->parked_count + (size_t)request->park_count + 1) *
		       sizeof *row->parked);
	if (previous->parked_count)
		memcpy(row->parked, previous->parked,
		    (size_t)previous->parked_count * sizeof *row->parked);
	row->parked_count = previous->parked_count;
	row->listed_tick = previous->listed_tick;
	row->listed = world_allocate(world, ((size_t)previous->listed_count + 1) * sizeof(void *));
	for (int i = 0; i < previous->listed_count; i++)
		if (!is_parked_again(request, previous->listed[i]) &&
		    !follows_refused(request, previous, previous->listed[i]))
			row->listed[row->listed_count++] = previous->listed[i];
	row->due = request->kind == ASK_TICK ? request->due : previous->due;
	row->work = previous->work;
	request->skipped_count = request->emptied_count = 0; /* it may be made once more */
	if (request->kind != ASK_TICK)
		return;
	if (request->works)
		work_off(world, request, row);
	note_parks(world, request, row);
	recover_places(world, request, row);
	unpark(world, request, row);
	int64_t first_tick = previous->first_tick + request->tick.closed;
	if (row->listed_tick && row->listed_tick <= first_tick && !row->listed_count)
		row->listed_tick = 0;
	if (row->listed_tick && row->listed_tick <= first_tick)
		request->due_ms = 0;
	if (request->lists) {
		row->listed_tick = previous->first_tick + previous->tick_count;
		row->listed = request->rows;
		row->listed_count = request->row_count;
	}
}

/* --- the log ------------------------------------------------------------------------------------
 */

static void apply_delta(struct destinations *known, const struct destinations *delta, int64_t n)
{
	for (int t = 0; t < TOPICS; t++) {
		if (!delta->count[t] && !delta->gone[t])
			continue;
		known->n[t] = n;
		known->open[t] = delta->open[t];
		known->count[t] = delta->count[t];
		for (int p = 0; p < PARTITIONS; p++)
			if (delta->gone[t] || delta->offset[t][p] >= -1)
				known->offset[t][p] = delta->gone[t] ? -2 : delta->offset[t][p];
	}
}

static bool is_known_alike(const struct destinations *a, const struct destinations *b, int topic)
{
	return a->count[topic] == b->count[topic] && a->open[topic] == b->open[topic] &&
	       memcmp(a->offset[topic], b->offset[topic], sizeof a->offset[topic]) == 0;
}

/* outbox.destinations_fold */
static void fold(struct world *world, struct log_row *row, int64_t to)
{
	if (to <= row->folded || to > row->n)
		world_fail(
		    world, "log row %lld folds up to %lld", (long long)row->n, (long long)to);
	for (int64_t n = row->folded + 1; n <= to && n < row->n; n++)
		apply_delta(&row->table, &log_row_at(world, n)->delta, n);
	if (to == row->n)
		apply_delta(&row->table, &row->delta, row->n);
	row->folded = to;
	for (int t = 0; t < TOPICS && to == row->n; t++)
		if (!is_known_alike(&row->table, &row->known, t))
			world_fail(world, "log row %lld folds %s wrongly", (long long)row->n,
			    topic_names[t]);
}

static void note_destinations(
    struct world *world, const struct request *request, struct log_row *row)
{
	const struct log_row *previous = request->previous;
	row->known = previous->known;
	row->table = previous->table;
	row->folded = previous->folded;
	if (request->kind == ASK_TICK)
		row->delta = request->touched;
	apply_delta(&row->known, &row->delta, row->n);
	if (request->kind == ASK_TAKE || request->tick.fold_to)
		fold(world, row, request->kind == ASK_TAKE ? row->n : request->tick.fold_to);
	if (request->kind == ASK_TICK && row->n - row->folded >= 64)
		world_fail(world, "log row %lld is not folded since %lld", (long long)row->n,
		    (long long)row->folded);
}

/* All of a topic that is loaded is in the table, and nothing that is open is loaded late. */
static void destinations_begin(struct world *world, struct request *request)
{
	const struct log_row *newest = world->database.newest;
	const struct log_row *ours = committed_log_row(world, request->tick.n, request->tick.nonce);
	bool pages = !request->tick.topics;
	if (!ours) {
		fail_request(world, request, false);
		return;
	}
	request->destinations = newest->table;
	request->last = true;
	int64_t room = world_between(world, 1, TOPICS);
	for (int t = pages ? request->after + 1 : 0; t < TOPICS; t++) {
		bool wanted = pages ? newest->table.open[t] : request->named[t];
		if (!wanted || !newest->table.count[t])
			continue;
		if (pages && room-- == 0) {
			request->last = false;
			break;
		}
		request->answered[t] = true;
		if (ours == newest && !is_known_alike(&newest->table, &newest->known, t))
			world_fail(world, "%s is loaded by owner %d and not folded", topic_names[t],
			    request->owner);
	}
	answer(world, request);
}

static void make_log_row(struct world *world, struct request *request, struct log_row *row)
{
	note_parked(world, request, row);
	const struct log_row *previous = request->previous;
	const struct stream_tick *tick = &request->tick;
	row->n = request->n;
	row->nonce = tick->new_nonce;
	row->owner = request->owner;
	row->timeline = world->database.timeline;
	row->lease_until = database_clock_us(world) + tick->lease_ms * MS;
	row->released = tick->lease_ms == 0;
	row->epoch = previous->epoch;
	row->first_tick = previous->first_tick;
	row->acked_id = previous->acked_id;
	note_destinations(world, request, row);
	int closed = request->kind == ASK_TICK ? tick->closed : 0;
	row->tick_count = previous->tick_count - closed;
	if (row->tick_count < 1) {
		world_fail(
		    world, "%d windows closed, only %d are open", closed, previous->tick_count - 1);
		row->tick_count = 1;
	}
	memcpy(row->ticks, &previous->ticks[previous->tick_count - row->tick_count],
	    (size_t)row->tick_count * sizeof *row->ticks);
	if (request->kind == ASK_TAKE) {
		if (previous->timeline != row->timeline)
			row->epoch = tick->fresh_epoch;
		row->deaths = request->take.deaths;
		return;
	}
	row->owner = previous->owner;
	row->deaths = tick->deaths;
	if (request->kind == ASK_RENEW)
		return;
	row->epoch = tick->new_epoch ? tick->fresh_epoch : previous->epoch;
	row->first_tick += closed;
	if (request->park_count || request->recovered_count || request->previous->listed_tick)
		request->due_ms = row->listed_tick && row->listed_tick <= row->first_tick
				      ? 0
				      : due_ms(world, row, &row->due);
	else if (tick->may_list && !request->lists)
		request->due_ms = due_ms(world, row, &row->due);
	row->acked_id = tick->acked_id;
	if (request->opens && row->tick_count < TICKS_A_ROW)
		row->ticks[row->tick_count++] = request->snapshot;
}

static void look_for_window(struct world *world, struct request *request);

static void statement_inserts(struct world *world, void *object, int64_t number)
{
	struct request *request = object;
	struct database *database = &world->database;
	if (server_is_gone(world, request) || is_cut_short(world, request))
		return;
	if (!request->row) {
		request->row = world_allocate(world, sizeof *request->row);
		request->row->transaction = world_allocate(world, sizeof(struct transaction));
		assign_xid(world, request->row->transaction);
	}
	if (request->kind == ASK_TICK && world->options.reader == READER_TICK_TOO_LATE && !number &&
	    !request->lists && !request->publisher_paused)
		look_for_window(world, request);
	struct log_row *there = log_row_at(world, request->n);
	if (there && there->transaction->state == RUNNING) { /* waits for its end */
		world_after(world, 1 * MS, statement_inserts, request, 1);
		return;
	}
	bool taken = there && there->transaction->state == COMMITTED &&
		     world->options.reader != READER_UNFENCED;
	bool fails =
	    world->plan.database_faults && world_has_faults(world) && world_chance(world, 5000);
	if (taken || fails) {
		end_transaction(world, request->row->transaction, ABORTED);
		fail_request(world, request, taken);
		return;
	}
	make_log_row(world, request, request->row);
	database->log = world_grow(
	    world, database->log, &database->log_capacity, request->n + 1, sizeof *database->log);
	database->log[request->n] = request->row;
	if (request->opens && !request->pages && !request->lists)
		read_window(world, request,
		    request->previous->ticks[request->previous->tick_count - 1], request->snapshot,
		    0, request->tick.max_rows);
	world_after(world, world_delay(world, world->plan.database_us / 4) + long_wait(world),
	    statement_commits, request, 0);
}

/* As outbox.publisher has them; NULL: none. */
const char *paused_topics_json(struct world *world, unsigned topics)
{
	OWNED(text_finish) struct text json = {0};

	for (int t = 0; t < TOPICS; t++)
		if (topics & 1U << t)
			text_addf(&json, "%s\"%s\": \"2026-11-27T19:30:00Z\"",
			    json.length ? ", " : "{", topic_names[t]);
	if (!json.length)
		return NULL;
	text_add(&json, "}");
	char *copy = world_allocate(world, json.length + 1);
	memcpy(copy, text_string(&json), json.length);
	return copy;
}

static void take_begins(struct world *world, struct request *request)
{
	const struct log_row *newest = world->database.newest;
	int64_t left_us = newest->lease_until - database_clock_us(world);
	if (left_us > 0 && newest->owner != request->owner) {
		request->wait_ms = (left_us + MS - 1) / MS;
		answer(world, request);
		return;
	}
	request->previous = newest;
	request->n = newest->n + 1;
	request->taken = true;
	request->paused_topics = world->database.paused_topics;
	request->take = (struct stream_taken){
	    .n = request->n,
	    .epoch = newest->timeline == world->database.timeline ? newest->epoch
								  : request->tick.fresh_epoch,
	    .former_epoch = newest->epoch,
	    .first_tick = newest->first_tick,
	    .acked_id = newest->acked_id,
	    .windows = newest->tick_count - 1,
	    .listed_tick = newest->listed_tick > newest->first_tick ? newest->listed_tick : 0,
	    .parked = has_parked(newest) ||
		      newest->work.done<world->database.asked, .requests = world->database.asked,
			  .scheduled = newest->parked_count> 0,
	    .deaths = {newest->deaths.owners, newest->deaths.alone},
	    .paused = world->database.publisher_paused,
	    .paused_topics = paused_topics_json(world, world->database.paused_topics),
	};
	if (!newest->released && newest->owner != request->owner) {
		struct deaths *deaths = &request->take.deaths;
		deaths->owners++;
		deaths->alone = newest->deaths.marked ? deaths->alone + 1 : 0;
	}
	statement_inserts(world, request, 0);
}

/* Does a transaction that is far behind the tick, and became visible only now, hold a row? */
static bool is_late(
    const struct world *world, const struct request *request, const struct snapshot *before)
{
	for (int i = 0; i < request->row_count; i++) {
		int64_t xid = request->rows[i]->transaction->xid;
		if (xid < before->xmax && request->snapshot->xmax - xid > world->plan.far_xids)
			return true;
	}
	return false;
}

static void look_for_window(struct world *world, struct request *request)
{
	const struct log_row *previous = request->previous;
	const struct snapshot *before = previous->ticks[previous->tick_count - 1];
	int64_t cut = 0, bytes = 0;
	if (world->options.reader == READER_WINDOWS_CUT && world->database.next_xid > before->xmax)
		cut = world_between(world, before->xmax, world->database.next_xid);
	struct snapshot *now = snapshot_now(world, cut);
	request->snapshot = now;
	request->looked_us = world->now;
	request->opens = false;
	now->last_id = before->last_id;
	if (!request->tick.may_open || snapshot_equal(now, before) ||
	    (request->last_seen && snapshot_equal(now, request->last_seen)))
		return;
	if (request->tick.blind) {
		request->opens = request->pages = true;
		return;
	}
	read_window(world, request, before, now, 0, request->tick.max_rows + 1);
	for (int i = 0; i < request->row_count; i++) {
		bytes += request->rows[i]->bytes;
		if (now->last_id < request->rows[i]->id)
			now->last_id = request->rows[i]->id;
	}
	/* an empty one: as after a look through many rows of others */
	request->opens = request->row_count > 0 || world_chance(world, 20000);
	request->pages = request->row_count > request->tick.max_rows ||
			 bytes > request->tick.max_bytes || is_late(world, request, before);
	if (request->pages && world->options.reader == READER_BEYOND_LAST_ID)
		now->last_id = world->database.last_id;
}

/* False, with the answer: the log row that it is made from is not there, or of another history. */
static bool find_previous(struct world *world, struct request *request)
{
	const struct stream_tick *tick = &request->tick;
	request->previous = committed_log_row(world, tick->n, tick->nonce);
	if (request->previous && (request->previous->timeline == world->database.timeline ||
				     world->options.reader == READER_UNFENCED))
		return true;
	request->verdict = STREAM_FENCED;
	answer(world, request);
	return false;
}

static void renew_begins(struct world *world, struct request *request)
{
	if (!find_previous(world, request))
		return;
	request->n = request->tick.n + 1;
	request->verdict = STREAM_NOTED;
	request->snapshot = snapshot_now(world, 0);
	request->looked_us = world->now;
	world_after(
	    world, world_delay(world, world->plan.database_us / 8), statement_inserts, request, 0);
}

static void tick_begins(struct world *world, struct request *request)
{
	const struct stream_tick *tick = &request->tick;
	if (!find_previous(world, request))
		return;
	request->due_ms = -1;
	request->asked = world->database.asked;
	request->publisher_paused = world->database.publisher_paused;
	request->paused_topics = world->database.paused_topics;
	if (request->publisher_paused) {
		request->due = request->previous->due;
		request->looked_us = 0;
		if (tick->may_list)
			request->due_ms = due_ms(world, request->previous, &request->due);
	} else {
		look_for_listed(world, request);
	}
	if (request->publisher_paused) {
		request->listed_in = NULL;
	} else if (request->lists) {
		request->looked_us = 0; /* it did not look at the table */
	} else {
		request->listed_in = NULL;
		look_for_window(world, request);
	}
	bool goes_on = tick->may_list && request->due.id != request->previous->due.id &&
		       request->due.id < INT64_MAX;
	if (!request->opens && !tick->must_write && !goes_on) {
		request->verdict = request->publisher_paused ? STREAM_SPLITTING : STREAM_IDLE;
		answer(world, request);
		return;
	}
	request->n = tick->n + 1;
	request->verdict = request->lists    ? STREAM_LISTED
			   : !request->opens ? STREAM_NOTED
			   : request->pages  ? STREAM_PAGES
					     : STREAM_ROWS;
	world_after(
	    world, world_delay(world, world->plan.database_us / 8), statement_inserts, request, 0);
}

static void read_listed(struct world *world, struct request *request, const struct log_row *row)
{
	request->rows = world_allocate(world, ((size_t)row->listed_count + 1) * sizeof(void *));
	request->row_count = 0;
	request->listed_in = world->database.newest;
	for (int i = 0; i < row->listed_count && request->row_count < request->page.rows; i++)
		if (row->listed[i]->id > request->page.after_id &&
		    find_parked(world->database.newest, row->listed[i]) >= 0)
			request->rows[request->row_count++] = row->listed[i];
}

/* outbox.parked_lookup */
static void lookup_begins(struct world *world, struct request *request, const struct log_row *log)
{
	size_t count = (size_t)request->tick.most + 1;
	request->found = world_allocate(world, count * sizeof *request->found);
	request->itself = world_allocate(world, count * sizeof *request->itself);
	for (int i = 0; i < request->tick.most; i++) {
		const struct stream_lookup *asked = &request->lookups[i];
		bool itself = false;
		for (int k = 0; k < log->parked_count && asked->id && !itself; k++)
			itself = log->parked[k].row->id == asked->id &&
				 log->parked[k].state != SCHEDULED;
		if (!itself && !(asked->has_digest && has_digest(world, log, asked->digest)))
			continue;
		request->found[request->found_count] = i;
		request->itself[request->found_count++] = itself;
	}
}

static int by_number(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;
	return *left < *right ? -1 : *left > *right;
}

/* outbox.parked_digests */
static void digests_begin(struct world *world, struct request *request, const struct log_row *log)
{
	request->digests =
	    world_allocate(world, ((size_t)log->parked_count + 1) * sizeof *request->digests);
	for (int i = 0; i < log->parked_count; i++) {
		const struct parked_row *parked = &log->parked[i];
		if (parked->state == SCHEDULED || parked->row->key < 0 ||
		    row_digest(world, parked->row) < request->tick.from_digest)
			continue;
		request->digests[request->digest_count++] = row_digest(world, parked->row);
	}
	qsort(request->digests, (size_t)request->digest_count, sizeof(int64_t), by_number);
	if (request->digest_count > request->tick.most)
		request->digest_count = (int)request->tick.most;
}

/* outbox.parked_places, all in one page */
static void places_begin(struct world *world, struct request *request, const struct log_row *log)
{
	request->rows = world_allocate(world, ((size_t)log->parked_count + 1) * sizeof(void *));
	request->listed_in = log;
	for (int i = 0; i < log->parked_count; i++)
		if (log->parked[i].state != SCHEDULED && log->parked[i].stalled != NOT_STALLED)
			request->rows[request->row_count++] = log->parked[i].row;
}

/* On a server that has the newest row of the owner's log. */
static void keys_begin(struct world *world, struct request *request)
{
	const struct log_row *log = world->database.newest;
	if (!committed_log_row(world, request->tick.n, request->tick.nonce)) {
		fail_request(world, request, false);
		return;
	}
	if (request->kind == ASK_LOOKUP)
		lookup_begins(world, request, log);
	else if (request->kind == ASK_DIGESTS)
		digests_begin(world, request, log);
	else
		places_begin(world, request, log);
	answer(world, request);
}

static void page_begins(struct world *world, struct request *request)
{
	const struct stream_page *page = &request->page;
	const struct log_row *row = committed_log_row(world, page->n, page->nonce);
	if (!row) {
		fail_request(world, request, false);
		return;
	}
	int64_t i = page->tick - row->first_tick;
	if (i < 1 || i >= row->tick_count) {
		world_fail(world, "page of tick %lld, log row %lld has %lld to %lld",
		    (long long)page->tick, (long long)row->n, (long long)row->first_tick + 1,
		    (long long)row->first_tick + row->tick_count - 1);
		return;
	}
	if (page->tick == row->listed_tick)
		read_listed(world, request, row);
	else
		read_window(
		    world, request, row->ticks[i - 1], row->ticks[i], page->after_id, page->rows);
	answer(world, request);
}

static void statement_begins(struct world *world, void *object, int64_t number)
{
	struct request *request = object;
	const struct log_row *newest = world->database.newest;
	(void)number;
	if (server_is_gone(world, request) || request->dropped)
		return;
	if (is_cut_short(world, request))
		return;
	request->begun = true;
	switch (request->kind) {
	case ASK_TAKE:
		take_begins(world, request);
		break;
	case ASK_TICK:
		tick_begins(world, request);
		break;
	case ASK_RENEW:
		renew_begins(world, request);
		break;
	case ASK_PAGE:
		page_begins(world, request);
		break;
	case ASK_NEWEST:
		request->n = newest->n;
		request->nonce = newest->nonce;
		request->holder = newest->owner;
		request->windows = newest->tick_count - 1;
		request->listed_tick =
		    newest->listed_tick > newest->first_tick ? newest->listed_tick : 0;
		answer(world, request);
		break;
	case ASK_PLACES:
	case ASK_LOOKUP:
	case ASK_DIGESTS:
		keys_begin(world, request);
		break;
	case ASK_DESTINATIONS:
		destinations_begin(world, request);
		break;
	case ASK_CLOSED:
		request->last = true;
		for (int t = request->after + 1; t < TOPICS; t++)
			request->answered[t] = newest->table.count[t] && !newest->table.open[t];
		answer(world, request);
		break;
	}
}

void database_send(struct world *world, struct session *session, struct request *request)
{
	request->session = session;
	request->session_generation = session->generation;
	request->server_generation = world->database.generation;
	request->owner = session->process->owner;
	session->under_way = request;
	request->sent_us = world->now;
	session->cancel_at = world->now + world->plan.stream.lease_ms * MS * 5 / 12;
	int64_t wait = long_wait(world), limit = world->plan.stream.lease_ms * MS / 3;
	if (wait > limit && world_chance(world, 500000)) { /* statement_timeout */
		wait = limit;
		request->cancelled = true;
	}
	world_after(world, world_delay(world, world->plan.database_us / 4) + wait, statement_begins,
	    request, 0);
}

/* --- sessions -------------------------------------------------------------------------------- */

static void session_opens(struct world *world, void *object, int64_t generation)
{
	struct session *session = object;
	if (generation != session->generation || !session->process->running)
		return;
	if (!world->database.up) {
		world_after(world, 30 * MS, session_opens, session, generation);
		return;
	}
	session->up = true;
	relay_wake(world, session->process);
}

void session_open(struct world *world, struct session *session)
{
	world_after(world, world_delay(world, 2 * MS), session_opens, session, session->generation);
}

/* A statement on its way may still be carried out. */
void session_break(struct world *world, struct session *session)
{
	struct request *request = session->under_way;
	session->generation++;
	session->up = false;
	session->lost |= request != NULL;
	session->under_way = session->answer = session->ending = NULL;
	if (request && !request->begun && world_chance(world, 500000))
		request->dropped = true;
	/* now and then the way to the server is away for a while */
	int64_t away = world_has_faults(world) && world_chance(world, 200000)
			   ? world_below(world, 3 * world->plan.stream.lease_ms * MS / 2)
			   : world_delay(world, 2 * MS);
	world_after(world, away, session_opens, session, session->generation);
	relay_wake(world, session->process);
}

/* The server has ended nothing for so long that nobody waits for it any more. */
static void give_up_session(struct world *world, void *object, int64_t generation)
{
	struct session *session = object;
	if (session->ending && session->generation == generation)
		session_break(world, session);
}

bool session_cancel(struct world *world, struct session *session)
{
	struct request *request = session->under_way;
	if (!request || session->answer || world->now < session->cancel_at)
		return false;
	session->ending = request;
	session->under_way = NULL;
	session->up = false;
	request->cancelled = world_chance(world, 700000);
	world->result.cancelled++;
	world_trace(world, "owner %d cancels a statement", request->owner);
	world_after(world, 10 * world->plan.stream.lease_ms * MS / 3, give_up_session, session,
	    session->generation);
	return true;
}

/* --- the server's life ------------------------------------------------------------------------ */

static void server_starts(struct world *world, void *object, int64_t number)
{
	(void)object;
	(void)number;
	world->database.up = true;
}

/* Whatever is not committed is gone; everybody is disconnected. */
static void server_ends(struct world *world)
{
	struct database *database = &world->database;
	database->up = false;
	database->generation++;
	while (database->running)
		end_transaction(world, database->running, ABORTED);
	bell_server_ends(world);
	for (int i = 0; i < KEYS; i++)
		database->keys[i].holder = database->keys[i].waiting = NULL;
	for (int i = 0; i < world->plan.writers; i++) {
		struct writer *writer = &database->writers[i];
		writer->generation++;
		writer->transaction = NULL;
		writer->next_waiting = NULL;
		world_after(world, world_delay(world, world->plan.think_us), writer_begin, writer,
		    writer->generation);
	}
	for (int64_t n = 0; n < database->log_capacity; n++)
		if (database->log[n] && database->log[n]->transaction->state == ABORTED)
			database->log[n] = NULL;
	for (int i = 0; i < world->plan.processes; i++) {
		if (!world->processes[i].running)
			continue;
		session_break(world, &world->processes[i].log);
		session_break(world, &world->processes[i].read);
	}
	world_after(world, world_between(world, 10 * MS, 2000 * MS), server_starts, NULL, 0);
}

void database_restart(struct world *world)
{
	if (!world->database.up)
		return;
	world_trace(world, "the database restarts");
	server_ends(world);
}

/* What committed from `cut` on never reached the standby: its xids and ids are given out again. */
static void lose_rows(struct world *world, int64_t cut)
{
	struct database *database = &world->database;
	while (database->history_count) {
		struct row *row = database->history[database->history_count - 1];
		if (row->transaction->order < cut)
			break;
		database->history_count--;
		row->lost = true;
		world->committed--;
		if (row->occurrences)
			world->published--;
		if (row->key < 0 || row->deliver_us)
			continue;
		struct key *key = &database->keys[row->key];
		key->committed--;
		if (key->published > key->committed)
			key->published = key->committed;
	}
}

static void lose_log_rows(struct world *world, int64_t cut)
{
	struct database *database = &world->database;
	while (database->newest->transaction->order >= cut) {
		int64_t n = database->newest->n;
		database->log[n] = NULL;
		database->newest = database->log[n - 1];
		world->result.disturbances++; /* what it covered is published again */
	}
}

void database_fail_over(struct world *world)
{
	struct database *database = &world->database;
	if (!database->up)
		return;
	int64_t lost = world_below(world, database->commits < 12 ? database->commits + 1 : 12);
	int64_t cut = database->commits - lost;
	world_trace(world, "failover, the last %lld commits are lost", (long long)lost);
	server_ends(world);
	lose_rows(world, cut);
	lose_log_rows(world, cut);
	int64_t xid = 2, id = 0;
	for (int64_t n = 0; n <= database->newest->n; n++)
		if (database->log[n] && database->log[n]->transaction->xid > xid)
			xid = database->log[n]->transaction->xid;
	for (int64_t i = 0; i < database->history_count; i++) {
		const struct row *row = database->history[i];
		xid = row->transaction->xid > xid ? row->transaction->xid : xid;
		id = row->id > id ? row->id : id;
	}
	database->next_xid = world_between(world, xid + 1, database->next_xid);
	database->last_id = world_between(world, id, database->last_id);
	database->timeline++;
	world->failover_us = world->now;
	world->result.failovers++;
}

void database_clock_jumps(struct world *world, int64_t jump_us)
{
	world_trace(world, "the database's clock jumps by %lld ms", (long long)jump_us / MS);
	world->database.lease_clock_us += jump_us;
	world->database.jumped_us = world->now;
	world->result.jumps++;
}

int64_t database_clock_us(const struct world *world)
{
	return world->now + world->database.lease_clock_us;
}

static void operator_asks(struct world *world, void *object, int64_t number)
{
	struct database *database = &world->database;
	(void)object;
	(void)number;
	if (database->asked == REQUESTS_MAX || world->phase > HEALED)
		return;
	/* a failover may undo a skip, and the check of the order cannot follow that */
	struct asked asked = {!world->plan.failovers && world_chance(world, 500000), -1};
	const struct log_row *log = database->newest;
	if (log && log->parked_count && world_chance(world, 800000))
		asked.key = log->parked[world_between(world, 0, log->parked_count - 1)].row->key;
	world_trace(world, "an operator asks for a %s of key %d", asked.skips ? "skip" : "retry",
	    asked.key);
	database->requests[database->asked++] = asked;
	world_after(world, world_between(world, 20 * MS, 1000 * MS), operator_asks, NULL, 0);
}

void database_start(struct world *world)
{
	struct database *database = &world->database;
	struct snapshot *nothing = world_allocate(world, sizeof *nothing);
	nothing->xmin = nothing->xmax = 3;
	struct log_row *first = world_allocate(world, sizeof *first);
	*first = (struct log_row){.n = world_below(world, 3),
	    .owner = -1,
	    .tick_count = 1,
	    .epoch = 1 + world_below(world, 1000),
	    .timeline = 1,
	    .ticks = {nothing},
	    .released = true};
	first->transaction = world_allocate(world, sizeof *first->transaction);
	first->transaction->state = COMMITTED;
	first->transaction->order = -1; /* no failover loses it */
	for (int t = 0; t < TOPICS; t++)
		for (int p = 0; p < PARTITIONS; p++)
			first->delta.offset[t][p] = -2;
	first->known = first->table = first->delta;
	first->folded = first->n;
	database->log =
	    world_grow(world, NULL, &database->log_capacity, first->n + 1, sizeof *database->log);
	database->log[first->n] = first;
	database->newest = first;
	database->up = true;
	database->timeline = 1;
	database->next_xid = world_between(world, 3, 1000);
	if (world->plan.long_transaction)
		database->long_writer = &database->writers[0];
	for (int i = 0; i < world->plan.writers; i++)
		world_after(world, world_delay(world, world->plan.think_us), writer_begin,
		    &database->writers[i], 0);
	if (world->plan.operators)
		world_after(
		    world, world_between(world, 20 * MS, 1000 * MS), operator_asks, NULL, 0);
}
