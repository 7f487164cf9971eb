#include "api_arguments.h"

#include <inttypes.h>
#include <string.h>
#include "cleanup.h"

struct check {
	struct api_call *call;
	const char *const *names;
	int count;
	unsigned seen; /* a bit for each name */
	bool refused;
};

static void refuse_argument(struct check *check, const char *name)
{
	OWNED(text_finish) struct text known = {0};

	for (int i = 0; i < check->count; i++)
		text_addf(&known, "%s%s", i ? ", " : "", check->names[i]);
	api_refuse(check->call, 400, "bad_value", "%.60s is no argument of this path: it takes %s",
	    name, check->count ? text_string(&known) : "none");
	check->refused = true;
}

/* Reports the first wrong argument. */
static enum MHD_Result check_argument(
    void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct check *check = context;
	int place = 0;

	(void)kind;
	if (check->call->export && text_equal(name, "format"))
		return MHD_YES;
	while (place < check->count && !text_equal(check->names[place], name))
		place++;
	if (place == check->count) {
		refuse_argument(check, name);
	} else if (check->seen & 1U << place) {
		/* either value could be the one that the caller means */
		api_refuse(check->call, 400, "bad_value", "%s is given twice: give it once", name);
		check->refused = true;
	} else if (!value || !*value || !text_is_utf8(value, strlen(value))) {
		api_refuse(check->call, 400, "bad_value",
		    value && *value ? "%s is not UTF-8: percent-encode its bytes in UTF-8"
				    : "%s has no value: give it one, or leave it out",
		    name);
		check->refused = true;
	}
	check->seen |= place < check->count ? 1U << place : 0;
	return check->refused ? MHD_NO : MHD_YES;
}

bool api_arguments_check(struct api_call *call, const char *const *names, int count)
{
	struct check check = {.call = call, .names = names, .count = count};

	MHD_get_connection_values(call->connection, MHD_GET_ARGUMENT_KIND, check_argument, &check);
	return !check.refused;
}

bool api_argument_number(
    struct api_call *call, const char *name, int64_t from, int64_t to, int64_t *ret)
{
	const char *value = api_argument(call, name);

	if (!value || text_to_int64(value, from, to, ret))
		return true;
	api_refuse(call, 400, "bad_value",
	    "%s=%.40s is no whole number from %" PRId64 " to %" PRId64, name, value, from, to);
	return false;
}

bool api_argument_yes(struct api_call *call, const char *name, bool *ret)
{
	const char *value = api_argument(call, name);

	if (!value)
		return true;
	*ret = text_equal(value, "yes");
	if (*ret || text_equal(value, "no"))
		return true;
	api_refuse(call, 400, "bad_value", "%s=%.40s is neither yes nor no", name, value);
	return false;
}

bool api_is_limited(const struct api_call *call)
{
	const struct config_token *token = &call->caller->token;

	return token->publishers.count + token->sections.count > 0 ||
	       !config_token_has_type(token, NULL, NULL);
}

bool api_may_see_publisher(const struct api_call *call, const char *publisher)
{
	const struct config_list *publishers = &call->caller->token.publishers;

	return publishers->count == 0 || config_list_has(publishers, publisher);
}

bool api_may_see_labels(const char *publisher, const char *section, void *context)
{
	const struct api_call *call = context;

	return (!publisher || api_may_see_publisher(call, publisher)) &&
	       (!section || config_token_has_section(&call->caller->token, section));
}

const struct publisher_settings *api_named_publisher(struct api_call *call, const char *name)
{
	const struct config *config = api_config(call->api);
	const struct config_publisher *found = NULL;

	if (name)
		found = config_find_publisher(config, name);
	else if (config->publisher_count == 1)
		found = &config->publishers[0];
	if (found && api_may_see_publisher(call, found->settings.name))
		return &found->settings;

	if (found)
		api_refuse_scope(call, "the publisher", found->settings.name);
	else if (name)
		api_refuse(call, 404, "unknown_publisher",
		    "the configuration has no [publisher \"%.60s\"]; GET /v1/publishers lists them",
		    name);
	else
		api_refuse(call, 409, "ambiguous",
		    "the configuration has %d publishers: name one with publisher",
		    config->publisher_count);
	return NULL;
}

const struct postgres_settings *api_named_postgres(struct api_call *call, const char *name)
{
	const struct config *config = api_config(call->api);
	const struct postgres_settings *found = NULL;

	if (name)
		found = config_find_postgres(config, name);
	else if (config->postgres_count == 1)
		found = &config->postgres[0];
	if (found)
		return found;

	if (name)
		api_refuse(call, 404, "unknown_section",
		    "the configuration has no [postgres \"%.60s\"]", name);
	else
		api_refuse(call, 409, "ambiguous",
		    "the configuration has %d [postgres] sections: name one with postgres",
		    config->postgres_count);
	return NULL;
}

void api_add_page(json_t *answer, const struct pg_result *rows, int64_t limit,
    json_t *(*row_json)(const struct pg_result *rows, int i))
{
	bool more = pg_rows(rows) > limit;
	int count = more ? (int)limit : pg_rows(rows);
	json_t *list = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(list, row_json(rows, i));
	json_object_set_new(answer, "rows", list);
	json_object_set_new(
	    answer, "next", more ? json_string(pg_value(rows, count - 1, 0)) : json_null());
}
