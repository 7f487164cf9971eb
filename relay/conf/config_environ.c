/* Variables that override the file: OUTBOX_RELAY_<SECTION>_<KEY> and DATABASE_URL. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"
#include "suggestion.h"

static const char prefix[] = "OUTBOX_RELAY_";

/* Variables that the program itself reads, or the fault points of a test build. */
static const char *const reserved[] = {"OUTBOX_RELAY_CONFIG", "OUTBOX_RELAY_SERVER",
    "OUTBOX_RELAY_SERVER_CA", "OUTBOX_RELAY_TOKEN", "OUTBOX_RELAY_TOKEN_FILE", "OUTBOX_RELAY_FAULT",
    "OUTBOX_RELAY_FAULT_LIST", "OUTBOX_RELAY_FAULT_STOP", "OUTBOX_RELAY_FAULT_TRACE"};

static bool is_reserved_variable(const char *variable)
{
	for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
		if (strcmp(reserved[i], variable) == 0)
			return true;
	return false;
}

const char *config_environ_get(char *const *environ_list, const char *variable)
{
	size_t length = strlen(variable);

	for (; *environ_list; environ_list++)
		if (strncmp(*environ_list, variable, length) == 0 && (*environ_list)[length] == '=')
			return *environ_list + length + 1;
	return NULL;
}

/* The rest of a variable behind `word`, which it spells in its way (poll.busy-x is POLL_BUSY_X);
 * NULL: the variable does not begin so. */
static const char *skip_word(const char *variable, const char *word)
{
	for (; *word; word++, variable++) {
		char spelled = strchr(".-", *word) ? '_' : (char)toupper((unsigned char)*word);
		if (*variable != spelled)
			return NULL;
	}
	return variable;
}

/* The rest behind WORD_; NULL also if nothing follows. */
static const char *skip_part(const char *variable, const char *word)
{
	const char *behind = skip_word(variable, word);

	return behind && behind[0] == '_' && behind[1] ? behind + 1 : NULL;
}

/* BOOTSTRAP_SERVERS is bootstrap.servers, SASL_PASSWORD_FILE is sasl.password_file. */
static char *property_name(const char *variable)
{
	char *name = xstrdup(variable);
	size_t length = strlen(name);

	for (char *at = name; *at; at++)
		*at = *at == '_' ? '.' : (char)tolower((unsigned char)*at);
	if (length > 5 && strcmp(name + length - 5, ".file") == 0)
		name[length - 5] = '_';
	return name;
}

/* The key that the rest of a variable spells; malloc'ed, NULL: none. */
static char *find_variable_key(enum config_kind kind, const char *variable)
{
	if (config_kinds[kind].open)
		return property_name(variable);
	for (int i = 0; i < config_row_count; i++) {
		const char *behind = skip_word(variable, config_rows[i].key);
		if (config_rows[i].kind == kind && behind && !*behind)
			return xstrdup(config_rows[i].key);
	}
	return NULL;
}

static void put_variable(
    struct config_section *section, const char *key, const char *value, const char *variable)
{
	owned_text char *other = config_source_other_key(key);
	struct config_entry *before = config_source_entry(section, other);

	/* dsn of the environment replaces dsn_file of the file; two variables are an error later */
	if (before && !before->from_environ)
		config_source_remove(section, before);
	config_source_put(section, key, value, variable, true);
}

/* Variables for the section "main", which need not be in the file. */
static bool apply_to_main(struct config_source *source, enum config_kind kind, const char *key,
    const char *variable, const char *value, struct err *err)
{
	struct config_section *section = config_source_find(source, kind, "main");

	if (config_kinds[kind].named)
		return err_set(err, ERR_CONFIG,
		    "%s: a [%s] needs a name; declare [%s \"orders\"] in the file, then set "
		    "OUTBOX_RELAY_TOPIC_ORDERS_<KEY>",
		    variable, config_kinds[kind].word, config_kinds[kind].word);

	/* a new "main" beside the declared publishers would publish every row once more */
	if (!section && kind == CONFIG_PUBLISHER && config_source_find(source, kind, NULL))
		return err_set(err, ERR_CONFIG,
		    "%s: the file declares publishers, but not [publisher \"main\"]; name the "
		    "publisher, as in "
		    "OUTBOX_RELAY_PUBLISHER_<NAME>_<KEY>",
		    variable);
	if (!section)
		section = config_source_add(source, kind, "main", variable);
	put_variable(section, key, value, variable);
	return true;
}

static bool refuse_variable(struct err *err, const char *variable)
{
	struct suggestion nearest = suggestion_begin(variable);

	for (int i = 0; i < config_row_count; i++) {
		owned_text char *known = xformat(
		    "%s%s_%s", prefix, config_kinds[config_rows[i].kind].word, config_rows[i].key);

		for (char *at = known; *at; at++)
			*at = (char)toupper((unsigned char)*at);
		/* a named section needs its name in the variable, which is not known here */
		if (!config_kinds[config_rows[i].kind].named)
			suggestion_offer(&nearest, known, known);
	}
	return err_set(err, ERR_CONFIG,
	    "%s: no setting has this variable%s; unset it, or correct it to "
	    "OUTBOX_RELAY_<SECTION>_<KEY> or OUTBOX_RELAY_<SECTION>_<NAME>_<KEY>",
	    variable, nearest.note);
}

/* The key, if the rest of a variable begins with the name of this section. */
static char *find_named_key(
    const struct config_section *section, enum config_kind kind, const char *rest)
{
	const char *behind = skip_part(rest, section->name);

	if (section->kind != kind || !config_kinds[kind].size || !behind)
		return NULL;
	return find_variable_key(kind, behind);
}

static bool apply_to_kind(struct config_source *source, enum config_kind kind, const char *rest,
    const char *variable, const char *value, struct err *err)
{
	struct config_section *section = NULL;
	owned_text char *key = NULL;

	for (int i = 0; i < source->count; i++) {
		char *found = find_named_key(&source->sections[i], kind, rest);
		/* "a" with the key b_c and "a.b" with the key c are spelled alike: neither is
		 * guessed */
		if (found && section) {
			free(found);
			return err_set(err, ERR_CONFIG,
			    "%s: means [%s \"%s\"] as well as [%s \"%s\"]; rename one of them",
			    variable, config_kinds[kind].word, section->name,
			    config_kinds[kind].word, source->sections[i].name);
		}
		if (found) {
			section = &source->sections[i];
			key = found;
		}
	}
	if (section) {
		put_variable(section, key, value, variable);
		return true;
	}
	/* a declared section was not meant, so the variable is about "main" */
	key = find_variable_key(kind, rest);
	return key ? apply_to_main(source, kind, key, variable, value, err)
		   : refuse_variable(err, variable);
}

static bool apply_variable(struct config_source *source, const char *assignment, struct err *err)
{
	const char *equals = strchr(assignment, '=');
	owned_text char *variable = NULL;

	if (!equals || !text_starts(assignment, prefix))
		return true;
	variable = xformat("%.*s", (int)(equals - assignment), assignment);
	/* the program reads these itself: they are no settings */
	if (is_reserved_variable(variable))
		return true;
	for (int kind = 0; kind < CONFIG_KINDS; kind++) {
		const char *rest = skip_part(variable + sizeof prefix - 1, config_kinds[kind].word);
		if (rest)
			return apply_to_kind(
			    source, (enum config_kind)kind, rest, variable, equals + 1, err);
	}
	return refuse_variable(err, variable);
}

/* Is this a sidecar: [deliver] sections, and no section that needs a database? */
static bool is_sidecar(const struct config_source *source)
{
	return config_source_find(source, CONFIG_DELIVER, NULL) &&
	       !config_source_find(source, CONFIG_POSTGRES, NULL) &&
	       !config_source_find(source, CONFIG_PUBLISHER, NULL) &&
	       !config_source_find(source, CONFIG_LOOKBACK, NULL);
}

/* Adds a section "main" for each kind that is not declared at all. */
static void add_defaults(struct config_source *source, const char *database_url)
{
	struct config_section *section;
	bool sidecar = is_sidecar(source);

	for (int kind = 0; kind < CONFIG_KINDS; kind++)
		if (!config_kinds[kind].named &&
		    !(sidecar && (kind == CONFIG_POSTGRES || kind == CONFIG_PUBLISHER)) &&
		    !config_source_find(source, (enum config_kind)kind, NULL))
			config_source_add(
			    source, (enum config_kind)kind, "main", CONFIG_SOURCE_DEFAULT);
	section = config_source_find(source, CONFIG_POSTGRES, "main");

	/* DATABASE_URL may be set for other programs as well: the relay's own settings come first
	 */
	if (section && database_url && !config_source_has_value(section, "dsn") &&
	    !config_source_has_value(section, "dsn_file"))
		put_variable(section, "dsn", database_url, "DATABASE_URL");
}

bool config_environ_apply(struct config_source *source, char *const *environ_list, struct err *err)
{
	for (char *const *at = environ_list; *at; at++)
		if (!apply_variable(source, *at, err))
			return false;
	add_defaults(source, config_environ_get(environ_list, "DATABASE_URL"));
	return true;
}
