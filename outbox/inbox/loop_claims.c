/*
 * Messages whose ids are claimed before a handler has them (claimer.h). Begin at
 * loop_take_claimed.
 *
 * In a store that several consumers share an id is pending only until its lease ends, and a handler
 * may take longer. So the store is queried again under the claim: an earlier holder has recorded
 * the id before it released the claim. While another consumer has the claim, the id is given back
 * to the store, because that consumer must be able to record it.
 */
#include "loop_private.h"

#include <stdlib.h>
#include "claimer.h"
#include "clock.h"
#include "logging.h"
#include "outbox_error.h"
#include "text.h"
#include "worker_pool.h"

enum {
	ASKED = 256, /* ids in one request to the store */
	REFUSED_FIRST_MS = 100,
	REFUSED_MOST_MS = 1000, /* longest pause before a claim is tried again */
};

/* --- ids in the shared store ---------------------------------------------------------------- */

/* Messages of one request to the store of all partitions. */
struct asking {
	struct item *items[ASKED];
	struct outbox_dedup_id ids[ASKED];
	enum outbox_dedup_state states[ASKED];
	size_t count;
};

static void add_asking(struct asking *asking, struct item *item)
{
	asking->ids[asking->count] = inbox_partition_id(item);
	asking->items[asking->count++] = item;
}

/* Afterwards the ids are not pending here, and the store is queried before they are handled. */
static bool give_back_asking(struct loop *loop, struct asking *asking, struct err *err)
{
	struct outbox_error error;
	if (asking->count == 0)
		return true;
	if (!outbox_dedup_release(loop->common.dedup, asking->ids, asking->count, &error))
		return outbox_error_take(&error, err);
	for (size_t i = 0; i < asking->count; i++)
		inbox_partition_forget_state(asking->items[i]);
	return true;
}

static bool check_asking(struct loop *loop, struct asking *asking, struct err *err)
{
	struct outbox_error error;
	if (!outbox_dedup_check(
		loop->common.dedup, asking->ids, asking->count, asking->states, &error))
		return outbox_error_take(&error, err);
	for (size_t i = 0; i < asking->count; i++)
		inbox_partition_apply_state(asking->items[i], asking->states[i]);
	return true;
}

/* --- granted -------------------------------------------------------------------------------- */

static void offer_claimed(struct loop *loop, struct item *item)
{
	item->refusals = 0;
	item_move(item, ITEM_READY);
	item_list_add(&loop->ready, item);
}

static void leave_claimed(struct loop *loop, struct item *item, int64_t wait_ms)
{
	claimer_release(item);
	item->out = false;
	loop_rest(loop, item, wait_ms);
}

/* The items are claimed. Those that are no longer new take the way of their fate. */
static void ask_under_claims(struct loop *loop, struct asking *asking)
{
	struct err err;
	bool asked = give_back_asking(loop, asking, &err) && check_asking(loop, asking, &err);
	if (!asked)
		loop_trouble(loop, &loop->common, &err);

	for (size_t i = 0; i < asking->count; i++) {
		struct item *item = asking->items[i];
		if (asked && item->fate == FATE_HANDLE)
			offer_claimed(loop, item);
		else
			leave_claimed(loop, item, asked ? 0 : AGAIN_MS);
	}
	asking->count = 0;
}

static void take_granted(struct loop *loop, struct item_list *granted)
{
	struct asking *asking = xcalloc(1, sizeof *asking);
	for (struct item *item; (item = item_list_take(granted));) {
		if (!loop->common.dedup || !item->pending)
			offer_claimed(loop, item);
		else
			add_asking(asking, item);
		if (asking->count == ASKED || (asking->count > 0 && !granted->first))
			ask_under_claims(loop, asking);
	}
	free(asking);
}

/* --- refused -------------------------------------------------------------------------------- */

static int64_t pause_after_refusal(struct item *item)
{
	int64_t wait = REFUSED_FIRST_MS << (item->refusals < 4 ? item->refusals : 4);
	item->refusals++;
	return wait < REFUSED_MOST_MS ? wait : REFUSED_MOST_MS;
}

/* If the store does not take an id back now, the next attempt under a claim does. */
static void give_back_refused(struct loop *loop, struct asking *asking)
{
	struct err err;
	if (!give_back_asking(loop, asking, &err))
		loop_trouble(loop, &loop->common, &err);
	asking->count = 0;
}

static void take_refused(struct loop *loop, struct item_list *refused)
{
	struct asking *asking = xcalloc(1, sizeof *asking);
	for (struct item *item; (item = item_list_take(refused));) {
		loop->stats.claims_refused++;
		item->out = false;
		loop_rest(loop, item, pause_after_refusal(item));

		if (loop->common.dedup && item->pending)
			add_asking(asking, item);
		if (asking->count == ASKED)
			give_back_refused(loop, asking);
	}
	give_back_refused(loop, asking);
	free(asking);
}

/* --- the loop's calls ----------------------------------------------------------------------- */

void loop_claim(struct loop *loop, struct item *item)
{
	item_move(item, ITEM_CLAIMING);
	item->out = true;
	item_list_add(&loop->claiming, item);
}

void loop_take_claimed(struct loop *loop)
{
	struct item_list granted = {0}, refused = {0};
	struct err err;
	if (!loop->claimer)
		return;

	claimer_results(loop->claimer, &granted, &refused);
	loop->busy |= granted.first || refused.first;
	take_granted(loop, &granted);
	take_refused(loop, &refused);

	if (!claimer_failed(loop->claimer, &err))
		return;
	if (err.kind == ERR_CONFIG)
		loop_fail(loop, &err);
	else
		loop_tell(loop, "inbox_claims_wait", &err);
}

/* The handler has ended. Only a message that is done keeps its claim, until its id is recorded. */
void loop_end_claim(struct loop *loop, struct item *item)
{
	bool done = item->result == OUTBOX_INBOX_DONE || item->result == OUTBOX_INBOX_DUPLICATE;
	if (item->claim.number && !claimer_holds(item)) {
		loop->stats.claims_lost++;
		log_warn("inbox_claim_lost", {"topic", LOG_TEXT(item->assigned->topic)},
		    {"partition", LOG_INT(item->assigned->partition)},
		    {"offset", LOG_INT(item->public.offset)},
		    {"token", LOG_INT(item->public.token)}, {"done", LOG_INT(done)},
		    {"consequence",
			LOG_TEXT(
			    "its handler was paused, or the server of the claims was away, for "
			    "longer than the lease: another consumer may have handled the "
			    "message meanwhile; a target that compares tokens has refused the "
			    "older one")});
	}

	if (!done)
		claimer_release(item);
}
