#include "verification_order.h"

#include "cleanup.h"
#include "clock.h"
#include "sql_files.h"

/* --- options --------------------------------------------------------------------------------- */

static bool read_order_moment(const json_t *filter, const char *name, int64_t *ret_us,
    char ret_text[MOMENT_SIZE], struct err *err)
{
	const char *given = json_string_value(json_object_get(filter, name));

	if (!given)
		return true;
	if (!moment_parse(given, ret_us, err))
		return err_prefix(err, "%s", name);
	moment_format_exact(*ret_us, ret_text);
	return true;
}

static bool check_order_range(const struct verification_order *order, struct err *err)
{
	if (order->range.from_us >= order->range.to_us)
		return err_set(err, ERR_REJECT, "from %s does not lie before to %s",
		    order->facts.from, order->facts.to);
	/* such a range is most likely a typing error, and an empty result would hide it */
	return order->range.from_us <= clock_wall_us() ||
	       err_set(err, ERR_REJECT, "from %s lies in the future, where nothing is",
		   order->facts.from);
}

bool verification_order_read(
    struct verification_order *order, const json_t *filter, bool *ret_conflicts, struct err *err)
{
	const json_t *memory = json_object_get(filter, "memory");

	*ret_conflicts = false;
	*order = (struct verification_order){.range = {INT64_MIN, INT64_MAX},
	    .sequence = json_string_value(json_object_get(filter, "sequence")),
	    .memory = memory ? json_integer_value(memory) : VERIFICATION_MEMORY};
	order->facts.no_duplicates = json_is_true(json_object_get(filter, "no_duplicates"));

	if (!read_order_moment(filter, "from", &order->range.from_us, order->facts.from, err) ||
	    !read_order_moment(filter, "to", &order->range.to_us, order->facts.to, err))
		return false;
	if (order->memory < 1 || order->memory > VERIFICATION_MOST_MEMORY)
		return err_set(err, ERR_REJECT,
		    "memory is no whole number from 1 to %d: a larger table is checked in rounds, "
		    "or by `outbox-relay verify` on the database, which takes more",
		    VERIFICATION_MOST_MEMORY);
	if (order->sequence && !order->sequence[0])
		return err_set(err, ERR_REJECT,
		    "sequence is empty: name a field of the payloads, or leave it out");
	*ret_conflicts = true;
	return check_order_range(order, err);
}

/* --- the database ---------------------------------------------------------------------------- */

bool verification_create(struct pg *pg, const struct publisher_settings *publisher,
    const json_t *filter, const char *reason, const char *caller, int64_t *ret_id,
    int64_t *ret_audit, struct err *err)
{
	owned_text char *text = json_dumps(filter, JSON_COMPACT);
	const struct pg_param params[] = {{reason}, {caller}, {publisher->name}, {text}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(pg, publisher->postgres, sql_verification_create, params, 4, err);

	if (!row)
		return false;
	*ret_id = pg_int(row, 0, 0);
	*ret_audit = pg_int(row, 0, 1);
	return true;
}

bool verification_rows(struct pg *pg, const struct postgres_settings *postgres,
    const struct verify_range *range, int64_t *ret_rows, struct err *err)
{
	bool is_open = range->from_us == INT64_MIN, has_no_end = range->to_us == INT64_MAX;
	char from[MOMENT_SIZE], to[MOMENT_SIZE];
	const struct pg_param params[] = {{is_open ? NULL : from}, {has_no_end ? NULL : to}};

	if (!is_open)
		moment_format_exact(range->from_us, from);
	if (!has_no_end)
		moment_format_exact(range->to_us, to);

	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(pg, postgres, sql_verification_rows, params, 2, err);
	json_t *plan = rows ? json_loads(pg_value(rows, 0, 0), 0, NULL) : NULL;
	const json_t *top = json_object_get(json_array_get(plan, 0), "Plan");

	*ret_rows = (int64_t)json_number_value(json_object_get(top, "Plan Rows"));
	json_decref(plan);
	return rows != NULL;
}
