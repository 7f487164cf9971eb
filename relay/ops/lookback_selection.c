#include "lookback_selection.h"

#include <inttypes.h>
#include <string.h>
#include "partitions.h"
#include "sql_files.h"
#include "text.h"

enum { TYPE_LENGTH = 100, ID_LENGTH = 500 };

/* --- which database -------------------------------------------------------------------------- */

static const struct config_lookback *find_lookback_section(
    const struct config *config, const char *name)
{
	for (int i = 0; name && i < config->lookback_count; i++)
		if (text_equal(config->lookbacks[i].name, name))
			return &config->lookbacks[i];
	return NULL;
}

static const struct config_lookback *find_owner(const struct config *config, const char *type)
{
	for (int i = 0; type && i < config->lookback_count; i++)
		if (config_list_has(&config->lookbacks[i].types, type))
			return &config->lookbacks[i];
	return NULL;
}

/* The database of all sections; NULL: they have several. */
static const struct postgres_settings *common_postgres(const struct config *config, struct err *err)
{
	const struct config_lookback *lookbacks = config->lookbacks;

	for (int i = 1; i < config->lookback_count; i++)
		if (lookbacks[i].postgres != lookbacks[0].postgres) {
			err_set(err, ERR_CONFIG,
			    "the [lookback] sections are kept in several databases: name one with "
			    "--postgres SECTION");
			return NULL;
		}
	return lookbacks[0].postgres;
}

/*
 * A section or a type may belong to another process and be unknown to this configuration. Then the
 * database is certain only if this configuration has no more than one.
 */
static const struct postgres_settings *choose_postgres(const struct lookback_selection *selection,
    const char *section, const char *type, struct err *err)
{
	const struct config *config = selection->config;
	const struct config_lookback *owner = find_lookback_section(config, section);

	/* the operator named a database, or nothing else tells which one keeps the ids */
	if (selection->section || config->lookback_count == 0)
		return database_section(config, selection->section, err);

	/* a section that is named and unknown is not replaced by the one that has the type */
	if (!owner && !section)
		owner = find_owner(config, type);
	return owner ? owner->postgres : common_postgres(config, err);
}

/* --- which ids ------------------------------------------------------------------------------- */

bool lookback_selection_check_type(const char *type, struct err *err)
{
	static const char alphabet[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
	size_t length = strspn(type, alphabet);

	return (!type[length] && length >= 1 && length <= TYPE_LENGTH) ||
	       err_set(err, ERR_REJECT, "'%.60s' is no business type: 1 to %d of A-Z a-z 0-9 . _ -",
		   type, TYPE_LENGTH);
}

static bool has_pair(const json_t *pairs, const json_t *pair)
{
	for (size_t i = 0; i < json_array_size(pairs); i++)
		if (json_equal(json_array_get(pairs, i), pair))
			return true;
	return false;
}

static bool add_selected_id(json_t *pairs, const char *type, const char *id, struct err *err)
{
	json_t *text = json_string(id), *pair = json_array();

	json_array_append_new(pair, json_string(type));
	/* json_string returns NULL for text that is not UTF-8 */
	if (!text || json_array_append_new(pair, text) != 0 || !*id || strlen(id) > ID_LENGTH) {
		json_decref(pair);
		return err_set(err, ERR_REJECT,
		    "one of the ids is none: an id is text in UTF-8, of 1 to %d bytes", ID_LENGTH);
	}
	/* named twice, an id could not be decided twice: the order would fail as incomplete */
	if (!has_pair(pairs, pair))
		json_array_append(pairs, pair);
	json_decref(pair);
	return true;
}

bool lookback_selection_name(
    struct lookback_selection *selection, const char *const *words, int count, struct err *err)
{
	json_t *pairs;

	if (count == 0)
		return true;
	if (!lookback_selection_check_type(words[0], err))
		return false;
	if (count == 1)
		return err_set(err, ERR_REJECT, "'%.60s' names no id: write TYPE ID", words[0]);
	pairs = json_array();
	json_object_set_new(selection->chosen, "ids", pairs);
	for (int i = 1; i < count; i++)
		if (!add_selected_id(pairs, words[0], words[i], err))
			return false;
	selection->type = words[0];
	selection->ids = words + 1;
	selection->id_count = (int)json_array_size(pairs);
	return true;
}

char *lookback_selection_chosen(const struct lookback_selection *selection)
{
	return json_dumps(selection->chosen, JSON_COMPACT);
}

/* --- life ------------------------------------------------------------------------------------ */

void lookback_selection_init(
    struct lookback_selection *selection, const struct config *config, const char *section)
{
	*selection = (struct lookback_selection){
	    .config = config, .section = section, .chosen = json_object()};
}

void lookback_selection_finish(struct lookback_selection *selection)
{
	json_decref(selection->chosen);
	pg_destroy(selection->pg);
}

bool lookback_selection_connect(struct lookback_selection *selection, struct err *err)
{
	/* chosen late: the options with the section and the type are read after the init */
	if (!selection->postgres) {
		const json_t *chosen = selection->chosen;
		const char *section = json_string_value(json_object_get(chosen, "section"));
		const char *type = json_string_value(json_object_get(chosen, "type"));

		selection->postgres = choose_postgres(
		    selection, section, selection->type ? selection->type : type, err);
	}
	if (selection->postgres && !selection->pg)
		selection->pg = database_connect(selection->postgres, err);
	return selection->pg != NULL;
}

struct pg_result *lookback_selection_query(struct lookback_selection *selection, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	return lookback_selection_connect(selection, err)
		   ? database_query(selection->pg, selection->postgres, sql, params, count, err)
		   : NULL;
}

/* --- how many of each state ------------------------------------------------------------------ */

const char *const lookback_states[LOOKBACK_STATES] = {"overdue", "parked", "undecided"};

bool lookback_totals_count(struct pg *pg, const struct postgres_settings *postgres,
    const char *chosen, bool undecided, struct lookback_totals *ret_totals, struct err *err)
{
	owned_text char *most = xformat("%d", COUNTED_ROWS);
	const struct pg_param params[] = {
	    {chosen}, {most}, {undecided ? LOOKBACK_JOURNAL_ROWS : "0"}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(pg, postgres, sql_lookback_totals, params, 3, err);

	*ret_totals = (struct lookback_totals){.exact = true};
	for (int i = 0; rows && i < pg_rows(rows); i++) {
		for (int k = 0; k < LOOKBACK_STATES; k++)
			if (text_equal(lookback_states[k], pg_value(rows, i, 0)))
				ret_totals->counts[k] = pg_int(rows, i, 1);
		if (text_equal(pg_value(rows, i, 2), "t"))
			ret_totals->exact = false;
	}
	return rows != NULL;
}
