/*
 * The topics' side of `verify`: reads the records of each topic, in a range of time if one is
 * given, and passes those of this publisher to the engine.
 */
#include "verify_topics.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "clock.h"
#include "consumer.h"
#include "digest.h"
#include "partitioner.h"
#include "topic_metadata.h"
#include "verify_table.h"

DEFINE_OWNED(struct consumer, consumer_destroy)
DEFINE_OWNED(struct topic_metadata, topic_metadata_destroy)

enum { WAIT_MS = 500, SILENCE_MS = 30000, SETTINGS_MS = 5000 };

/*
 * Around a range of time: before it for clocks that differ (a record's timestamp may be the relay's
 * or the broker's), behind it for the time that publishing took.
 */
enum { MARGIN_MS = 10 * 60 * 1000 };

struct place {
	int64_t low;      /* the first offset that still exists, if reading began there; else 0 */
	int64_t upto;     /* this round reads up to this offset */
	int64_t first_id; /* id of this publisher's first record in it; INT64_MAX: none */
	int64_t counted;  /* the records before this offset are counted already */
};

struct topic {
	char *name;
	struct place *places; /* by partition */
	int count;
	bool asked, missing, compacted;
	bool unmarked; /* its records do not name their rows */
	UT_hash_handle hh;
};

struct verify_topics {
	const struct publisher_settings *publisher;
	const char *identity; /* the publisher's identity in this database */
	const char *sequence;
	struct verify_range range;
	struct topic *topics, *recent;
	struct verify_topics_figures figures;

	/* while reading */
	struct verify_engine *engine;
	struct topic *reading;
	struct verify_unknown unknown[VERIFY_UNKNOWNS];
	int unknown_count;
	struct progress_watch watch;
	int64_t seen;
};

struct verify_topics *verify_topics_create(const struct publisher_settings *publisher,
    const char *identity, const char *sequence, const struct verify_range *range,
    const struct progress_watch *watch)
{
	struct verify_topics *topics = xcalloc(1, sizeof *topics);

	topics->publisher = publisher;
	topics->identity = identity;
	topics->sequence = sequence;
	topics->range = *range;
	topics->watch = *watch;
	return topics;
}

void verify_topics_destroy(struct verify_topics *topics)
{
	struct topic *topic, *next;

	if (!topics)
		return;
	HASH_ITER(hh, topics->topics, topic, next)
	{
		HASH_DEL(topics->topics, topic);
		free(topic->name);
		free(topic->places);
		free(topic);
	}
	free(topics);
}

static struct topic *find_known_topic(
    const struct verify_topics *topics, const char *name, size_t length)
{
	struct topic *topic = topics->recent;

	if (topic && strncmp(topic->name, name, length) == 0 && topic->name[length] == '\0')
		return topic;
	HASH_FIND(hh, topics->topics, name, length, topic);
	return topic;
}

void verify_topics_add(void *context, const char *name, size_t length)
{
	struct verify_topics *topics = context;
	struct topic *topic = find_known_topic(topics, name, length);

	if (!topic) {
		topic = xcalloc(1, sizeof *topic);
		topic->name = xformat("%.*s", (int)length, name);
		topic->unmarked = topics->publisher->headers(topics->publisher->context,
				      topic->name) == TOPIC_HEADERS_NONE;
		HASH_ADD_KEYPTR(hh, topics->topics, topic->name, length, topic);
		topics->figures.topics++;
	}
	topics->recent = topic;
}

/* --- one record ---------------------------------------------------------------------------- */

/* The application's headers, and the two of the relay. */
struct headers {
	uint64_t content;
	const char *event, *position;
	size_t event_length, position_length;
};

static struct headers read_record_headers(const struct consumer_record *record)
{
	struct headers headers = {
	    .content = verify_content_digest(record->topic, strlen(record->topic), record->key,
		record->key_length, record->payload, record->payload_length)};
	const char *name;
	const void *value;
	size_t length;

	for (size_t i = 0; consumer_header_at(record, i, &name, &value, &length); i++) {
		if (text_equal(name, "outbox-id")) {
			headers.event = value;
			headers.event_length = length;
		} else if (text_equal(name, "outbox-position")) {
			headers.position = value;
			headers.position_length = length;
		} else {
			headers.content = digest_add(headers.content, name, strlen(name));
			headers.content = digest_add(headers.content, value, length);
		}
	}
	return headers;
}

/* Payloads without the field, as tombstones, are judged by their position alone. */
static bool read_sequence(
    const struct verify_topics *topics, const struct consumer_record *record, int64_t *ret_sequence)
{
	json_t *payload, *field;
	bool found;

	if (!topics->sequence || !record->payload)
		return false;
	payload = json_loadb(record->payload, record->payload_length, 0, NULL);
	field = json_object_get(payload, topics->sequence);
	found = json_is_integer(field);
	*ret_sequence = (int64_t)json_integer_value(field);
	json_decref(payload);
	return found;
}

static void note_unknown(struct verify_topics *topics, const struct consumer_record *record,
    const struct verify_record *judged)
{
	topics->unknown[topics->unknown_count++] = (struct verify_unknown){
	    .id = judged->position.id,
	    .offset = record->offset,
	    .timestamp_ms = record->timestamp_ms,
	    .event = judged->event,
	    .partition = record->partition,
	    .topic = topics->reading->name,
	};
}

static void note_place(struct topic *topic, int32_t partition, int64_t id)
{
	if (topic->places[partition].first_id == INT64_MAX)
		topic->places[partition].first_id = id;
}

/* Adds 1 for a record that was not read before. */
static void count_record(struct topic *topic, const struct consumer_record *record, int64_t *figure)
{
	struct place *place = &topic->places[record->partition];

	if (record->offset < place->counted)
		return;
	place->counted = record->offset + 1;
	++*figure;
}

static int64_t floor_ms(int64_t us)
{
	return us / 1000 - (us % 1000 < 0);
}

/* Timestamps are in milliseconds, and rounded down. */
static bool is_in_verified_range(const struct verify_topics *topics, int64_t timestamp_ms)
{
	const struct verify_range *range = &topics->range;

	return (range->from_us == INT64_MIN || timestamp_ms >= floor_ms(range->from_us)) &&
	       (range->to_us == INT64_MAX || timestamp_ms <= floor_ms(range->to_us - 1));
}

/* Other databases may publish to the topic, from a publisher of the same name. */
static bool is_of_publisher(const struct verify_topics *topics, const struct headers *headers,
    struct outbox_position *ret_position)
{
	return headers->position &&
	       outbox_position_parse(headers->position, headers->position_length, ret_position) &&
	       text_equal(ret_position->publisher, topics->publisher->name) &&
	       text_starts(topics->identity, ret_position->identity);
}

/* False when there is no room for a further unknown one. */
static bool judge_topic_record(void *context, const struct consumer_record *record)
{
	struct verify_topics *topics = context;
	struct headers headers = read_record_headers(record);
	struct verify_record judged = {.topic = topics->reading->name,
	    .partition = record->partition,
	    .offset = record->offset,
	    .key = record->key,
	    .key_length = record->key_length,
	    .event = verify_event_digest(headers.event, headers.event_length),
	    .content = headers.content};

	progress_watch_step(&topics->watch, "records read", ++topics->seen);
	/* records of other publishers say nothing about this one's rows, and are only counted */
	if (!is_of_publisher(topics, &headers, &judged.position)) {
		count_record(topics->reading, record, &topics->figures.others);
		return true;
	}
	count_record(topics->reading, record, &topics->figures.records);
	note_place(topics->reading, record->partition, judged.position.id);
	judged.has_sequence = read_sequence(topics, record, &judged.sequence);
	if (verify_engine_record(topics->engine, &judged) == VERIFY_UNKNOWN &&
	    is_in_verified_range(topics, record->timestamp_ms))
		note_unknown(topics, record, &judged);
	return topics->unknown_count < VERIFY_UNKNOWNS;
}

/* --- topics -------------------------------------------------------------------------------- */

/* Asks only when a record is missing. The dev broker cannot answer: then nothing is compacted. */
static void ask_compaction(const struct kafka_settings *kafka, struct topic *topic)
{
	struct err err;
	OWNED(owned_topic_metadata_destroy)
	struct topic_metadata *metadata = topic_metadata_create(kafka, &err);
	struct topic_setting *settings;
	int count;

	topic->asked = true;
	if (!metadata ||
	    !topic_metadata_settings(metadata, topic->name, SETTINGS_MS, &settings, &count, &err))
		return;
	for (int i = 0; i < count; i++)
		topic->compacted |= text_equal(settings[i].name, "cleanup.policy") &&
				    strstr(settings[i].value, "compact");
	topic_metadata_settings_free(settings, count);
}

static void add_topic_places(struct topic *topic, int count)
{
	topic->places = xrealloc(topic->places, (size_t)count * sizeof *topic->places);
	for (; topic->count < count; topic->count++)
		topic->places[topic->count] = (struct place){.first_id = INT64_MAX};
}

/*
 * rest: each partition is read on from where it was read to, and only the places of partitions that
 * were added meanwhile are new.
 */
static void note_places(struct topic *topic, const struct consumer *consumer, bool rest)
{
	struct consumer_partition partition;
	int known = rest ? topic->count : 0;

	for (int i = 0; consumer_partition_at(consumer, i, &partition); i++) {
		struct place *place;

		if (partition.partition < known)
			continue;
		if (partition.partition >= topic->count)
			add_topic_places(topic, partition.partition + 1);

		place = &topic->places[partition.partition];
		/* records before the range are not read, so it is not known that they are gone */
		place->low = partition.from == partition.low ? partition.low : 0;
		place->upto = partition.high;
		place->first_id = INT64_MAX;
	}
}

static bool read_to_end(struct verify_topics *topics, struct consumer *consumer,
    bool (*unknown)(
	void *context, const struct verify_unknown *records, int count, struct err *err),
    void *context, struct err *err)
{
	int64_t heard_at = clock_ms();

	for (bool at_end = false; !at_end;) {
		int64_t seen = topics->seen;

		if (!progress_watch_goes_on(&topics->watch, err) ||
		    !consumer_read(consumer, WAIT_MS, judge_topic_record, topics, &at_end, err))
			return false;
		/* the table is queried for many at once, and before the list overflows */
		if (topics->unknown_count == VERIFY_UNKNOWNS || at_end) {
			if (!unknown(context, topics->unknown, topics->unknown_count, err))
				return false;
			topics->unknown_count = 0;
		}
		if (topics->seen != seen)
			heard_at = clock_ms();
		/* a partition without a leader would make the command wait for ever */
		if (clock_ms() - heard_at > SILENCE_MS)
			return err_set(err, ERR_RETRY,
			    "topic %s: no record within %d s, and its end is not reached",
			    topics->reading->name, SILENCE_MS / 1000);
	}
	return true;
}

static bool read_topic_range(struct verify_topics *topics, struct topic *topic,
    const struct consumer_range *range,
    bool (*unknown)(
	void *context, const struct verify_unknown *records, int count, struct err *err),
    void *context, struct err *err)
{
	const char *const names[] = {topic->name, NULL};
	OWNED(owned_consumer_destroy)
	struct consumer *consumer =
	    consumer_create_range(topics->publisher->kafka, names, "read_committed", range, err);

	/* the topic does not exist: its rows are judged as missing, and reading goes on */
	if (!consumer && err->kind == ERR_REJECT) {
		topics->figures.missing += !topic->missing;
		topic->missing = true;
		return true;
	}
	if (!consumer)
		return false;

	note_places(topic, consumer, range->offsets != NULL);
	topics->reading = topic;
	return read_to_end(topics, consumer, unknown, context, err);
}

/* The part of each partition that the range needs; the first time it may end in the middle. */
static struct consumer_range part_of(const struct verify_topics *topics)
{
	const struct verify_range *range = &topics->range;

	return (struct consumer_range){.from_ms = range->from_us == INT64_MIN
						      ? INT64_MIN
						      : floor_ms(range->from_us) - MARGIN_MS,
	    .to_ms = range->to_us == INT64_MAX ? INT64_MAX : floor_ms(range->to_us) + MARGIN_MS};
}

bool verify_topics_read(struct verify_topics *topics, struct verify_engine *engine,
    bool (*unknown)(
	void *context, const struct verify_unknown *records, int count, struct err *err),
    void *context, struct err *err)
{
	const struct consumer_range part = part_of(topics);
	struct topic *topic, *next;
	bool good = true;

	topics->engine = engine;
	topics->seen = 0;
	progress_watch_step(&topics->watch, "records read", 0);
	HASH_ITER(hh, topics->topics, topic, next)
	{
		good = good && read_topic_range(topics, topic, &part, unknown, context, err);
	}
	progress_watch_end(&topics->watch);
	return good;
}

/* Reads each partition from where the range ended. */
static bool read_rest(struct verify_topics *topics, struct topic *topic,
    bool (*unknown)(
	void *context, const struct verify_unknown *records, int count, struct err *err),
    void *context, struct err *err)
{
	struct consumer_range rest = part_of(topics);
	int64_t *offsets = xcalloc((size_t)topic->count + 1, sizeof *offsets);
	bool good;

	for (int i = 0; i < topic->count; i++)
		offsets[i] = topic->places[i].upto;
	rest.to_ms = INT64_MAX;
	rest.offsets = offsets;
	rest.offset_count = topic->count;
	good = topic->missing || read_topic_range(topics, topic, &rest, unknown, context, err);
	free(offsets);
	return good;
}

bool verify_topics_read_on(struct verify_topics *topics, struct verify_engine *engine,
    bool (*unknown)(
	void *context, const struct verify_unknown *records, int count, struct err *err),
    void *context, struct err *err)
{
	struct topic *topic, *next;
	bool good = true;

	/* without an end of the range, the first reading has reached the end of each topic */
	if (topics->range.to_us == INT64_MAX)
		return true;
	topics->engine = engine;
	progress_watch_step(&topics->watch, "records read", 0);
	HASH_ITER(hh, topics->topics, topic, next)
	{
		good = good && read_rest(topics, topic, unknown, context, err);
	}
	progress_watch_end(&topics->watch);
	return good;
}

/* --- afterwards ---------------------------------------------------------------------------- */

static bool is_before(const struct place *place, int64_t id)
{
	return place->low > 0 && id < place->first_id;
}

bool verify_topics_expired(const struct verify_topics *topics, const char *name, size_t length,
    const void *key, size_t key_length, int32_t partition, int64_t id)
{
	struct topic *topic = find_known_topic(topics, name, length);

	if (!topic || topic->count == 0)
		return false;
	if (!topic->asked)
		ask_compaction(topics->publisher->kafka, topic);

	/* compaction removes any record that has a later one of its key */
	if (topic->compacted)
		return true;
	if (partition < 0 && key)
		partition = partitioner_of_key(key, key_length, topic->count);
	if (partition >= 0 && partition < topic->count)
		return is_before(&topic->places[partition], id);

	/* the row may have been in any partition, so one that has lost records is enough */
	for (int i = 0; i < topic->count; i++)
		if (is_before(&topic->places[i], id))
			return true;
	return false;
}

bool verify_topics_unmarked(const struct verify_topics *topics, const char *name, size_t length)
{
	const struct topic *topic = find_known_topic(topics, name, length);

	return topic && topic->unmarked;
}

struct verify_topics_figures verify_topics_figures(const struct verify_topics *topics)
{
	return topics->figures;
}

const char *verify_topics_name(const struct verify_topics *topics, int index, bool *ret_missing)
{
	const struct topic *topic = topics->topics;

	while (topic && index-- > 0)
		topic = topic->hh.next;
	*ret_missing = topic && topic->missing;
	return topic ? topic->name : NULL;
}
