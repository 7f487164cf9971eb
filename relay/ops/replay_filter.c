#include "replay_filter.h"

#include <inttypes.h>
#include <string.h>
#include "hex.h"
#include "term.h"
#include "text.h"

void replay_filter_init(struct replay_filter *filter)
{
	*filter = (struct replay_filter){
	    .from_id = 1, .to_id = INT64_MAX, .from_at = "-infinity", .to_at = "infinity"};
}

void replay_filter_finish(struct replay_filter *filter)
{
	for (int i = 0; i < REPLAY_TERMS; i++)
		free(filter->terms[i]);
	replay_filter_init(filter);
}

/* --- the terms ------------------------------------------------------------------------------- */

static bool read_filter_ids(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	(void)now_us;
	if (!term_ids(value, &filter->from_id, &filter->to_id, err)) {
		filter->conflicts = filter->from_id > filter->to_id;
		return false;
	}
	filter->terms[REPLAY_IDS] = xstrdup(value);
	return true;
}

static bool read_created(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	if (!term_moments(
		"created", value, now_us, filter->from_at, filter->to_at, &filter->conflicts, err))
		return false;
	filter->terms[REPLAY_CREATED] = xstrdup(value);
	return true;
}

static bool read_filter_topic(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	(void)now_us;
	if (!term_topic(value, err))
		return false;
	filter->terms[REPLAY_TOPIC] = xstrdup(value);
	return true;
}

static bool read_filter_key(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	(void)now_us;
	filter->terms[REPLAY_KEY] = term_key(value, err);
	return filter->terms[REPLAY_KEY] != NULL;
}

static bool read_event_id(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	char uuid[UUID_BYTES];

	(void)now_us;
	/* the text is inserted into a script, so it must be safe within quotes */
	if (!uuid_read(value, strlen(value), uuid))
		return err_set(err, ERR_REJECT,
		    "event-id=%.60s is no uuid: write it as "
		    "8c1a3f7e-0b1d-4c55-9f43-6a2d1e0c7b90, the value of a record's outbox-id",
		    value);
	filter->terms[REPLAY_EVENT_ID] = xstrdup(value);
	return true;
}

static bool read_filter_state(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	(void)now_us;
	if (!text_equal(value, "published"))
		return err_set(err, ERR_REJECT,
		    "state=%.60s is not known: write state=published, or leave it out for all "
		    "committed rows",
		    value);
	filter->terms[REPLAY_STATE] = xstrdup(value);
	return true;
}

/* In the order of enum replay_term. */
static const struct {
	const char *name;
	bool (*read)(
	    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err);
} filter_rows[REPLAY_TERMS] = {
    {"ids", read_filter_ids},
    {"created", read_created},
    {"topic", read_filter_topic},
    {"key", read_filter_key},
    {"event-id", read_event_id},
    {"state", read_filter_state},
};

static bool add_filter_term(struct replay_filter *filter, const char *name, size_t length,
    const char *value, int64_t now_us, struct err *err)
{
	for (int i = 0; i < REPLAY_TERMS; i++) {
		if (strlen(filter_rows[i].name) != length ||
		    strncmp(filter_rows[i].name, name, length) != 0)
			continue;
		/* the second value would replace the first one, and select other rows than both
		 * together */
		if (filter->terms[i])
			return err_set(err, ERR_REJECT, "%s= is given twice: give it once",
			    filter_rows[i].name);
		return filter_rows[i].read(filter, value, now_us, err);
	}

	return err_set(err, ERR_REJECT,
	    "'%.*s' is nothing to choose rows by: ids=, created=, topic=, key=, event-id= and "
	    "state= are",
	    length < 60 ? (int)length : 60, name);
}

bool replay_filter_add(
    struct replay_filter *filter, const char *term, int64_t now_us, struct err *err)
{
	const char *equals = strchr(term, '=');

	if (!equals)
		return err_set(err, ERR_REJECT,
		    "'%.60s' chooses no rows: write NAME=VALUE, for example topic=orders", term);
	return add_filter_term(filter, term, (size_t)(equals - term), equals + 1, now_us, err);
}

bool replay_filter_is_everything(const struct replay_filter *filter)
{
	for (int i = 0; i < REPLAY_TERMS; i++)
		if (i != REPLAY_STATE && filter->terms[i])
			return false;
	return true;
}

/* --- in the database ------------------------------------------------------------------------- */

char *replay_filter_json(const struct replay_filter *filter)
{
	json_t *object = json_object();
	char *text;

	for (int i = 0; i < REPLAY_TERMS; i++)
		if (filter->terms[i])
			json_object_set_new(
			    object, filter_rows[i].name, json_string(filter->terms[i]));
	text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return text;
}

bool replay_filter_from_json(struct replay_filter *filter, const char *json, struct err *err)
{
	json_t *object = json_loads(json, 0, NULL), *value;
	const char *name;
	bool good = json_is_object(object);

	if (!good)
		err_set(err, ERR_FATAL, "the replay's filter is no JSON object");

	/* moments in the future were refused when the replay was made: INT64_MAX refuses none */
	json_object_foreach(object, name, value)
	{
		if (good)
			good = json_is_string(value) ? add_filter_term(filter, name, strlen(name),
							   json_string_value(value), INT64_MAX, err)
						     : err_set(err, ERR_FATAL,
							   "the replay's filter has a term "
							   "that is no text");
	}
	json_decref(object);
	return good;
}
