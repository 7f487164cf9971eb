#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

#include "logging.h"
#include "topic_metadata.h"
#include "dev_broker.h"

static struct kafka_property servers = {.name = "bootstrap.servers", .origin = "test:1"};
static struct kafka_settings kafka = {.name = "main", .properties = &servers, .property_count = 1};

static struct dev_broker *start(int brokers, int partitions)
{
	struct err err = {0};
	struct dev_broker *broker = dev_broker_create(brokers, partitions, 0, &err);

	if (!broker)
		fail_msg("%s", err.message);
	servers.value = (char *)dev_broker_bootstrap(broker);
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	return broker;
}

static int32_t partitions_of(const char *name)
{
	struct err err = {0};
	struct topic_metadata *metadata = topic_metadata_create(&kafka, &err);
	int fd = eventfd(0, 0);
	eventfd_t changed;
	int32_t partitions;

	assert_non_null(metadata);
	topic_metadata_watch(metadata, fd);
	topic_metadata_get(metadata, name, 60000);
	assert_int_equal(eventfd_read(fd, &changed), 0);
	partitions = topic_metadata_get(metadata, name, 60000).partitions;
	topic_metadata_destroy(metadata);
	close(fd);
	return partitions;
}

static void a_topic_is_made_with_its_own_or_the_usual_number_of_partitions(void **state)
{
	struct dev_broker *broker = start(1, 6);
	struct err err;

	(void)state;
	assert_true(dev_broker_topic(broker, "own", 2, &err));
	assert_true(dev_broker_topic(broker, "usual", 0, &err));
	assert_int_equal(partitions_of("own"), 2);
	assert_int_equal(partitions_of("usual"), 6);
	dev_broker_destroy(broker);
}

static void a_topic_of_first_use_has_the_four_partitions_of_librdkafka(void **state)
{
	struct dev_broker *broker = start(3, 6);

	(void)state;
	assert_int_equal(partitions_of("used"), 4);
	dev_broker_destroy(broker);
}

static void a_topic_is_not_made_twice(void **state)
{
	struct dev_broker *broker = start(1, 6);
	struct err err;

	(void)state;
	assert_true(dev_broker_topic(broker, "once", 2, &err));
	assert_false(dev_broker_topic(broker, "once", 2, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	dev_broker_destroy(broker);
}

static void each_broker_has_an_address(void **state)
{
	struct dev_broker *broker = start(3, 1);
	int count = 1;

	(void)state;
	for (const char *at = dev_broker_bootstrap(broker); (at = strchr(at, ',')); at++)
		count++;
	assert_int_equal(count, 3);
	dev_broker_destroy(broker);
	dev_broker_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_topic_is_made_with_its_own_or_the_usual_number_of_partitions),
	    cmocka_unit_test(a_topic_of_first_use_has_the_four_partitions_of_librdkafka),
	    cmocka_unit_test(a_topic_is_not_made_twice),
	    cmocka_unit_test(each_broker_has_an_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
