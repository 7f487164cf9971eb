/*
 * message_question_read turns words into a question, [rows] finds its messages, and [publishers]
 * says for each publisher where they are. message_find begins.
 */
#include "message_find.h"

#include <inttypes.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "field_json.h"
#include "hex.h"
#include "moment.h"
#include "partitioner.h"
#include "sql_files.h"
#include "term.h"
#include "text.h"

/* How long messages are searched where no index finds them. */
enum { SEARCH_MS = 1800, EVENT_ROWS = 10 };

/* Around the time that a UUID of version 7 names, in turn: its maker may not be the server. */
static const int64_t spans_us[] = {5000, 100000, 2000000, 60000000};
enum { SPANS = sizeof spans_us / sizeof *spans_us };

/* --- words ----------------------------------------------------------------------------------- */

void message_question_finish(struct message_question *question)
{
	free(question->event_id);
	free(question->topic);
	free(question->key);
	free(question->from_at);
	free(question->to_at);
}

static bool check_words(
    const struct message_words *words, struct message_question *question, struct err *err)
{
	bool by_key = words->topic || words->key;

	question->conflicts = true;
	if (!words->id + !words->event_id + !by_key != 2)
		return err_set(err, ERR_REJECT,
		    "%s: give id, or event_id, or topic and key with from and to",
		    words->id || words->event_id || by_key ? "a message is searched in one way"
							   : "no message is named");
	if (by_key && (!words->topic || !words->key))
		return err_set(err, ERR_REJECT,
		    "%s is missing: messages are searched by topic and key together; one without "
		    "key has only its id and event_id",
		    words->topic ? "key" : "topic");
	if (words->id && (words->from || words->to))
		return err_set(err, ERR_REJECT, "id needs no range of time: leave from and to out");
	if (!by_key && (words->limit || words->after))
		return err_set(
		    err, ERR_REJECT, "limit and after are for topic and key: leave them out");
	if ((by_key || words->from || words->to) && (!words->from || !words->to))
		return err_set(err, ERR_REJECT,
		    "%s is missing: give the range of time in which the message was written, for "
		    "example from=2026-01-02T03:00:00Z and to=2026-01-02T04:00:00Z",
		    words->from ? "to" : "from");
	question->conflicts = false;
	return true;
}

static bool read_number_word(
    const char *name, const char *word, int64_t from, int64_t to, int64_t *ret, struct err *err)
{
	return !word || text_to_int64(word, from, to, ret) ||
	       err_set(err, ERR_REJECT, "%s=%.40s is no whole number from %" PRId64 " to %" PRId64,
		   name, word, from, to);
}

static bool read_moment_word(
    const char *name, const char *word, char **ret_at, int64_t *ret_us, struct err *err)
{
	char at[MOMENT_SIZE];

	if (!word)
		return true;
	if (!moment_parse(word, ret_us, err))
		return err_prefix(err, "%s", name);
	moment_format_exact(*ret_us, at);
	*ret_at = xstrdup(at);
	return true;
}

static bool read_message_range(
    const struct message_words *words, struct message_question *question, struct err *err)
{
	int64_t from_us = INT64_MIN, to_us = INT64_MAX;

	if (!read_moment_word("from", words->from, &question->from_at, &from_us, err) ||
	    !read_moment_word("to", words->to, &question->to_at, &to_us, err))
		return false;
	question->conflicts = from_us >= to_us;
	return !question->conflicts ||
	       err_set(err, ERR_REJECT,
		   "from=%.40s is not before to=%.40s: the earlier time comes first, and to is not "
		   "part of the range",
		   words->from, words->to);
}

static bool is_version_7(const char *event_id)
{
	return event_id[14] == '7';
}

static bool read_event_word(
    const char *word, bool has_range, struct message_question *question, struct err *err)
{
	char uuid[UUID_BYTES];

	if (!uuid_read(word, strlen(word), uuid))
		return err_set(err, ERR_REJECT,
		    "event_id=%.60s is no UUID: write it as 0190a3f7-0b1d-7c55-9f43-6a2d1e0c7b90, "
		    "the value of a record's header outbox-id",
		    word);
	question->conflicts = !has_range && !is_version_7(word);
	if (question->conflicts)
		return err_set(err, ERR_REJECT,
		    "event_id=%s does not say when it was made, as one of version 7 does: give the "
		    "range of time in which the message was written with from and to",
		    word);
	question->event_id = xstrdup(word);
	return true;
}

bool message_question_read(
    const struct message_words *words, struct message_question *ret_question, struct err *err)
{
	struct message_question *question = ret_question;

	question->limit = MESSAGE_ROWS;
	if (!check_words(words, question, err) ||
	    !read_number_word("id", words->id, 1, INT64_MAX, &question->id, err) ||
	    !read_number_word("limit", words->limit, 1, MESSAGE_MOST_ROWS, &question->limit, err) ||
	    !read_number_word("after", words->after, 0, INT64_MAX, &question->after, err) ||
	    !read_message_range(words, question, err))
		return false;
	if (words->event_id &&
	    !read_event_word(words->event_id, question->from_at != NULL, question, err))
		return false;
	if (!words->topic)
		return true;
	if (!term_topic(words->topic, err))
		return false;

	question->topic = xstrdup(words->topic);
	question->key = term_key(words->key, err);
	return question->key != NULL;
}

/* --- publishers ------------------------------------------------------------------------------ */

/* Columns of message_rows.sql. */
enum {
	ROW_ID,
	ROW_CREATED_AT, /* as the server prints it, for the next statements */
	ROW_EVENT_ID,
	ROW_TOPIC,
	ROW_KEY,
	ROW_PARTITION,
	ROW_CREATED,
	ROW_DELIVER_AT,
	ROW_TXID,
	ROW_BUCKET,
};

/* Columns of message_places.sql. */
enum {
	PLACE_PUBLISHER,
	PLACE_SHARD,
	PLACE_STATE,
	PLACE_BEGINS,
	PLACE_TICK,
	PLACE_OPENED_N,
	PLACE_OPENED_AT,
	PLACE_SETTLED_N,
	PLACE_SETTLED_AT,
	PLACE_LOG_FROM,
	PLACE_KEPT_ID,
	PLACE_PARKED_STATE,
	PLACE_ERROR,
	PLACE_ATTEMPTS,
	PLACE_NEXT_AT,
	PLACE_PARKED_AT,
	PLACE_STALLED,
	PLACE_REQUEST,
	PLACE_REQUEST_ID,
	PLACE_HEAD_ID,
	PLACE_HEAD_STATE,
	PLACE_HEAD_ERROR,
	PLACE_DUE_AT,
	PLACE_LISTED,
	PLACE_LISTED_TICK,
	PLACE_SKIP_ID,
	PLACE_SKIPPED_AT,
	PLACE_SKIPPED_BY,
	PLACE_SKIP_REASON,
	PLACE_PARTITIONS,
	PLACE_BRACKET_N,
	PLACE_REPLAYS,
};

struct finding {
	struct pg *pg;
	const struct postgres_settings *postgres;
	const struct message_question *question;
	struct err *err;
};

static json_t *window_json(const struct pg_result *places, int i)
{
	static const struct field_column members[] = {{"tick", PLACE_TICK},
	    {"opened_row", PLACE_OPENED_N}, {"opened_at", PLACE_OPENED_AT},
	    {"settled_row", PLACE_SETTLED_N}, {"settled_at", PLACE_SETTLED_AT},
	    {"log_from", PLACE_LOG_FROM}};

	return FIELD_JSON_TEXTS(places, i, members);
}

/* The listed window that the row is in, if it is on its way. */
static json_t *listed_json(const struct pg_result *places, int i)
{
	return text_equal(pg_value(places, i, PLACE_LISTED), "t")
		   ? field_json(places, i, PLACE_LISTED_TICK)
		   : json_null();
}

static json_t *parked_json(const struct pg_result *places, int i)
{
	static const struct field_column members[] = {{"id", PLACE_KEPT_ID},
	    {"state", PLACE_PARKED_STATE}, {"error", PLACE_ERROR}, {"next_at", PLACE_NEXT_AT},
	    {"parked_at", PLACE_PARKED_AT}, {"request", PLACE_REQUEST},
	    {"request_id", PLACE_REQUEST_ID}};
	static const struct field_column head[] = {
	    {"id", PLACE_HEAD_ID}, {"state", PLACE_HEAD_STATE}, {"error", PLACE_HEAD_ERROR}};
	json_t *object;

	if (pg_is_null(places, i, PLACE_PARKED_STATE))
		return json_null();
	object = FIELD_JSON_TEXTS(places, i, members);
	json_object_set_new(object, "attempts", json_integer(pg_int(places, i, PLACE_ATTEMPTS)));
	json_object_set_new(
	    object, "stalled_partition", field_json_number(places, i, PLACE_STALLED));
	json_object_set_new(object, "window", listed_json(places, i));
	json_object_set_new(object, "behind",
	    pg_is_null(places, i, PLACE_HEAD_ID) ? json_null() : FIELD_JSON_TEXTS(places, i, head));
	return object;
}

static json_t *scheduled_json(const struct pg_result *places, int i)
{
	static const struct field_column members[] = {
	    {"id", PLACE_KEPT_ID}, {"due_at", PLACE_DUE_AT}};
	json_t *object;

	if (pg_is_null(places, i, PLACE_DUE_AT))
		return json_null();
	object = FIELD_JSON_TEXTS(places, i, members);
	json_object_set_new(object, "window", listed_json(places, i));
	return object;
}

static json_t *skip_json(const struct pg_result *places, int i)
{
	static const struct field_column members[] = {{"audit", PLACE_SKIP_ID},
	    {"at", PLACE_SKIPPED_AT}, {"by", PLACE_SKIPPED_BY}, {"reason", PLACE_SKIP_REASON}};

	return pg_is_null(places, i, PLACE_SKIP_ID) ? json_null()
						    : FIELD_JSON_TEXTS(places, i, members);
}

/* -1: the row names none and has no key, or the number of partitions is not known. */
static int32_t partition_of(
    const struct pg_result *row, int m, const struct pg_result *places, int i)
{
	const char *hex = pg_value(row, m, ROW_KEY);
	size_t length = strlen(hex) / 2;
	owned_text char *key = xmalloc(length + 1);

	if (!pg_is_null(row, m, ROW_PARTITION))
		return (int32_t)pg_int(row, m, ROW_PARTITION);
	if (pg_is_null(row, m, ROW_KEY) || pg_is_null(places, i, PLACE_PARTITIONS) ||
	    pg_int(places, i, PLACE_PARTITIONS) <= 0 || !hex_read(hex, length, key))
		return -1;
	return partitioner_of_key(key, length, (int32_t)pg_int(places, i, PLACE_PARTITIONS));
}

/* An offset that the log knows: -1 is in front of the first record, -2 unknown. */
static json_t *offset_json(const struct pg_result *row, int column, int64_t add)
{
	if (pg_is_null(row, 0, column) || pg_int(row, 0, column) < -1 ||
	    pg_int(row, 0, column) + add < 0)
		return json_null();
	return json_sprintf("%" PRId64, pg_int(row, 0, column) + add);
}

static bool add_bracket(struct finding *finding, json_t *record, int32_t partition,
    const struct pg_result *row, int m, const struct pg_result *places, int i)
{
	bool known = partition >= 0 && !pg_is_null(places, i, PLACE_BRACKET_N);
	owned_text char *number = xformat("%" PRId32, partition);
	const struct pg_param params[] = {{pg_value(places, i, PLACE_PUBLISHER)},
	    {pg_value(places, i, PLACE_SHARD)}, {pg_value(row, m, ROW_TOPIC)}, {number},
	    {pg_value(places, i, PLACE_BRACKET_N)}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *bracket = !known ? NULL
					   : database_query(finding->pg, finding->postgres,
						 sql_message_bracket, params, 5, finding->err);

	json_object_set_new(
	    record, "from_offset", bracket ? offset_json(bracket, 0, 1) : json_null());
	json_object_set_new(
	    record, "to_offset", bracket ? offset_json(bracket, 1, 0) : json_null());
	return !known || bracket;
}

/* Only these may have a record in Kafka. */
static bool may_have_record(const char *state)
{
	return text_equal(state, "published") || text_equal(state, "in_window") ||
	       text_equal(state, "dropped");
}

static bool add_record(struct finding *finding, json_t *object, const struct pg_result *row, int m,
    const struct pg_result *places, int i)
{
	int32_t partition = partition_of(row, m, places, i);
	json_t *record;

	json_object_set_new(object, "record", json_null());
	if (!may_have_record(pg_value(places, i, PLACE_STATE)))
		return true;
	record = json_pack("{s:s, s:s, s:o, s:n, s:n, s:n, s:n, s:n}", "state", "unsearched",
	    "topic", pg_value(row, m, ROW_TOPIC), "partition",
	    partition < 0 ? json_null() : json_integer(partition), "offset", "timestamp", "tick",
	    "id", "detail");
	json_object_set_new(object, "record", record);
	return add_bracket(finding, record, partition, row, m, places, i);
}

static json_t *place_json(struct finding *finding, const struct pg_result *row, int m,
    const struct pg_result *places, int i)
{
	json_t *replays = field_json_parsed(places, i, PLACE_REPLAYS);
	json_t *object = json_object();

	json_object_set_new(object, "publisher", field_json(places, i, PLACE_PUBLISHER));
	json_object_set_new(object, "shard", field_json_number(places, i, PLACE_SHARD));
	json_object_set_new(object, "state", field_json(places, i, PLACE_STATE));
	json_object_set_new(object, "begins_at",
	    text_equal(pg_value(places, i, PLACE_STATE), "before_start")
		? field_json(places, i, PLACE_BEGINS)
		: json_null());
	json_object_set_new(object, "window", window_json(places, i));
	json_object_set_new(object, "acknowledged_at", json_null());
	json_object_set_new(object, "parked", parked_json(places, i));
	json_object_set_new(object, "scheduled", scheduled_json(places, i));
	json_object_set_new(object, "skipped", skip_json(places, i));
	json_object_set_new(object, "replays", json_is_array(replays) ? replays : json_array());
	if (!json_is_array(replays))
		json_decref(replays);
	if (add_record(finding, object, row, m, places, i))
		return object;
	json_decref(object);
	return NULL;
}

static bool is_limited(const struct finding *finding)
{
	return finding->question->publishers && finding->question->publishers->count > 0;
}

static bool is_shown(const struct finding *finding, const char *publisher)
{
	return !is_limited(finding) || config_list_has(finding->question->publishers, publisher);
}

static bool add_message_places(
    struct finding *finding, json_t *object, const struct pg_result *row, int m)
{
	owned_text char *key = xformat("\\x%s", pg_value(row, m, ROW_KEY));
	const char *txid = pg_is_null(row, m, ROW_TXID) ? NULL : pg_value(row, m, ROW_TXID);
	const struct pg_param params[] = {{pg_value(row, m, ROW_ID)},
	    {pg_value(row, m, ROW_CREATED_AT)}, {pg_value(row, m, ROW_EVENT_ID)},
	    {pg_value(row, m, ROW_TOPIC)}, {pg_is_null(row, m, ROW_KEY) ? NULL : key}, {txid},
	    {pg_value(row, m, ROW_BUCKET)}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *places = database_query(
	    finding->pg, finding->postgres, sql_message_places, params, 7, finding->err);
	json_t *list = json_array();

	json_object_set_new(object, "publishers", list);
	for (int i = 0; places && i < pg_rows(places); i++) {
		json_t *place;

		if (!is_shown(finding, pg_value(places, i, PLACE_PUBLISHER)))
			continue;
		place = place_json(finding, row, m, places, i);
		if (!place)
			return false;
		json_array_append_new(list, place);
	}
	return places != NULL;
}

/* --- rows ------------------------------------------------------------------------------------ */

static bool add_message_payload(
    struct finding *finding, json_t *object, const struct pg_result *row, int m)
{
	const struct pg_param params[] = {
	    {pg_value(row, m, ROW_ID)}, {pg_value(row, m, ROW_CREATED_AT)}};
	OWNED(owned_pg_result_destroy) struct pg_result *payload = NULL;

	if (!finding->question->payload)
		return true;
	payload = database_query(
	    finding->pg, finding->postgres, sql_message_payload, params, 2, finding->err);
	if (!payload)
		return false;
	if (pg_rows(payload) == 0) /* its last copy went meanwhile */
		return true;
	json_object_set_new(object, "payload", field_json_bytes(payload, 0, 0));
	json_object_set_new(object, "headers", field_json_parsed(payload, 0, 1));
	return true;
}

static json_t *message_row_json(const struct pg_result *row, int m)
{
	static const struct field_column members[] = {{"id", ROW_ID}, {"event_id", ROW_EVENT_ID},
	    {"created_at", ROW_CREATED}, {"topic", ROW_TOPIC}, {"deliver_at", ROW_DELIVER_AT}};
	json_t *object = FIELD_JSON_TEXTS(row, m, members);

	json_object_set_new(object, "key", field_json_bytes(row, m, ROW_KEY));
	json_object_set_new(object, "partition", field_json_number(row, m, ROW_PARTITION));
	json_object_set_new(object, "kept", json_boolean(!pg_is_null(row, m, ROW_TXID)));
	json_object_set_new(object, "dead_letters", json_array());
	return object;
}

/* created_at NULL: every message with the id, of which there are several if ids went back. */
static bool add_messages(
    struct finding *finding, json_t *list, const char *id, const char *created_at)
{
	const struct pg_param params[] = {{id}, {created_at}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(
	    finding->pg, finding->postgres, sql_message_rows, params, 2, finding->err);

	for (int i = 0; rows && i < pg_rows(rows); i++) {
		json_t *object = message_row_json(rows, i);

		json_array_append_new(list, object);
		if (!add_message_places(finding, object, rows, i) ||
		    !add_message_payload(finding, object, rows, i))
			return false;
		/* a caller that is limited to publishers sees no message that none of them
		 * publishes */
		if (is_limited(finding) &&
		    json_array_size(json_object_get(object, "publishers")) == 0)
			json_array_remove(list, json_array_size(list) - 1);
	}
	return rows != NULL;
}

/* What was searched. */
struct range {
	char from_at[MOMENT_SIZE], to_at[MOMENT_SIZE]; /* "": no range */
	bool over;
	int64_t upto_id; /* the search went up to this id if it is not over */
};

static bool scan_messages(
    struct finding *finding, json_t *list, int64_t most, int64_t ms, struct range *range)
{
	const struct message_question *question = finding->question;
	owned_text char *after = xformat("%" PRId64, question->after);
	owned_text char *limit = xformat("%" PRId64, most);
	owned_text char *within = xformat("%" PRId64, ms);
	const struct pg_param params[] = {{question->event_id}, {question->topic}, {question->key},
	    {range->from_at}, {range->to_at}, {after}, {limit}, {within}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *found = database_query(
	    finding->pg, finding->postgres, sql_message_scan, params, 8, finding->err);
	int last = found ? pg_rows(found) - 1 : 0;

	if (!found)
		return false;
	range->over = text_equal(pg_value(found, last, 3), "t");
	range->upto_id = pg_int(found, last, 2);
	for (int i = 0; i < last; i++)
		if (!add_messages(finding, list, pg_value(found, i, 0), pg_value(found, i, 1)))
			return false;
	return true;
}

static int64_t time_of_version_7(const char *event_id)
{
	char uuid[UUID_BYTES];
	int64_t ms = 0;

	if (uuid_read(event_id, strlen(event_id), uuid))
		for (int i = 0; i < 6; i++)
			ms = ms << 8 | (unsigned char)uuid[i];
	return ms * 1000;
}

/* Times of UUIDs may lie beyond the calendar. */
static void set_searched_range(struct range *range, int64_t from_us, int64_t to_us)
{
	static const int64_t last_us = INT64_C(253402300799) * 1000000;

	moment_format_exact(from_us < last_us ? from_us : last_us, range->from_at);
	moment_format_exact(to_us < last_us ? to_us : last_us, range->to_at);
}

static bool scan_around_event(struct finding *finding, json_t *list, struct range *range)
{
	int64_t at_us = time_of_version_7(finding->question->event_id);
	int64_t end_ms = clock_ms() + SEARCH_MS;

	for (int i = 0; i < SPANS && json_array_size(list) == 0; i++) {
		int64_t left = end_ms - clock_ms();

		/* the last span says how far the search came, even if no time is left for it */
		set_searched_range(range, at_us - spans_us[i], at_us + spans_us[i]);
		if (!scan_messages(finding, list, EVENT_ROWS, left > 0 ? left : 0, range))
			return false;
	}
	return true;
}

/* Copies in outbox.parked and outbox.scheduled outlive the partition of their message. */
static bool add_kept_messages(struct finding *finding, json_t *list)
{
	const struct pg_param params[] = {{finding->question->event_id}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *kept = database_query(
	    finding->pg, finding->postgres, sql_message_kept, params, 1, finding->err);

	for (int i = 0; kept && i < pg_rows(kept); i++)
		if (!add_messages(finding, list, pg_value(kept, i, 0), pg_value(kept, i, 1)))
			return false;
	return kept != NULL;
}

static bool find_rows(struct finding *finding, json_t *list, struct range *range)
{
	const struct message_question *question = finding->question;
	owned_text char *id = xformat("%" PRId64, question->id);

	if (question->id)
		return add_messages(finding, list, id, NULL);
	if (question->from_at) {
		text_copy(range->from_at, sizeof range->from_at, question->from_at);
		text_copy(range->to_at, sizeof range->to_at, question->to_at);
	}
	if (question->topic)
		return scan_messages(finding, list, question->limit, SEARCH_MS, range);
	if (!(question->from_at ? scan_messages(finding, list, EVENT_ROWS, SEARCH_MS, range)
				: scan_around_event(finding, list, range)))
		return false;
	return json_array_size(list) > 0 || add_kept_messages(finding, list);
}

static json_t *searched_json(const struct message_question *question, const struct range *range)
{
	return json_pack("{s:s, s:s?, s:s?, s:b}", "by",
	    question->id         ? "id"
	    : question->event_id ? "event_id"
				 : "topic_and_key",
	    "from", *range->from_at ? range->from_at : NULL, "to",
	    *range->to_at ? range->to_at : NULL, "complete", range->over);
}

json_t *message_find(struct pg *pg, const struct postgres_settings *postgres,
    const struct message_question *question, struct err *err)
{
	struct finding finding = {.pg = pg, .postgres = postgres, .question = question, .err = err};
	struct range range = {.over = true};
	json_t *rows = json_array(), *answer;

	if (!find_rows(&finding, rows, &range)) {
		json_decref(rows);
		return NULL;
	}
	answer = json_pack("{s:s, s:s, s:o, s:o}", "postgres", postgres->name, "source", "database",
	    "searched", searched_json(question, &range), "rows", rows);
	json_object_set_new(answer, "next",
	    range.over || !question->topic ? json_null() : json_sprintf("%" PRId64, range.upto_id));
	return answer;
}

/* --- records --------------------------------------------------------------------------------- */

static bool note_acknowledged(struct pg *pg, const struct postgres_settings *postgres,
    json_t *publisher, const json_t *record, struct err *err)
{
	owned_text char *shard = xformat(
	    "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(publisher, "shard")));
	const struct pg_param params[] = {
	    {json_string_value(json_object_get(publisher, "publisher"))}, {shard},
	    {json_string_value(json_object_get(record, "tick"))},
	    {json_string_value(json_object_get(record, "id"))}};
	OWNED(owned_pg_result_destroy) struct pg_result *row = NULL;

	/* without a tick, which only a record that was found has, there is nothing to look for */
	if (!params[2].text)
		return true;
	row = database_query(pg, postgres, sql_message_acknowledged, params, 4, err);
	if (row)
		json_object_set_new(publisher, "acknowledged_at", field_json(row, 0, 0));
	return row != NULL;
}

bool message_find_acknowledged(
    struct pg *pg, const struct postgres_settings *postgres, json_t *answer, struct err *err)
{
	json_t *row, *publisher;
	size_t i, k;

	json_array_foreach(json_object_get(answer, "rows"), i, row)
	    json_array_foreach(json_object_get(row, "publishers"), k,
		publisher) if (!note_acknowledged(pg, postgres, publisher,
				   json_object_get(publisher, "record"), err)) return false;
	return true;
}

char *message_find_nothing(const struct message_question *question, const json_t *answer)
{
	const json_t *searched = json_object_get(answer, "searched");
	const char *from = json_string_value(json_object_get(searched, "from"));
	const char *to = json_string_value(json_object_get(searched, "to"));

	if (question->id)
		return xformat("no message has the id %" PRId64
			       ": its transaction is open or was rolled back, its partition was "
			       "dropped, or it is in another database",
		    question->id);
	if (!json_is_true(json_object_get(searched, "complete")))
		return xformat("event_id=%s was not found within %d ms among the messages written "
			       "from %s to %s: give a smaller range with from and to",
		    question->event_id, SEARCH_MS, from, to);
	return xformat("no message written from %s to %s has event_id=%s: its transaction is open "
		       "or was rolled back, its partition was dropped, or it was written at "
		       "another time: give that with from and to",
	    from, to, question->event_id);
}
