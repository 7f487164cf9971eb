#include "lookback_selection.h"

#include <inttypes.h>
#include <string.h>
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

/* The one of all sections; NULL: they have several. */
static const struct config_postgres *common_postgres(const struct config *config, struct err *err)
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
 * A section or a type may be another process's, whose configuration knows it; this one's then says
 * where it is only when it has no more than one database.
 */
static const struct config_postgres *choose_postgres(const struct lookback_selection *selection,
    const char *section, const char *type, struct err *err)
{
	const struct config *config = selection->config;
	const struct config_lookback *owner = find_lookback_section(config, section);

	if (call_flag(selection->call, "postgres") || config->lookback_count == 0)
		return session_postgres(selection->call, config, err);
	if (!owner && !section)
		owner = find_owner(config, type);
	return owner ? owner->postgres : common_postgres(config, err);
}

/* --- which ids ------------------------------------------------------------------------------- */

static bool check_type(const char *type, struct err *err)
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
	if (!text || json_array_append_new(pair, text) != 0 || !*id || strlen(id) > ID_LENGTH) {
		json_decref(pair);
		return err_set(err, ERR_REJECT,
		    "one of the ids is none: an id is text in UTF-8, of 1 to %d bytes", ID_LENGTH);
	}
	if (!has_pair(pairs, pair))
		json_array_append(pairs, pair);
	json_decref(pair);
	return true;
}

static bool read_selected_ids(struct lookback_selection *selection, struct err *err)
{
	const struct call *call = selection->call;
	json_t *pairs;

	if (call->argument_count == 0)
		return true;
	if (!check_type(call->arguments[0], err))
		return false;
	if (call->argument_count == 1)
		return err_set(
		    err, ERR_REJECT, "'%.60s' names no id: write TYPE ID", call->arguments[0]);
	pairs = json_array();
	json_object_set_new(selection->chosen, "ids", pairs);
	for (int i = 1; i < call->argument_count; i++)
		if (!add_selected_id(pairs, call->arguments[0], call->arguments[i], err))
			return false;
	selection->type = call->arguments[0];
	selection->ids = call->arguments + 1;
	selection->id_count = (int)json_array_size(pairs);
	return true;
}

/* A filter that is not UTF-8 is an error: left out, it would select more ids. */
static bool choose_by_option(
    struct lookback_selection *selection, const char *name, struct err *err)
{
	const char *value = call_text(selection->call, name, NULL);
	json_t *string = value ? json_string(value) : NULL;

	if (!value)
		return true;
	if (!string || !*value) {
		json_decref(string);
		return err_set(err, ERR_REJECT, "--%s %s", name,
		    *value ? "is not UTF-8" : "is empty: leave it out, or say which");
	}
	json_object_set_new(selection->chosen, name, string);
	return true;
}

static bool choose_range(struct lookback_selection *selection, struct err *err)
{
	char from[MOMENT_SIZE] = "", to[MOMENT_SIZE] = "";
	int64_t from_us, to_us;

	if (!session_range(selection->call, &from_us, &to_us, from, to, err))
		return false;
	if (*from)
		json_object_set_new(selection->chosen, "from", json_string(from));
	if (*to)
		json_object_set_new(selection->chosen, "to", json_string(to));
	return true;
}

bool lookback_selection_choose(struct lookback_selection *selection, struct err *err)
{
	const char *state = call_text(selection->call, "state", "parked");
	const char *type = call_text(selection->call, "type", NULL);

	if (type && !check_type(type, err))
		return err_prefix(err, "--type");
	if (!text_equal(state, "parked") && !text_equal(state, "overdue"))
		return err_set(
		    err, ERR_REJECT, "--state %.60s is not known: write overdue or parked", state);
	return choose_by_option(selection, "type", err) &&
	       choose_by_option(selection, "section", err) &&
	       choose_by_option(selection, "state", err) &&
	       choose_by_option(selection, "service", err) &&
	       choose_by_option(selection, "error", err) && choose_range(selection, err);
}

bool lookback_selection_is_narrowed(
    const struct lookback_selection *selection, const char **ret_name)
{
	static const char *const names[] = {
	    "type", "section", "state", "service", "error", "from", "to"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (call_text(selection->call, names[i], NULL)) {
			*ret_name = names[i];
			return true;
		}
	return false;
}

char *lookback_selection_chosen(const struct lookback_selection *selection)
{
	return json_dumps(selection->chosen, JSON_COMPACT);
}

/* --- the session ----------------------------------------------------------------------------- */

struct pg_result *lookback_selection_query(struct lookback_selection *selection, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	if (!selection->postgres) {
		const json_t *chosen = selection->chosen;
		const char *section = json_string_value(json_object_get(chosen, "section"));
		const char *type = json_string_value(json_object_get(chosen, "type"));

		selection->postgres = choose_postgres(
		    selection, section, selection->type ? selection->type : type, err);
	}
	if (selection->postgres && !selection->pg)
		selection->pg = database_connect(selection->postgres, err);
	return selection->pg
		   ? database_query(selection->pg, selection->postgres, sql, params, count, err)
		   : NULL;
}

int lookback_selection_run(
    const struct call *call, bool (*work)(struct lookback_selection *selection, struct err *err))
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	struct lookback_selection selection = {.call = call, .config = config};
	bool done;

	if (!config)
		return session_failed(&err);
	selection.chosen = json_object();
	done = read_selected_ids(&selection, &err) && work(&selection, &err);
	json_decref(selection.chosen);
	pg_destroy(selection.pg);
	return done ? 0 : session_failed(&err);
}
