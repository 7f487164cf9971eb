#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "clock.h"
#include "consumer.h"
#include "dev_broker.h"
#include "logging.h"
#include "producer.h"

enum { WAIT_MS = 20000, PARTITIONS = 8 };

static struct dev_broker *broker;
static struct kafka_property servers = {.name = "bootstrap.servers", .origin = "test:1"};
static struct kafka_settings kafka = {.name = "main", .properties = &servers, .property_count = 1};

static int start_broker(void **state)
{
	struct err err;

	(void)state;
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	broker = dev_broker_create(1, PARTITIONS, 0, &err);
	if (!broker)
		return -1;
	servers.value = (char *)dev_broker_bootstrap(broker);
	return 0;
}

static int stop_broker(void **state)
{
	(void)state;
	dev_broker_destroy(broker);
	return 0;
}

/* `count` records, evenly over the partitions, all acknowledged. */
static void fill(const char *topic, int count)
{
	struct producer_report reports[100];
	struct err err = {0};
	struct producer *producer = producer_create(&kafka, NULL, 1 << 20, 10000, 1, &err);
	struct producer_topic *handle;
	int64_t until = clock_ms() + WAIT_MS;
	int acknowledged = 0;

	assert_non_null(producer);
	handle = producer_topic(producer, topic, &err);
	for (int i = 0; i < count; i++) {
		struct producer_record record = {.topic = handle,
		    .partition = i % PARTITIONS,
		    .payload = "payload",
		    .payload_length = 7};

		assert_true(producer_send(producer, &record, &err));
	}
	while (acknowledged < count && clock_ms() < until) {
		acknowledged += producer_poll(producer, reports, 100);
		usleep(1000);
	}
	assert_int_equal(acknowledged, count);
	producer_destroy(producer, 1000);
}

static struct consumer *open_topics(const char *const *topics)
{
	struct err err = {0};
	struct consumer *consumer = consumer_create(&kafka, topics, "read_uncommitted", &err);

	if (!consumer)
		fail_msg("%s", err.message);
	return consumer;
}

struct seen {
	int count, stop_after;
	int64_t next[PARTITIONS];
};

static bool see(void *context, const struct consumer_record *record)
{
	struct seen *seen = context;

	assert_int_equal(record->offset, seen->next[record->partition]++);
	assert_memory_equal(record->payload, "payload", 7);
	return ++seen->count != seen->stop_after;
}

typedef bool see_record(void *context, const struct consumer_record *record);

static bool read_some(struct consumer *consumer, see_record *see_one, struct seen *seen)
{
	struct err err = {0};
	bool at_end = false;

	if (!consumer_read(consumer, 100, see_one, seen, &at_end, &err))
		fail_msg("%s", err.message);
	return at_end;
}

static bool read_once(struct consumer *consumer, struct seen *seen)
{
	return read_some(consumer, see, seen);
}

static void read_with(struct consumer *consumer, see_record *see_one, struct seen *seen)
{
	int64_t until = clock_ms() + WAIT_MS;

	while (!read_some(consumer, see_one, seen))
		assert_true(clock_ms() < until);
}

static void read_to_the_end(struct consumer *consumer, struct seen *seen)
{
	read_with(consumer, see, seen);
}

static void every_partition_is_read_in_order_to_its_end(void **state)
{
	const char *topics[] = {"all", NULL};
	struct seen seen = {0};
	struct consumer *consumer;
	struct err err;

	(void)state;
	assert_true(dev_broker_topic(broker, "all", 0, &err));
	fill("all", 5000);
	consumer = open_topics(topics);
	read_to_the_end(consumer, &seen);
	assert_int_equal(seen.count, 5000);
	consumer_destroy(consumer);
}

/*
 * While a reader is busy, librdkafka stops fetching, and looks only a second later whether it still
 * has to.
 */
static bool see_with_pauses(void *context, const struct consumer_record *record)
{
	enum { EACH = 10000, PAUSE_US = 50000 };
	struct seen *seen = context;

	if (seen->count % EACH == 0)
		usleep(PAUSE_US);
	return see(context, record);
}

static void fetching_goes_on_when_all_was_taken(void **state)
{
	enum { COUNT = 60000, AT_ONCE = 6000, LONGEST_MS = 2500 };
	const char *topics[] = {"long", NULL};
	struct seen seen = {0};
	struct consumer *consumer;
	int64_t began;
	struct err err;

	(void)state;
	assert_true(dev_broker_topic(broker, "long", 0, &err));
	for (int filled = 0; filled < COUNT; filled += AT_ONCE)
		fill("long", AT_ONCE);
	consumer = open_topics(topics);
	began = clock_ms();
	read_with(consumer, see_with_pauses, &seen);
	assert_int_equal(seen.count, COUNT);
	assert_in_range(clock_ms() - began, 0, LONGEST_MS);
	consumer_destroy(consumer);
}

static void an_empty_topic_is_at_its_end(void **state)
{
	const char *topics[] = {"empty", NULL};
	struct seen seen = {0};
	struct consumer *consumer;
	struct err err;

	(void)state;
	assert_true(dev_broker_topic(broker, "empty", 0, &err));
	consumer = open_topics(topics);
	assert_true(read_once(consumer, &seen));
	assert_int_equal(seen.count, 0);
	consumer_destroy(consumer);
}

static void reading_goes_on_behind_the_end(void **state)
{
	const char *topics[] = {"growing", NULL};
	int64_t until = clock_ms() + WAIT_MS;
	struct seen seen = {0};
	struct consumer *consumer;
	struct err err;

	(void)state;
	assert_true(dev_broker_topic(broker, "growing", 0, &err));
	fill("growing", 30);
	consumer = open_topics(topics);
	read_to_the_end(consumer, &seen);
	fill("growing", 30);
	while (seen.count < 60 && clock_ms() < until)
		assert_true(read_once(consumer, &seen));
	assert_int_equal(seen.count, 60);
	consumer_destroy(consumer);
}

static void who_stops_early_loses_nothing(void **state)
{
	const char *topics[] = {"early", NULL};
	struct seen seen = {.stop_after = 10};
	int64_t until = clock_ms() + WAIT_MS;
	struct consumer *consumer;
	struct err err;

	(void)state;
	assert_true(dev_broker_topic(broker, "early", 0, &err));
	fill("early", 300);
	consumer = open_topics(topics);
	while (seen.count < 10 && clock_ms() < until)
		assert_false(read_once(consumer, &seen));
	assert_int_equal(seen.count, 10);
	read_to_the_end(consumer, &seen);
	assert_int_equal(seen.count, 300);
	consumer_destroy(consumer);
}

static void a_reader_left_in_the_middle_can_be_destroyed(void **state)
{
	const char *topics[] = {"all", NULL};
	struct seen seen = {.stop_after = 1};
	int64_t until = clock_ms() + WAIT_MS;
	struct consumer *consumer = open_topics(topics);

	(void)state;
	while (seen.count < 1 && clock_ms() < until)
		read_once(consumer, &seen);
	consumer_destroy(consumer);
	consumer_destroy(NULL);
}

/* The second half of each partition, and nothing of one. */
static void reading_begins_at_the_offsets_that_are_given(void **state)
{
	const char *topics[] = {"given", NULL};
	struct seen whole = {0}, part = {0};
	struct consumer_partition partition;
	int64_t offsets[PARTITIONS];
	struct consumer_range range = {INT64_MIN, INT64_MAX, offsets, PARTITIONS};
	struct consumer *consumer;
	struct err err = {0};

	(void)state;
	assert_true(dev_broker_topic(broker, "given", 0, &err));
	fill("given", 300);
	consumer = open_topics(topics);
	read_to_the_end(consumer, &whole);
	consumer_destroy(consumer);
	for (int i = 0; i < PARTITIONS; i++)
		offsets[i] = part.next[i] = whole.next[i] / 2;
	offsets[1] = part.next[1] = whole.next[1];
	consumer = consumer_create_range(&kafka, topics, "read_uncommitted", &range, &err);
	assert_non_null(consumer);
	assert_true(consumer_partition_at(consumer, 0, &partition));
	assert_int_equal(partition.low, 0);
	assert_int_equal(partition.from, offsets[partition.partition]);
	read_to_the_end(consumer, &part);
	assert_memory_equal(part.next, whole.next, sizeof whole.next);
	consumer_destroy(consumer);
}

/* The mock cluster answers no question for a time. */
static void a_cluster_that_cannot_tell_times_is_read_as_a_whole(void **state)
{
	const char *topics[] = {"all", NULL};
	struct consumer_range range = {INT64_C(4000000000000), INT64_C(5000000000000), NULL, 0};
	struct consumer_partition partition;
	struct seen seen = {0};
	struct consumer *consumer;
	struct err err = {0};

	(void)state;
	consumer = consumer_create_range(&kafka, topics, "read_uncommitted", &range, &err);
	assert_non_null(consumer);
	assert_true(consumer_partition_at(consumer, 0, &partition));
	assert_int_equal(partition.from, 0);
	read_to_the_end(consumer, &seen);
	assert_int_equal(seen.count, 5000);
	consumer_destroy(consumer);
}

static void an_unknown_isolation_is_refused(void **state)
{
	const char *topics[] = {"all", NULL};
	struct err err = {0};

	(void)state;
	assert_null(consumer_create(&kafka, topics, "serializable", &err));
	assert_non_null(strstr(err.message, "isolation.level"));
}

static void without_a_broker_there_is_no_reader(void **state)
{
	const char *topics[] = {"all", NULL};
	struct kafka_property nobody = {"bootstrap.servers", "127.0.0.1:1", "test:1"};
	struct kafka_settings away = {.name = "main", .properties = &nobody, .property_count = 1};
	struct err err = {0};

	(void)state;
	assert_null(consumer_create(&away, topics, "read_committed", &err));
	assert_int_equal(err.kind, ERR_RETRY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_partition_is_read_in_order_to_its_end),
	    cmocka_unit_test(fetching_goes_on_when_all_was_taken),
	    cmocka_unit_test(an_empty_topic_is_at_its_end),
	    cmocka_unit_test(reading_goes_on_behind_the_end),
	    cmocka_unit_test(who_stops_early_loses_nothing),
	    cmocka_unit_test(a_reader_left_in_the_middle_can_be_destroyed),
	    cmocka_unit_test(reading_begins_at_the_offsets_that_are_given),
	    cmocka_unit_test(a_cluster_that_cannot_tell_times_is_read_as_a_whole),
	    cmocka_unit_test(an_unknown_isolation_is_refused),
	    cmocka_unit_test(without_a_broker_there_is_no_reader),
	};

	return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
