#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "clock.h"
#include "group.h"
#include "logging.h"
#include "producer.h"

enum { WAIT_MS = 60000, PARTITIONS = 3 };

static rd_kafka_t *carrier;
static rd_kafka_mock_cluster_t *cluster;
static struct kafka_property servers = {.name = "bootstrap.servers", .origin = "test:1"};
static struct kafka_settings kafka = {.name = "main", .properties = &servers, .property_count = 1};
/* The mock cluster lets a rebalance last as long as a session without a heartbeat would. */
static struct kafka_property of_members[] = {{.name = "bootstrap.servers", .origin = "test:1"},
    {.name = "session.timeout.ms", .value = "3000", .origin = "test:2"},
    {.name = "heartbeat.interval.ms", .value = "200", .origin = "test:3"}};
static struct kafka_settings members = {
    .name = "main", .properties = of_members, .property_count = 3};

static int start_cluster(void **state)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	(void)state;
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	rd_kafka_conf_set_log_cb(conf, NULL);
	carrier = rd_kafka_new(RD_KAFKA_PRODUCER, conf, NULL, 0);
	cluster = rd_kafka_mock_cluster_new(carrier, 1);
	servers.value = of_members[0].value = (char *)rd_kafka_mock_cluster_bootstraps(cluster);
	return 0;
}

static int stop_cluster(void **state)
{
	(void)state;
	rd_kafka_mock_cluster_destroy(cluster);
	rd_kafka_destroy(carrier);
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
	assert_int_equal(rd_kafka_mock_topic_create(cluster, topic, PARTITIONS, 1), 0);
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

struct member {
	struct group *group;
	int assigned; /* partitions; -1: none were ever */
	int revocations, refusals;
	int64_t next[PARTITIONS]; /* what it says where they begin, and goes on from */
	int count;                /* records */
	enum err_kind failure;
	bool failed;
};

static bool on_assigned(void *context, struct group_place *places, int count, struct err *err)
{
	struct member *member = context;

	if (member->refusals > 0) {
		member->refusals--;
		return err_set(err, ERR_RETRY, "the database is away");
	}
	member->assigned = count;
	for (int i = 0; i < count; i++)
		places[i].offset = member->next[places[i].partition];
	return true;
}

static void on_revoked(void *context)
{
	struct member *member = context;

	member->assigned = 0;
	member->revocations++;
}

static void join(struct member *member, const char *name, const char *topic)
{
	const struct group_callbacks callbacks = {on_assigned, on_revoked, member};
	struct err err = {0};

	member->assigned = -1;
	member->group = group_create(&members, name, topic, &callbacks, &err);
	if (!member->group)
		fail_msg("%s", err.message);
}

static void read_some(struct member *member)
{
	struct consumer_record record;
	struct err err = {0};
	bool some;

	if (!group_read(member->group, 20, &record, &some, &err)) {
		member->failure = err.kind;
		member->failed = true;
		assert_true(err.message[0] != '\0');
		return;
	}
	if (!some)
		return;
	if (member->next[record.partition] >= 0)
		assert_int_equal(record.offset, member->next[record.partition]);
	assert_memory_equal(record.payload, "payload", 7);
	member->next[record.partition] = record.offset + 1;
	member->count++;
}

static void read_until(struct member *member, int count)
{
	int64_t until = clock_ms() + WAIT_MS;

	while (member->count < count) {
		read_some(member);
		if (clock_ms() > until)
			fail_msg("%d records of %d", member->count, count);
	}
}

static void a_member_reads_from_where_it_says(void **state)
{
	struct member member = {.next = {GROUP_BEGINNING, 3, 10}};

	(void)state;
	fill("from", 30);
	join(&member, "reads", "from");
	read_until(&member, 10 + 7);
	assert_int_equal(member.assigned, PARTITIONS);
	for (int i = 0; i < PARTITIONS; i++)
		assert_int_equal(member.next[i], 10);
	group_destroy(member.group, 5000);
}

static void who_cannot_say_yet_is_asked_again(void **state)
{
	struct member member = {.refusals = 2};

	(void)state;
	fill("again", 6);
	join(&member, "asks", "again");
	read_until(&member, 6);
	assert_true(member.failed && member.failure == ERR_RETRY);
	assert_int_equal(member.refusals, 0);
	group_destroy(member.group, 5000);
}

static void two_members_share_and_the_one_that_stays_has_all(void **state)
{
	struct member first = {0}, second = {0};
	int64_t until = clock_ms() + WAIT_MS;

	(void)state;
	fill("shared", 6);
	join(&first, "both", "shared");
	read_until(&first, 6);
	join(&second, "both", "shared");
	while (first.assigned + second.assigned != PARTITIONS || second.assigned < 1) {
		read_some(&first);
		read_some(&second);
		assert_true(clock_ms() < until);
	}
	assert_true(first.revocations >= 1 && first.assigned >= 1);
	group_destroy(first.group, 5000);
	until = clock_ms() + WAIT_MS;
	while (second.assigned != PARTITIONS) {
		read_some(&second);
		assert_true(clock_ms() < until);
	}
	group_destroy(second.group, 5000);
}

static void a_seek_reads_again_and_the_end_is_known(void **state)
{
	struct member member = {0};
	const struct group_place places[] = {{0, 1}, {1, 3}, {2, GROUP_BEGINNING}};
	struct group_place ends[] = {{1, 0}, {2, 0}};
	int64_t until = clock_ms() + WAIT_MS;
	struct err err = {0};

	(void)state;
	fill("sought", 9);
	join(&member, "seeks", "sought");
	read_until(&member, 9);
	if (!group_ends(member.group, ends, 2, 5000, &err))
		fail_msg("%s", err.message);
	assert_int_equal(ends[0].offset, 3);
	assert_int_equal(ends[1].offset, 3);
	assert_int_equal(group_position(member.group, 1), 3);
	assert_int_equal(group_position(member.group, 99), -1);
	/* the end is met as well, and told by an event of its own */
	while (!group_at_end(member.group, 1)) {
		read_some(&member);
		assert_true(clock_ms() < until);
	}
	assert_int_equal(group_position(member.group, 1), 3);
	group_note(member.group, places, 1);
	if (!group_seek(member.group, places, PARTITIONS, &err))
		fail_msg("%s", err.message);
	assert_int_equal(group_position(member.group, 1), -1);
	assert_false(group_at_end(member.group, 1));
	member.next[0] = 1;
	member.next[2] = 0;
	read_until(&member, 9 + 2 + 3);
	group_destroy(member.group, 5000);
}

/* One partition that stands still keeps the others from nothing, and goes on where it is told. */
static void an_offset_that_is_not_there_is_told_and_not_passed(void **state)
{
	struct member member = {.next = {0, 1000, 0}};
	const struct group_place places[] = {{0, 3}, {1, 1}, {2, 3}};
	int64_t until = clock_ms() + WAIT_MS;
	struct err err = {0};

	(void)state;
	fill("lost", 9);
	join(&member, "loses", "lost");
	while (!member.failed || member.failure != ERR_FATAL) {
		read_some(&member);
		assert_true(clock_ms() < until);
	}
	read_until(&member, 6);
	assert_int_equal(member.next[1], 1000);
	assert_int_equal(group_position(member.group, 1), -1);
	if (!group_seek(member.group, places, PARTITIONS, &err))
		fail_msg("%s", err.message);
	member.next[1] = 1;
	read_until(&member, 6 + 2);
	group_destroy(member.group, 5000);
}

static void the_ends_of_others_are_known_without_a_leader_of_one(void **state)
{
	struct member member = {0};
	struct group_place ends[] = {{0, 0}, {1, 0}, {2, 0}};
	int64_t until = clock_ms() + WAIT_MS;
	struct err err = {0};

	(void)state;
	fill("headless", 9);
	join(&member, "asks-ends", "headless");
	read_until(&member, 9);
	assert_int_equal(rd_kafka_mock_partition_set_leader(cluster, "headless", 1, -1), 0);
	do {
		/* at first it is the old leader that is asked */
		assert_false(group_ends(member.group, ends, PARTITIONS, WAIT_MS / 2, &err));
		assert_int_equal(err.kind, ERR_RETRY);
		assert_int_equal(ends[1].offset, -1);
		assert_true(clock_ms() < until);
	} while (ends[0].offset < 0);
	assert_int_equal(ends[0].offset, 3);
	assert_int_equal(ends[2].offset, 3);
	group_destroy(member.group, 5000);
}

/* Their ends are met between them, each by itself. */
static void the_end_of_one_partition_does_not_hide_the_records_of_others(void **state)
{
	struct member member = {0};
	struct consumer_record record;
	struct err err = {0};
	bool some = true;
	int more = 0;

	(void)state;
	fill("ends", 6);
	join(&member, "meets-ends", "ends");
	read_until(&member, 1); /* the partitions have come */
	while (member.count + more < 6) {
		if (!group_read(member.group, WAIT_MS, &record, &some, &err))
			fail_msg("%s", err.message);
		assert_true(some);
		more++;
	}
	group_destroy(member.group, 5000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_member_reads_from_where_it_says),
	    cmocka_unit_test(who_cannot_say_yet_is_asked_again),
	    cmocka_unit_test(two_members_share_and_the_one_that_stays_has_all),
	    cmocka_unit_test(a_seek_reads_again_and_the_end_is_known),
	    cmocka_unit_test(an_offset_that_is_not_there_is_told_and_not_passed),
	    cmocka_unit_test(the_end_of_one_partition_does_not_hide_the_records_of_others),
	    cmocka_unit_test(the_ends_of_others_are_known_without_a_leader_of_one),
	};
	return cmocka_run_group_tests(tests, start_cluster, stop_cluster);
}
