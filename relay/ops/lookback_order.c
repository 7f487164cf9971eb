#include "lookback_order.h"

#include <inttypes.h>
#include "cleanup.h"
#include "pg_array.h"
#include "sql_files.h"
#include "text.h"

void lookback_order_init(
    struct lookback_order *order, struct lookback_selection *selection, enum lookback_verb verb)
{
	static const char *const words[] = {[LOOKBACK_COMMIT] = "commit",
	    [LOOKBACK_ROLLBACK] = "rollback",
	    [LOOKBACK_RETRY] = "retry"};

	*order = (struct lookback_order){.selection = selection,
	    .verb = verb,
	    .word = words[verb],
	    .chosen = lookback_selection_chosen(selection)};
}

void lookback_order_finish(struct lookback_order *order)
{
	free(order->chosen);
}

/* --- ids that must be refused ---------------------------------------------------------------- */

/* Columns of lookback_find.sql behind those of enum lookback_selection_column. */
enum {
	FIND_DECISION = SELECTION_COLUMNS,
	FIND_SOURCE,
	FIND_DECIDED_AT,
	FIND_DECIDED_BY,
	FIND_REASON,
	FIND_CAME_BEFORE
};

/* ", alice: ticket 7" of an operator's decision. */
static bool refuse_decided(const char *id, const struct pg_result *rows, int i, struct err *err)
{
	OWNED(text_finish) struct text why = {0};

	if (!pg_is_null(rows, i, FIND_DECIDED_BY)) {
		text_addf(&why, ", %s: ", pg_value(rows, i, FIND_DECIDED_BY));
		text_add_line(
		    &why, pg_is_null(rows, i, FIND_REASON) ? "-" : pg_value(rows, i, FIND_REASON));
	}
	return err_set(err, ERR_REJECT, "%s was decided: %s by %s at %s%.200s", id,
	    pg_value(rows, i, FIND_DECISION), pg_value(rows, i, FIND_SOURCE),
	    pg_value(rows, i, FIND_DECIDED_AT), text_string(&why));
}

static bool refuse_selected_row(
    const struct lookback_order *order, const struct pg_result *rows, int i, struct err *err)
{
	OWNED(text_finish) struct text id = {0};
	const char *state = pg_value(rows, i, SELECTION_STATE);

	text_addf(&id, "%s ", pg_value(rows, i, SELECTION_TYPE));
	text_add_line(&id, pg_value(rows, i, SELECTION_ID));
	/* the application has decided already: an order could only contradict that */
	if (pg_is_null(rows, i, SELECTION_STATE) && !pg_is_null(rows, i, FIND_CAME_BEFORE))
		return err_set(err, ERR_REJECT,
		    "%s: its %s came, and its prepare has not: it will be decided by that", id.data,
		    pg_value(rows, i, FIND_CAME_BEFORE));
	if (pg_is_null(rows, i, SELECTION_STATE))
		return err_set(err, ERR_REJECT,
		    "%s is not known: `outbox-relay lookback list` shows what is overdue or "
		    "parked",
		    id.data);
	if (text_equal(state, "decided"))
		return refuse_decided(id.data, rows, i, err);

	/* the deadline of its prepare has not passed: the transaction may still be running */
	if (order->verb == LOOKBACK_RETRY && text_equal(state, "undecided"))
		return err_set(err, ERR_REJECT,
		    "%s is not overdue: the business is called first at %s", id.data,
		    pg_value(rows, i, SELECTION_NEXT_AT));
	return true;
}

/* Returns the rows of the named ids; NULL on error. */
static struct pg_result *find_selected_ids(const struct lookback_order *order, struct err *err)
{
	const json_t *pairs = json_object_get(order->selection->chosen, "ids");
	struct pg_array types = {0}, ids = {0};
	struct pg_result *rows;

	for (size_t i = 0; i < json_array_size(pairs); i++) {
		const json_t *pair = json_array_get(pairs, i);

		pg_array_add_text(&types, json_string_value(json_array_get(pair, 0)));
		pg_array_add_text(&ids, json_string_value(json_array_get(pair, 1)));
	}

	const struct pg_param params[] = {{pg_array_end(&types)}, {pg_array_end(&ids)}};

	rows = lookback_selection_query(order->selection, sql_lookback_find, params, 2, err);
	pg_array_finish(&types);
	pg_array_finish(&ids);
	return rows;
}

/* True: the order can be carried out for each of the ids. */
static bool check_selected_ids(const struct lookback_order *order, struct err *err)
{
	OWNED(owned_pg_result_destroy) struct pg_result *rows = find_selected_ids(order, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (!refuse_selected_row(order, rows, i, err))
			return false;
	return rows != NULL;
}

static bool count_matching(struct lookback_order *order, struct err *err)
{
	/* all of them: an order changes every id that matches */
	const struct pg_param params[] = {{order->chosen}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    lookback_selection_query(order->selection, sql_lookback_count, params, 1, err);

	if (!rows)
		return false;
	order->matching = pg_int(rows, 0, 0);
	return order->matching > 0 ||
	       err_set(err, ERR_REJECT, "nothing%s is overdue or parked",
		   json_object_size(order->selection->chosen) > 0 ? " that matches" : "");
}

bool lookback_order_count(struct lookback_order *order, struct err *err)
{
	if (order->selection->id_count == 0)
		return count_matching(order, err);
	order->matching = order->selection->id_count;
	return check_selected_ids(order, err);
}

struct pg_result *lookback_order_sample(
    const struct lookback_order *order, int most, struct err *err)
{
	owned_text char *limit = xformat("%d", most);
	const struct pg_param params[] = {{order->chosen}, {""}, {""}, {"-infinity"}, {limit}};

	if (order->selection->id_count > 0)
		return find_selected_ids(order, err);
	return lookback_selection_query(order->selection, sql_lookback_list, params, 5, err);
}

/* --- doing it -------------------------------------------------------------------------------- */

/* Somebody else was faster, or no row is left: counts and checks again to find the reason. */
static bool look_again(struct lookback_order *order, struct err *err)
{
	if (!lookback_order_count(order, err))
		return false;
	return err_set(err, ERR_RETRY,
	    "others have decided some of these ids just now, and nothing was changed: repeat the "
	    "call");
}

bool lookback_order_carry_out(struct lookback_order *order, const char *reason, struct err *err)
{
	enum { AUDIT, DONE, REFUSED, DUPLICATES };
	const struct pg_param params[] = {{order->word}, {order->chosen}, {reason},
	    {order->selection->id_count > 0 ? "true" : "false"}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    lookback_selection_query(order->selection, sql_lookback_operate, params, 4, err);

	if (!row)
		return false;

	/* no id was changed: named ids are handled all or none, and of others none was left */
	if (!pg_is_null(row, 0, REFUSED))
		return look_again(order, err);
	order->id = pg_int(row, 0, AUDIT);
	order->done = pg_int(row, 0, DONE);
	order->duplicates = pg_int(row, 0, DUPLICATES);
	return true;
}
