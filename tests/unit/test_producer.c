#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "clock.h"
#include "consumer.h"
#include "logging.h"
#include "producer_pair.h"

enum { PRODUCE_REQUEST = 0, WAIT_MS = 20000, BROKER = 1 };

/* One mock broker for all tests, a topic for each. */
static rd_kafka_t *carrier;
static rd_kafka_mock_cluster_t *cluster;
static struct kafka_property properties[8];
static struct kafka_settings kafka = {.name = "main", .properties = properties};

static void set_property(const char *name, const char *value)
{
	properties[kafka.property_count++] =
	    (struct kafka_property){(char *)name, (char *)value, "test:1"};
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
	return 0;
}

static int stop_cluster(void **state)
{
	(void)state;
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(carrier);
	return 0;
}

struct sender {
	struct producer *producer;
	struct producer_topic *topic;
};

static struct sender start_as(const char *name, const char *transactional_id)
{
	struct sender sender;
	struct err err = {0};

	rd_kafka_mock_topic_create(cluster, name, 3, 1);
	sender.producer = producer_create(&kafka, transactional_id, 1 << 20, 1000, 1, &err);
	if (!sender.producer)
		fail_msg("%s", err.message);
	sender.topic = producer_topic(sender.producer, name, &err);
	assert_non_null(sender.topic);
	return sender;
}

static struct sender start(const char *name)
{
	return start_as(name, NULL);
}

static void send_text(struct sender *sender, const char *payload, intptr_t number)
{
	struct producer_record record = {
	    .topic = sender->topic,
	    .key = "k",
	    .key_length = 1,
	    .payload = payload,
	    .payload_length = strlen(payload),
	    .opaque = (void *)number,
	};
	struct err err = {0};

	if (!producer_send(sender->producer, &record, &err))
		fail_msg("%s", err.message);
}

static bool is_readable(const struct producer *producer, int timeout_ms)
{
	struct pollfd fd = {.fd = producer_fd(producer), .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1;
}

/* Waits by the eventfd alone, as an event loop does. */
static void wait_for_reports(struct producer *producer, struct producer_report *reports, int wanted)
{
	int64_t until = clock_ms() + WAIT_MS;
	int count = 0;

	while (count < wanted && clock_ms() < until)
		if (is_readable(producer, (int)(until - clock_ms())))
			count += producer_poll(producer, reports + count, wanted - count);
	assert_int_equal(count, wanted);
}

/* Waits by the eventfd alone. */
static enum producer_outcome outcome_of(
    struct producer *producer, enum producer_call call, struct err *ret_why)
{
	enum producer_outcome outcome = PRODUCER_CALLING;
	struct producer_report report;
	int64_t until = clock_ms() + WAIT_MS;

	producer_begin(producer, call);
	while (outcome == PRODUCER_CALLING && clock_ms() < until) {
		if (is_readable(producer, 100))
			assert_int_equal(producer_poll(producer, &report, 1), 0);
		outcome = producer_work(producer, ret_why);
	}
	return outcome;
}

static void a_transaction_begins_with_each_call(void **state)
{
	struct sender sender = start_as("transactions", "id");
	struct producer_report report;
	struct err why;

	(void)state;
	assert_int_equal(producer_work(sender.producer, &why), PRODUCER_NO_CALL);
	assert_int_equal(outcome_of(sender.producer, PRODUCER_INIT, &why), PRODUCER_DONE);
	for (int i = 0; i < 3; i++) {
		send_text(&sender, "payload", i);
		wait_for_reports(sender.producer, &report, 1);
		assert_int_equal(report.error, 0);
		assert_int_equal(outcome_of(sender.producer, PRODUCER_COMMIT, &why), PRODUCER_DONE);
		assert_int_equal(producer_work(sender.producer, &why), PRODUCER_NO_CALL);
	}
	producer_destroy(sender.producer, 1000);
}

/* Waits by the eventfds of both alone. */
static void wait_for_pair(const struct producer_pair *pair)
{
	struct pollfd waits[2] = {{.events = POLLIN}, {.events = POLLIN}};
	int fds[2];

	producer_pair_fds(pair, fds);
	for (int i = 0; i < 2; i++)
		waits[i].fd = fds[i];
	poll(waits, 2, 100);
}

static void call_pair(struct producer_pair *pair, enum producer_call call)
{
	enum producer_outcome outcome = PRODUCER_CALLING;
	int64_t until = clock_ms() + WAIT_MS;
	struct producer_report report;
	struct err why = {0};

	producer_pair_begin(pair, call);
	while (outcome == PRODUCER_CALLING && clock_ms() < until) {
		wait_for_pair(pair);
		assert_int_equal(producer_pair_poll(pair, &report, 1), 0);
		outcome = producer_pair_work(pair, &why);
	}
	if (outcome != PRODUCER_DONE)
		fail_msg("%s", why.message);
}

static void send_by_pair(struct producer_pair *pair, const char *name)
{
	struct producer_report report;
	struct err err = {0};
	struct sender sender = {.producer = producer_pair_turn(pair)};
	int64_t until = clock_ms() + WAIT_MS;
	int count = 0;

	sender.topic = producer_topic(sender.producer, name, &err);
	assert_non_null(sender.topic);
	send_text(&sender, "payload", 1);
	for (; count == 0 && clock_ms() < until; wait_for_pair(pair))
		count = producer_pair_poll(pair, &report, 1);
	assert_int_equal(count, 1);
	assert_int_equal(report.error, 0);
}

static void transactions_take_turns_between_two_producers(void **state)
{
	struct err err = {0};
	struct producer_pair *pair =
	    producer_pair_create(&kafka, "pair", 1 << 20, 1000, 1, 0, &err);

	(void)state;
	assert_non_null(pair);
	rd_kafka_mock_topic_create(cluster, "pairs", 3, 1);
	call_pair(pair, PRODUCER_INIT);
	for (int i = 0; i < 4; i++) {
		struct producer *producer = producer_pair_turn(pair);

		send_by_pair(pair, "pairs");
		assert_ptr_equal(producer_pair_turn(pair), producer);
		call_pair(pair, PRODUCER_COMMIT);
		assert_ptr_not_equal(producer_pair_turn(pair), producer);
	}
	assert_true(producer_pair_heard(pair) > 0);
	assert_true(producer_pair_knows(pair, "pairs", 3, WAIT_MS));
	assert_false(producer_pair_is_fatal(pair, &err));
	producer_pair_close_topic(pair, "pairs");
	producer_pair_destroy(pair, 1000);
}

static void without_transactions_there_is_one_producer(void **state)
{
	struct err err = {0};
	struct producer_pair *pair = producer_pair_create(&kafka, NULL, 1 << 20, 1000, 1, 0, &err);
	int fds[2];

	(void)state;
	assert_non_null(pair);
	producer_pair_fds(pair, fds);
	assert_true(fds[0] >= 0);
	assert_int_equal(fds[1], -1);
	rd_kafka_mock_topic_create(cluster, "single", 3, 1);
	send_by_pair(pair, "single");
	producer_pair_destroy(pair, 1000);
}

static void a_call_out_of_turn_fails_and_says_why(void **state)
{
	struct sender sender = start_as("turns", "id");
	struct err why = {0};

	(void)state;
	assert_int_equal(outcome_of(sender.producer, PRODUCER_COMMIT, &why), PRODUCER_FAILED);
	assert_non_null(strstr(why.message, "commit_transaction"));
	producer_destroy(sender.producer, 1000);
}

static void a_call_to_brokers_that_are_away_keeps_nobody_from_ending(void **state)
{
	struct sender sender = start_as("away", "id");
	struct err why;

	(void)state;
	rd_kafka_mock_broker_set_down(cluster, 1);
	producer_begin(sender.producer, PRODUCER_INIT);
	assert_int_equal(producer_work(sender.producer, &why), PRODUCER_CALLING);
	int64_t began = clock_ms();
	producer_destroy(sender.producer, 1000);
	assert_true(clock_ms() - began < WAIT_MS);
	rd_kafka_mock_broker_set_up(cluster, 1);
}

static void a_report_brings_back_opaque_and_offset(void **state)
{
	struct sender sender = start("opaque");
	struct producer_report reports[20];

	(void)state;
	for (intptr_t i = 0; i < 20; i++)
		send_text(&sender, "payload", 100 + i);
	wait_for_reports(sender.producer, reports, 20);
	for (intptr_t i = 0; i < 20; i++) {
		assert_int_equal(reports[i].error, 0);
		assert_false(reports[i].purged);
		assert_int_equal((intptr_t)reports[i].opaque, 100 + i);
		assert_int_equal(reports[i].offset, i);
	}
	assert_false(producer_is_fatal(sender.producer, NULL));
	producer_destroy(sender.producer, 1000);
}

static void the_fd_stays_readable_until_everything_was_said(void **state)
{
	struct sender sender = start("readable");
	struct producer_report reports[7];
	int count = 0;

	(void)state;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 100; i++)
			send_text(&sender, "payload", i);
		for (count = 0; count < 100;) {
			assert_true(is_readable(sender.producer, WAIT_MS));
			count += producer_poll(sender.producer, reports, 7);
		}
	}
	assert_int_equal(producer_poll(sender.producer, reports, 7), 0);
	assert_false(is_readable(sender.producer, 0));
	producer_destroy(sender.producer, 1000);
}

struct seen {
	int count;
	char last_byte;
	bool null_key, empty_key, tombstone, empty_payload, partition_2, timestamp, headers;
};

static bool has_headers(const struct consumer_record *record)
{
	const char *name;
	const void *value;
	size_t length;

	return consumer_header_at(record, 0, &name, &value, &length) && strcmp(name, "a") == 0 &&
	       length == 3 && memcmp(value, "\x00\xff\x01", 3) == 0 &&
	       consumer_header_at(record, 1, &name, &value, &length) && strcmp(name, "none") == 0 &&
	       value == NULL && consumer_header_at(record, 2, &name, &value, &length) &&
	       value != NULL && length == 0 && consumer_header(record, "a", &value, &length) &&
	       length == 4 && memcmp(value, "last", 4) == 0 &&
	       !consumer_header(record, "b", &value, &length) &&
	       !consumer_header_at(record, 4, &name, &value, &length);
}

static bool see_shape(void *context, const struct consumer_record *record)
{
	struct seen *seen = context;

	seen->count++;
	if (record->payload_length > 0)
		seen->last_byte = ((const char *)record->payload)[record->payload_length - 1];
	seen->null_key |= !record->key;
	seen->empty_key |= record->key && record->key_length == 0;
	seen->tombstone |= !record->payload;
	seen->empty_payload |= record->payload && record->payload_length == 0;
	seen->partition_2 |= record->partition == 2;
	seen->timestamp |= record->timestamp_ms == 1234567890123;
	seen->headers |= has_headers(record);
	return true;
}

static void read_all(const char *topic, struct seen *seen)
{
	const char *topics[] = {topic, NULL};
	int64_t until = clock_ms() + WAIT_MS;
	struct err err = {0};
	struct consumer *consumer = consumer_create(&kafka, topics, "read_uncommitted", &err);
	bool at_end = false;

	if (!consumer)
		fail_msg("%s", err.message);
	while (!at_end && clock_ms() < until)
		if (!consumer_read(consumer, 100, see_shape, seen, &at_end, &err))
			fail_msg("%s", err.message);
	assert_true(at_end);
	consumer_destroy(consumer);
}

static void nulls_empties_headers_and_times_arrive_as_they_were(void **state)
{
	static const struct producer_header headers[] = {
	    {"a", 1, "\x00\xff\x01", 3},
	    {"none", 4, NULL, 0},
	    {"empty", 5, "", 0},
	    {"a", 1, "last", 4},
	};
	struct sender sender = start("shapes");
	struct producer_record records[] = {
	    {.payload = "x", .payload_length = 1},
	    {.key = "", .payload = "x", .payload_length = 1},
	    {.key = "k", .key_length = 1},
	    {.key = "k", .key_length = 1, .payload = ""},
	    {.key = "k", .key_length = 1, .partition = 2, .timestamp_ms = 1234567890123},
	    {.key = "k", .key_length = 1, .headers = headers, .header_count = 4},
	};
	struct producer_report reports[6];
	struct seen seen = {0};
	struct err err;

	(void)state;
	for (int i = 0; i < 6; i++) {
		records[i].topic = sender.topic;
		assert_true(producer_send(sender.producer, &records[i], &err));
	}
	wait_for_reports(sender.producer, reports, 6);
	producer_destroy(sender.producer, 1000);
	read_all("shapes", &seen);
	assert_int_equal(seen.count, 6);
	assert_true(seen.null_key);
	assert_true(seen.empty_key);
	assert_true(seen.tombstone);
	assert_true(seen.empty_payload);
	assert_true(seen.partition_2);
	assert_true(seen.timestamp);
	assert_true(seen.headers);
}

static void the_payload_is_not_copied(void **state)
{
	struct sender sender = start("uncopied");
	struct producer_report report;
	struct seen seen = {0};
	char payload[] = "x";

	(void)state;
	rd_kafka_mock_broker_set_down(cluster, BROKER);
	send_text(&sender, payload, 1);
	payload[0] = 'y';
	rd_kafka_mock_broker_set_up(cluster, BROKER);
	wait_for_reports(sender.producer, &report, 1);
	producer_destroy(sender.producer, 1000);
	read_all("uncopied", &seen);
	assert_int_equal(seen.count, 1);
	assert_int_equal(seen.last_byte, 'y');
}

static void a_refused_record_carries_its_code_and_breaks_the_producer(void **state)
{
	struct sender sender = start("refused");
	struct producer_report report;
	struct producer_record record = {
	    .topic = sender.topic, .payload = "x", .payload_length = 1};
	struct err err = {0};

	(void)state;
	rd_kafka_mock_push_request_errors(
	    cluster, PRODUCE_REQUEST, 1, RD_KAFKA_RESP_ERR_INVALID_RECORD);
	send_text(&sender, "payload", 5);
	wait_for_reports(sender.producer, &report, 1);
	assert_int_equal(report.error, RD_KAFKA_RESP_ERR_INVALID_RECORD);
	assert_int_equal(producer_error_kind(report.error), ERR_REJECT);
	assert_false(report.purged);
	assert_int_equal((intptr_t)report.opaque, 5);
	assert_true(producer_is_fatal(sender.producer, &err));
	assert_non_null(strstr(err.message, "_GAPLESS_GUARANTEE"));
	assert_false(producer_send(sender.producer, &record, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	producer_destroy(sender.producer, 1000);
}

static void a_passing_error_is_retried_without_a_word(void **state)
{
	struct sender sender = start("passing");
	struct producer_report report;

	(void)state;
	rd_kafka_mock_push_request_errors(cluster, PRODUCE_REQUEST, 3,
	    RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
	    RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT);
	send_text(&sender, "payload", 5);
	wait_for_reports(sender.producer, &report, 1);
	assert_int_equal(report.error, 0);
	assert_false(producer_is_fatal(sender.producer, NULL));
	producer_destroy(sender.producer, 1000);
}

/*
 * The first request fails, and the broker has no place for the second: librdkafka would give both a
 * new epoch, in which the broker cannot know them for what it may have already.
 */
static void records_never_go_into_another_epoch(void **state)
{
	struct kafka_property one_each[8];
	struct kafka_settings single = kafka;
	struct sender sender = {.producer = NULL};
	struct producer_report reports[2];
	struct err err = {0};

	(void)state;
	memcpy(one_each, properties, sizeof one_each);
	one_each[single.property_count++] =
	    (struct kafka_property){"batch.num.messages", "1", "test:1"};
	single.properties = one_each;
	rd_kafka_mock_topic_create(cluster, "epochs", 3, 1);
	sender.producer = producer_create(&single, NULL, 1 << 20, 1000, 1, &err);
	sender.topic = producer_topic(sender.producer, "epochs", &err);
	send_text(&sender, "payload", 0);
	wait_for_reports(sender.producer, reports, 1);
	assert_int_equal(reports[0].error, 0);
	rd_kafka_mock_broker_set_rtt(cluster, BROKER, 200); /* both are under way at once */
	rd_kafka_mock_push_request_errors(cluster, PRODUCE_REQUEST, 2,
	    RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
	    RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER);
	send_text(&sender, "payload", 1);
	send_text(&sender, "payload", 2);
	wait_for_reports(sender.producer, reports, 2);
	rd_kafka_mock_broker_set_rtt(cluster, BROKER, 0);
	assert_true(reports[0].purged && reports[1].purged);
	assert_true(producer_is_fatal(sender.producer, &err));
	assert_non_null(strstr(err.message, "a new epoch could double"));
	producer_destroy(sender.producer, 1000);
}

static void a_broker_that_is_down_is_told_and_waited_for(void **state)
{
	struct sender sender = start("down");
	struct producer_report report;
	int64_t until = clock_ms() + WAIT_MS;
	char text[512] = "";

	(void)state;
	assert_int_equal(producer_last_error(sender.producer, text, sizeof text), 0);
	rd_kafka_mock_broker_set_down(cluster, BROKER);
	send_text(&sender, "payload", 5);
	while (!producer_last_error(sender.producer, text, sizeof text) && clock_ms() < until)
		if (is_readable(sender.producer, 1000))
			assert_int_equal(producer_poll(sender.producer, &report, 1), 0);
	assert_string_not_equal(text, "");
	assert_false(producer_is_fatal(sender.producer, NULL));
	rd_kafka_mock_broker_set_up(cluster, BROKER);
	wait_for_reports(sender.producer, &report, 1);
	assert_int_equal(report.error, 0);
	producer_destroy(sender.producer, 1000);
}

static void destroying_waits_for_no_broker_and_frees_the_payloads(void **state)
{
	struct sender sender = start("destroy");
	struct producer_report report;
	char *payload = malloc(100000);
	struct producer_record record = {
	    .topic = sender.topic, .payload = payload, .payload_length = 100000};
	int64_t before;
	struct err err;

	(void)state;
	memset(payload, 'x', 100000);
	send_text(&sender, "first", 1);
	wait_for_reports(sender.producer, &report, 1);
	rd_kafka_mock_broker_set_rtt(cluster, BROKER, 2 * WAIT_MS);
	for (int i = 0; i < 8; i++)
		assert_true(producer_send(sender.producer, &record, &err));
	/* In flight and queued, unanswered. */
	assert_false(
	    is_readable(sender.producer, 50) && producer_poll(sender.producer, &report, 1) > 0);
	before = clock_ms();
	producer_destroy(sender.producer, 1000);
	free(payload);
	assert_true(clock_ms() - before < WAIT_MS);
	rd_kafka_mock_broker_set_rtt(cluster, BROKER, 0);
}

static void a_destroyed_null_is_fine(void **state)
{
	(void)state;
	producer_destroy(NULL, 0);
}

static void a_full_queue_is_worth_a_retry(void **state)
{
	struct sender sender = start("full");
	struct producer_record record = {
	    .topic = sender.topic, .payload = "x", .payload_length = 1};
	struct err err = {0};
	int sent = 0;

	(void)state;
	rd_kafka_mock_broker_set_down(cluster, BROKER);
	while (sent < 10000 && producer_send(sender.producer, &record, &err))
		sent++;
	assert_in_range(sent, 1000, 9999);
	assert_int_equal(err.kind, ERR_RETRY);
	assert_non_null(strstr(err.message, "_QUEUE_FULL"));
	producer_destroy(sender.producer, 1000);
	rd_kafka_mock_broker_set_up(cluster, BROKER);
}

static void a_record_over_the_limit_can_never_be_sent(void **state)
{
	struct sender sender = start("large");
	char *payload = calloc(1, 1100000);
	struct producer_record record = {
	    .topic = sender.topic, .payload = payload, .payload_length = 1100000};
	struct err err = {0};

	(void)state;
	assert_false(producer_send(sender.producer, &record, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	assert_false(producer_is_fatal(sender.producer, NULL));
	producer_destroy(sender.producer, 1000);
	free(payload);
}

static void a_record_that_is_given_up_stops_those_behind_it(void **state)
{
	struct sender sender;
	struct producer_record record = {.payload = "x", .payload_length = 1};
	struct producer_report report;
	struct err err = {0};

	(void)state;
	set_property("topic.metadata.propagation.max.ms", "100");
	/* Before the producer asks for it: it must never have seen the topic. */
	rd_kafka_mock_topic_set_error(cluster, "vanished", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
	sender = start("vanished");
	record.topic = sender.topic;
	send_text(&sender, "payload", 1);
	wait_for_reports(sender.producer, &report, 1);
	assert_int_not_equal(report.error, 0);
	assert_false(report.purged);
	assert_int_equal(producer_error_kind(report.error), ERR_RETRY);
	assert_true(producer_is_fatal(sender.producer, &err));
	assert_non_null(strstr(err.message, "given up"));
	assert_false(producer_send(sender.producer, &record, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	producer_destroy(sender.producer, 1000);
}

static void a_question_with_no_time_asks_nobody(void **state)
{
	struct sender sender = start("asked");

	(void)state;
	assert_false(producer_knows(sender.producer, sender.topic, 3, 0));
	assert_true(producer_knows(sender.producer, sender.topic, 3, WAIT_MS));
	assert_true(producer_knows(sender.producer, sender.topic, 3, 0));
	assert_false(producer_knows(sender.producer, sender.topic, 4, 0));
	producer_destroy(sender.producer, 1000);
}

/* The queue is for 1 MiB: what is larger is let through as long as the section allows it. */
static void a_record_larger_than_the_queue_is_sent(void **state)
{
	struct sender sender;
	char *payload = calloc(1, 5000000);
	struct producer_record record = {.payload = payload, .payload_length = 5000000};
	struct producer_report report;
	struct err err = {0};

	(void)state;
	set_property("message.max.bytes", "6000000");
	sender = start("larger");
	record.topic = sender.topic;
	if (!producer_send(sender.producer, &record, &err))
		fail_msg("%s", err.message);
	wait_for_reports(sender.producer, &report, 1);
	assert_int_equal(report.error, 0);
	producer_destroy(sender.producer, 1000);
	free(payload);
}

static void a_name_that_kafka_does_not_allow_is_rejected(void **state)
{
	static const char *const names[] = {"", ".", "..", "a b", "a/b", "a\nb", "\xc3\xa4"};
	struct sender sender = start("names");
	char longest[251];
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		assert_null(producer_topic(sender.producer, names[i], &err));
		assert_int_equal(err.kind, ERR_REJECT);
	}
	memset(longest, 'a', 250);
	longest[250] = '\0';
	assert_null(producer_topic(sender.producer, longest, &err));
	longest[249] = '\0';
	assert_non_null(producer_topic(sender.producer, longest, &err));
	assert_ptr_equal(producer_topic(sender.producer, "names", &err), sender.topic);
	producer_destroy(sender.producer, 1000);
}

static void a_producer_without_servers_says_so(void **state)
{
	struct kafka_settings nothing = {.name = "main"};
	struct err err;

	(void)state;
	assert_null(producer_create(&nothing, NULL, 1 << 20, 1000, 1, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_transaction_begins_with_each_call),
	    cmocka_unit_test(transactions_take_turns_between_two_producers),
	    cmocka_unit_test(without_transactions_there_is_one_producer),
	    cmocka_unit_test(a_call_out_of_turn_fails_and_says_why),
	    cmocka_unit_test(a_call_to_brokers_that_are_away_keeps_nobody_from_ending),
	    cmocka_unit_test(a_report_brings_back_opaque_and_offset),
	    cmocka_unit_test(the_fd_stays_readable_until_everything_was_said),
	    cmocka_unit_test(nulls_empties_headers_and_times_arrive_as_they_were),
	    cmocka_unit_test(the_payload_is_not_copied),
	    cmocka_unit_test(a_refused_record_carries_its_code_and_breaks_the_producer),
	    cmocka_unit_test(a_passing_error_is_retried_without_a_word),
	    cmocka_unit_test(records_never_go_into_another_epoch),
	    cmocka_unit_test(a_broker_that_is_down_is_told_and_waited_for),
	    cmocka_unit_test(destroying_waits_for_no_broker_and_frees_the_payloads),
	    cmocka_unit_test(a_destroyed_null_is_fine),
	    cmocka_unit_test(a_full_queue_is_worth_a_retry),
	    cmocka_unit_test(a_record_over_the_limit_can_never_be_sent),
	    cmocka_unit_test(a_name_that_kafka_does_not_allow_is_rejected),
	    cmocka_unit_test(a_producer_without_servers_says_so),
	    cmocka_unit_test(a_question_with_no_time_asks_nobody),
	    cmocka_unit_test(a_record_larger_than_the_queue_is_sent),
	    cmocka_unit_test(a_record_that_is_given_up_stops_those_behind_it),
	};

	return cmocka_run_group_tests(tests, start_cluster, stop_cluster);
}
