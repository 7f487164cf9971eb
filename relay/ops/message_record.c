/*
 * A record is found by its header outbox-id. search_place reads one topic, or the partition of it
 * that the message went to, from the offset that the log gives or from the time at which the
 * message was written. message_record_search calls it for each publisher that may have sent the
 * message, and for the dead letters of sidecars that read its topic.
 */
#include "message_record.h"

#include <inttypes.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "consumer.h"
#include "moment.h"
#include "position.h"
#include "text.h"

DEFINE_OWNED(struct consumer, consumer_destroy)

/* Records are searched from this time before the message on, for clocks that differ. */
enum { MARGIN_MS = 5000, WAIT_MS = 100, STEP_US = 1000 };

struct search {
	/* the question */
	const struct kafka_settings *kafka;
	const char *topic, *isolation, *event_id;
	const char *publisher; /* whose record it is; NULL: a dead letter of `group` */
	const char *group;
	int32_t partition;  /* -1: any */
	int64_t from, upto; /* offsets by the log; -1: unknown */
	int64_t from_ms;
	int64_t until_ms;
	/* the answer */
	const char *state;
	char *detail;
	bool found;
	int32_t found_partition;
	int64_t offset, timestamp_ms, tick, id;
	char *reason, *attempts; /* of a dead letter */
	int64_t seen;
};

static void finish_search(struct search *search)
{
	free(search->detail);
	free(search->reason);
	free(search->attempts);
}

static void end_search(struct search *search, const char *state, char *detail)
{
	search->state = state;
	free(search->detail);
	search->detail = detail;
}

/* --- one record ------------------------------------------------------------------------------ */

static char *header_text(const struct consumer_record *record, const char *name)
{
	const void *value;
	size_t length;

	if (!consumer_header(record, name, &value, &length) || !value)
		return NULL;
	return xformat("%.*s", (int)length, (const char *)value);
}

/* A replay sends a message once more with its outbox-id; another publisher may use the topic. */
static bool is_sent_by_publisher(const struct search *search, const struct consumer_record *record)
{
	owned_text char *position = header_text(record, "outbox-position");
	owned_text char *replay = header_text(record, "outbox-replay");
	owned_text char *group = header_text(record, "outbox-group");
	struct outbox_position parsed;

	return !replay && !group && position &&
	       outbox_position_parse(position, strlen(position), &parsed) &&
	       text_equal(parsed.publisher, search->publisher);
}

static bool is_dead_letter(const struct search *search, const struct consumer_record *record)
{
	owned_text char *group = header_text(record, "outbox-group");

	return group && text_equal(group, search->group);
}

static void note_found_position(struct search *search, const struct consumer_record *record)
{
	owned_text char *position = header_text(record, "outbox-position");
	struct outbox_position parsed;

	search->tick = -1;
	if (!position || !outbox_position_parse(position, strlen(position), &parsed))
		return;
	search->tick = parsed.tick;
	search->id = parsed.id;
}

static bool see_searched_record(void *context, const struct consumer_record *record)
{
	struct search *search = context;
	const void *id;
	size_t length;

	search->seen++;
	if (!consumer_header(record, "outbox-id", &id, &length) || !id ||
	    length != strlen(search->event_id) || strncasecmp(id, search->event_id, length) != 0)
		return true;
	if (search->publisher ? !is_sent_by_publisher(search, record)
			      : !is_dead_letter(search, record))
		return true;

	search->found = true;
	search->found_partition = record->partition;
	search->offset = record->offset;
	search->timestamp_ms = record->timestamp_ms;
	note_found_position(search, record);
	search->reason = header_text(record, "outbox-reason");
	search->attempts = header_text(record, "outbox-attempts");
	return false;
}

/* --- one topic ------------------------------------------------------------------------------- */

/* "partition 3 from offset 17 to 20" or "4 partitions, 300 records" */
static char *describe_part(const struct search *search, const struct consumer *consumer)
{
	struct consumer_partition first, second;

	if (consumer_partition_at(consumer, 0, &first) &&
	    !consumer_partition_at(consumer, 1, &second))
		return xformat("partition %" PRId32 " from offset %" PRId64 ", %" PRId64
			       " records of %" PRId64,
		    first.partition, first.from, search->seen, first.high - first.from);
	return xformat("all partitions, %" PRId64 " records", search->seen);
}

/* The partitions were read to their ends. Did the record's place exist until lately? */
static bool has_lost_records(const struct search *search, const struct consumer *consumer)
{
	struct consumer_partition part;

	for (int i = 0; consumer_partition_at(consumer, i, &part); i++)
		if (part.low > 0 && part.from == part.low &&
		    (search->from < 0 || part.low > search->from))
			return true;
	return false;
}

static void judge_whole(struct search *search, const struct consumer *consumer)
{
	owned_text char *part = describe_part(search, consumer);

	if (has_lost_records(search, consumer))
		return end_search(search, "gone",
		    xformat("no longer in the topic: retention has removed records of that time; "
			    "read %s",
			part));
	end_search(search, "not_found",
	    xformat("read to the end and not found (%s): the topic was compacted or created again, "
		    "or its records have no headers",
		part));
}

/* Retention has removed everything up to the offset behind which the record cannot be. */
static bool is_certainly_gone(struct search *search, const struct consumer *consumer)
{
	struct consumer_partition part;

	if (search->partition < 0 || search->upto < 0 ||
	    !consumer_partition_at(consumer, 0, &part) || part.low <= search->upto)
		return false;
	end_search(search, "gone",
	    xformat("no longer in the topic: partition %" PRId32 " begins at offset %" PRId64
		    " now, and the record was at offset %" PRId64 " or before",
		part.partition, part.low, search->upto));
	return true;
}

static void read_searched_topic(struct search *search, struct consumer *consumer)
{
	bool at_end = false;
	struct err err;

	while (!search->found && !at_end) {
		int64_t left = search->until_ms - clock_ms();

		if (left <= 0) {
			owned_text char *part = describe_part(search, consumer);

			return end_search(
			    search, "timeout", xformat("not found in time: read %s", part));
		}
		if (!consumer_read(consumer, (int)(left < WAIT_MS ? left : WAIT_MS),
			see_searched_record, search, &at_end, &err))
			return end_search(search, "kafka_away", xstrdup(err.message));
	}
	if (search->found)
		end_search(search, "found", NULL);
	else
		judge_whole(search, consumer);
}

static void search_place(struct search *search)
{
	const char *const topics[] = {search->topic, NULL};
	int count = search->partition + 1;
	int64_t *offsets = search->partition >= 0 && search->from >= 0
			       ? xcalloc((size_t)count, sizeof *offsets)
			       : NULL;
	const struct consumer_range range = {.from_ms = search->from_ms,
	    .to_ms = INT64_MAX,
	    .offsets = offsets,
	    .offset_count = offsets ? count : 0,
	    .only = search->partition >= 0 ? &search->partition : NULL,
	    .until_ms = search->until_ms};
	OWNED(owned_consumer_destroy) struct consumer *consumer = NULL;
	struct err err;

	if (offsets)
		offsets[search->partition] = search->from;
	consumer = consumer_create_range(search->kafka, topics, search->isolation, &range, &err);
	free(offsets);
	if (!consumer)
		return end_search(search, err.kind == ERR_REJECT ? "no_topic" : "kafka_away",
		    xstrdup(err.message));
	if (!is_certainly_gone(search, consumer))
		read_searched_topic(search, consumer);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static const char *text_member(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

static int64_t offset_member(const json_t *object, const char *name)
{
	const char *text = text_member(object, name);
	int64_t number;

	return text && text_to_int64(text, 0, INT64_MAX, &number) ? number : -1;
}

static json_t *timestamp_json(int64_t ms)
{
	char text[MOMENT_SIZE];

	moment_format_exact(ms * STEP_US, text);
	return json_string(text);
}

static bool is_unsearched(const json_t *record)
{
	return text_equal(json_is_object(record) ? text_member(record, "state") : "", "unsearched");
}

static void note_record(json_t *record, const struct search *search)
{
	json_object_set_new(record, "state", json_string(search->state));
	json_object_set_new(
	    record, "detail", search->detail ? json_string(search->detail) : json_null());
	if (!search->found)
		return;

	json_object_set_new(record, "partition", json_integer(search->found_partition));
	json_object_set_new(record, "offset", json_sprintf("%" PRId64, search->offset));
	json_object_set_new(record, "timestamp", timestamp_json(search->timestamp_ms));
	if (search->tick < 0)
		return;
	json_object_set_new(record, "tick", json_sprintf("%" PRId64, search->tick));
	json_object_set_new(record, "id", json_sprintf("%" PRId64, search->id));
}

static int64_t created_ms(const json_t *row)
{
	const char *text = text_member(row, "created_at");
	struct err err;
	int64_t us = 0;

	if (text && !moment_parse(text, &us, &err))
		us = 0;
	return us / STEP_US - MARGIN_MS;
}

static void search_record(
    const struct config *config, const json_t *row, json_t *publisher, int64_t until_ms)
{
	json_t *record = json_object_get(publisher, "record");
	const struct config_publisher *section =
	    config_find_publisher(config, text_member(publisher, "publisher"));
	const json_t *partition = json_object_get(record, "partition");
	struct search search = {.topic = text_member(record, "topic"),
	    .event_id = text_member(row, "event_id"),
	    .publisher = text_member(publisher, "publisher"),
	    .partition = json_is_integer(partition) ? (int32_t)json_integer_value(partition) : -1,
	    .from = offset_member(record, "from_offset"),
	    .upto = offset_member(record, "to_offset"),
	    .from_ms = created_ms(row),
	    .until_ms = until_ms};

	if (!section) {
		end_search(&search, "not_configured",
		    xstrdup("the configuration of this process has no [publisher] section of this "
			    "name, so it does not know the cluster"));
	} else if (section->settings.headers(section->settings.context, search.topic) ==
		   TOPIC_HEADERS_NONE) {
		end_search(&search, "unmarked",
		    xstrdup("the topic has headers = none, so its records do not name their "
			    "messages"));
	} else {
		search.kafka = section->settings.kafka;
		search.isolation = section->settings.delivery == DELIVERY_EXACTLY_ONCE
				       ? "read_committed"
				       : "read_uncommitted";
		search_place(&search);
	}
	note_record(record, &search);
	finish_search(&search);
}

/* --- dead letters ---------------------------------------------------------------------------- */

static bool has_dead_letters_of(
    const struct config_deliver *section, const struct config_list *sections, const json_t *row)
{
	return *section->dead_letter_topic &&
	       config_list_has(&section->topics, text_member(row, "topic")) &&
	       (sections->count == 0 || config_list_has(sections, section->name));
}

static json_t *search_dead_letter(
    const struct config_deliver *section, const json_t *row, int64_t until_ms)
{
	struct search search = {.kafka = section->kafka,
	    .topic = section->dead_letter_topic,
	    .isolation = "read_committed",
	    .event_id = text_member(row, "event_id"),
	    .group = section->group,
	    .partition = -1,
	    .from = -1,
	    .upto = -1,
	    .from_ms = created_ms(row),
	    .until_ms = until_ms};
	json_t *object;

	search_place(&search);
	object = json_pack("{s:s, s:s, s:n, s:n, s:n, s:n, s:n}", "section", section->name, "topic",
	    section->dead_letter_topic, "partition", "offset", "timestamp", "reason", "attempts");
	note_record(object, &search);
	json_object_del(object, "tick");
	json_object_del(object, "id");
	if (search.reason)
		json_object_set_new(object, "reason", json_string(search.reason));
	if (search.attempts)
		json_object_set_new(object, "attempts", json_string(search.attempts));
	finish_search(&search);
	return object;
}

/* --- all ------------------------------------------------------------------------------------- */

static int count_searches(
    const struct config *config, const struct config_list *sections, const json_t *answer)
{
	const json_t *row, *publisher;
	size_t i, k;
	int count = 0;

	json_array_foreach(json_object_get(answer, "rows"), i, row)
	{
		json_array_foreach(json_object_get(row, "publishers"), k, publisher) count +=
		    is_unsearched(json_object_get(publisher, "record"));
		for (int d = 0; d < config->deliver_count; d++)
			count += has_dead_letters_of(&config->delivers[d], sections, row);
	}
	return count;
}

bool message_record_is_wanted(const json_t *answer)
{
	const json_t *row, *publisher;
	size_t i, k;

	json_array_foreach(json_object_get(answer, "rows"), i, row)
	    json_array_foreach(json_object_get(row, "publishers"), k,
		publisher) if (is_unsearched(json_object_get(publisher, "record"))) return true;
	return false;
}

/* Each search may use its part of the time, and the time that earlier ones did not use. */
static int64_t search_until(int64_t end_ms, int left)
{
	int64_t now = clock_ms();

	return now + (end_ms > now ? end_ms - now : 0) / (left > 0 ? left : 1);
}

void message_record_search(
    const struct config *config, const struct config_list *sections, json_t *answer, int64_t ms)
{
	int64_t end_ms = clock_ms() + ms;
	int left = count_searches(config, sections, answer);
	json_t *row, *publisher;
	size_t i, k;

	json_array_foreach(json_object_get(answer, "rows"), i, row)
	{
		json_array_foreach(json_object_get(row, "publishers"), k,
		    publisher) if (is_unsearched(json_object_get(publisher, "record")))
		    search_record(config, row, publisher, search_until(end_ms, left--));
		for (int d = 0; d < config->deliver_count; d++)
			if (has_dead_letters_of(&config->delivers[d], sections, row))
				json_array_append_new(json_object_get(row, "dead_letters"),
				    search_dead_letter(
					&config->delivers[d], row, search_until(end_ms, left--)));
	}
}

void message_record_leave(json_t *answer, const char *detail)
{
	json_t *row, *publisher;
	size_t i, k;

	json_array_foreach(json_object_get(answer, "rows"), i, row)
	    json_array_foreach(json_object_get(row, "publishers"), k, publisher)
	{
		json_t *record = json_object_get(publisher, "record");

		if (!is_unsearched(record))
			continue;
		json_object_set_new(record, "state", json_string("busy"));
		json_object_set_new(record, "detail", json_string(detail));
	}
}
