/*
 * Turns the terms of a command line, or the conditions of a program, into the JSON that
 * outbox.parked_is takes: parked_choose and parked_choose_member. Then the queries.
 */
#include "parked.h"

#include <inttypes.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "partitions.h"
#include "sql_files.h"
#include "term.h"
#include "text.h"

/* --- which rows ------------------------------------------------------------------------------ */

/* A filter that is not UTF-8 is an error: left out, it would select more rows. */
static bool choose_parked_text(
    struct parked *parked, const char *name, const char *value, struct err *err)
{
	json_t *string = json_string(value);

	if (!string)
		return err_set(err, ERR_REJECT, "%s= is not UTF-8", name);
	json_object_set_new(parked->chosen, name, string);
	return true;
}

static bool read_parked_topic(struct parked *parked, const char *value, struct err *err)
{
	return term_topic(value, err) && choose_parked_text(parked, "topic", value, err);
}

static bool read_parked_key(struct parked *parked, const char *value, struct err *err)
{
	owned_text char *key = term_key(value, err);

	return key && choose_parked_text(parked, "key", key, err);
}

static bool read_error(struct parked *parked, const char *value, struct err *err)
{
	/* every error contains the empty text: this would select all rows that have an error */
	if (!*value)
		return err_set(err, ERR_REJECT,
		    "error= names no error: write a part of it, as error=\"too large\"");
	return choose_parked_text(parked, "error", value, err);
}

static bool read_parked_times(struct parked *parked, const char *value, struct err *err)
{
	char from[MOMENT_SIZE] = "", to[MOMENT_SIZE] = "";

	return term_moments("parked", value, clock_wall_us(), from, to, NULL, err) &&
	       (!*from || choose_parked_text(parked, "from", from, err)) &&
	       (!*to || choose_parked_text(parked, "to", to, err));
}

const char *const parked_states[PARKED_STATES] = {
    "waiting", "dead", "stalled", "paused", "free", "behind"};

static bool read_parked_state(struct parked *parked, const char *value, struct err *err)
{
	for (int i = 0; i < PARKED_STATES; i++)
		if (text_equal(value, parked_states[i]))
			return choose_parked_text(parked, "state", value, err);
	return err_set(err, ERR_REJECT,
	    "state=%.60s is not known: write waiting, dead, stalled, paused, free or behind",
	    value);
}

static void choose_ids(struct parked *parked, int64_t from, int64_t to)
{
	json_object_set_new(parked->chosen, "from_id", json_integer(from));
	json_object_set_new(parked->chosen, "to_id", json_integer(to));
}

static bool read_parked_ids(struct parked *parked, const char *value, struct err *err)
{
	int64_t from = 1, to = INT64_MAX;

	if (!term_ids(value, &from, &to, err))
		return false;
	choose_ids(parked, from, to);
	return true;
}

static const struct {
	const char *name;
	bool (*read)(struct parked *parked, const char *value, struct err *err);
} terms[] = {
    {"topic", read_parked_topic},
    {"key", read_parked_key},
    {"error", read_error},
    {"parked", read_parked_times},
    {"state", read_parked_state},
    {"ids", read_parked_ids},
};
enum { TERMS = sizeof terms / sizeof *terms };

static bool add_term(struct parked *parked, const char *term, bool given[TERMS], struct err *err)
{
	const char *equals = strchr(term, '=');
	size_t length = (size_t)(equals - term);

	for (int i = 0; i < TERMS; i++) {
		if (strlen(terms[i].name) != length || strncmp(terms[i].name, term, length) != 0)
			continue;
		/* the second value would replace the first one, and select other rows than both
		 * together */
		if (given[i])
			return err_set(
			    err, ERR_REJECT, "%s= is given twice: give it once", terms[i].name);
		given[i] = true;
		return terms[i].read(parked, equals + 1, err);
	}
	return err_set(err, ERR_REJECT,
	    "'%.*s' is nothing to choose parked rows by: topic=, key=, error=, parked=, state= and "
	    "ids= are",
	    length < 60 ? (int)length : 60, term);
}

bool parked_id(const char *word, int64_t *ret_id, struct err *err)
{
	return text_to_int64(word, 1, INT64_MAX, ret_id) ||
	       err_set(err, ERR_REJECT,
		   "'%.60s' is no id: it is a whole number, as `outbox-relay parked list` shows it",
		   word);
}

static bool has_chosen_id(const json_t *ids, int64_t id)
{
	for (size_t i = 0; i < json_array_size(ids); i++)
		if (json_integer_value(json_array_get(ids, i)) == id)
			return true;
	return false;
}

/* The range beside the list lets the database look by its index. */
static bool add_chosen_id(struct parked *parked, const char *word, struct err *err)
{
	json_t *ids = json_object_get(parked->chosen, "ids");
	int64_t id, low, high;

	if (!parked_id(word, &id, err))
		return false;

	/* the first id begins the range, which the later ones widen */
	if (!ids) {
		ids = json_array();
		json_object_set_new(parked->chosen, "ids", ids);
		choose_ids(parked, id, id);
	}
	if (has_chosen_id(ids, id))
		return true;
	json_array_append_new(ids, json_integer(id));
	low = json_integer_value(json_object_get(parked->chosen, "from_id"));
	high = json_integer_value(json_object_get(parked->chosen, "to_id"));
	choose_ids(parked, id < low ? id : low, id > high ? id : high);
	parked->id_count++;
	return true;
}

bool parked_choose(
    struct parked *parked, const char *const *words, int count, bool may_name_ids, struct err *err)
{
	bool given[TERMS] = {false};
	int bare = 0;

	for (int i = 0; i < count; i++) {
		const char *word = words[i];
		bool term = strchr(word, '=') != NULL;

		/* a bare word would be an id, which `parked list` takes as a term (ids=12) */
		if (!term && !may_name_ids)
			return err_set(err, ERR_REJECT,
			    "'%.60s' chooses no rows: write NAME=VALUE, for example topic=orders "
			    "or ids=12",
			    word);
		bare += !term;

		/* ids and terms would have to hold both: it is not clear which the operator
		 * means */
		if (bare > 0 && bare <= i)
			return err_set(err, ERR_REJECT,
			    "'%.60s' does not go with '%.60s': name ids, or choose rows by terms",
			    word, words[i - 1]);
		if (!(term ? add_term(parked, word, given, err) : add_chosen_id(parked, word, err)))
			return false;
	}
	return true;
}

static bool choose_moment(
    struct parked *parked, const char *name, const char *value, struct err *err)
{
	char at[MOMENT_SIZE];
	int64_t us;

	if (!moment_parse(value, &us, err))
		return err_prefix(err, "%s", name);
	moment_format_exact(us, at);
	return choose_parked_text(parked, name, at, err);
}

static bool choose_end_of_ids(
    struct parked *parked, const char *name, const char *value, struct err *err)
{
	int64_t id;

	if (!parked_id(value, &id, err))
		return err_prefix(err, "%s", name);
	json_object_set_new(parked->chosen, name, json_integer(id));
	return true;
}

bool parked_choose_member(
    struct parked *parked, const char *name, const char *value, struct err *err)
{
	if (text_equal(name, "topic"))
		return read_parked_topic(parked, value, err);
	if (text_equal(name, "key"))
		return read_parked_key(parked, value, err);
	if (text_equal(name, "error"))
		return read_error(parked, value, err);
	if (text_equal(name, "state"))
		return read_parked_state(parked, value, err);

	if (text_equal(name, "from") || text_equal(name, "to"))
		return choose_moment(parked, name, value, err);
	if (text_equal(name, "from_id") || text_equal(name, "to_id"))
		return choose_end_of_ids(parked, name, value, err);
	return err_set(err, ERR_REJECT,
	    "'%.60s' is nothing to choose parked messages by: topic, key, error, state, from, to, "
	    "from_id and to_id are",
	    name);
}

char *parked_chosen(const struct parked *parked)
{
	return json_dumps(parked->chosen, JSON_COMPACT);
}

/* --- life ------------------------------------------------------------------------------------ */

void parked_init(struct parked *parked, const struct publisher_settings *publisher)
{
	*parked = (struct parked){.publisher = publisher, .chosen = json_object()};
}

void parked_finish(struct parked *parked)
{
	json_decref(parked->chosen);
	pg_destroy(parked->pg);
}

struct pg_result *parked_query(struct parked *parked, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	const struct postgres_settings *postgres = parked->publisher->postgres;

	if (!parked->pg)
		parked->pg = database_connect(postgres, err);
	return parked->pg ? database_query(parked->pg, postgres, sql, params, count, err) : NULL;
}

bool parked_count_states(struct parked *parked, struct parked_totals *ret_totals, struct err *err)
{
	owned_text char *chosen = parked_chosen(parked);
	owned_text char *most = xformat("%d", COUNTED_ROWS);
	const struct pg_param params[] = {{parked->publisher->name}, {chosen}, {most}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = parked_query(parked, sql_parked_totals, params, 3, err);

	*ret_totals = (struct parked_totals){.exact = true};
	for (int i = 0; rows && i < pg_rows(rows); i++) {
		for (int k = 0; k < PARKED_STATES; k++)
			if (text_equal(parked_states[k], pg_value(rows, i, 0)))
				ret_totals->counts[k] = pg_int(rows, i, 1);
		if (text_equal(pg_value(rows, i, 2), "t"))
			ret_totals->exact = false;
	}
	return rows != NULL;
}
