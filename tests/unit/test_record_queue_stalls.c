/* When a missing topic is given up for a while (record_queue_stalls.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stream.h"

enum { STALL_AFTER = 5000, ANSWERS_EVERY = 1000 };

static const struct stream_settings settings = {
    .max_in_flight = 2000,
    .memory = 1 << 20,
    .lease_ms = 100000,
    .poll_busy_ms = 1,
    .poll_idle_ms = 50,
    .stall_after_ms = STALL_AFTER,
    .resumes = true,
    .seed = 1,
};

static void give_row(struct stream *stream, int64_t id)
{
	char *block = xcalloc(1, 64);
	memcpy(block, "later", 5);
	const struct message message = {.block = block,
	    .id = id,
	    .event_id = block + 32,
	    .topic = block,
	    .topic_length = 5,
	    .partition = -1,
	    .bytes = 64};
	stream_row(stream, &message);
}

/* An owner that knows no topic yet, with rows for one that is missing, ids from 1 on. */
static struct stream *owner_with_rows(int64_t now, int count)
{
	struct stream *stream = stream_create(&settings);
	assert_int_equal(stream_log_call(stream, now).call, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5, .epoch = 77, .first_tick = 40, .windows = 1};
	stream_taken(stream, now, &taken);
	assert_true(stream_read_call(stream, now).wanted);
	for (int id = 1; id <= count; id++)
		give_row(stream, id);
	stream_page_end(stream, now, true, 0);
	/* the log has no topic open, and once its row is considered, does not know this one */
	for (int i = 0; i < 2; i++) {
		struct stream_record record;
		assert_int_equal(stream_log_call(stream, now).call, STREAM_DESTINATIONS);
		stream_destinations_end(stream, true);
		assert_false(stream_send(stream, now, &record));
	}
	return stream;
}

static struct stream *owner_with_a_row(int64_t now)
{
	return owner_with_rows(now, 1);
}

/* The cluster says it every second, from `from` up to and without `to`; nothing can be sent. */
static void is_missing(struct stream *stream, int64_t from, int64_t to)
{
	struct stream_record record;
	for (int64_t now = from; now < to; now += ANSWERS_EVERY) {
		stream_topic(stream, "later", 0);
		stream_topic_answered(stream, "later", now);
		assert_false(stream_send(stream, now, &record));
	}
}

/* Nobody answers any more, and the last that was said is told again. */
static void is_silent(struct stream *stream, int64_t from, int64_t to)
{
	struct stream_record record;
	for (int64_t now = from; now < to; now += ANSWERS_EVERY) {
		stream_topic(stream, "later", 0);
		stream_topic_answered(stream, "later", from - ANSWERS_EVERY);
		assert_false(stream_send(stream, now, &record));
	}
}

static int stalls(const struct stream *stream, int64_t now)
{
	return stream_status(stream, now).stalls;
}

static void the_answer_that_it_is_missing_needs_no_other_witness(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_row(100000);
	is_missing(stream, 100000, 100000 + STALL_AFTER);
	assert_int_equal(stalls(stream, 100000 + STALL_AFTER), 0);
	is_missing(stream, 100000 + STALL_AFTER, 100000 + STALL_AFTER + 2 * ANSWERS_EVERY);
	assert_int_equal(stalls(stream, 100000 + STALL_AFTER), 1);
	const struct stream_tick row = stream_log_call(stream, 100000 + 2 * STALL_AFTER);
	assert_int_equal(row.call, STREAM_TICK);
	assert_non_null(row.parks);
	stream_destroy(stream);
}

static void a_cluster_that_answers_no_more_is_waited_for(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_row(100000);
	is_missing(stream, 100000, 101000);
	is_silent(stream, 101000, 100000 + 5 * STALL_AFTER);
	assert_int_equal(stalls(stream, 100000 + 5 * STALL_AFTER), 0);
	stream_destroy(stream);
}

static void a_cluster_that_comes_back_is_given_the_whole_time(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_row(100000);
	is_missing(stream, 100000, 101000);
	is_silent(stream, 101000, 120000);
	is_missing(stream, 120000, 120000 + STALL_AFTER);
	assert_int_equal(stalls(stream, 120000 + STALL_AFTER), 0);
	is_missing(stream, 120000 + STALL_AFTER, 120000 + STALL_AFTER + 2 * ANSWERS_EVERY);
	assert_int_equal(stalls(stream, 120000 + STALL_AFTER), 1);
	stream_destroy(stream);
}

/* Reads the tails that are asked for: they are empty. */
static void tails_are_empty(struct stream *stream, int64_t now)
{
	struct stream_tail tail;
	while (stream_tail_call(stream, now, &tail)) {
		const struct stream_question question = {tail.topic, tail.partition, tail.number};
		stream_tail_end(stream, &question, 0, false);
	}
}

/* Who takes over before they are noted reads them again, and sends them. */
static void nothing_is_sent_before_all_rows_of_a_stall_are_noted(void **state)
{
	(void)state;
	struct stream_record record;
	const int64_t now = 100000 + STALL_AFTER + 2 * ANSWERS_EVERY;
	struct stream *stream = owner_with_rows(100000, 1100);
	is_missing(stream, 100000, now);
	stream_topic(stream, "later", 1);
	for (int64_t noted = 500; noted <= 1000; noted += 500) {
		const struct stream_tick row = stream_log_call(stream, now);
		assert_int_equal(row.call, STREAM_TICK);
		assert_non_null(row.parks);
		if (noted == 500) {
			stream_ticked(stream, now, STREAM_ROWS);
			give_row(stream, 1101);
			stream_rows_end(stream);
		} else {
			stream_ticked(stream, now, STREAM_NOTED);
		}
		tails_are_empty(stream, now);
		assert_int_equal(stream_status(stream, now).parked, noted);
		assert_false(stream_send(stream, now, &record));
	}
	assert_non_null(stream_log_call(stream, now).parks);
	stream_ticked(stream, now, STREAM_NOTED);
	assert_true(stream_send(stream, now, &record));
	assert_int_equal(record.id, 1101);
	stream_destroy(stream);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_answer_that_it_is_missing_needs_no_other_witness),
	    cmocka_unit_test(a_cluster_that_answers_no_more_is_waited_for),
	    cmocka_unit_test(a_cluster_that_comes_back_is_given_the_whole_time),
	    cmocka_unit_test(nothing_is_sent_before_all_rows_of_a_stall_are_noted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
