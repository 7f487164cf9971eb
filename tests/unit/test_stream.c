/*
 * The core of the publisher: its rules one by one, then all of them at once under the simulator
 * (simulator.h). SIMULATOR_SEEDS: how many seeds; SIMULATOR_SEED: the first one; SIMULATOR_TRACE=1:
 * every event of each run on stderr.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_topics.h"
#include "simulator.h"
#include "stream.h"

/* --- one stream, by hand ------------------------------------------------------------------ */

static enum stream_policy stop_at_refusals(const void *context, const char *topic)
{
	(void)context;
	(void)topic;
	return STREAM_STOP;
}

static const struct stream_settings settings = {
    .parking.policy = stop_at_refusals,
    .max_in_flight = 8,
    .memory = 1 << 20,
    .lease_ms = 10000,
    .poll_busy_ms = 1,
    .poll_idle_ms = 50,
    .ack_interval_ms = 100,
    .stall_after_ms = 5000,
    .seed = 1,
};

static struct message row_of(const char *topic, int64_t id, const char *key)
{
	char *block = xcalloc(1, 64);
	int length = (int)strlen(topic);
	snprintf(block, 64, "%s%s", topic, key ? key : "");
	return (struct message){
	    .block = block,
	    .id = id,
	    .event_id = block + 48,
	    .topic = block,
	    .topic_length = length,
	    .key = key ? block + length : NULL,
	    .key_length = key ? (int32_t)strlen(key) : 0,
	    .partition = -1,
	    .bytes = 64,
	};
}

static struct message row(int64_t id, const char *key)
{
	return row_of("orders", id, key);
}

static struct stream_tick expect_call(struct stream *stream, int64_t now, enum stream_call call)
{
	struct stream_tick tick = stream_log_call(stream, now);
	assert_int_equal(tick.call, call);
	return tick;
}

static const struct open_topic orders[] = {{"orders", 1, OPEN_NONE}, {0}};

/* An owner from time 0 with `windows` inherited; the topic is known to have one partition. */
static struct stream *owner_with(const struct stream_settings *with, int windows)
{
	struct stream *stream = stream_create(with);
	expect_call(stream, 0, STREAM_TAKE);
	const struct stream_taken taken = {
	    .n = 5, .epoch = 77, .first_tick = 40, .windows = windows};
	stream_taken(stream, 0, &taken);
	open_topics(stream, 0, orders);
	stream_topic(stream, "orders", 1);
	return stream;
}

static struct stream *owner_of(int windows)
{
	return owner_with(&settings, windows);
}

static void give_row(struct stream *stream, int64_t id, const char *key)
{
	struct message message = row(id, key);
	stream_row(stream, &message);
}

/* The next look finds the rows with these keys; ids from `first_id` on. */
static void find_rows(
    struct stream *stream, int64_t now, int64_t first_id, const char *const *keys, int count)
{
	assert_true(expect_call(stream, now, STREAM_TICK).may_open);
	stream_ticked(stream, now, STREAM_ROWS);
	for (int i = 0; i < count; i++)
		give_row(stream, first_id + i, keys[i]);
	stream_rows_end(stream);
}

static const char *const same_key[] = {"k", "k", "k", "k", "k", "k", "k", "k", "k", "k"};

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

static void refused(struct stream *stream, int64_t now, uint64_t sequence)
{
	stream_report(stream, now, sequence, STREAM_REFUSED, -1, "too large");
}

/* A partition whose first record is acknowledged. */
static struct stream *owner_with_rows(int count)
{
	struct stream *stream = owner_of(0);
	find_rows(stream, 0, 1, same_key, count);
	written(stream, 0, expect_sent(stream, 0, 1));
	return stream;
}

static enum stream_state state_of(const struct stream *stream)
{
	return stream_status(stream, 0).state;
}

/* Each of the ticks takes `us` for a row of its batch, and `rest` ms. Returns the next batch. */
static int64_t work_with_parked_rows(
    struct stream *stream, int64_t *now, int ticks, int64_t us, int64_t rest)
{
	int64_t batch = 0;
	for (; ticks >= 0; ticks--) {
		*now += 50;
		batch = expect_call(stream, *now, STREAM_TICK).batch;
		*now += batch * us / 1000 + rest;
		stream_worked(stream, *now, batch * us / 1000);
		stream_ticked(stream, *now, STREAM_NOTED);
	}
	return batch;
}

static void the_work_with_parked_rows_is_bounded_by_its_time(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	int64_t now = 0;
	assert_int_equal(work_with_parked_rows(stream, &now, 10, 15, 2), 500);
	assert_in_range(work_with_parked_rows(stream, &now, 1, 100, 2), 90, 125);
	assert_in_range(work_with_parked_rows(stream, &now, 10, 100, 2), 90, 125);
	/* a disk that takes 5 ms for each row; and it goes on */
	assert_int_equal(work_with_parked_rows(stream, &now, 10, 5000, 2), 50);
	assert_in_range(work_with_parked_rows(stream, &now, 60, 100, 2), 90, 125);
	/* a commit that takes 60 ms */
	assert_in_range(work_with_parked_rows(stream, &now, 60, 200, 60), 270, 340);
	assert_int_equal(work_with_parked_rows(stream, &now, 60, 15, 2), 500);
	stream_destroy(stream);
}

static void rows_go_out_once_their_window_is_written(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_call(stream, 0, STREAM_TICK);
	expect_none_sent(stream, 0);
	stream_ticked(stream, 1, STREAM_ROWS);
	give_row(stream, 1, "k");
	stream_rows_end(stream);
	struct stream_record record;
	assert_true(stream_send(stream, 1, &record));
	assert_int_equal(record.tick, 41);
	assert_int_equal(stream_epoch(stream), 77);
	written(stream, 2, record.sequence);
	struct stream_tick tick = expect_call(stream, 150, STREAM_TICK);
	assert_false(tick.must_write);
	stream_ticked(stream, 150, STREAM_IDLE);
	tick = expect_call(stream, 251, STREAM_TICK);
	assert_true(tick.must_write);
	assert_int_equal(tick.closed, 1);
	assert_string_equal(tick.destinations, "{\"orders\":[1,{\"0\":1}]}");
	stream_destroy(stream);
}

static void the_first_record_of_a_partition_goes_alone(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	find_rows(stream, 0, 1, same_key, 3);
	uint64_t first = expect_sent(stream, 0, 1);
	expect_none_sent(stream, 0);
	written(stream, 1, first);
	expect_sent(stream, 1, 2);
	expect_sent(stream, 1, 3);
	stream_destroy(stream);
}

static void only_what_is_refused_alone_is_at_fault(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(4);
	uint64_t second = expect_sent(stream, 1, 2), third = expect_sent(stream, 1, 3);
	refused(stream, 2, second);
	refused(stream, 2, third);
	assert_false(stream_status(stream, 2).refused);
	assert_non_null(stream_producer_verdict(stream, 2));
	stream_producer_lost(stream);
	written(stream, 3, expect_sent(stream, 3, 2));
	third = expect_sent(stream, 3, 3);
	expect_none_sent(stream, 3);
	refused(stream, 4, third);
	assert_true(stream_status(stream, 4).refused);
	assert_int_equal(stream_status(stream, 4).refused_id, 3);
	stream_destroy(stream);
}

static void nothing_of_a_key_passes_a_refused_record(void **state)
{
	(void)state;
	static const char *const keys[] = {"a", "b", "a", "b"};
	struct stream *stream = owner_of(0);
	find_rows(stream, 0, 1, keys, 4);
	refused(stream, 1, expect_sent(stream, 0, 1));
	stream_producer_lost(stream);
	/* the others pass it: before that, whoever takes the shard next has another epoch */
	expect_none_sent(stream, 2);
	struct stream_tick tick = expect_call(stream, 2, STREAM_TICK);
	assert_true(tick.new_epoch && tick.must_write);
	stream_ticked(stream, 3, STREAM_NOTED);
	assert_int_equal(stream_epoch(stream), 77);
	written(stream, 4, expect_sent(stream, 3, 2));
	written(stream, 5, expect_sent(stream, 4, 4));
	expect_none_sent(stream, 5);
	stream_destroy(stream);
}

static void what_came_before_a_refused_record_still_goes(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(4);
	expect_sent(stream, 1, 2);
	uint64_t third = expect_sent(stream, 1, 3);
	stream_report(stream, 1, third, STREAM_UNSENDABLE, -1, "too large");
	assert_false(stream_status(stream, 1).refused);
	stream_producer_lost(stream);
	written(stream, 3, expect_sent(stream, 3, 2));
	/* alone on its partition it is looked at again */
	stream_report(stream, 3, expect_sent(stream, 3, 3), STREAM_UNSENDABLE, -1, "too large");
	expect_none_sent(stream, 3);
	assert_int_equal(stream_status(stream, 3).refused_id, 3);
	stream_destroy(stream);
}

static void a_full_flight_waits_for_the_log(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(10);
	for (int64_t id = 2; id <= 8; id++)
		written(stream, 1, expect_sent(stream, 1, id));
	expect_none_sent(stream, 1);
	assert_int_equal(stream_status(stream, 1).in_flight, 8);
	assert_true(stream_wait(stream, 1) <= 1);
	assert_int_equal(expect_call(stream, 1, STREAM_TICK).acked_id, 8);
	stream_ticked(stream, 2, STREAM_NOTED);
	assert_int_equal(stream_status(stream, 2).in_flight, 0);
	expect_sent(stream, 2, 9);
	stream_destroy(stream);
}

static void the_lease_counts_from_before_the_sending(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	find_rows(stream, 0, 1, same_key, 2);
	assert_int_equal(expect_call(stream, 4000, STREAM_TICK).lease_ms, 10000);
	stream_ticked(stream, 9000, STREAM_NOTED);
	expect_none_sent(stream, 14000);
	expect_sent(stream, 13999, 1);
	assert_null(stream_producer_verdict(stream, 13999));
	assert_non_null(stream_producer_verdict(stream, 14000));
	stream_destroy(stream);
}

static void the_lease_of_a_take_counts_from_before_the_request(void **state)
{
	(void)state;
	struct stream *stream = stream_create(&settings);
	expect_call(stream, 1000, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5, .epoch = 77, .first_tick = 40, .windows = 1};
	stream_taken(stream, 4000, &taken);
	open_topics(stream, 4000, orders);
	stream_topic(stream, "orders", 1);
	assert_true(stream_read_call(stream, 4000).wanted);
	give_row(stream, 1, "k");
	give_row(stream, 2, "k");
	stream_page_end(stream, 4000, true, 0);
	expect_none_sent(stream, 11000);
	expect_sent(stream, 10999, 1);
	assert_null(stream_producer_verdict(stream, 10999));
	assert_non_null(stream_producer_verdict(stream, 11000));
	stream_destroy(stream);
}

static struct stream_tick lose_answer(struct stream *stream)
{
	struct stream_tick tick = expect_call(stream, 5000, STREAM_TICK);
	stream_log_failed(stream, 5001, true, false);
	assert_int_equal(state_of(stream), STREAM_UNSURE);
	expect_call(stream, 9000, STREAM_NEWEST);
	return tick;
}

static void the_newest_row_tells_whether_a_lost_call_was_written(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	struct stream_tick tick = lose_answer(stream);
	stream_newest(stream, 9001, 6, tick.new_nonce, 1, 0);
	assert_int_equal(state_of(stream), STREAM_OWNER);
	assert_int_equal(stream_status(stream, 9001).n, 6);
	assert_int_equal(stream_read_call(stream, 9001).tick, 41);
	stream_destroy(stream);

	stream = owner_of(0);
	tick = lose_answer(stream);
	stream_newest(stream, 9001, 5, tick.nonce, 0, 0);
	assert_int_equal(state_of(stream), STREAM_OWNER);
	assert_int_equal(stream_status(stream, 9001).n, 5);
	stream_destroy(stream);
}

static void expect_renewal_alone(struct stream *stream, int64_t now, int64_t n)
{
	struct stream_tick tick = expect_call(stream, now, STREAM_RENEW);
	assert_int_equal(tick.n, n);
	assert_int_equal(tick.lease_ms, 10000);
	assert_int_equal(tick.closed, 0);
	assert_null(tick.parks);
}

static void after_a_call_that_failed_the_lease_is_renewed_alone(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_call(stream, 5000, STREAM_TICK);
	stream_log_failed(stream, 8000, false, true);
	assert_int_equal(stream_wait(stream, 8000), 8000);
	expect_renewal_alone(stream, 8000, 5);
	stream_renewed(stream, 8001, true);
	assert_int_equal(stream_status(stream, 8001).n, 6);
	assert_false(stream_status(stream, 17999).lease_over);
	assert_true(stream_status(stream, 18000).lease_over);
	/* the tick comes again after a while */
	expect_call(stream, 8001, STREAM_NONE);
	assert_int_equal(stream_wait(stream, 8001), 8050);
	assert_int_equal(expect_call(stream, 8050, STREAM_TICK).n, 6);
	stream_destroy(stream);
}

static void a_renewal_alone_may_fail_or_be_lost_or_find_another_owner(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_call(stream, 5000, STREAM_TICK);
	stream_log_failed(stream, 6000, false, true);
	expect_renewal_alone(stream, 6000, 5);
	stream_log_failed(stream, 6100, false, false);
	expect_call(stream, 6100, STREAM_NONE);
	expect_renewal_alone(stream, stream_wait(stream, 6100), 5);
	stream_log_failed(stream, 7000, true, true);
	assert_int_equal(state_of(stream), STREAM_UNSURE);
	int64_t now = stream_wait(stream, 7000);
	expect_call(stream, now, STREAM_NEWEST);
	stream_newest(stream, now, 5, 0, 0, 0);
	assert_int_equal(state_of(stream), STREAM_STANDBY);
	stream_destroy(stream);

	stream = owner_of(0);
	expect_call(stream, 5000, STREAM_TICK);
	stream_log_failed(stream, 6000, false, true);
	expect_renewal_alone(stream, 6000, 5);
	stream_renewed(stream, 6001, false);
	assert_int_equal(state_of(stream), STREAM_STANDBY);
	stream_destroy(stream);
}

/* Which part of it took so long is not known. */
static void a_call_that_was_late_has_half_as_much_to_do_and_looks_at_no_row(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	struct stream_tick tick = expect_call(stream, 1, STREAM_TICK);
	assert_false(tick.blind);
	int64_t rows = tick.max_rows, now = 1;
	for (int i = 1; i <= 3; i++) {
		stream_log_failed(stream, now, false, true);
		expect_call(stream, now, STREAM_RENEW);
		stream_renewed(stream, now, true);
		now = stream_wait(stream, now);
		tick = expect_call(stream, now, STREAM_TICK);
		assert_true(tick.blind);
		assert_int_equal(tick.max_rows, rows >> i);
	}
	stream_ticked(stream, now, STREAM_PAGES);
	assert_true(stream_read_call(stream, now).wanted);
	stream_page_end(stream, now, true, 0);
	tick = expect_call(stream, now, STREAM_TICK);
	assert_false(tick.blind);
	assert_int_equal(tick.max_rows, rows >> 2);
	stream_destroy(stream);
}

/* A commit that was cut short while it waited for a standby is seen as well. */
static void what_a_lost_call_opened_is_sent_behind_one_more_row(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	struct stream_tick tick = lose_answer(stream);
	stream_newest(stream, 9001, 6, tick.new_nonce, 1, 0);
	assert_int_equal(stream_read_call(stream, 9001).tick, 41);
	give_row(stream, 1, "k");
	stream_page_end(stream, 9001, true, 0);
	expect_none_sent(stream, 9001);

	tick = expect_call(stream, 9002, STREAM_TICK);
	assert_true(tick.must_write);
	expect_none_sent(stream, 9002);
	stream_ticked(stream, 9003, STREAM_NOTED);
	expect_sent(stream, 9003, 1);
	stream_destroy(stream);
}

/* An owner with rows of so many new topics, which the cluster has and the log does not. */
static struct stream *owner_with_new_topics(int topics, int32_t partitions)
{
	struct stream *stream = owner_of(0);
	char names[256] = "";
	expect_call(stream, 0, STREAM_TICK);
	stream_ticked(stream, 0, STREAM_ROWS);
	for (int t = 0; t < topics; t++) {
		char name[] = {(char)('a' + t), '\0'};
		struct message message = row_of(name, 1 + t, "k");
		stream_row(stream, &message);
		snprintf(names + strlen(names), sizeof names - strlen(names), "%s\"%s\"%s",
		    t ? "," : "{", name, t + 1 == topics ? "}" : "");
	}
	stream_rows_end(stream);
	expect_none_sent(stream, 0);
	named_topic(stream, 0, names, NULL);
	for (int t = 0; t < topics; t++)
		stream_topic(stream, (char[]){(char)('a' + t), '\0'}, partitions);
	return stream;
}

/* Topics that the row opens. */
static int opened_topics(const struct stream_tick *tick)
{
	int count = 0;
	for (const char *at = tick->destinations; (at = strstr(at, ":[")); at++)
		count++;
	return count;
}

static void a_fold_writes_so_many_partitions_of_whole_topics(void **state)
{
	(void)state;
	enum { TOPICS = 8, PARTITIONS = 1000, MOST = 2000 };
	struct stream *stream = owner_with_new_topics(TOPICS, PARTITIONS);
	int64_t unfolded = 0, folds = 0;
	for (int opened = 0; opened < TOPICS;) {
		struct stream_tick tick = expect_call(stream, 0, STREAM_TICK);
		int more = opened_topics(&tick);
		assert_in_range(more, 1, TOPICS);
		opened += more;
		unfolded += more * PARTITIONS;
		assert_in_range(unfolded, 1, MOST);
		if (tick.fold_to)
			unfolded = 0;
		folds += tick.fold_to != 0;
		stream_ticked(stream, 0, STREAM_NOTED);
	}
	assert_int_equal(folds, TOPICS * PARTITIONS / MOST);
	stream_destroy(stream);
}

static void after_a_late_tick_a_fold_ends_with_an_earlier_row(void **state)
{
	(void)state;
	struct stream *stream = owner_with_new_topics(4, 400);
	struct stream_tick tick = expect_call(stream, 0, STREAM_TICK);
	assert_int_equal(opened_topics(&tick), 4);
	int64_t now = 0, folded_n = 5; /* of the take-over */
	for (int i = 0; i < 20; i++) { /* renewals */
		assert_int_equal(tick.fold_to, 0);
		stream_ticked(stream, now, STREAM_NOTED);
		tick = expect_call(stream, now += 3400, STREAM_TICK);
	}
	for (int i = 0; i < 2; i++) {
		stream_log_failed(stream, now, false, true);
		expect_call(stream, now, STREAM_RENEW);
		stream_renewed(stream, now, true);
		tick = expect_call(stream, now += 3400, STREAM_TICK);
	}
	/* a quarter of the rows; of those left, half */
	assert_in_range(tick.fold_to - folded_n, 4, (tick.n + 1 - folded_n) / 3);
	folded_n = tick.fold_to;
	stream_ticked(stream, now, STREAM_NOTED);
	tick = expect_call(stream, now += 3400, STREAM_TICK);
	assert_in_range(tick.fold_to - folded_n, 4, (tick.n + 1 - folded_n) / 2);
	stream_destroy(stream);
}

/* Its last owner wrote to the topic "orders", up to offset 5. */
static struct stream *owner_of_an_unread_tail(void)
{
	struct stream_settings resuming = settings;
	resuming.resumes = true;
	resuming.topic_idle_ms = 1000;

	struct stream *stream = stream_create(&resuming);
	expect_call(stream, 0, STREAM_TAKE);
	stream_taken(stream, 0, &(struct stream_taken){.n = 5, .epoch = 77, .first_tick = 40});
	open_topics(stream, 0, (const struct open_topic[]){{"orders", 1, 5}, {0}});
	return stream;
}

static void a_topic_that_is_gone_takes_its_unlogged_offsets_with_it(void **state)
{
	(void)state;
	struct stream_tail tail;
	struct stream *stream = owner_of_an_unread_tail();
	stream_topic(stream, "orders", 1);
	assert_true(stream_tail_call(stream, 0, &tail));
	assert_int_equal(tail.offset, 6);
	stream_tail_end(stream, &(struct stream_question){"orders", 0, tail.number}, 6, false);
	find_rows(stream, 0, 1, same_key, 1);
	stream_report(stream, 0, expect_sent(stream, 0, 1), STREAM_WRITTEN, 7, NULL);
	for (int64_t now = 0; now < 5000; now += 100) {
		stream_topic(stream, "orders", 0);
		stream_tail_call(stream, now, &tail);
	}
	struct stream_tick tick = expect_call(stream, 5000, STREAM_TICK);
	assert_int_equal(tick.closed, 1);
	assert_string_equal(tick.destinations, "{\"orders\":null}");
	assert_int_equal(tick.fold_to, tick.n + 1);
	stream_ticked(stream, 5000, STREAM_NOTED);
	/* with nothing of it in a later row */
	tick = expect_call(stream, 9000, STREAM_TICK);
	assert_string_equal(tick.destinations, "{}");
	stream_destroy(stream);
}

/* Its tail holds records of an owner that died, and nobody has read it yet. */
static void a_topic_that_is_missing_in_one_answer_is_not_gone(void **state)
{
	(void)state;
	struct stream_tail tail;
	struct stream *stream = owner_of_an_unread_tail();
	stream_topic(stream, "orders", 0);
	for (int64_t now = 0; now < 5000; now += 100)
		stream_tail_call(stream, now, &tail);
	struct stream_tick tick = expect_call(stream, 5000, STREAM_TICK);
	assert_string_equal(tick.destinations, "{}");
	stream_ticked(stream, 5000, STREAM_IDLE);
	stream_topic(stream, "orders", 1);
	assert_true(stream_tail_call(stream, 5000, &tail));
	assert_int_equal(tail.offset, 6);
	stream_destroy(stream);
}

static void a_stranger_in_the_log_has_the_shard(void **state)
{
	(void)state;
	for (int64_t n = 4; n <= 7; n++) {
		struct stream *stream = owner_of(0);
		struct stream_tick tick = lose_answer(stream);
		stream_newest(stream, 9001, n, tick.new_nonce ^ 2, 0, 0);
		assert_int_equal(state_of(stream), STREAM_STANDBY);
		expect_call(stream, 9001, STREAM_TAKE);
		stream_destroy(stream);
	}
}

static void rows_of_a_forgotten_page_are_not_believed(void **state)
{
	(void)state;
	struct stream *stream = owner_of(2);
	assert_true(stream_read_call(stream, 0).wanted);
	give_row(stream, 1, "k");
	expect_call(stream, 4000, STREAM_TICK);
	stream_ticked(stream, 4000, STREAM_FENCED);
	give_row(stream, 2, "k");
	expect_call(stream, 4000, STREAM_TAKE);
	const struct stream_taken taken = {.n = 9, .epoch = 77, .first_tick = 40, .windows = 2};
	stream_taken(stream, 4001, &taken);
	give_row(stream, 3, "k");
	stream_page_end(stream, 4001, true, 0);
	assert_int_equal(stream_status(stream, 4001).records, 0);
	assert_int_equal(stream_read_call(stream, 4001).tick, 41);
	stream_destroy(stream);
}

static void a_lost_shard_waits_for_its_producer_to_go(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	find_rows(stream, 0, 1, same_key, 2);
	uint64_t first = expect_sent(stream, 0, 1);
	const struct message *message = stream_message(stream, first);
	expect_call(stream, 4000, STREAM_TICK);
	stream_ticked(stream, 4000, STREAM_FENCED);
	assert_non_null(stream_producer_verdict(stream, 4000));
	assert_memory_equal(message->block, "ordersk", 7);
	written(stream, 4000, first);
	expect_call(stream, 4000, STREAM_NONE);
	stream_producer_lost(stream);
	assert_int_equal(stream_status(stream, 4000).records, 0);
	expect_call(stream, 4000, STREAM_TAKE);
	stream_destroy(stream);
}

static void a_changed_count_waits_until_nothing_is_under_way(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(3);
	uint64_t second = expect_sent(stream, 1, 2);
	stream_topic(stream, "orders", 2);
	expect_none_sent(stream, 1);
	expect_call(stream, 200, STREAM_NONE);
	written(stream, 201, second);
	struct stream_tick tick = expect_call(stream, 201, STREAM_TICK);
	assert_true(tick.new_epoch);
	assert_string_equal(tick.destinations, "{\"orders\":[2,{}]}");
	/* what brokers say meanwhile lets nothing out */
	stream_topic(stream, "orders", 1);
	expect_none_sent(stream, 201);
	stream_topic(stream, "orders", 0);
	expect_none_sent(stream, 201);
	stream_topic(stream, "orders", 2);
	expect_none_sent(stream, 201);
	stream_ticked(stream, 202, STREAM_NOTED);
	assert_int_equal(stream_epoch(stream), tick.fresh_epoch);
	expect_sent(stream, 202, 3);
	stream_destroy(stream);
}

static void a_missing_topic_is_waited_for(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	stream_topic(stream, "orders", 0);
	find_rows(stream, 0, 1, same_key, 2);
	expect_none_sent(stream, 0);
	assert_string_equal(stream_status(stream, 0).missing_topic, "orders");
	stream_topic(stream, "orders", 1);
	assert_null(stream_status(stream, 0).missing_topic);
	expect_sent(stream, 0, 1);
	stream_destroy(stream);
}

static void everything_unacknowledged_goes_again_in_order(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(4);
	uint64_t second = expect_sent(stream, 1, 2);
	expect_sent(stream, 1, 3);
	assert_non_null(stream_producer_verdict(stream, 5002));
	stream_producer_lost(stream);
	assert_null(stream_producer_verdict(stream, 5002));
	/* what the old producer says of them now is not believed */
	written(stream, 5002, second);
	written(stream, 5003, expect_sent(stream, 5002, 2));
	expect_sent(stream, 5003, 3);
	expect_sent(stream, 5003, 4);
	stream_destroy(stream);
}

static void a_stop_closes_gaps_and_notes_what_is_out(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(6);
	uint64_t second = expect_sent(stream, 1, 2), third = expect_sent(stream, 1, 3);
	stream_report(stream, 2, second, STREAM_AGAIN, -1, NULL);
	written(stream, 2, third);
	stream_producer_lost(stream);
	stream_stop(stream);
	expect_call(stream, 3, STREAM_NONE);
	second = expect_sent(stream, 3, 2);
	written(stream, 4, second);
	expect_none_sent(stream, 4);
	assert_int_equal(stream_wait(stream, 4), 4);
	struct stream_tick tick = expect_call(stream, 4, STREAM_TICK);
	assert_int_equal(tick.lease_ms, 0);
	assert_int_equal(tick.acked_id, 3);
	stream_ticked(stream, 5, STREAM_NOTED);
	assert_int_equal(state_of(stream), STREAM_RELEASED);
	stream_destroy(stream);
}

/* The next owner may begin as soon as the database has the row that releases the shard. */
static void nothing_is_sent_while_the_shard_is_released(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(2);
	stream_report(stream, 2, expect_sent(stream, 1, 2), STREAM_AGAIN, -1, NULL);
	stream_producer_lost(stream);
	stream_topic(stream, "orders", 0);
	expect_none_sent(stream, 2);
	stream_stop(stream);
	assert_int_equal(expect_call(stream, 3, STREAM_TICK).lease_ms, 0);
	stream_topic(stream, "orders", 1);
	expect_none_sent(stream, 3);
	stream_ticked(stream, 4, STREAM_NOTED);
	assert_int_equal(state_of(stream), STREAM_RELEASED);
	stream_destroy(stream);
}

static void a_stop_without_time_ends_the_producer_before_it_releases(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(3);
	uint64_t second = expect_sent(stream, 1, 2);
	stream_stop(stream);
	expect_call(stream, 4000, STREAM_TICK);
	stream_ticked(stream, 4000, STREAM_NOTED);
	assert_int_equal(stream_wait_offline(stream, 4000), 1 + 5001);
	stream_report(stream, 4000, second, STREAM_AGAIN, -1, NULL);
	stream_producer_lost(stream);
	second = expect_sent(stream, 9999, 2);
	assert_null(stream_producer_verdict(stream, 9999));
	assert_int_equal(stream_wait_offline(stream, 9999), 10000);

	assert_non_null(stream_producer_verdict(stream, 10000));
	assert_int_equal(expect_call(stream, 10000, STREAM_TICK).lease_ms, 10000);
	stream_ticked(stream, 10000, STREAM_NOTED);
	assert_true(stream_wait(stream, 10000) > 10000);
	stream_producer_lost(stream);
	expect_none_sent(stream, 10001);
	assert_true(stream_wait(stream, 10001) <= 10001);
	assert_int_equal(expect_call(stream, 10001, STREAM_TICK).lease_ms, 0);
	stream_ticked(stream, 10002, STREAM_NOTED);
	assert_int_equal(state_of(stream), STREAM_RELEASED);
	stream_destroy(stream);
}

static void a_stop_behind_a_lost_shard_waits_for_the_producer(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(2);
	expect_sent(stream, 1, 2);
	expect_call(stream, 4000, STREAM_TICK);
	stream_ticked(stream, 4000, STREAM_FENCED);
	stream_stop(stream);
	expect_call(stream, 4000, STREAM_NONE);
	assert_int_equal(state_of(stream), STREAM_STANDBY);
	stream_producer_lost(stream);
	expect_call(stream, 4000, STREAM_NONE);
	assert_int_equal(state_of(stream), STREAM_RELEASED);
	stream_destroy(stream);
}

static void what_must_go_again_was_not_refused(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(3);
	uint64_t second = expect_sent(stream, 1, 2);
	stream_report(stream, 2, second, STREAM_AGAIN, -1, "the queue is full");
	assert_string_equal(stream_producer_verdict(stream, 2), "records must go again");
	stream_destroy(stream);
}

/* None of them can free it before the topic is there; what is under way will. */
static void memory_is_full_of_rows_that_wait(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	stream_topic(stream, "orders", 0);
	expect_call(stream, 0, STREAM_TICK);
	stream_ticked(stream, 0, STREAM_ROWS);
	for (int64_t id = 1; id <= 3; id++) {
		struct message message = row(id, "k");
		message.bytes = 300000;
		stream_row(stream, &message);
		assert_int_equal(stream_status(stream, 3000).full, id == 3);
	}
	stream_rows_end(stream);
	expect_none_sent(stream, 0);
	expect_call(stream, 200, STREAM_NONE);
	assert_false(stream_status(stream, 2999).full);
	assert_true(stream_status(stream, 3000).full);
	stream_topic(stream, "orders", 1);
	uint64_t first = expect_sent(stream, 3000, 1);
	assert_false(stream_status(stream, 4900).full);
	written(stream, 4900, first);
	assert_false(stream_status(stream, 6000).full);
	stream_destroy(stream);
}

/* Its producer fenced all others, which the log knows; rows 1 to 30 are there, the first is
 * written. */
static struct stream *owner_with_transactions(int64_t memory)
{
	struct stream_settings with = settings;
	with.transactions = true;
	with.memory = memory;
	struct stream *stream = stream_create(&with);
	expect_call(stream, 0, STREAM_TAKE);
	stream_taken(stream, 0, &(struct stream_taken){.n = 5, .epoch = 77, .first_tick = 40});
	open_topics(stream, 0, orders);
	stream_topic(stream, "orders", 1);
	assert_true(stream_wants_producer(stream, 0));
	stream_producer_ready(stream);
	expect_none_sent(stream, 0);
	struct stream_tick tick = expect_call(stream, 0, STREAM_TICK);
	assert_true(tick.must_write && tick.may_open);
	stream_ticked(stream, 0, STREAM_ROWS);
	for (int i = 0; i < 30; i++)
		give_row(stream, 1 + i, NULL);
	stream_rows_end(stream);
	written(stream, 0, expect_sent(stream, 0, 1));
	return stream;
}

/* Sends rows `first` to `last`, and nothing more goes out; then all of them are written. */
static void send_rows(struct stream *stream, int64_t now, int64_t first, int64_t last)
{
	uint64_t sequence[30];
	for (int64_t id = first; id <= last; id++)
		sequence[id - first] = expect_sent(stream, now, id);
	expect_none_sent(stream, now);
	assert_false(stream_commits(stream));
	for (int64_t id = first; id <= last; id++)
		written(stream, now, sequence[id - first]);
}

static void commit(struct stream *stream, int64_t now)
{
	expect_none_sent(stream, now);
	assert_true(stream_commits(stream));
	expect_none_sent(stream, now);
	stream_committed(stream, now);
}

static void a_transaction_does_not_wait_for_the_log_of_the_one_before(void **state)
{
	(void)state;
	struct stream *stream = owner_with_transactions(settings.memory);
	send_rows(stream, 1, 2, 8); /* max_in_flight with the first */
	commit(stream, 2);
	assert_true(expect_call(stream, 2, STREAM_TICK).must_write);
	/* the first record of the other producer goes alone */
	uint64_t first = expect_sent(stream, 3, 9);
	expect_none_sent(stream, 3);
	written(stream, 3, first);
	send_rows(stream, 3, 10, 16);
	commit(stream, 4);
	expect_none_sent(stream, 4); /* two of them, and the first is not noted yet */
	stream_ticked(stream, 5, STREAM_NOTED);
	send_rows(stream, 5, 17, 24);
	stream_destroy(stream);
}

static void the_next_transaction_fills_while_a_commit_is_in_flight(void **state)
{
	(void)state;
	struct stream *stream = owner_with_transactions(settings.memory);
	send_rows(stream, 1, 2, 8);
	commit(stream, 2);
	/* the first record of the other producer goes alone, and waits for no commit */
	written(stream, 3, expect_sent(stream, 3, 9));
	expect_call(stream, 3, STREAM_TICK);
	stream_ticked(stream, 3, STREAM_NOTED);
	uint64_t tenth = expect_sent(stream, 3, 10);
	written(stream, 3, tenth);
	send_rows(stream, 3, 11, 16);
	assert_true(stream_commits(stream));

	uint64_t next = expect_sent(stream, 4, 17);
	assert_false(stream_commits(stream));
	written(stream, 4, next);
	assert_false(stream_commits(stream)); /* not before the one in front of it */
	assert_false(stream_is_settled(stream));
	stream_committed(stream, 5);
	assert_int_equal(stream_status(stream, 5).published, 16);
	send_rows(stream, 5, 18, 24);
	assert_true(stream_commits(stream));
	stream_destroy(stream);
}

static void a_look_waits_for_the_commit_of_a_short_transaction(void **state)
{
	(void)state;
	struct stream *stream = owner_with_transactions(settings.memory);
	expect_call(stream, 5, STREAM_NONE);
	assert_int_equal(stream_wait(stream, 5), 10);
	send_rows(stream, 5, 2, 8);
	expect_call(stream, 6, STREAM_NONE);
	assert_true(stream_commits(stream));
	assert_true(stream_wait(stream, 6) <= 6);
	assert_true(expect_call(stream, 6, STREAM_TICK).may_open);
	stream_destroy(stream);

	stream = owner_with_transactions(settings.memory);
	assert_true(expect_call(stream, 10, STREAM_TICK).may_open); /* it is not short */
	stream_destroy(stream);
}

/* Its certificates changed, for example: no transaction failed, so the next is not smaller. */
static void a_producer_that_is_replaced_between_transactions_has_no_failure(void **state)
{
	(void)state;
	struct stream *stream = owner_with_transactions(settings.memory);
	send_rows(stream, 1, 2, 8);
	assert_true(stream_commits(stream));
	stream_committed(stream, 2);
	assert_true(stream_is_settled(stream));
	stream_producer_lost(stream);

	assert_true(stream_wants_producer(stream, 3));
	stream_producer_ready(stream);
	expect_call(stream, 3, STREAM_TICK);
	stream_ticked(stream, 3, STREAM_NOTED);
	written(stream, 4, expect_sent(stream, 4, 9));
	send_rows(stream, 4, 10, 16);
	assert_true(stream_commits(stream));
	stream_destroy(stream);
}

static void a_transaction_leaves_room_for_a_page_of_the_next(void **state)
{
	(void)state;
	struct stream *stream = owner_with_transactions(4 * 64);
	send_rows(stream, 1, 2, 4); /* a page is a quarter of the memory */
	commit(stream, 2);
	stream_destroy(stream);
}

/* An owner from time 0 whose producer has not fenced the others yet. */
static struct stream *owner_with_new_producer(bool resumes, const struct open_topic *topics)
{
	struct stream_settings with = settings;
	with.transactions = true;
	with.resumes = resumes;
	struct stream *stream = stream_create(&with);
	expect_call(stream, 0, STREAM_TAKE);
	stream_taken(stream, 0, &(struct stream_taken){.n = 5, .epoch = 77, .first_tick = 40});
	open_topics(stream, 0, topics);
	stream_topic(stream, "orders", 1);
	assert_true(stream_wants_producer(stream, 0));
	return stream;
}

/* Another owner may have taken the shard between that row and the fence. */
static void a_row_asked_for_before_the_fence_does_not_confirm_the_producer(void **state)
{
	(void)state;
	struct stream *stream = owner_with_new_producer(false, orders);
	expect_call(stream, 0, STREAM_TICK);
	stream_producer_ready(stream);
	stream_ticked(stream, 1, STREAM_ROWS);
	give_row(stream, 1, "k");
	stream_rows_end(stream);
	expect_none_sent(stream, 1);
	assert_true(expect_call(stream, 1, STREAM_TICK).must_write);
	expect_none_sent(stream, 1);
	stream_ticked(stream, 2, STREAM_NOTED);
	expect_sent(stream, 2, 1);
	stream_destroy(stream);
}

/* Another owner may publish until the fence. */
static void tails_are_read_behind_the_fence_of_each_producer(void **state)
{
	(void)state;
	static const struct open_topic known[] = {{"orders", 1, 7}, {0}};
	struct stream *stream = owner_with_new_producer(true, known);
	struct stream_tail tail;
	assert_false(stream_tail_call(stream, 0, &tail));
	stream_producer_ready(stream);
	assert_true(stream_tail_call(stream, 0, &tail));
	assert_int_equal(tail.offset, 8);
	stream_tail_end(stream, &(struct stream_question){"orders", 0, tail.number}, 9, false);

	stream_producer_lost(stream);
	assert_false(stream_tail_call(stream, 1, &tail));
	stream_producer_ready(stream);
	assert_true(stream_tail_call(stream, 1, &tail));
	assert_int_equal(tail.offset, 9);
	stream_destroy(stream);
}

/* The only partition has the record of row 1 at offset 8, of a tick that a failover lost. */
static void find_lost_tick(struct stream *stream, int64_t now, enum stream_found expected)
{
	static const struct outbox_position position = {.epoch = 76, .tick = 41, .id = 1};
	static const char event_id[16] = {0};
	struct stream_tail tail;
	assert_true(stream_tail_call(stream, now, &tail));
	assert_int_equal(tail.offset, 8);
	const struct stream_question question = {"orders", 0, tail.number};
	assert_int_equal(stream_tail_record(stream, &question, 8, &position, event_id), expected);
	stream_tail_end(stream, &question, 9, false);
}

/* The number of a lost tick is given out again, and says nothing about the rows of the lost one. */
static void a_row_of_a_lost_tick_is_found_by_each_reading_of_its_tail(void **state)
{
	(void)state;
	static const struct open_topic known[] = {{"orders", 1, 7}, {0}};
	struct stream_settings with = settings;
	with.resumes = true;
	with.tail_memory = 1; /* no name is kept for a row that does not wait */
	struct stream *stream = stream_create(&with);
	expect_call(stream, 0, STREAM_TAKE);
	stream_taken(stream, 0,
	    &(struct stream_taken){
		.n = 5, .epoch = 77, .former_epoch = 76, .first_tick = 40, .scheduled = true});
	open_topics(stream, 0, known);
	stream_topic(stream, "orders", 1);
	find_lost_tick(stream, 0, STREAM_FOUND_UNKNOWN);
	assert_true(expect_call(stream, 0, STREAM_TICK).new_epoch);
	stream_ticked(stream, 1, STREAM_NOTED);

	/* tick 41 lists a row that was scheduled */
	assert_true(expect_call(stream, 1, STREAM_TICK).may_list);
	stream_ticked(stream, 2, STREAM_LISTED);
	give_row(stream, 2, "k");
	stream_rows_end(stream);
	written(stream, 3, expect_sent(stream, 3, 2));
	assert_int_equal(expect_call(stream, 3, STREAM_TICK).closed, 1);
	stream_ticked(stream, 4, STREAM_ROWS);
	give_row(stream, 1, "k");
	stream_rows_end(stream);
	expect_none_sent(stream, 4);
	find_lost_tick(stream, 4, STREAM_FOUND_ENOUGH);
	expect_none_sent(stream, 5);
	assert_int_equal(stream_status(stream, 5).skipped, 1);
	stream_destroy(stream);
}

static void a_standby_takes_when_it_is_told_to(void **state)
{
	(void)state;
	struct stream *stream = stream_create(&settings);
	expect_call(stream, 0, STREAM_TAKE);
	assert_int_equal(stream_wait(stream, 0), INT64_MAX);
	stream_not_taken(stream, 1, 250);
	assert_int_equal(stream_wait(stream, 1), 251);
	expect_call(stream, 250, STREAM_NONE);
	expect_call(stream, 251, STREAM_TAKE);
	stream_stop(stream);
	stream_not_taken(stream, 252, 250);
	expect_call(stream, 252, STREAM_NONE);
	assert_int_equal(state_of(stream), STREAM_RELEASED);
	stream_destroy(stream);
}

static void waiting_ends_when_something_is_due(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_call(stream, 0, STREAM_TICK);
	assert_int_equal(stream_wait(stream, 0), INT64_MAX);
	stream_ticked(stream, 1000, STREAM_IDLE);
	int64_t wait = stream_wait(stream, 1000);
	assert_in_range(wait, 1001, 1050);
	expect_call(stream, wait - 1, STREAM_NONE);
	assert_int_equal(stream_wait_offline(stream, 1000), INT64_MAX);
	stream_destroy(stream);
}

static void progress_is_noted_though_nothing_else_is_due(void **state)
{
	(void)state;
	struct stream_settings rarely = settings;
	rarely.poll_busy_ms = rarely.poll_idle_ms = 3000;
	struct stream *stream = owner_of(0);
	stream_retune(stream, &rarely);
	find_rows(stream, 10, 1, same_key, 1);
	uint64_t first = expect_sent(stream, 10, 1);
	assert_int_equal(stream_wait_offline(stream, 10), 10 + 5001);
	expect_call(stream, 10, STREAM_NONE);
	written(stream, 20, first);
	assert_int_equal(stream_wait_offline(stream, 20), INT64_MAX);
	assert_true(stream_wait(stream, 20) <= 20);
	expect_call(stream, 20, STREAM_NONE);
	assert_int_equal(stream_wait(stream, 20), 120);
	expect_call(stream, 119, STREAM_NONE);
	assert_true(expect_call(stream, 120, STREAM_TICK).must_write);
	stream_destroy(stream);
}

/* Brokers forget a silent producer, and would take the followers of what they refuse then. */
static void after_an_hour_of_silence_the_first_record_of_a_partition_goes_alone_again(void **state)
{
	(void)state;
	const int64_t later = 2 * 3600 * 1000;
	struct stream *stream = owner_with_rows(1);
	expect_call(stream, later, STREAM_TICK);
	stream_ticked(stream, later, STREAM_ROWS);
	give_row(stream, 2, "k");
	give_row(stream, 3, "k");
	stream_rows_end(stream);
	uint64_t second = expect_sent(stream, later, 2);
	expect_none_sent(stream, later);
	written(stream, later, second);
	expect_sent(stream, later, 3);
	stream_destroy(stream);
}

static void a_failed_page_is_asked_again_after_a_while(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	assert_true(stream_read_call(stream, 10).wanted);
	stream_read_failed(stream, 10);
	assert_false(stream_read_call(stream, 10).wanted);
	int64_t again = stream_wait_offline(stream, 10);
	assert_in_range(again, 11, 200);
	assert_true(stream_read_call(stream, again).wanted);
	stream_read_failed(stream, again);
	assert_in_range(stream_wait_offline(stream, again), again + 51, again + 200);
	stream_destroy(stream);
}

static void a_look_during_a_split_says_nothing_of_the_end(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_call(stream, 0, STREAM_TICK);
	stream_ticked(stream, 0, STREAM_SPLITTING);
	assert_false(stream_status(stream, 0).caught_up);
	expect_call(stream, 200, STREAM_TICK);
	stream_ticked(stream, 200, STREAM_IDLE);
	assert_true(stream_status(stream, 200).caught_up);
	stream_destroy(stream);
}

/* A pause that is seen with progress to note: rows in memory, pages and windows wait for its end.
 */
static void a_paused_stream_sends_and_reads_nothing_and_loses_nothing(void **state)
{
	(void)state;
	struct stream *stream = owner_with_rows(2); /* row 1 is acknowledged, 2 is not sent yet */
	stream_pause(stream, true);
	expect_none_sent(stream, 10);
	assert_true(stream_status(stream, 10).paused);

	expect_call(stream, 10, STREAM_TICK);
	stream_pause(stream, true);
	stream_ticked(stream, 10, STREAM_SPLITTING);

	/* progress is noted */
	struct stream_tick tick = expect_call(stream, 250, STREAM_TICK);
	assert_true(tick.must_write);
	assert_false(tick.may_list);
	stream_pause(stream, true);
	stream_ticked(stream, 250, STREAM_NOTED);
	assert_int_equal(stream_status(stream, 250).records, 1);
	assert_false(stream_status(stream, 250).caught_up);

	/* then a look each half second, whatever the poll interval is */
	assert_in_range(stream_wait(stream, 250), 510, 750);
	tick = expect_call(stream, 750, STREAM_TICK);
	assert_false(tick.must_write);
	stream_pause(stream, true);
	stream_ticked(stream, 750, STREAM_SPLITTING);
	assert_int_equal(stream_wait(stream, 750), 1250);

	expect_call(stream, 1250, STREAM_TICK);
	stream_pause(stream, false);
	stream_ticked(stream, 1250, STREAM_IDLE);
	expect_sent(stream, 1250, 2);
	stream_destroy(stream);
}

static void a_window_of_a_paused_stream_is_read_after_the_pause(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	stream_pause(stream, true);
	assert_false(stream_read_call(stream, 10).wanted);

	/* it may open no other window meanwhile, and asks for the end of the pause alone */
	assert_false(expect_call(stream, 10, STREAM_TICK).may_open);
	stream_pause(stream, true);
	stream_ticked(stream, 10, STREAM_SPLITTING);
	assert_int_equal(stream_wait(stream, 10), 510);

	assert_false(expect_call(stream, 510, STREAM_TICK).may_open);
	stream_pause(stream, false);
	stream_ticked(stream, 510, STREAM_IDLE);
	assert_true(stream_read_call(stream, 510).wanted);
	stream_destroy(stream);
}

static void a_new_owner_of_a_paused_shard_sends_nothing_before_its_first_tick(void **state)
{
	(void)state;
	struct stream *stream = stream_create(&settings);
	const struct stream_taken taken = {.n = 5,
	    .epoch = 77,
	    .former_epoch = 77,
	    .first_tick = 40,
	    .windows = 1,
	    .paused = true};
	expect_call(stream, 0, STREAM_TAKE);
	stream_taken(stream, 0, &taken);
	assert_false(stream_read_call(stream, 0).wanted);
	assert_true(stream_status(stream, 0).paused);
	stream_destroy(stream);
}

/* Nobody stops a drain, so it notes its last records without waiting for the ack interval. */
static void a_drain_notes_its_last_records_at_once(void **state)
{
	(void)state;
	struct stream_settings draining = settings;
	draining.drains = true;
	struct stream *stream = owner_with(&draining, 0);
	find_rows(stream, 0, 1, same_key, 1);
	uint64_t sequence = expect_sent(stream, 0, 1);
	expect_call(stream, 1, STREAM_TICK);
	stream_ticked(stream, 1, STREAM_IDLE);
	written(stream, 2, sequence);

	struct stream_tick tick = expect_call(stream, 2, STREAM_TICK);
	assert_true(tick.must_write);
	assert_int_equal(tick.closed, 1);
	stream_ticked(stream, 2, STREAM_NOTED);
	assert_int_equal(stream_wait(stream, 2), 2);
	expect_call(stream, 2, STREAM_TICK);
	stream_ticked(stream, 2, STREAM_IDLE);
	assert_true(stream_status(stream, 2).caught_up);
	stream_destroy(stream);
}

/* --- a message that kills ------------------------------------------------------------------ */

/* An owner after deaths, of one window that they left. */
static struct stream *owner_after_deaths(
    int64_t alone, const struct stream_settings *with, int64_t listed_tick)
{
	struct stream *stream = stream_create(with);
	expect_call(stream, 0, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5,
	    .epoch = 77,
	    .first_tick = 40,
	    .windows = 1,
	    .listed_tick = listed_tick,
	    .deaths = {3, alone, false}};
	stream_taken(stream, 0, &taken);
	open_topics(stream, 0, orders);
	stream_topic(stream, "orders", 1);
	return stream;
}

static struct stream_tick write_row(struct stream *stream, int64_t now)
{
	struct stream_tick tick = expect_call(stream, now, STREAM_TICK);
	stream_ticked(stream, now, STREAM_NOTED);
	return tick;
}

/* The one row that may be read comes. */
static void read_alone(struct stream *stream, int64_t now, bool last)
{
	assert_true(stream_read_call(stream, now).wanted);
	give_row(stream, 1, "k");
	stream_page_end(stream, now, last, 0);
}

static void what_was_read_without_contents_is_never_sent(void **state)
{
	(void)state;
	struct stream *stream = owner_after_deaths(3, &settings, 0);
	assert_true(write_row(stream, 0).deaths.marked);
	assert_true(stream_read_call(stream, 1).withheld);
	/* the page takes longer than a renewal */
	write_row(stream, 4000);
	give_row(stream, 1, "k");
	stream_page_end(stream, 4001, false, 0);
	expect_none_sent(stream, 4001);
	assert_int_equal(stream_status(stream, 4001).refused_id, 1);
	stream_destroy(stream);
}

static void a_row_that_is_yet_to_come_has_not_outlived_a_renewal(void **state)
{
	(void)state;
	struct stream *stream = owner_after_deaths(2, &settings, 0);
	write_row(stream, 0);
	/* the bounds of the window are asked for first, and take long */
	assert_true(stream_read_call(stream, 1).wanted);
	const struct stream_tick tick = write_row(stream, 4000);
	assert_true(tick.deaths.marked);
	assert_int_equal(tick.deaths.alone, 2);
	read_alone(stream, 4001, false);
	expect_sent(stream, 4002, 1);
	assert_int_equal(write_row(stream, 8000).deaths.alone, 0);
	stream_destroy(stream);
}

static void a_row_that_was_not_asked_for_did_not_kill_and_is_asked_for_yet(void **state)
{
	(void)state;
	struct stream *stream = owner_after_deaths(2, &settings, 0);
	write_row(stream, 0);
	/* the read connection is away; it comes back while the renewal is being written */
	const struct stream_tick tick = expect_call(stream, 4000, STREAM_TICK);
	assert_true(stream_read_call(stream, 4000).wanted);
	stream_ticked(stream, 4001, STREAM_NOTED);
	assert_int_equal(tick.deaths.alone, 0);
	assert_true(tick.deaths.marked);
	/* its bounds are known */
	assert_true(stream_read_call(stream, 4001).wanted);
	stream_destroy(stream);
}

static void nothing_is_alone_once_its_parking_is_noted(void **state)
{
	(void)state;
	/* listed: the first one behind the acknowledged position is another one from then on */
	struct stream *stream = owner_after_deaths(2, &settings, 41);
	write_row(stream, 0);
	read_alone(stream, 1, false);
	refused(stream, 2, expect_sent(stream, 1, 1));
	const struct stream_tick tick = write_row(stream, 3);
	assert_non_null(tick.parks);
	assert_false(tick.deaths.marked);
	stream_destroy(stream);
}

static void publish_alone(struct stream *stream, int64_t now)
{
	assert_true(write_row(stream, now).deaths.marked);
	read_alone(stream, now, true);
	written(stream, now, expect_sent(stream, now, 1));
}

/* Two shards of a process, both after deaths. */
static void two_that_take_turns(poison_guard_turn *turn, struct stream *ret_streams[2])
{
	struct stream_settings with = settings;
	with.turn = turn;
	for (int i = 0; i < 2; i++)
		ret_streams[i] = owner_after_deaths(0, &with, 0);
}

static void the_turn_is_not_kept_for_windows_that_may_never_come(void **state)
{
	(void)state;
	poison_guard_turn turn = NULL;
	struct stream *streams[2];
	two_that_take_turns(&turn, streams);
	struct stream *first = streams[0], *second = streams[1];
	publish_alone(first, 0);
	/* it may not mark */
	expect_call(second, 1, STREAM_NONE);
	assert_int_equal(write_row(first, 200).closed, 1);
	publish_alone(second, 201);
	stream_destroy(first);
	stream_destroy(second);
}

static void who_released_the_shard_does_not_keep_the_turn(void **state)
{
	(void)state;
	poison_guard_turn turn = NULL;
	struct stream *streams[2];
	two_that_take_turns(&turn, streams);
	struct stream *first = streams[0], *second = streams[1];
	write_row(first, 0);
	stream_stop(first);
	assert_int_equal(write_row(first, 1).lease_ms, 0);
	assert_int_equal(state_of(first), STREAM_RELEASED);
	publish_alone(second, 2);
	stream_destroy(first);
	stream_destroy(second);
}

/* --- everything at once --------------------------------------------------------------------- */

static int64_t from_environment(const char *name, int64_t otherwise)
{
	const char *text = getenv(name);
	int64_t number;
	return text && text_to_int64(text, 0, INT64_MAX, &number) ? number : otherwise;
}

static uint64_t running_seed;

/* A failed assertion or a wild pointer names its seed as well. */
static void tell_seed(int number)
{
	char line[64];
	int length = snprintf(line, sizeof line, "seed %llu ended by signal %d\n",
	    (unsigned long long)running_seed, number);
	if (length > 0 && write(STDERR_FILENO, line, (size_t)length) < 0)
		_exit(1);
	signal(number, SIG_DFL);
	raise(number);
}

static struct simulator_result run_seed(uint64_t seed, enum simulator_reader reader)
{
	const struct simulator_options options = {
	    .seed = seed, .reader = reader, .trace = from_environment("SIMULATOR_TRACE", 0) != 0};
	running_seed = seed;
	return simulator_run(&options);
}

static void add_result(struct simulator_result *sum, const struct simulator_result *result)
{
	sum->rows += result->rows;
	sum->records += result->records;
	sum->duplicates += result->duplicates;
	sum->kills += result->kills;
	sum->pauses += result->pauses;
	sum->publisher_pauses += result->publisher_pauses;
	sum->topic_pauses += result->topic_pauses;
	sum->paused_rows += result->paused_rows;
	sum->takeovers += result->takeovers;
	sum->producers += result->producers;
	sum->refusals += result->refusals;
	sum->unsure += result->unsure;
	sum->epochs += result->epochs;
	sum->renewals += result->renewals;
	sum->quiet_renewals += result->quiet_renewals;
	sum->cancelled += result->cancelled;
	sum->failovers += result->failovers;
	sum->skipped += result->skipped;
	sum->rewinds += result->rewinds;
	sum->passes += result->passes;
	sum->closings += result->closings;
	sum->jumps += result->jumps;
	sum->late_calls += result->late_calls;
}

static void print_sum(int64_t seeds, const struct simulator_result *sum)
{
	print_message(
	    "%lld seeds: %lld rows, %lld records, %lld of them duplicates; %lld kills, "
	    "%lld pauses, %lld of them of the publisher by an operator, %lld of topics with %lld "
	    "parked rows, %lld take-overs, %lld "
	    "producers, %lld refusals, %lld lost "
	    "answers, %lld epochs, %lld failovers; %lld rows found in tails, %lld of lost "
	    "histories, %lld passes that ended early; %lld topics closed; %lld statements "
	    "cancelled, %lld renewals alone, %lld of them of sleepers that found nothing changed; "
	    "%lld jumps of the database's clock, %lld late calls "
	    "of "
	    "transactions\n",
	    (long long)seeds, (long long)sum->rows, (long long)sum->records,
	    (long long)sum->duplicates, (long long)sum->kills,
	    (long long)(sum->pauses + sum->publisher_pauses), (long long)sum->publisher_pauses,
	    (long long)sum->topic_pauses, (long long)sum->paused_rows, (long long)sum->takeovers,
	    (long long)sum->producers, (long long)sum->refusals, (long long)sum->unsure,
	    (long long)sum->epochs, (long long)sum->failovers, (long long)sum->skipped,
	    (long long)sum->rewinds, (long long)sum->passes, (long long)sum->closings,
	    (long long)sum->cancelled, (long long)sum->renewals, (long long)sum->quiet_renewals,
	    (long long)sum->jumps, (long long)sum->late_calls);
}

static void every_row_is_published_in_order_whatever_happens(void **state)
{
	(void)state;
	int64_t seeds = from_environment("SIMULATOR_SEEDS", 3000), failed = 0;
	int64_t first = from_environment("SIMULATOR_SEED", (int64_t)time(NULL) * 1000);
	struct simulator_result sum = {0};
	print_message("first seed %lld\n", (long long)first);
	for (int64_t i = 0; i < seeds && failed < 10; i++) {
		struct simulator_result result = run_seed((uint64_t)(first + i), READER_WINDOWS);
		add_result(&sum, &result);
		if (result.passed)
			continue;
		failed++;
		print_message("seed %lld: %s\n"
			      "  again: SIMULATOR_SEED=%lld SIMULATOR_SEEDS=1 SIMULATOR_TRACE=1\n",
		    (long long)(first + i), result.failure, (long long)(first + i));
	}
	print_sum(seeds, &sum);
	assert_int_equal(failed, 0);
}

static void a_seed_repeats_itself(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct simulator_result first = run_seed(seed, READER_WINDOWS);
		struct simulator_result second = run_seed(seed, READER_WINDOWS);
		assert_memory_equal(&first, &second, sizeof first);
	}
}

/* A test that cannot fail proves nothing: readers known to be wrong must be found out. */
static void expect_caught(enum simulator_reader reader)
{
	for (uint64_t seed = 1; seed <= 1000; seed++)
		if (!run_seed(seed, reader).passed)
			return;
	fail_msg("1000 seeds passed");
}

static void a_reader_beyond_the_last_id_is_caught(void **state)
{
	(void)state;
	expect_caught(READER_BEYOND_LAST_ID);
}

static void a_reader_behind_a_barrier_of_xids_is_caught(void **state)
{
	(void)state;
	expect_caught(READER_BARRIER_BY_XID);
	expect_caught(READER_BARRIER_BY_ID);
}

static void windows_in_the_order_of_xids_are_caught(void **state)
{
	(void)state;
	expect_caught(READER_WINDOWS_BY_XID);
}

static void windows_cut_at_an_xid_are_caught(void **state)
{
	(void)state;
	expect_caught(READER_WINDOWS_CUT);
}

static void a_tick_taken_with_an_xid_is_caught(void **state)
{
	(void)state;
	expect_caught(READER_TICK_TOO_LATE);
}

static void a_log_row_made_from_a_strangers_is_caught(void **state)
{
	(void)state;
	expect_caught(READER_UNFENCED);
}

static void a_producer_that_is_believed_before_it_has_fenced_is_caught(void **state)
{
	(void)state;
	expect_caught(READER_BELIEVES_PRODUCERS);
}

static void a_producer_that_has_fenced_one_of_two_ids_is_caught(void **state)
{
	(void)state;
	expect_caught(READER_FENCES_HALF);
}

/* --- the doorbell in the simulator ------------------------------------------------------------ */

static struct simulator_result run_bell(uint64_t seed, enum simulator_bell bell)
{
	const struct simulator_options options = {.seed = seed,
	    .bell = bell,
	    .bell_alone = true,
	    .trace = from_environment("SIMULATOR_TRACE", 0) != 0};
	running_seed = seed;
	return simulator_run(&options);
}

/* Lost rings and sessions, ringers that roll back, triggers that do not fire, a stranger's lock. */
static void no_row_waits_longer_than_the_poll_of_a_sleeping_shard(void **state)
{
	(void)state;
	int64_t seeds = from_environment("SIMULATOR_SEEDS", 3000) / 10 + 1;
	int64_t first = from_environment("SIMULATOR_SEED", (int64_t)time(NULL) * 1000);
	struct simulator_result sum = {0};

	for (int64_t i = 0; i < seeds; i++) {
		struct simulator_result result = run_bell((uint64_t)(first + i), BELL_RIGHT);
		if (!result.passed)
			fail_msg("seed %lld: %s", (long long)(first + i), result.failure);
		sum.rows += result.rows;
		sum.sleeps += result.sleeps;
		sum.rings += result.rings;
		sum.missed += result.missed;
	}
	print_message("%lld seeds: %lld rows, %lld sleeps, %lld rings, %lld missed\n",
	    (long long)seeds, (long long)sum.rows, (long long)sum.sleeps, (long long)sum.rings,
	    (long long)sum.missed);
	assert_true(sum.sleeps > seeds);
	assert_true(sum.rings > seeds);
}

static void expect_bell_caught(enum simulator_bell bell)
{
	for (uint64_t seed = 1; seed <= 3000; seed++)
		if (!run_bell(seed, bell).passed)
			return;
	fail_msg("3000 seeds passed");
}

static void a_bell_that_is_tested_only_for_a_moment_is_caught(void **state)
{
	(void)state;
	expect_bell_caught(BELL_TESTED_BRIEFLY);
}

static void shards_that_sleep_without_a_look_are_caught(void **state)
{
	(void)state;
	expect_bell_caught(BELL_WITHOUT_LOOK);
}

static void writers_that_leave_without_a_mark_are_caught(void **state)
{
	(void)state;
	expect_bell_caught(BELL_WITHOUT_MARKS);
}

static void a_bell_that_is_deaf_after_its_lock_is_caught(void **state)
{
	(void)state;
	expect_bell_caught(BELL_DEAF_AFTER_LOCK);
}

int main(void)
{
	signal(SIGABRT, tell_seed);
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_work_with_parked_rows_is_bounded_by_its_time),
	    cmocka_unit_test(rows_go_out_once_their_window_is_written),
	    cmocka_unit_test(the_first_record_of_a_partition_goes_alone),
	    cmocka_unit_test(only_what_is_refused_alone_is_at_fault),
	    cmocka_unit_test(nothing_of_a_key_passes_a_refused_record),
	    cmocka_unit_test(what_came_before_a_refused_record_still_goes),
	    cmocka_unit_test(a_full_flight_waits_for_the_log),
	    cmocka_unit_test(the_lease_counts_from_before_the_sending),
	    cmocka_unit_test(the_lease_of_a_take_counts_from_before_the_request),
	    cmocka_unit_test(the_newest_row_tells_whether_a_lost_call_was_written),
	    cmocka_unit_test(after_a_call_that_failed_the_lease_is_renewed_alone),
	    cmocka_unit_test(a_renewal_alone_may_fail_or_be_lost_or_find_another_owner),
	    cmocka_unit_test(a_call_that_was_late_has_half_as_much_to_do_and_looks_at_no_row),
	    cmocka_unit_test(what_a_lost_call_opened_is_sent_behind_one_more_row),
	    cmocka_unit_test(a_fold_writes_so_many_partitions_of_whole_topics),
	    cmocka_unit_test(after_a_late_tick_a_fold_ends_with_an_earlier_row),
	    cmocka_unit_test(a_topic_that_is_gone_takes_its_unlogged_offsets_with_it),
	    cmocka_unit_test(a_topic_that_is_missing_in_one_answer_is_not_gone),
	    cmocka_unit_test(a_stranger_in_the_log_has_the_shard),
	    cmocka_unit_test(rows_of_a_forgotten_page_are_not_believed),
	    cmocka_unit_test(a_lost_shard_waits_for_its_producer_to_go),
	    cmocka_unit_test(a_changed_count_waits_until_nothing_is_under_way),
	    cmocka_unit_test(a_missing_topic_is_waited_for),
	    cmocka_unit_test(everything_unacknowledged_goes_again_in_order),
	    cmocka_unit_test(a_stop_closes_gaps_and_notes_what_is_out),
	    cmocka_unit_test(nothing_is_sent_while_the_shard_is_released),
	    cmocka_unit_test(a_stop_without_time_ends_the_producer_before_it_releases),
	    cmocka_unit_test(a_stop_behind_a_lost_shard_waits_for_the_producer),
	    cmocka_unit_test(what_must_go_again_was_not_refused),
	    cmocka_unit_test(memory_is_full_of_rows_that_wait),
	    cmocka_unit_test(a_transaction_does_not_wait_for_the_log_of_the_one_before),
	    cmocka_unit_test(the_next_transaction_fills_while_a_commit_is_in_flight),
	    cmocka_unit_test(a_look_waits_for_the_commit_of_a_short_transaction),
	    cmocka_unit_test(a_producer_that_is_replaced_between_transactions_has_no_failure),
	    cmocka_unit_test(a_transaction_leaves_room_for_a_page_of_the_next),
	    cmocka_unit_test(a_row_asked_for_before_the_fence_does_not_confirm_the_producer),
	    cmocka_unit_test(tails_are_read_behind_the_fence_of_each_producer),
	    cmocka_unit_test(a_row_of_a_lost_tick_is_found_by_each_reading_of_its_tail),
	    cmocka_unit_test(a_standby_takes_when_it_is_told_to),
	    cmocka_unit_test(waiting_ends_when_something_is_due),
	    cmocka_unit_test(progress_is_noted_though_nothing_else_is_due),
	    cmocka_unit_test(
		after_an_hour_of_silence_the_first_record_of_a_partition_goes_alone_again),
	    cmocka_unit_test(a_failed_page_is_asked_again_after_a_while),
	    cmocka_unit_test(a_look_during_a_split_says_nothing_of_the_end),
	    cmocka_unit_test(a_paused_stream_sends_and_reads_nothing_and_loses_nothing),
	    cmocka_unit_test(a_window_of_a_paused_stream_is_read_after_the_pause),
	    cmocka_unit_test(a_new_owner_of_a_paused_shard_sends_nothing_before_its_first_tick),
	    cmocka_unit_test(a_drain_notes_its_last_records_at_once),
	    cmocka_unit_test(what_was_read_without_contents_is_never_sent),
	    cmocka_unit_test(a_row_that_is_yet_to_come_has_not_outlived_a_renewal),
	    cmocka_unit_test(a_row_that_was_not_asked_for_did_not_kill_and_is_asked_for_yet),
	    cmocka_unit_test(nothing_is_alone_once_its_parking_is_noted),
	    cmocka_unit_test(the_turn_is_not_kept_for_windows_that_may_never_come),
	    cmocka_unit_test(who_released_the_shard_does_not_keep_the_turn),
	    cmocka_unit_test(every_row_is_published_in_order_whatever_happens),
	    cmocka_unit_test(a_seed_repeats_itself),
	    cmocka_unit_test(a_reader_beyond_the_last_id_is_caught),
	    cmocka_unit_test(a_reader_behind_a_barrier_of_xids_is_caught),
	    cmocka_unit_test(windows_in_the_order_of_xids_are_caught),
	    cmocka_unit_test(windows_cut_at_an_xid_are_caught),
	    cmocka_unit_test(a_tick_taken_with_an_xid_is_caught),
	    cmocka_unit_test(a_log_row_made_from_a_strangers_is_caught),
	    cmocka_unit_test(a_producer_that_is_believed_before_it_has_fenced_is_caught),
	    cmocka_unit_test(a_producer_that_has_fenced_one_of_two_ids_is_caught),
	    cmocka_unit_test(no_row_waits_longer_than_the_poll_of_a_sleeping_shard),
	    cmocka_unit_test(a_bell_that_is_tested_only_for_a_moment_is_caught),
	    cmocka_unit_test(shards_that_sleep_without_a_look_are_caught),
	    cmocka_unit_test(writers_that_leave_without_a_mark_are_caught),
	    cmocka_unit_test(a_bell_that_is_deaf_after_its_lock_is_caught),
	};
	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
