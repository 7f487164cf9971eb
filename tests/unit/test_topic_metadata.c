#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "topic_metadata.h"
#include "clock.h"
#include "logging.h"

enum { WAIT_MS = 20000 };

/* Two mock brokers for all tests, topics for each. */
static rd_kafka_t *carrier;
static rd_kafka_mock_cluster_t *cluster;
static struct kafka_property servers = {.name = "bootstrap.servers", .origin = "test:1"};
static struct kafka_settings kafka = {.name = "main", .properties = &servers, .property_count = 1};

static int start_cluster(void **state)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	(void)state;
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	rd_kafka_conf_set_log_cb(conf, NULL);
	carrier = rd_kafka_new(RD_KAFKA_PRODUCER, conf, NULL, 0);
	cluster = rd_kafka_mock_cluster_new(carrier, 2);
	servers.value = (char *)rd_kafka_mock_cluster_bootstraps(cluster);
	return 0;
}

static int stop_cluster(void **state)
{
	(void)state;
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(carrier);
	return 0;
}

static void make_topic(const char *name, int partitions)
{
	assert_int_equal(rd_kafka_mock_topic_create(cluster, name, partitions, 1), 0);
}

/* The mock makes a topic when it is asked for it; this one says that there is none. */
static void hide_topic(const char *name)
{
	rd_kafka_mock_topic_set_error(cluster, name, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
}

struct watched {
	struct topic_metadata *metadata;
	int fd;
};

static struct watched watch(const struct kafka_settings *section)
{
	struct watched watched;
	struct err err = {0};

	watched.metadata = topic_metadata_create(section, &err);
	if (!watched.metadata)
		fail_msg("%s", err.message);
	watched.fd = eventfd(0, EFD_NONBLOCK);
	topic_metadata_watch(watched.metadata, watched.fd);
	return watched;
}

static void unwatch(struct watched *watched)
{
	topic_metadata_unwatch(watched->metadata, watched->fd);
	close(watched->fd);
	topic_metadata_destroy(watched->metadata);
}

static bool is_told(int fd, int timeout_ms)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};
	eventfd_t value;

	return poll(&entry, 1, timeout_ms) == 1 && eventfd_read(fd, &value) == 0;
}

static struct known_topic look_when_told(struct watched *watched, const char *topic)
{
	assert_true(is_told(watched->fd, WAIT_MS));
	return topic_metadata_get(watched->metadata, topic, 60000);
}

static void a_first_look_asks_and_tells(void **state)
{
	struct watched watched = watch(&kafka);
	struct known_topic topic;

	(void)state;
	make_topic("there", 5);
	topic = topic_metadata_get(watched.metadata, "there", 60000);
	assert_int_equal(topic.state, TOPIC_UNKNOWN);
	topic = look_when_told(&watched, "there");
	assert_int_equal(topic.state, TOPIC_THERE);
	assert_int_equal(topic.partitions, 5);
	assert_string_equal(topic.error, "");
	unwatch(&watched);
}

static void an_unchanged_answer_tells_nobody(void **state)
{
	struct watched watched = watch(&kafka);

	(void)state;
	make_topic("same", 1);
	topic_metadata_get(watched.metadata, "same", 60000);
	assert_int_equal(look_when_told(&watched, "same").state, TOPIC_THERE);
	for (int i = 0; i < 5; i++) {
		topic_metadata_get(watched.metadata, "same", -1);
		assert_false(is_told(watched.fd, 20));
	}
	unwatch(&watched);
}

static void a_missing_topic_is_asked_for_until_it_is_there(void **state)
{
	struct watched watched = watch(&kafka);
	struct known_topic topic;

	(void)state;
	make_topic("later", 2);
	hide_topic("later");
	topic_metadata_get(watched.metadata, "later", 60000);
	topic = look_when_told(&watched, "later");
	assert_int_equal(topic.state, TOPIC_MISSING);
	assert_string_not_equal(topic.error, "");
	/* Nobody needs to look again. */
	assert_false(is_told(watched.fd, 1200));
	rd_kafka_mock_topic_set_error(cluster, "later", RD_KAFKA_RESP_ERR_NO_ERROR);
	topic = look_when_told(&watched, "later");
	assert_int_equal(topic.state, TOPIC_THERE);
	assert_int_equal(topic.partitions, 2);
	unwatch(&watched);
}

static void no_answer_is_told_with_its_reason(void **state)
{
	struct kafka_property nobody = {"bootstrap.servers", "127.0.0.1:1", "test:1"};
	struct kafka_settings away = {.name = "main", .properties = &nobody, .property_count = 1};
	struct watched watched = watch(&away);
	struct known_topic topic;
	int64_t before;

	(void)state;
	topic_metadata_get(watched.metadata, "there", 60000);
	topic = look_when_told(&watched, "there");
	assert_int_equal(topic.state, TOPIC_UNKNOWN);
	assert_string_not_equal(topic.error, "");
	before = clock_ms();
	unwatch(&watched);
	assert_true(clock_ms() - before < WAIT_MS);
}

static void brokers_are_counted(void **state)
{
	struct watched watched = watch(&kafka);
	struct err err;
	int count = 0;

	(void)state;
	assert_true(topic_metadata_broker_count(watched.metadata, WAIT_MS, &count, &err));
	assert_int_equal(count, 2);
	unwatch(&watched);
}

static void settings_of_a_missing_topic_are_a_reject(void **state)
{
	struct watched watched = watch(&kafka);
	struct topic_setting *settings;
	struct err err;
	int count;

	(void)state;
	make_topic("nosuch", 1);
	hide_topic("nosuch");
	assert_false(
	    topic_metadata_settings(watched.metadata, "nosuch", WAIT_MS, &settings, &count, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	unwatch(&watched);
}

/* The mock has no admin requests: librdkafka looks for a controller until the time is over. */
static void an_unanswered_question_ends_in_time(void **state)
{
	struct watched watched = watch(&kafka);
	struct topic_setting *settings;
	int64_t before = clock_ms();
	struct err err;
	int count;

	(void)state;
	make_topic("mute", 1);
	assert_false(
	    topic_metadata_settings(watched.metadata, "mute", 200, &settings, &count, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	assert_false(
	    topic_metadata_create_topic(watched.metadata, "made", 1, 1, NULL, 0, 200, &err));
	assert_int_equal(err.kind, ERR_RETRY);
	assert_true(clock_ms() - before < WAIT_MS);
	unwatch(&watched);
}

static void metadata_without_servers_says_so(void **state)
{
	struct kafka_settings nothing = {.name = "main"};
	struct err err;

	(void)state;
	assert_null(topic_metadata_create(&nothing, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	topic_metadata_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_first_look_asks_and_tells),
	    cmocka_unit_test(an_unchanged_answer_tells_nobody),
	    cmocka_unit_test(a_missing_topic_is_asked_for_until_it_is_there),
	    cmocka_unit_test(no_answer_is_told_with_its_reason),
	    cmocka_unit_test(brokers_are_counted),
	    cmocka_unit_test(settings_of_a_missing_topic_are_a_reject),
	    cmocka_unit_test(an_unanswered_question_ends_in_time),
	    cmocka_unit_test(metadata_without_servers_says_so),
	};

	return cmocka_run_group_tests(tests, start_cluster, stop_cluster);
}
