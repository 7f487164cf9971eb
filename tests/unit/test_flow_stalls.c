/* When a missing topic is given up for a while (flow_stalls.c). */
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
    .max_in_flight = 100,
    .memory = 1 << 20,
    .lease_ms = 100000,
    .poll_busy_ms = 1,
    .poll_idle_ms = 50,
    .stall_after_ms = STALL_AFTER,
    .resumes = true,
    .seed = 1,
};

/* An owner that knows no topic yet, with a row for one that is missing. */
static struct stream *owner_with_a_row(int64_t now)
{
	struct stream *stream = stream_create(&settings);
	char *block = xcalloc(1, 64);
	assert_int_equal(stream_log_call(stream, now).call, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5, .epoch = 77, .first_tick = 40, .windows = 1};
	stream_taken(stream, now, &taken);
	assert_true(stream_read_call(stream, now).wanted);
	memcpy(block, "later", 5);
	const struct message message = {.block = block,
	    .id = 1,
	    .event_id = block + 32,
	    .topic = block,
	    .topic_length = 5,
	    .partition = -1,
	    .bytes = 64};
	stream_row(stream, &message);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_answer_that_it_is_missing_needs_no_other_witness),
	    cmocka_unit_test(a_cluster_that_answers_no_more_is_waited_for),
	    cmocka_unit_test(a_cluster_that_comes_back_is_given_the_whole_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
