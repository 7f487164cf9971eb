/*
 * Plans which reasons keep a partition (partition_order_plan), and drops or detaches it in steps
 * that block no writer (partition_order_carry_out). Then how missing ones are made.
 */
#include "partition_orders.h"

#include <inttypes.h>
#include <time.h>
#include "cleanup.h"
#include "clock.h"
#include "force_words.h"

enum { TRY_MS = 8000, PAUSE_MS = 50 };

const char *const partition_drop_force[] = {
    "retain", "retention", "unpublished", "undecided", "window", NULL};

static bool refuse_busy_lock(const char *table, struct err *err)
{
	err_set(err, ERR_RETRY,
	    "%s: a lock was not to be had without making writers wait; try again", table);
	return err_contended(err);
}

static bool judge_drop_outcome(
    struct partition_order *order, enum partition_outcome outcome, struct err *err)
{
	const char *name = order->request.name;

	order->outcome = outcome;
	switch (outcome) {
	case PARTITION_DROPPED:
	case PARTITION_DETACHED:
		return true;
	case PARTITION_BUSY:
		return refuse_busy_lock(name, err);
	case PARTITION_HELD:
		return err_set(err, ERR_RETRY,
		    "%s: a row came that somebody needs, and nothing was done; look again", name);
	case PARTITION_MISSING:
		return err_set(err, ERR_REJECT,
		    "%s is no partition; `outbox-relay partition list` shows them", name);
	default:
		return err_set(
		    err, ERR_RETRY, "%s stays: %s", name, partition_outcome_name(outcome));
	}
}

/* --- the plan -------------------------------------------------------------------------------- */

static void add_contradiction(struct partition_order *order, const char *word, const char *what)
{
	/* the operator has named exactly this contradiction; others still refuse the call */
	if (force_words_have(order->request.force, word))
		return;
	text_addf(&order->refused, "%s%s", order->refused.length ? "; " : "", what);
	text_addf(&order->refused_with, "%s`%s`", order->refused_with.length ? ", " : "", word);
}

/* Is there somebody who needs a row? */
static void find_need(struct partition_order *order, const char *table)
{
	OWNED(text_finish) struct text what = {0};
	bool is_message = text_equal(table, "message"), is_lookback = text_equal(table, "lookback");
	bool is_unique = text_equal(table, "unique_ledger");
	const char *word = is_message ? "unpublished" : is_lookback ? "undecided" : "window";

	/* the database looks again when it drops: a need may come after this plan */
	order->request.held_too = force_words_have(order->request.force, word);
	if (!order->holder[0])
		return;
	text_addf(&what,
	    is_message    ? "it holds rows that %s has not published"
	    : is_lookback ? "it holds a prepare of section %s that is undecided"
	    : is_unique   ? "it holds unique keys of topic %s that are in use"
			  : "it holds ids of consumer %s whose window has not passed",
	    order->holder);
	add_contradiction(order, word, text_string(&what));
}

static void find_contradictions(struct partition_order *order, const char *table,
    const struct partition *partition, int64_t now_us)
{
	const struct postgres_settings *postgres = order->postgres;
	int64_t until_us = partition->to_us + postgres->retain_ms * 1000;
	char until[MOMENT_SIZE];
	owned_text char *what = NULL;

	moment_format(until_us, until);
	what = xformat("`retain` of [postgres \"%s\"] keeps it until %s", postgres->name, until);
	if (until_us > now_us)
		add_contradiction(order, "retain", what);
	if (postgres->retention == RETENTION_DETACH && !order->request.detach)
		add_contradiction(order, "retention",
		    "`retention = detach` keeps its rows in a table of its own: detach it");
	/* the rows of a restored one are in a file already */
	if (postgres->retention == RETENTION_ARCHIVE && partition_is_archived(table) &&
	    !order->request.detach && !partition->kept_until_us)
		add_contradiction(
		    order, "retention", "`retention = archive` keeps its rows in a file");
}

static bool plan_partition(struct partition_order *order, const char *table,
    const struct partition *partition, struct err *err)
{
	const char *schema = order->postgres->schema;

	if (!partition_count_rows(order->pg, schema, table, partition, &order->rows, err) ||
	    !partition_holder(
		order->pg, schema, partition->name, order->holder, sizeof order->holder, err))
		return false;
	moment_format(partition->from_us, order->from);
	moment_format(partition->to_us, order->to);
	order->bytes = partition->bytes;
	return true;
}

/* *found stays false when the table has no such partition. */
static bool look_in_table(
    struct partition_order *order, const char *table, bool *found, struct err *err)
{
	const struct postgres_settings *postgres = order->postgres;
	OWNED(partition_list_finish) struct partition_list list = {0};

	if (!partition_list(
		order->pg, postgres->schema, table, postgres->partition_every_ms, &list, err))
		return false;
	for (int i = 0; i < list.count; i++) {
		/* the default partition cannot be dropped: rows without a partition go there */
		if (!list.items[i].bounded || !text_equal(list.items[i].name, order->request.name))
			continue;
		*found = true;
		if (!plan_partition(order, table, &list.items[i], err))
			return false;
		find_contradictions(order, table, &list.items[i], list.now_us);
		find_need(order, table);
	}
	return true;
}

bool partition_order_plan(struct partition_order *order, struct err *err)
{
	bool found = false;

	for (int i = 0; i < PARTITION_TABLES; i++)
		if (!look_in_table(order, partition_tables[i], &found, err))
			return false;
	if (!found)
		return judge_drop_outcome(order, PARTITION_MISSING, err);

	/* all contradictions at once, so that one order can force them together */
	return !order->refused.length ||
	       err_set(err, ERR_REJECT, "%s is not %s: %s; force it with %s", order->request.name,
		   order->request.detach ? "detached" : "dropped", text_string(&order->refused),
		   text_string(&order->refused_with));
}

/* --- the steps ------------------------------------------------------------------------------- */

static bool take_step(struct partition_order *order, bool retires,
    enum partition_outcome *ret_outcome, struct err *err)
{
	return retires ? partition_retire(
			     order->pg, order->postgres->schema, &order->request, ret_outcome, err)
		       : partition_drop(order->pg, order->postgres->schema, order->request.name,
			     ret_outcome, err);
}

/* A lock that a writer holds for a moment is tried again, for a while. */
static bool try_step(struct partition_order *order, bool retires,
    enum partition_outcome *ret_outcome, struct err *err)
{
	const struct timespec pause = {0, PAUSE_MS * 1000000L};
	int64_t until = clock_ms() + TRY_MS;

	do {
		if (!take_step(order, retires, ret_outcome, err))
			return false;
		if (*ret_outcome != PARTITION_BUSY)
			return true;
		nanosleep(&pause, NULL);
	} while (clock_ms() < until);
	return true;
}

bool partition_order_carry_out(struct partition_order *order, struct err *err)
{
	enum partition_outcome outcome;

	/* an emptied partition is removed by a second step; a detached one needs none */
	return try_step(order, true, &outcome, err) &&
	       (outcome != PARTITION_EMPTIED || try_step(order, false, &outcome, err)) &&
	       judge_drop_outcome(order, outcome, err);
}

char *partition_order_question(const char *name, bool detach)
{
	return xformat("%s %s?", detach ? "Detach" : "Drop", name);
}

void partition_order_finish(struct partition_order *order)
{
	text_finish(&order->refused);
	text_finish(&order->refused_with);
}

/* --- making them ----------------------------------------------------------------------------- */

struct making {
	const struct partition_making *order;
	const char *table;
};

static void tell_made(void *context, int64_t from_us)
{
	const struct making *making = context;
	char from[MOMENT_SIZE];

	moment_format(from_us, from);
	making->order->tell(making->order->context, making->table, from);
}

static bool make_missing_ahead(
    struct pg *pg, struct making *making, enum partition_outcome *ret_outcome, struct err *err)
{
	const struct postgres_settings *postgres = making->order->postgres;
	OWNED(partition_list_finish) struct partition_list partitions = {0};

	return partition_list(pg, postgres->schema, making->table, postgres->partition_every_ms,
		   &partitions, err) &&
	       partition_make_ahead(
		   pg, postgres, making->table, &partitions, tell_made, making, ret_outcome, err);
}

static bool make_one(
    struct pg *pg, struct making *making, enum partition_outcome *ret_outcome, struct err *err)
{
	const struct postgres_settings *postgres = making->order->postgres;
	int64_t from_us;

	if (!moment_parse(making->order->from, &from_us, err) ||
	    !partition_make(pg, postgres->schema, making->table, from_us,
		from_us + postgres->partition_every_ms * 1000, ret_outcome, err))
		return false;

	/* an existing one is reported by judge_make_outcome, as no error */
	if (*ret_outcome == PARTITION_MADE)
		tell_made(making, from_us);
	return true;
}

static bool judge_make_outcome(
    const struct making *making, enum partition_outcome outcome, struct err *err)
{
	const char *table = making->table;

	switch (outcome) {
	case PARTITION_MADE:
		return true;
	case PARTITION_EXISTS:
		making->order->tell(making->order->context, table, NULL);
		return true;
	case PARTITION_BUSY:
		return refuse_busy_lock(table, err);
	case PARTITION_DEFAULT_NOT_EMPTY:
		return err_set(err, ERR_RETRY,
		    "%s_default holds rows, which `outbox-relay run` moves first", table);
	default:
		return err_set(err, ERR_REJECT, "%s: no partition was made: %s", table,
		    partition_outcome_name(outcome));
	}
}

bool partition_orders_make(struct pg *pg, struct partition_making *order, struct err *err)
{
	for (int i = 0; i < PARTITION_TABLES; i++) {
		struct making making = {order, partition_tables[i]};

		if (order->table && !text_equal(order->table, making.table))
			continue;
		if (!(order->from ? make_one(pg, &making, &order->outcome, err)
				  : make_missing_ahead(pg, &making, &order->outcome, err)) ||
		    !judge_make_outcome(&making, order->outcome, err))
			return false;
	}
	return true;
}

bool partition_orders_are_locked(enum partition_outcome outcome)
{
	return outcome == PARTITION_BUSY || outcome == PARTITION_HELD ||
	       outcome == PARTITION_DEFAULT_NOT_EMPTY;
}
