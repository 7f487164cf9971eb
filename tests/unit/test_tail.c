#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "clock.h"
#include "logging.h"
#include "producer.h"
#include "tail.h"
#include "text.h"

enum {
	FETCH_REQUEST = 1,
	LIST_OFFSETS_REQUEST = 2,
	PARTITIONS = 48,
	BROKER = 1,
	IDLE_MS = 3000,
	WAIT_MS = 30000,
	BLOCK_MS = 500,
};

static rd_kafka_t *carrier;
static rd_kafka_mock_cluster_t *cluster;
static struct kafka_property properties[8];
static int threads_of_cluster; /* librdkafka's, while no client is open */
static struct kafka_settings kafka = {.name = "main", .properties = properties};

static void set_property(const char *name, const char *value)
{
	properties[kafka.property_count++] =
	    (struct kafka_property){(char *)name, (char *)value, "test:1"};
}

static void make_topic(const char *name)
{
	assert_int_equal(rd_kafka_mock_topic_create(cluster, name, PARTITIONS, 1), 0);
}

static void wait_for_reports(struct producer *producer, int count)
{
	struct producer_report reports[100];
	int64_t until = clock_ms() + WAIT_MS;

	while (count > 0 && clock_ms() < until) {
		struct pollfd wanted = {.fd = producer_fd(producer), .events = POLLIN};
		int got;

		poll(&wanted, 1, (int)(until - clock_ms()));
		got = producer_poll(producer, reports, 100);
		for (int i = 0; i < got; i++)
			assert_int_equal(reports[i].error, 0);
		count -= got;
	}
	assert_int_equal(count, 0);
}

/* Such that nothing is gained by compressing it. */
static const void *noise(void)
{
	static uint64_t bytes[(1 << 20) / sizeof(uint64_t)];

	if (bytes[0] == 0)
		for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
			bytes[i] = (uint64_t)clock_random();
	return bytes;
}

/* `count` records of that size to each of the partitions [first, last], all acknowledged. */
static void fill_sized(const char *name, int first, int last, int count, size_t size)
{
	struct producer_header header = {"outbox-position", 15, "1", 1};
	struct err err = {0};
	struct producer *producer = producer_create(&kafka, NULL, 64 << 20, 100000, 1, &err);
	struct producer_record record = {
	    .payload = noise(), .payload_length = size, .headers = &header, .header_count = 1};

	assert_non_null(producer);
	record.topic = producer_topic(producer, name, &err);
	for (int i = 0; i < count; i++)
		for (record.partition = first; record.partition <= last; record.partition++)
			if (!producer_send(producer, &record, &err))
				fail_msg("%s", err.message);
	wait_for_reports(producer, count * (last - first + 1));
	producer_destroy(producer, 1000);
}

static void fill(const char *name, int partition, int count)
{
	fill_sized(name, partition, partition, count, 7);
}

static int start_cluster(void **state)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	(void)state;
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	rd_kafka_conf_set_log_cb(conf, NULL);
	carrier = rd_kafka_new(RD_KAFKA_PRODUCER, conf, NULL, 0);
	cluster = rd_kafka_mock_cluster_new(carrier, 1);
	set_property("bootstrap.servers", rd_kafka_mock_cluster_bootstraps(cluster));
	set_property("reconnect.backoff.ms", "20");
	set_property("reconnect.backoff.max.ms", "50");
	/* A thread is counted once it runs: so that those of the cluster do. */
	make_topic("first");
	fill("first", 0, 1);
	threads_of_cluster = rd_kafka_thread_cnt();
	return 0;
}

/* Closing goes on in the background. */
static bool every_client_ends(void)
{
	int64_t until = clock_ms() + WAIT_MS;

	while (rd_kafka_thread_cnt() > threads_of_cluster && clock_ms() < until)
		poll(NULL, 0, 5);
	return rd_kafka_thread_cnt() <= threads_of_cluster;
}

static int stop_cluster(void **state)
{
	bool ended = every_client_ends();

	(void)state;
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(carrier);
	return ended ? 0 : -1;
}

static struct tail *make_tail(void)
{
	return tail_create(&kafka, "read_uncommitted", IDLE_MS);
}

static uint64_t questions;

static void ask(struct tail *tail, const char *topic, int32_t partition, int64_t offset)
{
	const struct tail_question question = {
	    .topic = topic, .partition = partition, .offset = offset, .number = ++questions};
	struct err err = {0};

	if (!tail_ask(tail, &question, &err))
		fail_msg("%s", err.message);
}

static bool is_refused(struct tail *tail, int32_t partition, int64_t offset, struct err *err)
{
	const struct tail_question question = {
	    .topic = "refused", .partition = partition, .offset = offset};

	return !tail_ask(tail, &question, err);
}

/* As an event loop does: sleeps by the fd and tail_wait alone. */
static bool next_within(struct tail *tail, int64_t limit_ms, struct tail_event *ret_event)
{
	int64_t until = clock_ms() + limit_ms;

	while (clock_ms() < until) {
		struct pollfd wanted = {.fd = tail_fd(tail), .events = POLLIN};
		int64_t at;

		if (tail_next(tail, clock_ms(), ret_event))
			return true;
		at = tail_wait(tail) < until ? tail_wait(tail) : until;
		if (at > clock_ms())
			poll(&wanted, 1, (int)(at - clock_ms()));
	}
	return false;
}

/* What only tells is passed over. */
static struct tail_event next_event(struct tail *tail)
{
	int64_t until = clock_ms() + WAIT_MS;
	struct tail_event event;

	do {
		if (!next_within(tail, until - clock_ms(), &event))
			fail_msg("waited in vain for an event");
	} while (event.kind == TAIL_FAILED && event.failure.kind == ERR_RETRY);
	return event;
}

static void expect_record(struct tail *tail, int32_t partition, int64_t offset)
{
	struct tail_event event = next_event(tail);

	assert_int_equal(event.kind, TAIL_RECORD);
	assert_int_equal(event.partition, partition);
	assert_int_equal(event.record.partition, partition);
	assert_int_equal(event.record.offset, offset);
}

static void expect(
    struct tail *tail, int kind, const char *topic, int32_t partition, int64_t begin, int64_t end)
{
	struct tail_event event = next_event(tail);

	if (event.kind == TAIL_FAILED)
		fail_msg("%s", event.failure.message);
	assert_int_equal(event.kind, kind);
	assert_string_equal(event.topic, topic);
	assert_int_equal(event.partition, partition);
	assert_int_equal(event.begin, begin);
	assert_int_equal(event.end, end);
}

static struct tail_event expect_failure(struct tail *tail, enum err_kind kind)
{
	struct tail_event event = next_event(tail);

	assert_int_equal(event.kind, TAIL_FAILED);
	assert_int_equal(event.failure.kind, kind);
	return event;
}

/* It waits for a time only: no event, and no more to be waited for by the fd. */
static void expect_quiet(struct tail *tail)
{
	struct tail_event event;

	assert_false(tail_next(tail, clock_ms(), &event));
	assert_int_equal(tail_fd(tail), -1);
}

static void records_come_from_the_offset_up_to_the_end(void **state)
{
	struct tail *tail = make_tail();
	const void *value;
	size_t length;

	(void)state;
	make_topic("records");
	fill("records", 1, 100);
	ask(tail, "records", 1, 90);
	for (int64_t offset = 90; offset < 100; offset++) {
		struct tail_event event = next_event(tail);

		assert_int_equal(event.kind, TAIL_RECORD);
		assert_string_equal(event.topic, "records");
		assert_string_equal(event.record.topic, "records");
		assert_int_equal(event.record.offset, offset);
		assert_int_equal(event.record.payload_length, 7);
		assert_true(consumer_header(&event.record, "outbox-position", &value, &length));
		assert_memory_equal(value, "1", length);
	}
	expect(tail, TAIL_END, "records", 1, 90, 100);
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

static void an_empty_partition_is_at_its_end(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("empty");
	ask(tail, "empty", 0, 0);
	expect(tail, TAIL_END, "empty", 0, 0, 0);
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

static void who_stands_at_the_end_reads_nothing(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("at_end");
	fill("at_end", 0, 5);
	ask(tail, "at_end", 0, 5);
	expect(tail, TAIL_END, "at_end", 0, 5, 5);
	tail_destroy(tail, 1000);
}

static void from_the_end_only_the_end_is_told(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("from_end");
	fill("from_end", 2, 30);
	ask(tail, "from_end", 2, TAIL_FROM_END);
	expect(tail, TAIL_END, "from_end", 2, 30, 30);
	ask(tail, "from_end", 3, TAIL_FROM_END);
	expect(tail, TAIL_END, "from_end", 3, 0, 0);
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

static void many_partitions_are_read_at_once(void **state)
{
	enum { EACH = 100 };
	int64_t next[PARTITIONS] = {0};
	bool ended[PARTITIONS] = {0};
	struct tail *tail = make_tail();

	(void)state;
	make_topic("many");
	fill_sized("many", 0, PARTITIONS - 1, EACH, 100);
	for (int i = 0; i < PARTITIONS; i++)
		ask(tail, "many", i, 0);
	for (int i = 0; i < PARTITIONS * (EACH + 1); i++) {
		struct tail_event event = next_event(tail);

		assert_false(ended[event.partition]);
		if (event.kind == TAIL_RECORD) {
			assert_int_equal(event.record.offset, next[event.partition]++);
			continue;
		}
		assert_int_equal(event.kind, TAIL_END);
		assert_int_equal(event.end, EACH);
		assert_int_equal(next[event.partition], EACH);
		ended[event.partition] = true;
	}
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

/* Until `count` failures of a partition are told, each after a longer pause. */
static void fail_fetches(struct tail *tail, const char *name, int count)
{
	struct tail_event event;

	for (int i = 0; i < count; i++)
		rd_kafka_mock_push_request_errors(
		    cluster, FETCH_REQUEST, 1, RD_KAFKA_RESP_ERR_UNKNOWN);
	ask(tail, name, 0, 0);
	while (count > 0) {
		assert_true(next_within(tail, WAIT_MS, &event));
		assert_int_equal(event.kind, TAIL_FAILED);
		assert_int_equal(event.failure.kind, ERR_RETRY);
		assert_string_equal(event.topic, name);
		count--;
	}
}

/*
 * Two questions are under way: the partition of one has no leader until the end, the other begins
 * again after a pause.
 */
static void a_new_client_follows_one_that_read_many_partitions(void **state)
{
	enum { TOPICS = 2400, AT_ONCE = 100, MOST = 1000, FAILURES = 6 };
	struct tail *tail = make_tail();
	char name[32];
	int failing = 0; /* answers */

	(void)state;
	make_topic("away");
	fill("away", 0, 3);
	make_topic("failing");
	fail_fetches(tail, "failing", FAILURES);
	rd_kafka_mock_partition_set_leader(cluster, "away", 0, -1);
	ask(tail, "away", 0, 1);
	for (int i = 0; i < TOPICS; i++) {
		snprintf(name, sizeof name, "narrow-%d", i);
		assert_int_equal(rd_kafka_mock_topic_create(cluster, name, 1, 1), 0);
		ask(tail, name, 0, 0);
		for (int j = 0; i % AT_ONCE == AT_ONCE - 1 && j < AT_ONCE; j++) {
			struct tail_event event = next_event(tail);

			assert_int_equal(event.kind, TAIL_END);
			failing += text_equal(event.topic, "failing");
			j -= text_equal(event.topic, "failing");
		}
		assert_in_range(tail_partitions(tail), 1, MOST + AT_ONCE + 2);
	}
	if (!failing)
		expect(tail, TAIL_END, "failing", 0, 0, 0);
	assert_in_range(failing, 0, 1);
	rd_kafka_mock_partition_set_leader(cluster, "away", 0, BROKER);
	expect_record(tail, 0, 1);
	expect_record(tail, 0, 2);
	expect(tail, TAIL_END, "away", 0, 1, 3);
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

/*
 * librdkafka stops fetching while a lot is ready, and then looks again each second only. Seen as
 * the longest time in which nothing comes.
 */
enum { LONG_TAIL = 2000 };

static int64_t longest_break(void)
{
	enum { EACH = LONG_TAIL };
	struct tail *tail = make_tail();
	int64_t next[PARTITIONS] = {0}, longest = 0;

	for (int i = 0; i < PARTITIONS; i++)
		ask(tail, "long", i, 0);
	for (int i = 0; i < PARTITIONS * (EACH + 1); i++) {
		int64_t since = clock_ms();
		struct tail_event event = next_event(tail);

		if (event.kind == TAIL_RECORD)
			assert_int_equal(event.record.offset, next[event.partition]++);
		else
			assert_int_equal(next[event.partition], EACH);
		longest = clock_ms() - since > longest ? clock_ms() - since : longest;
	}
	expect_quiet(tail);
	tail_destroy(tail, 1000);
	return longest;
}

static void a_long_tail_is_read_without_a_break(void **state)
{
	int64_t longest = INT64_MAX;

	(void)state;
	make_topic("long");
	fill_sized("long", 0, PARTITIONS - 1, LONG_TAIL, 20);
	/* a busy machine may make one of them */
	for (int i = 0; i < 3 && longest > 800; i++)
		longest = longest_break();
	assert_in_range(longest, 0, 800);
}

static void an_offset_beyond_the_end_is_told(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("beyond");
	fill("beyond", 0, 20);
	ask(tail, "beyond", 0, 21);
	expect(tail, TAIL_BEYOND, "beyond", 0, 0, 20);
	ask(tail, "beyond", 1, 1);
	expect(tail, TAIL_BEYOND, "beyond", 1, 0, 0);
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

/* The mock cluster keeps 5 MiB of a partition. */
static void what_was_removed_is_told_and_the_rest_is_read(void **state)
{
	struct tail *tail = make_tail();
	struct tail_event event;
	int64_t first, next;

	(void)state;
	make_topic("removed");
	for (int i = 0; i < 8; i++)
		fill_sized("removed", 0, 0, 10, 100000);
	ask(tail, "removed", 0, 2);
	event = next_event(tail);
	assert_int_equal(event.kind, TAIL_RECORD);
	first = event.record.offset;
	assert_in_range(first, 3, 79);
	for (next = first + 1; next < 80; next++)
		expect_record(tail, 0, next);
	expect(tail, TAIL_END, "removed", 0, first, 80);
	tail_destroy(tail, 1000);
}

static void an_end_before_the_least_one_is_told(void **state)
{
	struct tail *tail = make_tail();
	struct tail_question question = {.topic = "shorter", .offset = 4, .number = 77};
	struct err err = {0};

	(void)state;
	make_topic("shorter");
	fill("shorter", 0, 10);
	question.least = 11;
	assert_true(tail_ask(tail, &question, &err));
	expect(tail, TAIL_BEYOND, "shorter", 0, 0, 10);
	question.least = 10;
	assert_true(tail_ask(tail, &question, &err));
	for (int64_t offset = 4; offset < 10; offset++)
		expect_record(tail, 0, offset);
	expect(tail, TAIL_END, "shorter", 0, 4, 10);
	tail_destroy(tail, 1000);
}

static void a_question_that_is_dropped_has_no_further_event(void **state)
{
	struct tail *tail = make_tail();
	struct tail_event event;

	(void)state;
	make_topic("dropped");
	fill("dropped", 0, 100);
	ask(tail, "dropped", 0, 0);
	expect_record(tail, 0, 0);
	tail_drop(tail, "dropped", 0);
	tail_drop(tail, "dropped", 1);
	tail_drop(tail, "never asked", 0);
	expect_quiet(tail);
	/* the events of the next question have its number */
	ask(tail, "dropped", 0, 99);
	event = next_event(tail);
	assert_int_equal(event.record.offset, 99);
	assert_int_equal(event.number, questions);
	event = next_event(tail);
	assert_int_equal(event.kind, TAIL_END);
	assert_int_equal(event.number, questions);
	tail_destroy(tail, 1000);
}

static void asking_again_begins_anew(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("again");
	fill("again", 0, 100);
	ask(tail, "again", 0, 0);
	for (int64_t offset = 0; offset < 10; offset++)
		expect_record(tail, 0, offset);
	ask(tail, "again", 0, 97);
	for (int64_t offset = 97; offset < 100; offset++)
		expect_record(tail, 0, offset);
	expect(tail, TAIL_END, "again", 0, 97, 100);
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

static void what_is_forgotten_is_not_told(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("forgotten");
	fill_sized("forgotten", 0, 1, 100, 7);
	ask(tail, "forgotten", 0, 0);
	ask(tail, "forgotten", 1, 0);
	assert_int_equal(next_event(tail).kind, TAIL_RECORD);
	tail_forget(tail);
	expect_quiet(tail);
	ask(tail, "forgotten", 1, 100);
	expect(tail, TAIL_END, "forgotten", 1, 100, 100);
	tail_destroy(tail, 1000);
}

/*
 * A leader that was elected just now does not say where the end is. What is acknowledged by the
 * time it does must not be missed.
 */
static void the_end_is_the_one_that_the_leader_tells(void **state)
{
	rd_kafka_resp_err_t refusals[1000];
	struct tail *tail = make_tail();
	struct tail_event event;

	(void)state;
	make_topic("refused");
	fill("refused", 0, 10);
	for (int i = 0; i < 1000; i++)
		refusals[i] = RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE;
	rd_kafka_mock_push_request_errors_array(cluster, LIST_OFFSETS_REQUEST, 1000, refusals);
	ask(tail, "refused", 0, 0);
	assert_false(next_within(tail, 500, &event));
	fill("refused", 0, 10);
	rd_kafka_mock_clear_request_errors(cluster, LIST_OFFSETS_REQUEST);
	for (int64_t offset = 0; offset < 20; offset++)
		expect_record(tail, 0, offset);
	expect(tail, TAIL_END, "refused", 0, 0, 20);
	tail_destroy(tail, 1000);
}

static void a_missing_topic_is_given_up(void **state)
{
	struct tail *tail = make_tail();
	struct tail_event event;

	(void)state;
	make_topic("missing");
	make_topic("not_missing");
	rd_kafka_mock_topic_set_error(cluster, "missing", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
	ask(tail, "missing", 0, 0);
	event = expect_failure(tail, ERR_REJECT);
	assert_string_equal(event.topic, "missing");
	assert_non_null(strstr(event.failure.message, "missing [0]"));
	expect_quiet(tail);

	ask(tail, "not_missing", 0, 0);
	expect(tail, TAIL_END, "not_missing", 0, 0, 0);
	rd_kafka_mock_topic_set_error(cluster, "missing", RD_KAFKA_RESP_ERR_NO_ERROR);
	ask(tail, "missing", 0, 0);
	expect(tail, TAIL_END, "missing", 0, 0, 0);
	tail_destroy(tail, 1000);
}

static void a_partition_that_the_topic_does_not_have_is_given_up(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("narrow");
	ask(tail, "narrow", PARTITIONS, 0);
	expect_failure(tail, ERR_REJECT);
	expect_quiet(tail);
	/* Now that librdkafka knows the topic it says nothing. */
	ask(tail, "narrow", 0, 0);
	expect(tail, TAIL_END, "narrow", 0, 0, 0);
	ask(tail, "narrow", PARTITIONS + 1, 0);
	expect_failure(tail, ERR_REJECT);
	expect_quiet(tail);
	tail_destroy(tail, 1000);
}

static void what_no_partition_can_be_is_refused(void **state)
{
	struct tail *tail = make_tail();
	struct err err;

	(void)state;
	assert_true(is_refused(tail, -1, 0, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	assert_true(is_refused(tail, 0, -2, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	assert_false(tail_is_open(tail));
	tail_destroy(tail, 1000);
}

static void an_unknown_isolation_is_a_refused_question(void **state)
{
	struct tail *tail = tail_create(&kafka, "serializable", IDLE_MS);
	struct err err;

	(void)state;
	assert_true(is_refused(tail, 0, 0, &err));
	assert_non_null(strstr(err.message, "isolation.level"));
	assert_int_equal(tail_fd(tail), -1);
	tail_destroy(tail, 1000);
}

static void a_broker_that_comes_back_is_read_on(void **state)
{
	struct tail *tail = make_tail();
	struct tail_event event;

	(void)state;
	make_topic("back");
	fill_sized("back", 0, 1, 50, 7);
	ask(tail, "back", 1, 50);
	expect(tail, TAIL_END, "back", 1, 50, 50);
	rd_kafka_mock_broker_set_down(cluster, BROKER);
	ask(tail, "back", 0, 45);
	/* It tells that, and goes on trying. */
	if (!next_within(tail, WAIT_MS, &event))
		fail_msg("a broker that is away was not told");
	assert_int_equal(event.kind, TAIL_FAILED);
	assert_int_equal(event.failure.kind, ERR_RETRY);
	rd_kafka_mock_broker_set_up(cluster, BROKER);
	for (int64_t offset = 45; offset < 50; offset++)
		expect_record(tail, 0, offset);
	expect(tail, TAIL_END, "back", 0, 45, 50);
	tail_destroy(tail, 1000);
}

static void the_client_ends_when_nothing_was_asked_for_a_while(void **state)
{
	struct tail *tail = make_tail();
	struct tail_event event;
	int64_t now = clock_ms();

	(void)state;
	make_topic("idle");
	assert_false(tail_is_open(tail));
	assert_int_equal(tail_fd(tail), -1);
	assert_int_equal(tail_wait(tail), INT64_MAX);
	assert_false(tail_next(tail, now, &event));
	assert_true(every_client_ends());

	ask(tail, "idle", 0, 0);
	assert_true(tail_is_open(tail));
	assert_true(rd_kafka_thread_cnt() > threads_of_cluster);
	assert_int_not_equal(tail_fd(tail), -1);
	expect(tail, TAIL_END, "idle", 0, 0, 0);
	assert_true(tail_wait(tail) <= clock_ms());
	now = clock_ms();
	assert_false(tail_next(tail, now, &event));
	assert_int_equal(tail_wait(tail), now + IDLE_MS);
	assert_false(tail_next(tail, now + IDLE_MS - 1, &event));
	assert_true(tail_is_open(tail));
	assert_false(tail_next(tail, now + IDLE_MS, &event));
	assert_false(tail_is_open(tail));
	assert_int_equal(tail_wait(tail), INT64_MAX);
	assert_true(every_client_ends());

	ask(tail, "idle", 0, 0);
	expect(tail, TAIL_END, "idle", 0, 0, 0);
	tail_destroy(tail, 1000);
}

static void who_asks_again_in_time_keeps_the_client(void **state)
{
	struct tail *tail = make_tail();
	struct tail_event event;
	int64_t now;

	(void)state;
	make_topic("busy");
	ask(tail, "busy", 0, 0);
	expect(tail, TAIL_END, "busy", 0, 0, 0);
	now = clock_ms();
	assert_false(tail_next(tail, now, &event));
	ask(tail, "busy", 0, 0);
	tail_next(tail, now + IDLE_MS, &event);
	assert_true(tail_is_open(tail));
	tail_destroy(tail, 1000);
}

/* It listens, and takes connections, as the kernel does, but nobody is there. */
static int listen_silently(char *ret_address, size_t size)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(fd, 100), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	snprintf(ret_address, size, "127.0.0.1:%d", ntohs(address.sin_port));
	return fd;
}

static int64_t longest_ms;

/* Sanitizers and a machine with other work may stretch it; a wait for the network takes seconds. */
static void took(int64_t since_us)
{
	int64_t ms = (clock_us() - since_us) / 1000;

	longest_ms = ms > longest_ms ? ms : longest_ms;
}

static void ask_timed(struct tail *tail, const char *topic, int partition)
{
	int64_t since = clock_us();

	ask(tail, topic, partition, 0);
	took(since);
}

static bool next_timed(struct tail *tail, int64_t now, struct tail_event *ret_event)
{
	int64_t since = clock_us();
	bool told = tail_next(tail, now, ret_event);

	took(since);
	return told;
}

static int count_silent(struct tail *tail, int64_t now)
{
	struct tail_event event;
	int count = 0;

	while (next_timed(tail, now, &event)) {
		assert_int_equal(event.kind, TAIL_FAILED);
		assert_int_equal(event.failure.kind, ERR_RETRY);
		count += event.topic != NULL;
	}
	return count;
}

static void nothing_blocks_beside_a_broker_that_does_not_answer(void **state)
{
	char address[32];
	int fd = listen_silently(address, sizeof address);
	struct kafka_property nobody = {"bootstrap.servers", address, "test:1"};
	struct kafka_settings silent = {.name = "main", .properties = &nobody, .property_count = 1};
	struct tail *tail = tail_create(&silent, "read_uncommitted", IDLE_MS);
	int64_t now = clock_ms(), since;

	(void)state;
	longest_ms = 0;
	for (int i = 0; i < PARTITIONS; i++)
		ask_timed(tail, "silent", i);
	assert_int_equal(count_silent(tail, now), 0);
	assert_true(tail_wait(tail) > now && tail_wait(tail) < INT64_MAX);
	/* Each one's silence is told, and told again. */
	assert_int_equal(count_silent(tail, tail_wait(tail)), PARTITIONS);
	assert_int_equal(count_silent(tail, tail_wait(tail)), PARTITIONS);
	ask_timed(tail, "silent", 0);
	since = clock_us();
	tail_forget(tail);
	took(since);
	/* The client ends, and another one is made beside the one that may still be ending. */
	count_silent(tail, now);
	count_silent(tail, now + IDLE_MS);
	assert_false(tail_is_open(tail));
	ask_timed(tail, "silent", 0);
	since = clock_us();
	tail_destroy(tail, 0);
	took(since);
	close(fd);
	assert_in_range(longest_ms, 0, BLOCK_MS);
}

/* A leader that was there and is slow now: the questions wait at it, and a stop must not. */
static void nothing_blocks_beside_a_broker_that_became_slow(void **state)
{
	struct tail *tail = make_tail();
	int64_t since;

	(void)state;
	make_topic("slow");
	ask(tail, "slow", 0, 0);
	expect(tail, TAIL_END, "slow", 0, 0, 0);
	rd_kafka_mock_broker_set_rtt(cluster, BROKER, 5000);
	longest_ms = 0;
	for (int i = 0; i < PARTITIONS; i++)
		ask_timed(tail, "slow", i);
	assert_int_equal(count_silent(tail, clock_ms()), 0);
	for (int i = 0; i < PARTITIONS; i++)
		ask_timed(tail, "slow", i);
	since = clock_us();
	tail_forget(tail);
	took(since);
	ask_timed(tail, "slow", 0);
	since = clock_us();
	tail_destroy(tail, 0);
	took(since);
	rd_kafka_mock_broker_set_rtt(cluster, BROKER, 0);
	assert_in_range(longest_ms, 0, BLOCK_MS);
}

static void a_record_larger_than_the_usual_can_be_allowed(void **state)
{
	struct tail *tail = make_tail();

	(void)state;
	make_topic("large");
	set_property("message.max.bytes", "3000000");
	fill_sized("large", 0, 0, 3, 1 << 20);
	ask(tail, "large", 0, 0);
	for (int64_t offset = 0; offset < 3; offset++)
		expect_record(tail, 0, offset);
	expect(tail, TAIL_END, "large", 0, 0, 3);
	tail_destroy(tail, 1000);
	kafka.property_count--;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(records_come_from_the_offset_up_to_the_end),
	    cmocka_unit_test(an_empty_partition_is_at_its_end),
	    cmocka_unit_test(who_stands_at_the_end_reads_nothing),
	    cmocka_unit_test(from_the_end_only_the_end_is_told),
	    cmocka_unit_test(many_partitions_are_read_at_once),
	    cmocka_unit_test(a_new_client_follows_one_that_read_many_partitions),
	    cmocka_unit_test(a_long_tail_is_read_without_a_break),
	    cmocka_unit_test(an_offset_beyond_the_end_is_told),
	    cmocka_unit_test(what_was_removed_is_told_and_the_rest_is_read),
	    cmocka_unit_test(asking_again_begins_anew),
	    cmocka_unit_test(an_end_before_the_least_one_is_told),
	    cmocka_unit_test(a_question_that_is_dropped_has_no_further_event),
	    cmocka_unit_test(what_is_forgotten_is_not_told),
	    cmocka_unit_test(the_end_is_the_one_that_the_leader_tells),
	    cmocka_unit_test(a_missing_topic_is_given_up),
	    cmocka_unit_test(a_partition_that_the_topic_does_not_have_is_given_up),
	    cmocka_unit_test(what_no_partition_can_be_is_refused),
	    cmocka_unit_test(an_unknown_isolation_is_a_refused_question),
	    cmocka_unit_test(a_broker_that_comes_back_is_read_on),
	    cmocka_unit_test(the_client_ends_when_nothing_was_asked_for_a_while),
	    cmocka_unit_test(who_asks_again_in_time_keeps_the_client),
	    cmocka_unit_test(nothing_blocks_beside_a_broker_that_does_not_answer),
	    cmocka_unit_test(nothing_blocks_beside_a_broker_that_became_slow),
	    cmocka_unit_test(a_record_larger_than_the_usual_can_be_allowed),
	};

	return cmocka_run_group_tests(tests, start_cluster, stop_cluster);
}
