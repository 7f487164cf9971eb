#include "replay_filter.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

enum { KEY_BYTES = 8192, TOPIC_LENGTH = 249, UUID_TEXT = 36 };

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

/* "a..b", "a..", "..b"; "a" alone gives both. False: it is none of these. */
static bool split_range(const char *value, char **ret_from, char **ret_to)
{
	const char *dots = strstr(value, "..");

	*ret_from = xstrdup(value);
	*ret_to = xstrdup(dots ? dots + 2 : value);
	if (dots)
		(*ret_from)[dots - value] = '\0';
	return **ret_from || **ret_to;
}

static bool read_ids(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	owned_text char *from = NULL, *to = NULL;

	(void)now_us;
	if (!split_range(value, &from, &to) ||
	    (*from && !text_to_int64(from, 1, INT64_MAX, &filter->from_id)) ||
	    (*to && !text_to_int64(to, 1, INT64_MAX, &filter->to_id)))
		return err_set(err, ERR_REJECT,
		    "ids=%.60s is no range of ids: write ids=10..20, ids=10.., ids=..20 or ids=10",
		    value);
	if (filter->from_id > filter->to_id)
		return err_set(
		    err, ERR_REJECT, "ids=%.60s is reversed: the smaller id comes first", value);
	filter->terms[REPLAY_IDS] = xstrdup(value);
	return true;
}

static bool read_end(
    const char *text, int64_t now_us, char at[MOMENT_SIZE], int64_t *ret_us, struct err *err)
{
	if (!*text)
		return true;
	if (!moment_parse(text, ret_us, err))
		return err_prefix(err, "created");
	if (*ret_us > now_us)
		return err_set(err, ERR_REJECT,
		    "created: %.40s lies in the future, where no row is; leave the end of the "
		    "range open (created=2026-01-02..)",
		    text);
	moment_format(*ret_us, at);
	return true;
}

static bool read_created(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	owned_text char *from = NULL, *to = NULL;
	int64_t from_us = INT64_MIN, to_us = INT64_MAX;

	if (!strstr(value, "..") || !split_range(value, &from, &to))
		return err_set(err, ERR_REJECT,
		    "created=%.60s is no range of moments: write "
		    "created=2026-01-02..2026-01-03T12:00 (UTC), or leave one end open",
		    value);
	if (!read_end(from, now_us, filter->from_at, &from_us, err) ||
	    !read_end(to, now_us, filter->to_at, &to_us, err))
		return false;
	if (from_us >= to_us)
		return err_set(err, ERR_REJECT,
		    "created=%.60s is %s: the earlier moment comes first, and the second is not "
		    "part of the range",
		    value, from_us == to_us ? "empty" : "reversed");
	filter->terms[REPLAY_CREATED] = xstrdup(value);
	return true;
}

bool replay_is_topic(const char *name)
{
	static const char allowed[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = strspn(name, allowed);

	return !name[length] && length >= 1 && length <= TOPIC_LENGTH && !text_equal(name, ".") &&
	       !text_equal(name, "..");
}

static bool read_topic(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	(void)now_us;
	if (!replay_is_topic(value))
		return err_set(err, ERR_REJECT,
		    "topic=%.60s is no topic's name: 1 to 249 of A-Z a-z 0-9 . _ -", value);
	filter->terms[REPLAY_TOPIC] = xstrdup(value);
	return true;
}

static char *hex_of_text(const char *value)
{
	struct text out = {0};

	text_add(&out, "\\x");
	for (; *value; value++)
		text_addf(&out, "%02x", (unsigned char)*value);
	return out.data;
}

static bool is_hex(const char *digits)
{
	size_t length = strspn(digits, "0123456789abcdefABCDEF");

	return !digits[length] && length % 2 == 0;
}

static bool read_key(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	bool hex = text_starts(value, "\\x");

	(void)now_us;
	if (!*value)
		return err_set(
		    err, ERR_REJECT, "key= names no key: the empty key is written key=\\x");
	if (hex && !is_hex(value + 2))
		return err_set(err, ERR_REJECT,
		    "key=%.60s is not hexadecimal: two digits for each byte stand behind \\x",
		    value);
	if ((hex ? (strlen(value) - 2) / 2 : strlen(value)) > KEY_BYTES)
		return err_set(
		    err, ERR_REJECT, "key=%.20s… has more bytes than a key may: 8192", value);
	filter->terms[REPLAY_KEY] = hex ? xstrdup(value) : hex_of_text(value);
	return true;
}

static bool is_uuid(const char *value)
{
	for (int i = 0; i < UUID_TEXT; i++)
		if (i == 8 || i == 13 || i == 18 || i == 23 ? value[i] != '-'
							    : !isxdigit((unsigned char)value[i]))
			return false;
	return value[UUID_TEXT] == '\0';
}

static bool read_event_id(
    struct replay_filter *filter, const char *value, int64_t now_us, struct err *err)
{
	(void)now_us;
	if (!is_uuid(value))
		return err_set(err, ERR_REJECT,
		    "event-id=%.60s is no uuid: write it as "
		    "8c1a3f7e-0b1d-4c55-9f43-6a2d1e0c7b90, the value of a record's outbox-id",
		    value);
	filter->terms[REPLAY_EVENT_ID] = xstrdup(value);
	return true;
}

static bool read_state(
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
} rows[REPLAY_TERMS] = {
    {"ids", read_ids},
    {"created", read_created},
    {"topic", read_topic},
    {"key", read_key},
    {"event-id", read_event_id},
    {"state", read_state},
};

static bool add(struct replay_filter *filter, const char *name, size_t length, const char *value,
    int64_t now_us, struct err *err)
{
	for (int i = 0; i < REPLAY_TERMS; i++) {
		if (strlen(rows[i].name) != length || strncmp(rows[i].name, name, length) != 0)
			continue;
		if (filter->terms[i])
			return err_set(
			    err, ERR_REJECT, "%s= is given twice: give it once", rows[i].name);
		return rows[i].read(filter, value, now_us, err);
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
	return add(filter, term, (size_t)(equals - term), equals + 1, now_us, err);
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
			json_object_set_new(object, rows[i].name, json_string(filter->terms[i]));
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
	json_object_foreach(object, name, value)
	{
		if (good)
			good = json_is_string(value) ? add(filter, name, strlen(name),
							   json_string_value(value), INT64_MAX, err)
						     : err_set(err, ERR_FATAL,
							   "the replay's filter has a term "
							   "that is no text");
	}
	json_decref(object);
	return good;
}
