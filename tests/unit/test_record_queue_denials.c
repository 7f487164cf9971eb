/* What a stream makes of partitions that answer with errors which blame no record
 * (record_queue_denials.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "open_topics.h"
#include "stream.h"

static enum stream_policy policy_of_name(const void *context, const char *topic)
{
	(void)context;
	return strcmp(topic, "strict") == 0 ? STREAM_STOP : STREAM_BLOCK;
}

static struct stream *owner(bool resumes, bool transactions)
{
	const struct stream_settings settings = {
	    .max_in_flight = 100,
	    .memory = 1 << 20,
	    .lease_ms = 1000000,
	    .poll_busy_ms = 1,
	    .poll_idle_ms = 50,
	    .ack_interval_ms = 1000000,
	    .stall_after_ms = 1000000,
	    .resumes = resumes,
	    .transactions = transactions,
	    .parking = {.retry_first_ms = 10,
		.retry_max_ms = 20,
		.max_attempts = 3,
		.policy = policy_of_name},
	    .seed = 1,
	};
	static const struct open_topic topics[] = {
	    {"sick", 2, OPEN_NONE}, {"well", 2, OPEN_NONE}, {"strict", 2, OPEN_NONE}, {0}};
	struct stream *stream = stream_create(&settings);

	assert_int_equal(stream_log_call(stream, 0).call, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5, .epoch = 77, .first_tick = 40};
	stream_taken(stream, 0, &taken);
	open_topics(stream, 0, topics);
	for (int i = 0; topics[i].name; i++)
		stream_topic(stream, topics[i].name, 2);
	return stream;
}

static void give(struct stream *stream, int64_t id, const char *topic, int32_t partition)
{
	char *block = xcalloc(1, 64);

	snprintf(block, 64, "%sk%lld", topic, (long long)id);
	const struct message message = {
	    .block = block,
	    .id = id,
	    .created_us = 1000 + id,
	    .event_id = block + 48,
	    .topic = block,
	    .topic_length = (int32_t)strlen(topic),
	    .key = block + strlen(topic),
	    .key_length = (int32_t)strlen(block + strlen(topic)),
	    .partition = partition,
	    .bytes = 64,
	};
	stream_row(stream, &message);
}

static void open_window(struct stream *stream, int64_t now)
{
	struct stream_tick tick = stream_log_call(stream, now);

	assert_int_equal(tick.call, STREAM_TICK);
	assert_true(tick.may_open);
	stream_ticked(stream, now, STREAM_ROWS);
}

static uint64_t expect_sent(struct stream *stream, int64_t now, int64_t id)
{
	struct stream_record record;

	assert_true(stream_send(stream, now, &record));
	assert_int_equal(record.id, id);
	return record.sequence;
}

static void expect_none_sent(struct stream *stream, int64_t now)
{
	struct stream_record record;

	assert_false(stream_send(stream, now, &record));
}

static void written(struct stream *stream, int64_t now, uint64_t sequence)
{
	stream_report(stream, now, sequence, STREAM_WRITTEN, (int64_t)sequence, NULL);
}

static void fails(
    struct stream *stream, int64_t now, uint64_t sequence, enum stream_delivery delivery)
{
	stream_report(stream, now, sequence, delivery, -1, "unclear");
	assert_ptr_equal(stream_producer_verdict(stream, now), stream_denial);
	stream_producer_lost(stream);
}

/* Nothing goes out before the pause of the n-th try, from `now` on, is over. */
static int64_t expect_pause(struct stream *stream, int64_t now, int tries)
{
	int64_t pause = INT64_C(1000) << (tries - 1);

	expect_none_sent(stream, now);
	assert_in_range(
	    stream_wait_offline(stream, now), now + pause * 8 / 10, now + pause * 12 / 10);
	expect_none_sent(stream, now + pause * 8 / 10 - 1);
	return now + pause * 12 / 10;
}

static void expect_parks(struct stream *stream, int64_t now, const char *rows)
{
	struct stream_tick tick = stream_log_call(stream, now);

	assert_int_equal(tick.call, STREAM_TICK);
	assert_non_null(tick.parks);
	assert_non_null(strstr(tick.parks, rows));
	stream_ticked(stream, now, STREAM_NOTED);
}

static void a_record_that_fails_alone_three_times_is_parked_and_the_next_is_tried(void **state)
{
	struct stream *stream = owner(false, false);
	int64_t now = 1;

	(void)state;
	open_window(stream, now);
	give(stream, 1, "sick", 0);
	give(stream, 2, "sick", 0);
	give(stream, 3, "well", 0);
	stream_rows_end(stream);
	fails(stream, now, expect_sent(stream, now, 1), STREAM_FAILED);
	written(stream, now, expect_sent(stream, now, 3)); /* others wait for nothing */
	now = expect_pause(stream, now, 1);
	assert_string_equal(stream_status(stream, now).denied_topic, "sick");
	fails(stream, now, expect_sent(stream, now, 1), STREAM_FAILED);
	now = expect_pause(stream, now, 2);
	fails(stream, now, expect_sent(stream, now, 1), STREAM_FAILED);
	expect_parks(stream, now, "[[1,1001,\"unclear\",41]]");
	now = expect_pause(stream, now, 3);
	written(stream, now, expect_sent(stream, now, 2));
	assert_null(stream_status(stream, now).denied_topic);
	assert_int_equal(stream_status(stream, now).denied, 0);
	assert_int_equal(stream_status(stream, now).refusals, 1);
	stream_destroy(stream);
}

static void from_the_fourth_try_on_the_records_of_the_partition_are_parked(void **state)
{
	struct stream *stream = owner(false, false);
	int64_t now = 1;

	(void)state;
	open_window(stream, now);
	for (int64_t id = 1; id <= 3; id++)
		give(stream, id, "sick", 0);
	give(stream, 4, "sick", 1);
	stream_rows_end(stream);
	for (int tries = 1; tries <= 3; tries++) {
		fails(stream, now, expect_sent(stream, now, 1), STREAM_FAILED);
		if (tries == 1)
			written(stream, now, expect_sent(stream, now, 4));
		if (tries < 3)
			now = expect_pause(stream, now, tries);
	}
	expect_parks(stream, now, "[[1,1001,\"unclear\",41]]");
	now = expect_pause(stream, now, 3);
	fails(stream, now, expect_sent(stream, now, 2), STREAM_FAILED);
	expect_none_sent(stream, now);
	expect_parks(stream, now,
	    "[[2,1002,\"partition 0 takes no records: unclear\",41,0],[3,1003,\"partition 0 takes "
	    "no records: unclear\",41,0]]");
	assert_int_equal(stream_status(stream, now).stalls, 1);
	/* they come back for the next try */
	now += 8 * 1200;
	expect_none_sent(stream, now);
	expect_parks(stream, now, "\"recovered\":[[\"sick\",0,0]]");
	assert_int_equal(stream_status(stream, now).stalls, 0);
	stream_destroy(stream);
}

static void an_error_of_the_topic_bars_all_its_partitions_and_blames_no_record(void **state)
{
	struct stream *stream = owner(false, false);
	int64_t now = 1;

	(void)state;
	open_window(stream, now);
	give(stream, 1, "sick", 0);
	give(stream, 2, "sick", 1);
	stream_rows_end(stream);
	for (int tries = 1; tries <= 3; tries++) {
		fails(stream, now, expect_sent(stream, now, 1), STREAM_DENIED);
		assert_int_equal(stream_status(stream, now).denied, 2);
		now = expect_pause(stream, now, tries);
	}
	fails(stream, now, expect_sent(stream, now, 1), STREAM_DENIED);
	expect_none_sent(stream, now);
	expect_parks(stream, now,
	    "[[1,1001,\"partition 0 takes no records: unclear\",41,0],[2,1002,\"partition 1 takes "
	    "no records: unclear\",41,1]]");
	stream_destroy(stream);
}

static void two_partitions_that_fail_are_the_topic_if_none_answers(void **state)
{
	struct stream *stream = owner(false, false);

	(void)state;
	open_window(stream, 1);
	give(stream, 1, "sick", 0);
	give(stream, 2, "sick", 1);
	stream_rows_end(stream);
	fails(stream, 1, expect_sent(stream, 1, 1), STREAM_FAILED);
	assert_int_equal(stream_status(stream, 1).denied, 1);
	fails(stream, 1, expect_sent(stream, 1, 2), STREAM_FAILED);
	assert_int_equal(stream_status(stream, 1).denied, 2);
	/* one that answers shows that it is not */
	written(stream, 2000, expect_sent(stream, 2000, 1));
	fails(stream, 2000, expect_sent(stream, 2000, 2), STREAM_FAILED);
	assert_int_equal(stream_status(stream, 2000).denied, 1);
	stream_destroy(stream);
}

static void where_the_publisher_stops_at_a_refusal_it_is_tried_for_ever(void **state)
{
	struct stream *stream = owner(false, false);
	int64_t now = 1;

	(void)state;
	open_window(stream, now);
	give(stream, 1, "strict", 0);
	stream_rows_end(stream);
	for (int tries = 1; tries <= 6; tries++) {
		fails(stream, now, expect_sent(stream, now, 1), STREAM_FAILED);
		now = expect_pause(stream, now, tries);
	}
	assert_false(stream_status(stream, now).refused);
	assert_int_equal(stream_status(stream, now).parked, 0);
	written(stream, now, expect_sent(stream, now, 1));
	stream_destroy(stream);
}

static void no_pause_is_longer_than_a_minute(void **state)
{
	struct stream *stream = owner(false, false);
	int64_t now = 1;

	(void)state;
	open_window(stream, now);
	give(stream, 1, "strict", 0);
	stream_rows_end(stream);
	for (int tries = 1; tries <= 20; tries++) {
		fails(stream, now, expect_sent(stream, now, 1), STREAM_FAILED);
		expect_none_sent(stream, now);
		assert_true(stream_wait_offline(stream, now) <= now + 72000);
		now += 72000;
		if (now > 300000) /* the lease */
			stream_ticked(stream, now,
			    stream_log_call(stream, now).call ? STREAM_NOTED : STREAM_IDLE);
	}
	stream_destroy(stream);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_record_that_fails_alone_three_times_is_parked_and_the_next_is_tried),
	    cmocka_unit_test(from_the_fourth_try_on_the_records_of_the_partition_are_parked),
	    cmocka_unit_test(an_error_of_the_topic_bars_all_its_partitions_and_blames_no_record),
	    cmocka_unit_test(two_partitions_that_fail_are_the_topic_if_none_answers),
	    cmocka_unit_test(where_the_publisher_stops_at_a_refusal_it_is_tried_for_ever),
	    cmocka_unit_test(no_pause_is_longer_than_a_minute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
