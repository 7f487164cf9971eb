/*
 * The relays of the simulator: what outbox/publish/io/shard_worker.c and delivery.c do around a
 * stream, with the simulated database and brokers. A process may be killed or paused between any
 * two steps; paused between the asking and the doing, it does first what it was about to do when it
 * wakes up.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "simulator_world.h"

enum { STANDBY_POLL_MS = 250, SPINS = 50 };

static int64_t now_ms(const struct world *world)
{
	return world->now / MS;
}

bool relay_is_paused(const struct world *world, const struct process *process)
{
	return world->now < process->paused_until;
}

/* --- life and death ----------------------------------------------------------------------------
 */

static void process_turn(struct world *world, void *object, int64_t number);

static void turn_at(struct world *world, struct process *process, int64_t at)
{
	if (at < world->now)
		at = world->now;
	if (process->wake_at && process->wake_at <= at)
		return;
	process->wake_at = at;
	world_after(world, at - world->now, process_turn, process, ++process->wake_number);
}

void relay_wake(struct world *world, struct process *process)
{
	if (process->running && !relay_is_paused(world, process))
		turn_at(world, process, world->now + world_below(world, 100));
}

static void relay_begin(struct world *world, void *object, int64_t number)
{
	struct process *process = object;
	(void)number;
	if (process->running || world->phase >= STOPPING)
		return;
	struct stream_settings settings = world->plan.stream;
	settings.seed = (uint64_t)world_between(world, 1, INT64_MAX / 2);
	settings.drains =
	    settings.seed % 2; /* it only notes earlier, whether it is stopped or not */
	*process = (struct process){
	    .world = world,
	    .index = process->index,
	    .owner = world->owners++,
	    .running = true,
	    .stream = stream_create(&settings),
	    .log = {.process = process, .generation = process->log.generation + 1},
	    .read = {.process = process, .generation = process->read.generation + 1},
	    .wake_number = process->wake_number,
	};
	world_trace(world, "process %d starts as owner %d", process->index, process->owner);
	session_open(world, &process->log);
	session_open(world, &process->read);
	bell_begin(world, process);
	relay_wake(world, process);
}

static void process_ends(struct world *world, struct process *process)
{
	bell_end(world, process);
	process->running = false;
	process->log.generation++;
	process->read.generation++;
	process->wake_number++;
	if (process->producer)
		producer_close(world, process->producer);
	stream_destroy(process->stream);
	process->stream = NULL;
	if (world->phase < STOPPING)
		world_after(
		    world, world_between(world, 10 * MS, 2500 * MS), relay_begin, process, 0);
}

void relay_kill(struct world *world, struct process *process)
{
	if (!process->running)
		return;
	world_trace(world, "owner %d is killed", process->owner);
	world->result.kills++;
	/* a stop that gave up waiting may have released the shard with records in flight */
	if (process->stopping && stream_status(process->stream, world->now / MS).in_flight)
		world->result.disturbances++;
	process_ends(world, process);
}

void relay_pause(struct world *world, struct process *process, int64_t duration)
{
	if (!process->running || relay_is_paused(world, process))
		return;
	world_trace(world, "owner %d sleeps for %lld ms", process->owner, (long long)duration / MS);
	world->result.pauses++;
	process->paused_until = world->now + duration;
	process->wake_at = 0;
	turn_at(world, process, process->paused_until + world_below(world, MS));
}

static void cut_off(struct world *world, void *object, int64_t owner)
{
	struct process *process = object;
	int64_t lease_us = world->plan.stream.lease_ms * MS;
	bool early = world->now - world->cut_off_us < lease_us;
	if (!process->running || process->owner != owner || world->phase != BUSY || early)
		return;
	world_trace(world, "owner %d is cut off", process->owner);
	world->cut_off_us = world->now;
	process->log.silent_until = world->now + world_between(world, lease_us / 3, lease_us);
	database_clock_jumps(world, lease_us);
}

void relay_cut_off(struct world *world, struct process *process, int64_t delay)
{
	world_after(world, delay, cut_off, process, process->owner);
}

void relay_cut_off_owner(struct world *world)
{
	for (int i = 0; i < world->plan.processes; i++)
		if (world->processes[i].owner == world->database.newest->owner)
			relay_cut_off(world, &world->processes[i], 0);
}

void relay_stop(struct world *world, struct process *process)
{
	if (!process->running || process->stopping)
		return;
	world_trace(world, "owner %d is asked to stop", process->owner);
	process->stopping = true;
	stream_stop(process->stream);
	relay_wake(world, process);
}

/* A fault between two steps; true: this turn is over. */
static bool interrupted(struct world *world, struct process *process)
{
	if (process->dies) {
		world_trace(world, "owner %d has met a row that kills", process->owner);
		relay_kill(world, process);
		return true;
	}
	if (!world_has_faults(world) || !world->plan.process_faults || !world_chance(world, 100))
		return false;
	if (world_chance(world, 500000))
		relay_kill(world, process);
	else
		relay_pause(world, process,
		    world_between(world, 1 * MS, 3 * world->plan.stream.lease_ms * MS));
	return true;
}

void relay_start(struct world *world)
{
	for (int i = 0; i < world->plan.processes; i++) {
		world->processes[i].index = i;
		world_after(
		    world, world_below(world, 50 * MS), relay_begin, &world->processes[i], 0);
	}
}

/* --- rows ----------------------------------------------------------------------------------- */

/* Two words that tell whether the memory is still the row's, the row itself, then key and topic. */
static struct message message_of(struct row *row)
{
	char *block = xcalloc(1, 64);
	int64_t words[3] = {row->id, ~row->id, (int64_t)(intptr_t)row};
	struct message message = {.block = block,
	    .id = row->id,
	    .payload = block,
	    .payload_length = sizeof words,
	    .partition = row->partition,
	    .bytes = row->bytes,
	    .created_us = row->committed_us,
	    .due_us = row->deliver_us ? row->deliver_us : row->committed_us,
	    .event_id = block + 48};
	memcpy(block, words, sizeof words);
	if (row->key >= 0) {
		message.key = block + sizeof words;
		message.key_length = 2;
		block[sizeof words] = (char)('a' + row->key % 16);
		block[sizeof words + 1] = (char)('a' + row->key / 16);
	}
	memcpy(block + 48, &row, sizeof row); /* ids are issued again after a failover */
	message.topic = block + 32;
	message.topic_length = (int32_t)strlen(topic_names[row->topic]);
	memcpy(block + 32, topic_names[row->topic], (size_t)message.topic_length);
	return message;
}

static void feed_row(struct process *process, const struct request *request, struct row *row)
{
	process->dies |= row->kills == KILLS_WHO_READS && !request->page.withheld;
	struct message message = message_of(row);
	const struct parked_row *kept =
	    request->listed_in ? find_kept(request->listed_in, row) : NULL;
	message.scheduled = row->deliver_us && (!kept || kept->state == SCHEDULED);
	if (request->page.withheld)
		message.payload = NULL;
	stream_row(process->stream, &message);
}

/* --- the log connection --------------------------------------------------------------------------
 */

static int topic_index(const char *name, size_t length)
{
	for (int t = 0; t < TOPICS; t++)
		if (strlen(topic_names[t]) == length && memcmp(topic_names[t], name, length) == 0)
			return t;
	return -1;
}

/* {"topic":[count,{"partition":offset,…},false],"topic":null,…} as record_queue_rows.c writes it.
 */
static struct destinations parse_destinations(struct world *world, const char *text)
{
	struct destinations found = {0};
	json_t *json = json_loads(text, 0, NULL), *topic, *offset;
	const char *name, *partition;
	for (int t = 0; t < TOPICS; t++)
		for (int p = 0; p < PARTITIONS; p++)
			found.offset[t][p] = -2;
	if (!json)
		world_fail(world, "destinations cannot be read: %s", text);
	json_object_foreach(json, name, topic)
	{
		int t = topic_index(name, strlen(name));
		found.count[t] = (int32_t)json_integer_value(json_array_get(topic, 0));
		found.gone[t] = json_is_null(topic);
		found.open[t] = !found.gone[t] && !json_is_false(json_array_get(topic, 2));
		world->result.closings += !found.open[t];
		json_object_foreach(json_array_get(topic, 1), partition, offset)
		{
			found.offset[t][strtol(partition, NULL, 10)] = json_integer_value(offset);
		}
	}
	json_decref(json);
	return found;
}

static int stall_state(int place)
{
	return place == TOPIC_PAUSED ? PAUSED : STALLED;
}

static void parse_kept(struct world *world, struct request *request, json_t *rows, bool scheduled)
{
	json_t *entry;
	size_t i;
	json_array_foreach(rows, i, entry)
	{
		int64_t id = json_integer_value(json_array_get(entry, 0));
		bool refused = json_is_string(json_array_get(entry, 2));
		const json_t *stalled = json_array_get(entry, 4);
		bool dead = json_is_true(json_array_get(entry, 5));
		if (json_is_null(stalled))
			stalled = NULL;
		request->parks[request->park_count++] =
		    (struct parked_row){.row = world->database.rows[id],
			.state = scheduled  ? SCHEDULED
				 : !refused ? BEHIND
				 : stalled  ? stall_state((int)json_integer_value(stalled))
				 : dead     ? DEAD
					    : WAITING,
			.stalled = stalled ? (int)json_integer_value(stalled) : NOT_STALLED,
			.tick = json_integer_value(json_array_get(entry, scheduled ? 2 : 3))};
	}
}

/* What record_queue_parks.c writes for outbox.park and outbox.schedule. */
static void parse_parks(struct world *world, struct request *request, const char *text)
{
	json_t *parks = json_loads(text, 0, NULL), *rows = json_object_get(parks, "rows");
	json_t *scheduled = json_object_get(parks, "scheduled");
	json_t *recovered = json_object_get(parks, "recovered"), *place;
	size_t count = json_array_size(rows) + json_array_size(scheduled), i;
	if (!count && !json_array_size(recovered))
		world_fail(world, "rows kept back cannot be read: %s", text);
	request->parks = world_allocate(world, (count + 1) * sizeof *request->parks);
	parse_kept(world, request, rows, false);
	parse_kept(world, request, scheduled, true);
	request->recovered =
	    world_allocate(world, (json_array_size(recovered) + 1) * sizeof *request->recovered);
	json_array_foreach(recovered, i, place)
	{
		const char *name = json_string_value(json_array_get(place, 0));
		request->recovered[request->recovered_count++] =
		    (struct place){topic_index(name, strlen(name)),
			(int)json_integer_value(json_array_get(place, 1)),
			json_integer_value(json_array_get(place, 2))};
	}
	json_decref(parks);
}

static struct request *make_request(
    struct world *world, struct process *process, const struct stream_tick *tick)
{
	struct request *request = world_allocate(world, sizeof *request);
	static const enum request_kind kinds[] = {[STREAM_TAKE] = ASK_TAKE,
	    [STREAM_TICK] = ASK_TICK,
	    [STREAM_RENEW] = ASK_RENEW,
	    [STREAM_NEWEST] = ASK_NEWEST,
	    [STREAM_PLACES] = ASK_PLACES,
	    [STREAM_LOOKUP] = ASK_LOOKUP,
	    [STREAM_DIGESTS] = ASK_DIGESTS,
	    [STREAM_DESTINATIONS] = ASK_DESTINATIONS,
	    [STREAM_CLOSED] = ASK_CLOSED};
	request->kind = kinds[tick->call];
	request->tick = *tick;
	request->last_seen = process->seen;
	if (tick->call == STREAM_LOOKUP) {
		size_t size = ((size_t)tick->most + 1) * sizeof *request->lookups;
		request->lookups = world_allocate(world, size);
		memcpy(request->lookups, tick->lookups, (size_t)tick->most * sizeof *tick->lookups);
	}
	if (tick->call == STREAM_TICK)
		request->touched = parse_destinations(world, tick->destinations);
	if (tick->call == STREAM_TICK)
		world_trace(world, "owner %d says %s%s", process->owner, tick->destinations,
		    tick->fold_to ? " and folds" : "");
	request->after = -1;
	for (int t = 0; tick->after && t < TOPICS; t++) {
		request->named[t] = tick->topics && strstr(tick->topics, topic_names[t]);
		if (!tick->topics && strcmp(tick->after, topic_names[t]) == 0)
			request->after = t;
	}
	if (tick->call == STREAM_TICK && tick->parks)
		parse_parks(world, request, tick->parks);
	return request;
}

static void take_answered(
    struct world *world, struct process *process, const struct request *request)
{
	if (!request->taken) {
		stream_not_taken(process->stream, now_ms(world),
		    request->wait_ms < STANDBY_POLL_MS ? request->wait_ms : STANDBY_POLL_MS);
		return;
	}
	process->seen = NULL;
	process->bounds_tick = 0;
	stream_taken(process->stream, now_ms(world), &request->take);
	process->paused_topics = request->paused_topics;
	process->taken_us = world->now;
	world->result.takeovers++;
	world_trace(
	    world, "owner %d took the shard at %lld", process->owner, (long long)request->take.n);
}

static void tick_answered(
    struct world *world, struct process *process, const struct request *request)
{
	bool searched = request->verdict == STREAM_IDLE && request->tick.may_open;
	process->seen = searched ? request->snapshot : NULL;
	if (request->tick.may_open)
		process->looked_us = request->looked_us;
	if (request->tick.new_epoch && request->verdict == STREAM_NOTED)
		world->result.epochs++;
	for (int i = 0; i < request->emptied_count; i++)
		stream_unparked(process->stream, request->emptied[i]);
	for (int i = 0; i < request->recovered_looked; i++) {
		const struct place *place = &request->recovered[i];
		const char *topic = topic_names[place->topic];
		stream_recovered(
		    process->stream, topic, strlen(topic), place->partition, place->freed_id);
	}
	if (request->verdict != STREAM_FENCED)
		stream_parked_news(process->stream, now_ms(world), request->asked, request->due_ms);
	if (request->verdict != STREAM_FENCED) {
		stream_pause(process->stream, request->publisher_paused);
		stream_pause_topics(
		    process->stream, paused_topics_json(world, request->paused_topics));
		process->paused_topics = request->paused_topics;
	}
	if (request->tick.may_list || request->tick.parks)
		stream_worked(process->stream, now_ms(world), world_between(world, 1, 60));
	stream_ticked(process->stream, now_ms(world), request->verdict);
	if (request->verdict != STREAM_ROWS && request->verdict != STREAM_LISTED)
		return;
	for (int i = 0; i < request->row_count && request->tick.max_rows; i++)
		feed_row(process, request, request->rows[i]);
	stream_rows_end(process->stream);
}

/* As statements.c does: the renewal's own xid is the next one, if no other one has ended. */
static const struct snapshot *seen_after_renewal(struct world *world, const struct snapshot *seen)
{
	size_t size = sizeof *seen + (size_t)seen->count * sizeof *seen->xip;
	struct snapshot *after = world_allocate(world, size);

	memcpy(after, seen, size);
	after->xmax++;
	after->xmin += seen->xmin == seen->xmax;
	return after;
}

static void renewal_answered(
    struct world *world, struct process *process, const struct request *request)
{
	bool written = request->verdict == STREAM_NOTED;
	bool quiet = written && request->tick.may_open && request->last_seen &&
		     snapshot_equal(request->snapshot, request->last_seen);

	process->seen = quiet ? seen_after_renewal(world, request->last_seen) : NULL;
	if (!quiet) {
		stream_renewed(process->stream, now_ms(world), written);
		return;
	}
	world->result.quiet_renewals++;
	process->looked_us = request->looked_us;
	stream_renewed_idle(process->stream, now_ms(world));
}

static void destinations_answered(struct process *process, const struct request *request)
{
	const struct destinations *known = &request->destinations;
	for (int t = 0; t < TOPICS; t++) {
		const struct stream_destination destination = {
		    .topic = topic_names[t],
		    .partitions = known->count[t],
		    .open = known->open[t],
		    .n = known->n[t],
		    .offsets = known->offset[t],
		    .count = PARTITIONS,
		};
		if (request->answered[t])
			stream_destination(process->stream, &destination);
	}
	stream_destinations_end(process->stream, request->last);
}

static void closed_answered(
    struct world *world, struct process *process, const struct request *request)
{
	for (int t = 0; t < TOPICS; t++)
		if (request->answered[t])
			stream_closed_destination(process->stream, topic_names[t]);
	stream_closed_end(process->stream, now_ms(world), request->last);
}

static void places_answered(struct process *process, const struct request *request)
{
	for (int i = 0; i < request->row_count; i++) {
		const struct parked_row *kept = find_kept(request->listed_in, request->rows[i]);
		const char *topic = topic_names[kept->row->topic];
		stream_stalled_place(process->stream, topic, strlen(topic), kept->stalled);
	}
	stream_places_end(process->stream, 0);
}

static void keys_answered(struct process *process, const struct request *request)
{
	if (request->kind == ASK_PLACES) {
		places_answered(process, request);
	} else if (request->kind == ASK_LOOKUP) {
		for (int i = 0; i < request->found_count; i++)
			stream_looked_up(process->stream, request->found[i], request->itself[i]);
		stream_lookup_end(process->stream);
	} else {
		for (int i = 0; i < request->digest_count; i++)
			stream_digest(process->stream, request->digests[i]);
		stream_digests_end(process->stream, request->digest_count);
	}
}

static void newest_answered(
    struct world *world, struct process *process, const struct request *request)
{
	world->result.unsure++;
	stream_newest(process->stream, now_ms(world), request->n, request->nonce, request->windows,
	    request->listed_tick);
	enum stream_state state = stream_status(process->stream, now_ms(world)).state;
	if (request->holder != process->owner && state != STREAM_STANDBY)
		world_fail(world, "owner %d believes in log row %lld of owner %d", process->owner,
		    (long long)request->n, request->holder);
}

static void log_answered(struct world *world, struct process *process)
{
	const struct request *request = process->log.answer;
	process->log.answer = process->log.under_way = NULL;
	if (request->failed && request->conflict && request->kind == ASK_TICK)
		stream_ticked(process->stream, now_ms(world), STREAM_FENCED);
	else if (request->failed && request->conflict && request->kind == ASK_RENEW)
		stream_renewed(process->stream, now_ms(world), false);
	else if (request->failed)
		stream_log_failed(process->stream, now_ms(world), false,
		    world->now - request->sent_us >= world->plan.stream.lease_ms * MS / 3);
	else if (request->kind == ASK_TAKE)
		take_answered(world, process, request);
	else if (request->kind == ASK_TICK)
		tick_answered(world, process, request);
	else if (request->kind == ASK_RENEW)
		renewal_answered(world, process, request);
	else if (request->kind == ASK_CLOSED)
		closed_answered(world, process, request);
	else if (request->kind == ASK_DESTINATIONS)
		destinations_answered(process, request);
	else if (request->kind == ASK_NEWEST)
		newest_answered(world, process, request);
	else
		keys_answered(process, request);
}

/* True: something happened. */
static bool step_log(struct world *world, struct process *process)
{
	struct session *session = &process->log;
	bool busy = session->lost || session->answer;
	if (session_cancel(world, session)) {
		stream_log_failed(process->stream, now_ms(world), true, true);
		return true;
	}
	if (session->lost) {
		session->lost = false;
		stream_log_failed(process->stream, now_ms(world), true, false);
	}
	if (session->answer) {
		log_answered(world, process);
		bell_note_looks(world, process);
	}
	if (!session->up || session->under_way)
		return busy;
	const struct stream_tick tick = stream_log_call(process->stream, now_ms(world));
	if (tick.call == STREAM_NONE)
		return busy;
	process->held_call = make_request(world, process, &tick);
	return true;
}

static void send_held_call(struct world *world, struct process *process)
{
	struct request *request = process->held_call;
	if (!request)
		return;
	process->held_call = NULL;
	bell_look_is_sent(process, request);
	if (process->log.up)
		database_send(world, &process->log, request);
	else
		stream_log_failed(process->stream, now_ms(world), true, false);
}

/* --- the read connection
 * -------------------------------------------------------------------------- */

static void page_arrives(struct world *world, struct process *process)
{
	struct session *session = &process->read;
	const struct request *request = session->answer;
	int64_t bytes = 0;
	int turn = (int)world_between(world, 1, 64);
	if (process->bounds_tick != request->page.tick) {
		/* the first answer says only where the window's rows are */
		process->bounds_tick = request->page.tick;
		session->answer = session->under_way = NULL;
		return;
	}
	for (int i = 0; i < session->fed; i++)
		bytes += request->rows[i]->bytes;
	for (; turn > 0 && session->fed < request->row_count && bytes < request->page.bytes;
	     turn--) {
		if (session->fed == session->cut_at) {
			session_break(world, session);
			return;
		}
		struct row *row = request->rows[session->fed++];
		bytes += row->bytes;
		feed_row(process, request, row);
	}
	bool cut = bytes >= request->page.bytes;
	if (!cut && session->fed < request->row_count)
		return;
	session->answer = session->under_way = NULL;
	stream_page_end(
	    process->stream, now_ms(world), !cut && request->row_count < request->page.rows, 0);
}

static bool step_read(struct world *world, struct process *process)
{
	struct session *session = &process->read;
	bool busy = session->lost || session->answer;
	if (session_cancel(world, session)) {
		stream_read_failed(process->stream, now_ms(world));
		process->bounds_tick = 0;
		return true;
	}
	if (session->lost) {
		session->lost = false;
		stream_read_failed(process->stream, now_ms(world));
		process->bounds_tick = 0;
	}
	if (session->answer && session->answer->failed) {
		session->answer = session->under_way = NULL;
		stream_read_failed(process->stream, now_ms(world));
		process->bounds_tick = 0;
	}
	if (session->answer) {
		page_arrives(world, process);
		bell_note_looks(world, process);
	}
	if (!session->up || session->under_way)
		return busy;
	const struct stream_page page = stream_read_call(process->stream, now_ms(world));
	if (!page.wanted)
		return busy;
	struct request *request = world_allocate(world, sizeof *request);
	request->kind = ASK_PAGE;
	request->page = page;
	database_send(world, session, request);
	return true;
}

/* --- Kafka --------------------------------------------------------------------------------------
 */

void relay_report(struct world *world, struct process *process, const struct report *report)
{
	int64_t capacity = process->report_capacity;
	process->reports = world_grow(world, process->reports, &capacity, process->report_count + 1,
	    sizeof *process->reports);
	process->report_capacity = (int)capacity;
	process->reports[process->report_count++] = *report;
	relay_wake(world, process);
}

static bool take_reports(struct world *world, struct process *process)
{
	int64_t turn = world_between(world, 1, 50);
	bool busy = process->reports_taken < process->report_count;
	for (; turn > 0 && process->reports_taken < process->report_count; turn--) {
		const struct report *report = &process->reports[process->reports_taken++];
		const char *error = report->delivery == STREAM_REFUSED ? "too large" : "unclear";
		world->result.refusals += report->delivery == STREAM_REFUSED;
		if (report->delivery != STREAM_WRITTEN)
			world_trace(world, "owner %d hears that %lld was %s", process->owner,
			    (long long)report->sequence,
			    report->delivery == STREAM_REFUSED ? "refused" : "not sent");
		stream_report(process->stream, now_ms(world), report->sequence, report->delivery,
		    report->offset, error);
	}
	if (process->reports_taken == process->report_count)
		process->reports_taken = process->report_count = 0;
	return busy;
}

static bool is_covered(const struct log_row *log, const struct row *row)
{
	int64_t xid = row->transaction->xid;
	return row->lost || snapshot_sees(log->ticks[0], xid) ||
	       (log->tick_count > 1 && row->id <= log->acked_id &&
		   snapshot_sees(log->ticks[1], xid));
}

/* What a crash right now would repeat, counted from the outside. */
static void check_sent(struct world *world, struct process *process, struct row *row)
{
	const struct log_row *newest = world->database.newest;
	int64_t kept = 0;
	bool there = false;
	for (int64_t i = 0; i < process->sent_count; i++) {
		struct row *sent = process->sent[i];
		there |= sent == row;
		if (!is_covered(newest, sent))
			process->sent[kept++] = sent;
	}
	process->sent_count = kept;
	if (there)
		return;
	process->sent = world_grow(
	    world, process->sent, &process->sent_capacity, kept + 1, sizeof *process->sent);
	process->sent[process->sent_count++] = row;
	/* a failover takes back what covered them */
	if (process->sent_count > stream_most_uncovered(&world->plan.stream) &&
	    world->failover_us < process->taken_us)
		world_fail(world, "%lld rows given to the producer, none of them covered",
		    (long long)process->sent_count);
}

static void hand_over(struct world *world, struct process *process)
{
	const struct stream_record *record = &process->held;
	const struct message *message = &process->held_message;
	const int64_t *words = (const int64_t *)(const void *)message->payload;
	process->holds = false;
	if (!words) {
		world_fail(world, "id %lld is sent without its contents", (long long)message->id);
		return;
	}
	struct row *row = (struct row *)(intptr_t)words[2];
	int topic = process->held_topic;
	if (row->kills) {
		process->dies = true;
		return;
	}
	if (row->unsendable) {
		stream_report(process->stream, now_ms(world), record->sequence, STREAM_UNSENDABLE,
		    -1, "too large to be sent");
		return;
	}
	if (!producer_has_room(world, process->producer)) {
		stream_report(process->stream, now_ms(world), record->sequence, STREAM_AGAIN, -1,
		    "the queue is full");
		return;
	}
	struct wire_record wire = {
	    .row = row,
	    .owner = process->owner,
	    .epoch = stream_epoch(process->stream),
	    .tick = record->tick,
	    .id = message->id,
	    .sequence = record->sequence,
	    .first_tail = process->first_tails[topic][record->partition],
	    .tail = process->last_tails[topic][record->partition],
	    .payload = words,
	};
	world_trace(world, "owner %d sends row %lld as %lld to %s %d", process->owner,
	    (long long)row->id, (long long)record->sequence, topic_names[topic], record->partition);
	producer_send(world, process->producer, topic, record->partition, &wire);
	check_sent(world, process, row);
}

static void check_ownership(struct world *world, const struct process *process)
{
	const struct log_row *newest = world->database.newest;
	/* a lease that was given before the last jump, or failover, may be ended by it */
	int64_t changed_us = world->failover_us > world->database.jumped_us
				 ? world->failover_us
				 : world->database.jumped_us;
	bool excused = world->now - changed_us <= world->plan.stream.lease_ms * MS;
	if (newest->owner != process->owner && !excused)
		world_fail(world, "owner %d sends while the shard is owner %d's", process->owner,
		    newest->owner);
}

static bool send_records(struct world *world, struct process *process)
{
	int64_t turn = world_between(world, 1, 40);
	bool busy = false;
	while (turn-- > 0 && stream_send(process->stream, now_ms(world), &process->held)) {
		busy = process->holds = true;
		process->held_message = *process->held.message;
		process->held_topic = topic_index(process->held.topic, strlen(process->held.topic));
		check_ownership(world, process);
		if (process->paused_topics & 1U << process->held_topic)
			world_fail(world, "owner %d sends to %s, which is paused", process->owner,
			    topic_names[process->held_topic]);
		if (interrupted(world, process))
			return true;
		hand_over(world, process);
		if (process->dies && interrupted(world, process))
			return true;
	}
	if (turn < 0)
		relay_wake(world, process);
	return busy;
}

static void lose_producer(struct world *world, struct process *process, const char *why)
{
	world_trace(world, "owner %d makes its producer anew: %s", process->owner, why);
	producer_close(world, process->producer);
	process->producer = NULL;
	process->transactions = UNFENCED;
	process->holds_transaction_call = false;
	process->producer_at = world->now + world_delay(world, 20 * MS);
	process->abandon_at = 0;
	process->reports_taken = process->report_count = 0;
	world->result.producers++;
	world->result.disturbances++;
	stream_producer_lost(process->stream);
}

static enum stream_found see_record(
    struct process *process, const struct stream_question *question, int topic, int64_t offset)
{
	const struct wire_record *record =
	    &process->world->kafka.topics[topic].partitions[question->partition].records[offset];
	const struct outbox_position position = {
	    .epoch = record->epoch, .tick = record->tick, .id = record->id};
	char event_id[16] = {0};
	if (record->hidden || !record->row)
		return STREAM_FOUND;
	memcpy(event_id, &record->row, sizeof record->row);
	return stream_tail_record(process->stream, question, offset, &position, event_id);
}

static struct stream_question question_of(const struct process *process, int topic, int partition)
{
	return (struct stream_question){
	    topic_names[topic], partition, process->tails[topic][partition].number};
}

static void end_answer(struct process *process, int topic, int partition)
{
	process->tails[topic][partition].read_us = 0;
	process->tails_answered--;
}

/*
 * Passes forget nothing of the readings before them. They skip what this owner wrote itself,
 * between which a producer that was given up may have written something: that is not known.
 */
static void tail_is_known(struct process *process, int topic, int partition)
{
	const struct tail_question *question = &process->tails[topic][partition];
	const struct knowledge known = {question->read_us, question->least, question->end};
	if (!process->first_tails[topic][partition].us)
		process->first_tails[topic][partition] = known;
	process->last_tails[topic][partition] = known;
}

/* Some records of the answer in each turn, so that rows come by between them. */
static void see_tail(struct process *process, int topic, int partition)
{
	struct tail_question *question = &process->tails[topic][partition];
	const struct stream_question asked = question_of(process, topic, partition);
	bool beyond = question->offset > question->end || question->least > question->end;
	int64_t turn = world_between(process->world, 1, 60);
	for (; turn > 0 && question->next < question->end; turn--) {
		enum stream_found found = see_record(process, &asked, topic, question->next++);
		process->world->result.rewinds += found == STREAM_FOUND_UNKNOWN;
		if (found != STREAM_FOUND_ENOUGH)
			continue;
		world_trace(process->world, "owner %d read enough of %s %d, up to %lld",
		    process->owner, topic_names[topic], partition, (long long)question->next);
		process->world->result.passes++;
		end_answer(process, topic, partition);
		return;
	}
	if (question->next < question->end)
		return;
	world_trace(process->world, "owner %d read %s %d from %lld to %lld", process->owner,
	    topic_names[topic], partition, (long long)question->offset, (long long)question->end);
	stream_tail_end(process->stream, &asked, question->end, beyond);
	if (question->offset != STREAM_TAIL_END)
		tail_is_known(process, topic, partition);
	end_answer(process, topic, partition);
}

/* The answer to a question comes when another one was asked since: it must change nothing. */
static void answer_late(struct process *process, int topic, const struct stream_question *former)
{
	const struct partition *partition =
	    &process->world->kafka.topics[topic].partitions[former->partition];
	if (partition->end_offset > 0)
		see_record(
		    process, former, topic, world_below(process->world, partition->end_offset));
	if (world_chance(process->world, 500000))
		stream_tail_end(process->stream, former, partition->end_offset, false);
	else
		stream_tail_failed(process->stream, now_ms(process->world), former);
}

static void begin_question(struct process *process, int topic, const struct stream_tail *tail)
{
	struct tail_question *question = &process->tails[topic][tail->partition];
	const struct stream_question former = question_of(process, topic, tail->partition);
	process->tails_answered -= question->read_us > 0;
	*question = (struct tail_question){
	    .number = tail->number, .offset = tail->offset, .least = tail->least};
	kafka_read_tail(process->world, process, topic, tail->partition);
	if (former.number && world_chance(process->world, 200000))
		answer_late(process, topic, &former);
}

static bool step_tails(struct world *world, struct process *process)
{
	struct stream_tail tail;
	bool busy = process->tails_answered > 0;
	for (int t = 0; t < TOPICS && process->tails_answered; t++)
		for (int p = 0; p < PARTITIONS; p++)
			if (process->tails[t][p].read_us)
				see_tail(process, t, p);
	while (stream_tail_call(process->stream, now_ms(world), &tail))
		begin_question(process, topic_index(tail.topic, strlen(tail.topic)), &tail);
	return busy;
}

/*
 * A call of transactions goes out. The process may fall asleep before that, for longer than its
 * lease, and sends it when it wakes up, whoever owns the shard by then.
 */
static void send_transaction_call(struct world *world, struct process *process)
{
	if (!process->holds_transaction_call)
		return;
	process->holds_transaction_call = false;
	if (process->transactions == FENCING)
		producer_fence(world, process->producer);
	else if (process->transactions == COMMITTING)
		producer_commit(world, process->producer);
}

static void begin_transaction_call(struct world *world, struct process *process, bool fences)
{
	process->transactions = fences ? FENCING : COMMITTING;
	process->holds_transaction_call = true;
	process->fencing_take = stream_takes(process->stream);
	if (interrupted(world, process))
		return;
	if (world_has_faults(world) && world->plan.rivals && world_chance(world, 50000)) {
		world->result.late_calls++;
		relay_pause(world, process,
		    world_between(world, 1 * MS, 3 * world->plan.stream.lease_ms * MS));
		return;
	}
	send_transaction_call(world, process);
}

/* True: records may be sent. */
static bool step_transactions(struct world *world, struct process *process)
{
	bool wanted = stream_wants_producer(process->stream, now_ms(world));
	switch (process->transactions) {
	case UNFENCED:
		if (wanted) {
			if (world->options.reader == READER_BELIEVES_PRODUCERS)
				stream_producer_ready(process->stream);
			begin_transaction_call(world, process, true);
		}
		return false;
	case FENCED:
		process->transactions = OPEN;
		if (wanted && process->fencing_take == stream_takes(process->stream)) {
			stream_producer_ready(process->stream);
			return true;
		}
		producer_close(world, process->producer);
		process->producer = NULL;
		process->transactions = UNFENCED;
		process->abandon_at = 0;
		return false;
	case COMMITTED_NOW:
		process->transactions = OPEN;
		stream_committed(process->stream, now_ms(world));
		return true;
	case BROKEN:
		lose_producer(world, process, "a commit failed");
		return false;
	case OPEN:
	case COMMITTING: /* records go to the other id meanwhile */
		return true;
	default:
		return false;
	}
}

static void commit_if_wanted(struct world *world, struct process *process)
{
	if (process->transactions != OPEN || !stream_commits(process->stream))
		return;
	producer_turns(process->producer);
	begin_transaction_call(world, process, false);
}

static bool step_delivery(struct world *world, struct process *process)
{
	bool exact = world->plan.stream.transactions;
	bool wanted = !exact || stream_wants_producer(process->stream, now_ms(world));
	if (!process->producer && (world->now < process->producer_at || !wanted))
		return false;
	if (!process->producer)
		process->producer = producer_open(world, process);
	bool busy = take_reports(world, process);
	bool sends = !exact || step_transactions(world, process);
	if (!process->running || relay_is_paused(world, process) || !process->producer)
		return true;
	const char *verdict = stream_producer_verdict(process->stream, now_ms(world));
	if (producer_is_broken(process->producer))
		verdict = "it is broken";
	if (!verdict) {
		process->abandon_at = 0;
		if (sends && send_records(world, process))
			return true;
		if (sends && process->running && !relay_is_paused(world, process))
			commit_if_wanted(world, process);
		return busy;
	}
	if (!process->abandon_at)
		process->abandon_at = world->now + world_below(world, 50 * MS);
	if (world->now >= process->abandon_at) {
		lose_producer(world, process, verdict);
		return true;
	}
	return busy;
}

/* --- the loop
 * ------------------------------------------------------------------------------------- */

static bool has_unready_topic(const struct process *process)
{
	return stream_topics(process->stream, true) > 0;
}

static void ask_topics(struct world *world, struct process *process)
{
	char *closed;
	bool ready, unready = has_unready_topic(process);
	int32_t logged;
	while (stream_closed_topic(process->stream, &closed))
		free(closed);
	if (unready && process->topics_at > process->asked_at + 50 * MS)
		process->topics_at = process->asked_at + world_delay(world, 10 * MS);
	if (world->now < process->topics_at)
		return;
	for (int i = stream_topics(process->stream, false); i > 0; i--) {
		const char *name = stream_next_topic(process->stream, false, &ready, &logged);
		int32_t count = kafka_count(world, topic_index(name, strlen(name)));
		stream_topic(process->stream, name, count);
		if (count == 0)
			stream_topic_answered(process->stream, name, now_ms(world));
	}
	process->asked_at = world->now;
	process->topics_at = world->now + world_delay(world, unready ? 20 * MS : 300 * MS);
}

/* Whoever says that nothing is left has published everything that was committed when it looked. */
static void check_caught_up(struct world *world, const struct process *process)
{
	const struct database *database = &world->database;
	for (int64_t i = 0; i < database->history_count; i++) {
		const struct row *row = database->history[i];
		if (row->committed_us < process->looked_us && !row->occurrences &&
		    !row_is_parked(world, row))
			world_fail(world, "owner %d has caught up, row %lld is not published",
			    process->owner, (long long)row->id);
	}
}

/* The setting, and what a page that is read at the last moment has beyond its share of it. */
static int64_t memory_bound(const struct plan *plan)
{
	int64_t share = plan->stream.memory / 4;
	return plan->stream.memory + (share > 16 * 640 ? share : 16 * 640) + plan->row_bytes + 700;
}

/* A share of the memory, and a part of what a row in memory costs for each row that is sought. */
static int64_t tail_bound(const struct plan *plan, const struct stream_status *status)
{
	int64_t share =
	    plan->stream.tail_memory ? plan->stream.tail_memory : plan->stream.memory / 4;
	int64_t rows = status->records + stream_most_uncovered(&plan->stream);
	return share + rows * 160;
}

/* True: the process goes on. */
static bool check_status(struct world *world, struct process *process)
{
	const struct stream_status status = stream_status(process->stream, now_ms(world));
	bool owns = status.state == STREAM_OWNER || status.state == STREAM_UNSURE;
	if (status.in_flight > stream_most_uncovered(&world->plan.stream) || status.in_flight < 0)
		world_fail(world, "%lld records in flight", (long long)status.in_flight);
	if (status.bytes > memory_bound(&world->plan))
		world_fail(world, "%lld bytes in memory", (long long)status.bytes);
	if (status.tail_bytes > tail_bound(&world->plan, &status))
		world_fail(world, "%lld bytes of what tails showed", (long long)status.tail_bytes);
	if (status.state == STREAM_GONE)
		world_fail(world, "owner %d says that the publisher is gone", process->owner);
	if (process->was_owner && status.state == STREAM_STANDBY) {
		world_trace(world, "owner %d lost the shard", process->owner);
		process->sent_count = 0;
		/* the log of the next time may know less */
		memset(process->first_tails, 0, sizeof process->first_tails);
		memset(process->last_tails, 0, sizeof process->last_tails);
	}
	process->was_owner = owns;
	world->result.skipped += status.skipped - process->skipped;
	process->skipped = status.skipped;
	process->shows_refusal = status.refused;
	if (status.caught_up && !process->was_caught_up)
		check_caught_up(world, process);
	process->was_caught_up = status.caught_up;
	if (status.state != STREAM_RELEASED)
		return true;
	if (process->producer && !producer_is_idle(process->producer))
		world_fail(
		    world, "owner %d released the shard and goes on writing", process->owner);
	if (status.in_flight) {
		world->result.disturbances++;
		world->excused |= has_unready_topic(process);
	}
	world_trace(world, "owner %d has released the shard", process->owner);
	process_ends(world, process);
	return false;
}

void relay_trace(struct world *world, const struct process *process)
{
	const struct stream_status status = stream_status(process->stream, now_ms(world));
	world_trace(world, "owner %d is %s, %d windows, %lld records, %lld in flight%s%s%s%s",
	    process->owner, stream_states.rows[status.state].name, status.windows,
	    (long long)status.records, (long long)status.in_flight,
	    status.refused ? ", refused on " : "", status.refused ? status.refused_topic : "",
	    status.missing_topic ? ", missing " : "",
	    status.missing_topic ? status.missing_topic : "");
}

static void wait_for_turn(struct world *world, struct process *process, bool busy)
{
	const struct session *log = &process->log;
	bool idle = log->up && !log->under_way;
	int64_t wait = idle ? stream_wait(process->stream, now_ms(world))
			    : stream_wait_offline(process->stream, now_ms(world));
	int64_t at = wait < INT64_MAX / MS ? wait * MS : INT64_MAX;
	bool wanted = !world->plan.stream.transactions ||
		      stream_wants_producer(process->stream, now_ms(world));
	if (!process->producer && wanted && process->producer_at < at)
		at = process->producer_at;
	if (process->abandon_at && process->abandon_at < at)
		at = process->abandon_at;
	if (bell_due_us(process) < at)
		at = bell_due_us(process);
	process->idle_turns = busy || at > world->now ? 0 : process->idle_turns + 1;
	if (process->idle_turns > SPINS)
		world_fail(world, "owner %d spins", process->owner);
	if (process->topics_at < at)
		at = process->topics_at;
	if (log->under_way && !log->answer && log->cancel_at < at)
		at = log->cancel_at;
	if (process->read.under_way && !process->read.answer && process->read.cancel_at < at)
		at = process->read.cancel_at;
	if (busy || process->tails_answered || process->reports_taken < process->report_count ||
	    process->read.answer)
		at = world->now;
	turn_at(world, process, at > world->now ? at : world->now + 20);
}

static void process_turn(struct world *world, void *object, int64_t number)
{
	struct process *process = object;
	if (number != process->wake_number || !process->running)
		return;
	process->wake_at = 0;
	if (relay_is_paused(world, process)) {
		turn_at(world, process, process->paused_until);
		return;
	}
	if (process->holds)
		hand_over(world, process);
	if (process->dies && interrupted(world, process))
		return;
	send_transaction_call(world, process);
	bell_turn(world, process);
	send_held_call(world, process);
	bool busy = step_log(world, process);
	if (interrupted(world, process))
		return;
	send_held_call(world, process);
	busy |= step_read(world, process);
	if (interrupted(world, process))
		return;
	busy |= step_tails(world, process);
	busy |= step_delivery(world, process);
	if (!process->running || relay_is_paused(world, process))
		return;
	ask_topics(world, process);
	if (check_status(world, process))
		wait_for_turn(world, process, busy);
}
