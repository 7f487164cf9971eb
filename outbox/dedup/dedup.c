/*
 * The front of all stores. It hashes ids, and keeps the set of ids that are pending in this
 * process; the store remembers the ids that are done (dedup_store.h). A check passes only ids to
 * the store that were not pending before, each once: copies within the call get their state from
 * the first one.
 *
 * Read fill_turn first, which turns ids into items, then the check (make_pending, report_states),
 * then done and release; outbox_dedup_take bypasses the set.
 */
#include "dedup.h"

#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "dedup_stores.h"
#include "hash_set.h"
#include "outbox_error.h"
#include "text.h"

/* Buffers of one call: its items, and in a check the items that the store looks up. */
struct turn {
	struct dedup_item *items, *asked;
	enum outbox_dedup_state *answers; /* one for each asked item */
	size_t *places;                   /* for each asked item, its index in the call */
	size_t capacity;
};

struct outbox_dedup {
	struct dedup_store *store;
	struct hash_set pending;
	int64_t most_pending;
	struct turn turn;
	uint64_t found[3]; /* number of answers, by state */
};

static bool fail_dedup(struct outbox_error *error, const struct err *err)
{
	outbox_error_of(err, error);
	return false;
}

/* --- life ----------------------------------------------------------------------------------- */

static struct dedup_store *open_store_of_line(
    const char *line, int64_t *ret_pending, struct err *err)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec;
	if (!dedup_spec_parse(line, &spec, err))
		return NULL;
	*ret_pending = spec.pending;
	return spec.type->open(&spec, err);
}

struct outbox_dedup *outbox_dedup_open(const char *line, struct outbox_error *error)
{
	struct err err;
	int64_t most_pending;
	struct dedup_store *store = open_store_of_line(line, &most_pending, &err);
	if (!store) {
		fail_dedup(error, &err);
		return NULL;
	}
	struct outbox_dedup *dedup = xcalloc(1, sizeof *dedup);
	dedup->store = store;
	dedup->most_pending = most_pending;
	return dedup;
}

void outbox_dedup_close(struct outbox_dedup *dedup)
{
	if (!dedup)
		return;
	dedup->store->type->close(dedup->store);
	hash_set_finish(&dedup->pending);
	free(dedup->turn.items);
	free(dedup->turn.asked);
	free(dedup->turn.answers);
	free(dedup->turn.places);
	free(dedup);
}

/* --- ids ------------------------------------------------------------------------------------ */

static void reserve_turn(struct turn *turn, size_t count)
{
	if (count <= turn->capacity)
		return;
	turn->capacity = count;
	turn->items = xrealloc(turn->items, count * sizeof *turn->items);
	turn->asked = xrealloc(turn->asked, count * sizeof *turn->asked);
	turn->answers = xrealloc(turn->answers, count * sizeof *turn->answers);
	turn->places = xrealloc(turn->places, count * sizeof *turn->places);
}

static bool check_dedup_length(const struct outbox_dedup_id *id, size_t place, struct err *err)
{
	if (id->length == 0)
		return err_set(err, ERR_REJECT,
		    "id %zu of the call is empty: give each message an id of its own, or leave it "
		    "out of dedup",
		    place + 1);
	if (id->length > OUTBOX_DEDUP_ID_MAX)
		return err_set(err, ERR_REJECT,
		    "id %zu of the call has %zu bytes, at most are %d: use its SHA-256 as the id",
		    place + 1, id->length, OUTBOX_DEDUP_ID_MAX);
	return true;
}

static bool fill_turn(
    struct outbox_dedup *dedup, const struct outbox_dedup_id *ids, size_t count, struct err *err)
{
	int64_t now_ms = clock_wall_us() / 1000;
	reserve_turn(&dedup->turn, count);

	for (size_t i = 0; i < count; i++) {
		const struct outbox_dedup_id *id = &ids[i];
		if (!check_dedup_length(id, i, err))
			return false;
		/*
		 * A time later than now would move the window ahead, and end other ids too early.
		 */
		dedup->turn.items[i] = (struct dedup_item){
		    .hash = fingerprint_of(id->id, id->length, dedup->store->seed),
		    .id = id->id,
		    .length = id->length,
		    .time_ms = id->time_ms < 0 || id->time_ms > now_ms ? now_ms : id->time_ms,
		    .offset = id->offset,
		    .place = i,
		};

		hash_set_prefetch(&dedup->pending, dedup->turn.items[i].hash);
	}
	return true;
}

/* --- check ---------------------------------------------------------------------------------- */

/* Makes the items pending, and collects in turn->asked those that were not pending before. */
static size_t make_pending(struct outbox_dedup *dedup, size_t count)
{
	struct turn *turn = &dedup->turn;
	size_t asked = 0;
	for (size_t i = 0; i < count; i++) {
		if (!hash_set_add(&dedup->pending, turn->items[i].hash))
			continue;
		turn->asked[asked] = turn->items[i];
		turn->places[asked++] = i;
	}
	return asked;
}

static void end_pending(struct outbox_dedup *dedup, const struct dedup_item *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		hash_set_remove(&dedup->pending, items[i].hash);
}

/*
 * A hash table of the asked items, with open addressing: the index of an item plus 1; 0: free.
 * NULL: all items are looked up, so that none of them is a copy.
 */
static uint32_t *find_places(const struct turn *turn, size_t count, size_t asked, size_t *ret_mask)
{
	size_t capacity = 1;
	if (asked == count)
		return NULL;

	while (capacity < asked * 2)
		capacity *= 2;

	*ret_mask = capacity - 1;
	uint32_t *places = xcalloc(capacity, sizeof *places);
	for (size_t i = 0; i < asked; i++) {
		size_t place = turn->asked[i].hash.high & *ret_mask;
		while (places[place])
			place = (place + 1) & *ret_mask;
		places[place] = (uint32_t)(i + 1);
	}
	return places;
}

/*
 * The state of an item that was not asked. If it is a copy of an asked item, it is pending when
 * that item is new, and otherwise has that item's state. If it is not in the table, it was pending
 * before the call, and still is.
 */
static enum outbox_dedup_state state_of_copy(
    const struct turn *turn, struct fingerprint hash, const uint32_t *places, size_t mask)
{
	for (size_t place = hash.high & mask; places[place]; place = (place + 1) & mask) {
		const struct fingerprint *other = &turn->asked[places[place] - 1].hash;
		enum outbox_dedup_state answer = turn->answers[places[place] - 1];
		if (other->low == hash.low && other->high == hash.high)
			return answer == OUTBOX_DEDUP_NEW ? OUTBOX_DEDUP_PENDING : answer;
	}
	return OUTBOX_DEDUP_PENDING;
}

static void report_states(
    struct outbox_dedup *dedup, size_t count, size_t asked, enum outbox_dedup_state *ret_states)
{
	const struct turn *turn = &dedup->turn;
	size_t next = 0, mask = 0;
	OWNED(cleanup_free) uint32_t *places = find_places(turn, count, asked, &mask);

	for (size_t i = 0; i < asked; i++)
		/* Only a new id stays pending in this process. */
		if (turn->answers[i] != OUTBOX_DEDUP_NEW)
			hash_set_remove(&dedup->pending, turn->asked[i].hash);

	for (size_t i = 0; i < count; i++) {
		if (next < asked && turn->places[next] == i)
			ret_states[i] = turn->answers[next++];
		else
			ret_states[i] = state_of_copy(turn, turn->items[i].hash, places, mask);
		dedup->found[ret_states[i]]++;
	}
}

static bool has_pending_room(const struct outbox_dedup *dedup, size_t count, struct err *err)
{
	return dedup->pending.count + count <= (uint64_t)dedup->most_pending ||
	       err_set(err, ERR_RETRY,
		   "%zu ids are pending and %zu come: at most are %lld (pending=); finish some",
		   dedup->pending.count, count, (long long)dedup->most_pending);
}

bool outbox_dedup_check(struct outbox_dedup *dedup, const struct outbox_dedup_id *ids, size_t count,
    enum outbox_dedup_state *ret_states, struct outbox_error *error)
{
	struct err err;
	struct turn *turn = &dedup->turn;

	if (!has_pending_room(dedup, count, &err) || !fill_turn(dedup, ids, count, &err))
		return fail_dedup(error, &err);

	size_t asked = make_pending(dedup, count);
	if (!dedup->store->type->look(dedup->store, turn->asked, asked, turn->answers, &err)) {
		/*
		 * Else the next check would find these ids pending, and no caller would handle
		 * them.
		 */
		end_pending(dedup, turn->asked, asked);
		return fail_dedup(error, &err);
	}

	report_states(dedup, count, asked, ret_states);
	return true;
}

/* --- done, release -------------------------------------------------------------------------- */

bool outbox_dedup_done(struct outbox_dedup *dedup, const struct outbox_dedup_id *ids, size_t count,
    struct outbox_error *error)
{
	struct err err;
	if (!fill_turn(dedup, ids, count, &err))
		return fail_dedup(error, &err);

	for (size_t i = 0; i < count; i++)
		if (!hash_set_has(&dedup->pending, dedup->turn.items[i].hash)) {
			err_set(&err, ERR_REJECT,
			    "id %zu of the call is not pending: check it first, and end it once",
			    i + 1);
			return fail_dedup(error, &err);
		}

	if (!dedup->store->type->add(dedup->store, dedup->turn.items, count, &err)) {
		/* another process took some of them, and the store has recorded the others */
		if (err.kind == ERR_FENCED)
			end_pending(dedup, dedup->turn.items, count);
		return fail_dedup(error, &err);
	}

	end_pending(dedup, dedup->turn.items, count);
	return true;
}

/* Moves the pending items to the front, and returns their number. */
static size_t part_pending(struct outbox_dedup *dedup, size_t count)
{
	struct dedup_item *items = dedup->turn.items;
	size_t pending = 0;
	for (size_t i = 0; i < count; i++)
		if (hash_set_has(&dedup->pending, items[i].hash)) {
			struct dedup_item item = items[i];
			items[i] = items[pending];
			items[pending++] = item;
		}
	return pending;
}

static bool release_turn(struct outbox_dedup *dedup, size_t count, struct err *err)
{
	const struct dedup_store_type *type = dedup->store->type;
	const struct dedup_item *items = dedup->turn.items;
	size_t pending = part_pending(dedup, count);

	/* Checked before any change: a call that is refused has changed nothing. */
	if (pending < count && !type->remove)
		return err_set(err, ERR_REJECT,
		    "%zu of the ids are not pending, and '%s' cannot forget what is done: choose a "
		    "store that can (docs/reference/dedup.md)",
		    count - pending, type->promise.store);

	if (pending && type->give_back && !type->give_back(dedup->store, items, pending, err))
		return false;
	end_pending(dedup, items, pending);
	return pending == count ||
	       type->remove(dedup->store, items + pending, count - pending, err);
}

bool outbox_dedup_release(struct outbox_dedup *dedup, const struct outbox_dedup_id *ids,
    size_t count, struct outbox_error *error)
{
	struct err err;
	if (fill_turn(dedup, ids, count, &err) && release_turn(dedup, count, &err))
		return true;
	return fail_dedup(error, &err);
}

/* --- in a transaction ----------------------------------------------------------------------- */

/* The store's own session locks a pending id: the transaction would wait for this process. */
static bool check_not_pending(const struct outbox_dedup *dedup, size_t count, struct err *err)
{
	for (size_t i = 0; i < count; i++)
		if (hash_set_has(&dedup->pending, dedup->turn.items[i].hash))
			return err_set(err, ERR_REJECT,
			    "id %zu of the call is pending: end it, or take it without a check "
			    "before",
			    i + 1);
	return true;
}

static bool take_turn_ids(struct outbox_dedup *dedup, struct pg_conn *connection, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	const struct dedup_store_type *type = dedup->store->type;
	if (!type->take)
		return err_set(err, ERR_CONFIG,
		    "'%s' takes part in no transaction: begin the line with postgres, or use "
		    "check and done",
		    type->promise.store);
	return check_not_pending(dedup, count, err) &&
	       type->take(dedup->store, connection, dedup->turn.items, count, ret_states, err);
}

bool outbox_dedup_take(struct outbox_dedup *dedup, struct pg_conn *connection,
    const struct outbox_dedup_id *ids, size_t count, enum outbox_dedup_state *ret_states,
    struct outbox_error *error)
{
	struct err err;
	if (!fill_turn(dedup, ids, count, &err) ||
	    !take_turn_ids(dedup, connection, count, ret_states, &err))
		return fail_dedup(error, &err);
	for (size_t i = 0; i < count; i++)
		dedup->found[ret_states[i]]++;
	return true;
}

/* --- the rest ------------------------------------------------------------------------------- */

bool outbox_dedup_checkpoint(struct outbox_dedup *dedup, int64_t offset, struct outbox_error *error)
{
	struct err err;
	return dedup->store->type->checkpoint(dedup->store, offset, &err) ||
	       fail_dedup(error, &err);
}

bool outbox_dedup_flush(struct outbox_dedup *dedup, struct outbox_error *error)
{
	struct err err;
	const struct dedup_store_type *type = dedup->store->type;
	return !type->flush || type->flush(dedup->store, &err) || fail_dedup(error, &err);
}

size_t outbox_dedup_mark(const struct outbox_dedup *dedup, char *ret_text, size_t size)
{
	const struct dedup_store_type *type = dedup->store->type;
	return type->mark ? type->mark(dedup->store, ret_text, size) : 0;
}

bool outbox_dedup_resume(struct outbox_dedup *dedup, const char *text, struct outbox_error *error)
{
	struct err err;
	const struct dedup_store_type *type = dedup->store->type;
	if (type->resume)
		return type->resume(dedup->store, text, &err) || fail_dedup(error, &err);
	err_set(&err, ERR_CONFIG, "'%s' does not fit into a line: only 'sequence' does",
	    type->promise.store);
	return fail_dedup(error, &err);
}

void outbox_dedup_stats(const struct outbox_dedup *dedup, struct outbox_dedup_stats *ret_stats)
{
	*ret_stats = (struct outbox_dedup_stats){
	    .store = dedup->store->type->promise.store,
	    .pending = dedup->pending.count,
	    .newest_ms = -1,
	    .offset = -1,
	    .found_new = dedup->found[OUTBOX_DEDUP_NEW],
	    .found_pending = dedup->found[OUTBOX_DEDUP_PENDING],
	    .found_done = dedup->found[OUTBOX_DEDUP_DONE],
	};
	dedup->store->type->stats(dedup->store, ret_stats);
}

const struct outbox_dedup_promise *outbox_dedup_promise(int number)
{
	int known = 0;
	while (known < number && dedup_stores[known])
		known++;
	return number >= 0 && dedup_stores[known] ? &dedup_stores[known]->promise : NULL;
}
