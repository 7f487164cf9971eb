/* What a stream makes of records that Kafka refuses for good (record_queue_parks.c). */
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
	return strcmp(topic, "pass") == 0 ? STREAM_PASS : STREAM_BLOCK;
}

static char *refused_name(const void *context, const char *topic)
{
	(void)context;
	return strcmp(topic, "inner") == 0 ? xstrdup("not for you") : NULL;
}

/* Of the key, so that digests can be read in the tests. */
static int64_t first_byte(
    const void *context, const char *topic, size_t topic_length, const char *key, size_t key_length)
{
	(void)context;
	(void)topic;
	(void)topic_length;
	return key_length ? key[0] : 0;
}

static const struct stream_settings settings = {
    .max_in_flight = 100,
    .memory = 1 << 20,
    .lease_ms = 100000,
    .poll_busy_ms = 1,
    .poll_idle_ms = 50,
    .ack_interval_ms = 100000,
    .stall_after_ms = 5000,
    .parking = {.retry_first_ms = 10,
	.retry_max_ms = 20,
	.max_attempts = 3,
	.policy = policy_of_name,
	.refused_topic = refused_name,
	.digest = first_byte},
    .seed = 1,
};

static void give(struct stream *stream, int64_t id, const char *topic, const char *key,
    int32_t partition, bool scheduled)
{
	char *block = xcalloc(1, 64);
	snprintf(block, 64, "%s%s", topic, key ? key : "");
	const struct message message = {
	    .block = block,
	    .id = id,
	    .created_us = 1000 + id,
	    .event_id = block + 48,
	    .topic = block,
	    .topic_length = (int32_t)strlen(topic),
	    .key = key ? block + strlen(topic) : NULL,
	    .key_length = key ? (int32_t)strlen(key) : 0,
	    .partition = partition,
	    .bytes = 64,
	    .scheduled = scheduled,
	};
	stream_row(stream, &message);
}

static void give_row(
    struct stream *stream, int64_t id, const char *topic, const char *key, int32_t partition)
{
	give(stream, id, topic, key, partition, false);
}

/* An owner; both topics have one partition, and records have flowed to them. */
static struct stream *owner_with(
    const struct stream_settings *with_settings, bool parked, int windows)
{
	struct stream *stream = stream_create(with_settings);
	assert_int_equal(stream_log_call(stream, 0).call, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5,
	    .epoch = 77,
	    .first_tick = 40,
	    .windows = windows,
	    .parked = parked,
	    .requests = 7};
	stream_taken(stream, 0, &taken);
	open_topics(stream, 0,
	    (const struct open_topic[]){{"orders", 1, OPEN_NONE}, {"pass", 1, OPEN_NONE}, {0}});
	stream_topic(stream, "orders", 1);
	stream_topic(stream, "pass", 1);
	return stream;
}

static struct stream *owner_of(bool parked, int windows)
{
	return owner_with(&settings, parked, windows);
}

static struct stream *owner(bool parked)
{
	return owner_of(parked, 0);
}

/* Of parked rows; it keeps one exact key, so that the filter matters, and loads it in small pages.
 */
static struct stream *owner_of_one_key(void)
{
	struct stream_settings one = settings;
	one.parking.keys = 1;
	one.parking.page = 4;
	return owner_with(&one, true, 0);
}

/* Of a stream that took a shard with parked rows: no place is stalled, these digests are parked. */
static void load(struct stream *stream, const char *digests)
{
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_PLACES);
	stream_places_end(stream, 0);
	/* a look at what is due comes first, and then they take turns */
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_TICK);
	stream_parked_news(stream, 1, 7, 0);
	stream_ticked(stream, 1, STREAM_IDLE);
	struct stream_tick tick = stream_log_call(stream, 1);
	assert_int_equal(tick.call, STREAM_DIGESTS);
	assert_int_equal(tick.from_digest, INT64_MIN);
	for (const char *digest = digests; *digest; digest++)
		stream_digest(stream, *digest);
	stream_digests_end(stream, (int64_t)strlen(digests));
}

/* The next call looks up records of these keys; those of `parked` are. */
static void look_up_at(struct stream *stream, int64_t now, const char *keys, const char *parked)
{
	struct stream_tick tick = stream_log_call(stream, now);
	if (tick.call == STREAM_TICK) { /* they take turns */
		stream_ticked(stream, now, STREAM_IDLE);
		tick = stream_log_call(stream, now);
	}
	assert_int_equal(tick.call, STREAM_LOOKUP);
	assert_int_equal(tick.most, strlen(keys));
	for (int i = 0; i < tick.most; i++) {
		assert_int_equal(tick.lookups[i].digest, keys[i]);
		if (strchr(parked, keys[i]))
			stream_looked_up(stream, i, false);
	}
	stream_lookup_end(stream);
}

static void look_up(struct stream *stream, const char *keys, const char *parked)
{
	look_up_at(stream, 1, keys, parked);
}

/* Opens a window with a row of each key, ids from `first` on. */
static void open_window(struct stream *stream, int64_t now, enum stream_verdict verdict,
    const char *topic, int64_t first, const char *const *keys, int count)
{
	struct stream_tick tick = stream_log_call(stream, now);
	assert_int_equal(tick.call, STREAM_TICK);
	assert_true(verdict == STREAM_LISTED ? tick.may_list : tick.may_open);
	stream_ticked(stream, now, verdict);
	for (int i = 0; i < count; i++)
		give_row(stream, first + i, topic, keys[i], -1);
	stream_rows_end(stream);
}

static uint64_t expect_sent(struct stream *stream, int64_t id)
{
	struct stream_record record;
	assert_true(stream_send(stream, 1, &record));
	assert_int_equal(record.id, id);
	return record.sequence;
}

static void expect_none_sent(struct stream *stream)
{
	struct stream_record record;
	assert_false(stream_send(stream, 1, &record));
}

static void written(struct stream *stream, uint64_t sequence)
{
	stream_report(stream, 1, sequence, STREAM_WRITTEN, (int64_t)sequence, NULL);
}

/* Refused while alone; the producer goes. */
static void refused(struct stream *stream, uint64_t sequence)
{
	stream_report(stream, 1, sequence, STREAM_REFUSED, -1, "too large");
	assert_ptr_equal(stream_producer_verdict(stream, 1), stream_refusal);
	stream_producer_lost(stream);
}

/* The next row carries these rows to outbox.park and to outbox.schedule. */
static void expect_kept(struct stream *stream, int64_t now, const char *rows, const char *scheduled)
{
	struct stream_tick tick = stream_log_call(stream, now);
	char expected[256];
	assert_int_equal(tick.call, STREAM_TICK);
	assert_non_null(tick.parks);
	snprintf(expected, sizeof expected,
	    "{\"rows\":%s,\"scheduled\":%s,\"recovered\":[],\"first_ms\":10,\"max_ms\":20,\"max_"
	    "attempts\":3}",
	    rows, scheduled);
	assert_string_equal(tick.parks, expected);
	stream_ticked(stream, now, STREAM_NOTED);
}

static void expect_parks(struct stream *stream, int64_t now, const char *rows)
{
	expect_kept(stream, now, rows, "[]");
}

static const char *const abab[] = {"a", "b", "a", "b"};

static void what_is_refused_alone_is_parked_with_what_comes_behind_it(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 4);
	refused(stream, expect_sent(stream, 1));
	expect_none_sent(stream); /* its cause may be mended: first it is noted */
	expect_parks(stream, 1, "[[1,1001,\"too large\",41]]");
	written(stream, expect_sent(stream, 2));
	written(stream, expect_sent(stream, 4));
	expect_none_sent(stream);
	expect_parks(stream, 1, "[[3,1003,null,41]]");
	const struct stream_status status = stream_status(stream, 1);
	assert_false(status.refused);
	assert_int_equal(status.refusals, 1);
	assert_int_equal(status.refused_id, 1);
	assert_string_equal(status.refused_error, "too large");
	assert_int_equal(status.parked, 2);
	assert_int_equal(status.records, 0);
	stream_destroy(stream);
}

static void a_message_for_a_refused_topic_is_dead_at_once_and_holds_back_nothing(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_window(stream, 1, STREAM_ROWS, "inner", 1, abab, 3);
	expect_none_sent(stream);
	expect_parks(stream, 1,
	    "[[1,1001,\"not for you\",41,null,true],[2,1002,\"not for you\",41,null,true],"
	    "[3,1003,\"not for you\",41,null,true]]");
	const struct stream_status status = stream_status(stream, 1);
	assert_false(status.refused);
	assert_int_equal(status.refusals, 3);
	assert_int_equal(status.records, 0);
	stream_destroy(stream);
}

static void parked_rows_are_progress_once_they_are_noted(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 1);
	refused(stream, expect_sent(stream, 1));
	struct stream_tick tick = stream_log_call(stream, 1);
	assert_int_equal(tick.closed, 0);
	stream_ticked(stream, 1, STREAM_NOTED);
	expect_none_sent(stream);
	tick = stream_log_call(stream, 200000);
	assert_int_equal(tick.closed, 1);
	assert_null(tick.parks);
	stream_destroy(stream);
}

static void renewed_alone(struct stream *stream, int64_t now)
{
	struct stream_tick tick = stream_log_call(stream, now);
	assert_int_equal(tick.call, STREAM_RENEW);
	assert_null(tick.parks);
	stream_renewed(stream, now, true);
}

static void a_row_that_was_not_noted_is_noted_with_the_next(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 1);
	refused(stream, expect_sent(stream, 1));
	assert_non_null(stream_log_call(stream, 1).parks);
	stream_log_failed(stream, 1, false, false);
	renewed_alone(stream, 1);
	expect_parks(stream, 1000, "[[1,1001,\"too large\",41]]");
	stream_destroy(stream);
}

static void nothing_is_sent_before_its_key_was_looked_up(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_PLACES);
	stream_places_end(stream, 0);
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 4);
	expect_none_sent(stream);
	look_up(stream, "abab", "a");
	written(stream, expect_sent(stream, 2));
	written(stream, expect_sent(stream, 4));
	expect_none_sent(stream);
	expect_parks(stream, 1, "[[1,1001,null,41],[3,1003,null,41]]");
	stream_destroy(stream);
}

static void a_row_that_was_looked_up_while_its_topic_was_away_flows(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "a");
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 1);
	expect_none_sent(stream);
	stream_topic(stream, "orders", 0);
	look_up(stream, "a", "");
	expect_none_sent(stream);
	stream_topic(stream, "orders", 1);
	written(stream, expect_sent(stream, 1));
	stream_destroy(stream);
}

static void what_the_filter_does_not_hold_flows_without_a_look_up(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "a");
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 4);
	expect_none_sent(stream); /* the first one holds the partition up */
	look_up(stream, "aa", "a");
	written(stream, expect_sent(stream, 2));
	written(stream, expect_sent(stream, 4));
	expect_parks(stream, 1, "[[1,1001,null,41],[3,1003,null,41]]");
	stream_destroy(stream);
}

/* However many places and keys there are, the lease is renewed between them. */
static void a_renewal_that_is_due_comes_before_a_question_about_parked_rows(void **state)
{
	(void)state;
	const int64_t due = settings.lease_ms / 3;
	struct stream *stream = owner(true);
	struct stream_tick tick = stream_log_call(stream, 1);
	assert_int_equal(tick.call, STREAM_PLACES);
	stream_places_end(stream, tick.most); /* there are more */
	tick = stream_log_call(stream, due);
	assert_int_equal(tick.call, STREAM_TICK);
	assert_true(tick.must_write);
	stream_ticked(stream, due, STREAM_IDLE); /* not written: it is due as before */
	assert_int_equal(stream_log_call(stream, due).call, STREAM_TICK);
	stream_ticked(stream, due, STREAM_NOTED);
	assert_int_equal(stream_log_call(stream, due).call, STREAM_PLACES);
	stream_places_end(stream, 0);
	assert_int_equal(stream_log_call(stream, 2 * due).call, STREAM_TICK);
	stream_ticked(stream, 2 * due, STREAM_NOTED);
	assert_int_equal(stream_log_call(stream, 2 * due).call, STREAM_DIGESTS);
	stream_destroy(stream);
}

static void a_look_up_that_failed_is_made_again(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "a");
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 1);
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_LOOKUP);
	stream_log_failed(stream, 1, false, false);
	expect_none_sent(stream);
	assert_int_equal(stream_log_call(stream, 5000).call, STREAM_RENEW);
	stream_renewed(stream, 5000, true);
	look_up_at(stream, 10000, "a", "");
	expect_sent(stream, 1);
	stream_destroy(stream);
}

static void a_key_of_which_nothing_is_parked_any_more_flows(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "ac");
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 1);
	look_up(stream, "a", "a"); /* it is an exact key now */
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_TICK);
	stream_unparked(stream, 'a');
	stream_parked_news(stream, 1, 7, -1);
	stream_ticked(stream, 1, STREAM_NOTED);
	expect_sent(stream, 1);
	stream_destroy(stream);
}

static void when_nothing_is_parked_any_more_nothing_is_looked_up(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "a");
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab + 1, 1);
	written(stream, expect_sent(stream, 1));
	assert_int_equal(stream_log_call(stream, 200000).call, STREAM_TICK);
	stream_unparked(stream, 'a');
	stream_parked_news(stream, 200000, 7, -1);
	stream_ticked(stream, 200000, STREAM_NOTED);
	/* the filter holds what has gone: it is loaded again */
	assert_int_equal(stream_log_call(stream, 200000).call, STREAM_DIGESTS);
	stream_digests_end(stream, 0);
	open_window(stream, 200010, STREAM_ROWS, "orders", 2, abab, 2);
	expect_sent(stream, 2);
	stream_destroy(stream);
}

/* Two of three digests are no longer parked: the filter is loaded again; the first page fails. */
static void reload(struct stream *stream)
{
	load(stream, "acd");
	assert_int_equal(stream_log_call(stream, 200000).call, STREAM_TICK);
	stream_unparked(stream, 'c');
	stream_unparked(stream, 'd');
	stream_parked_news(stream, 200000, 7, -1);
	stream_ticked(stream, 200000, STREAM_NOTED);
	assert_int_equal(stream_log_call(stream, 200000).call, STREAM_DIGESTS);
	stream_log_failed(stream, 200000, false, false);
	assert_int_equal(stream_log_call(stream, 200001).call, STREAM_RENEW);
	stream_renewed(stream, 200001, true);
}

static void a_filter_stays_in_force_until_the_next_one_is_loaded(void **state)
{
	(void)state;
	static const char *const keys[] = {"b", "e", "f", "a", "c"};
	struct stream *stream = owner(true);
	reload(stream);
	open_window(stream, 200100, STREAM_ROWS, "orders", 1, keys, 5);
	for (int i = 0; i < 3; i++)
		written(stream, expect_sent(stream, 1 + i));
	expect_none_sent(stream);
	/* of five records two are looked up: one is parked, one was */
	look_up_at(stream, 200100, "ac", "a");
	written(stream, expect_sent(stream, 5));
	stream_destroy(stream);
}

static void a_key_that_is_parked_during_a_reload_is_in_the_next_filter(void **state)
{
	(void)state;
	static const char *const keys[] = {"b", "e", "b"};
	struct stream *stream = owner_of_one_key();
	reload(stream);
	open_window(stream, 200100, STREAM_ROWS, "orders", 1, keys, 2);
	assert_int_equal(stream_log_call(stream, 200100).call, STREAM_DIGESTS);
	for (int i = 0; i < 4; i++)
		stream_digest(stream, 'a');
	stream_digests_end(stream, 4);
	refused(stream, expect_sent(stream, 1));
	expect_parks(stream, 200100, "[[1,1001,\"too large\",41]]");
	/* 'a' < 'b': the last page would have it, were it not parked and gone again */
	assert_int_equal(stream_log_call(stream, 200100).call, STREAM_DIGESTS);
	stream_digests_end(stream, 0);
	refused(stream, expect_sent(stream, 2));
	expect_parks(stream, 200100, "[[2,1002,\"too large\",41]]"); /* the exact keys go */
	open_window(stream, 200200, STREAM_ROWS, "orders", 3, keys + 2, 1);
	look_up_at(stream, 200200, "b", "b");
	expect_none_sent(stream);
	stream_destroy(stream);
}

/* The rows of a key were parked, then gone when the filter was loaded; and another row is noted. */
static void a_key_enters_the_filter_with_each_row_that_is_noted(void **state)
{
	(void)state;
	static const char *const keys[] = {"b", "e", "b"};
	struct stream *stream = owner_of_one_key();
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_PLACES);
	stream_places_end(stream, 0);
	open_window(stream, 1, STREAM_ROWS, "orders", 1, keys, 2);
	look_up(stream, "be", "be");
	expect_none_sent(stream);
	stream_log_call(stream, 1);
	stream_log_failed(stream, 1, false, false); /* the rows are not noted yet */
	assert_int_equal(stream_log_call(stream, 2).call, STREAM_RENEW);
	stream_renewed(stream, 2, true);
	struct stream_tick tick = stream_log_call(stream, 100);
	assert_int_equal(tick.call, STREAM_DIGESTS);
	stream_digests_end(stream, 0);
	expect_parks(stream, 100, "[[1,1001,null,41],[2,1002,null,41]]");
	open_window(stream, 200200, STREAM_ROWS, "orders", 3, keys + 2, 1);
	look_up_at(stream, 200200, "b", "b");
	stream_destroy(stream);
}

static void a_listed_row_goes_though_its_key_is_parked(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "a");
	open_window(stream, 1, STREAM_LISTED, "orders", 1, abab, 1);
	written(stream, expect_sent(stream, 1));
	/* a later one of the stream does not */
	open_window(stream, 10, STREAM_ROWS, "orders", 7, abab, 1);
	look_up_at(stream, 10, "a", "a");
	expect_none_sent(stream);
	expect_parks(stream, 10, "[[7,1007,null,42]]");
	stream_destroy(stream);
}

static void behind_a_row_that_is_refused_again_the_rest_of_its_list_waits(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "a");
	open_window(stream, 1, STREAM_LISTED, "orders", 1, abab, 4);
	refused(stream, expect_sent(stream, 1));
	expect_parks(stream, 1, "[[1,1001,\"too large\",41]]");
	written(stream, expect_sent(stream, 2));
	written(stream, expect_sent(stream, 4));
	expect_none_sent(stream);
	expect_parks(stream, 1, "[[3,1003,null,41]]");
	assert_int_equal(stream_status(stream, 1).refusals, 0);
	stream_destroy(stream);
}

static void a_list_is_asked_for_when_a_row_is_due(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	assert_false(stream_log_call(stream, 1).may_list);
	stream_parked_news(stream, 1, 7, 500);
	stream_ticked(stream, 1, STREAM_IDLE);
	assert_false(stream_log_call(stream, 400).may_list);
	stream_parked_news(stream, 400, 7, -1);
	stream_ticked(stream, 400, STREAM_IDLE);
	assert_true(stream_wait(stream, 480) <= 501);
	struct stream_tick tick = stream_log_call(stream, 501);
	assert_true(tick.may_list);
	/* and nothing was due */
	stream_parked_news(stream, 501, 7, -1);
	stream_ticked(stream, 501, STREAM_IDLE);
	assert_false(stream_log_call(stream, 600).may_list);
	stream_destroy(stream);
}

static void a_request_of_an_operator_is_looked_at(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	assert_false(stream_log_call(stream, 1).may_list);
	stream_parked_news(stream, 1, 8, -1);
	stream_ticked(stream, 1, STREAM_IDLE);
	assert_true(stream_log_call(stream, 1).may_list);
	stream_destroy(stream);
}

/* A skip of the queue would let a row through that the former owner kept back, and did not note. */
static void nothing_is_listed_before_the_windows_of_the_former_owner_are_published(void **state)
{
	(void)state;
	struct stream *stream = owner_of(true, 1);
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_PLACES);
	stream_places_end(stream, 0);
	assert_true(stream_read_call(stream, 1).wanted);
	give_row(stream, 1, "orders", "a", -1);
	stream_page_end(stream, 1, true, 0);
	struct stream_tick look = stream_log_call(stream, 1);
	assert_int_equal(look.call, STREAM_TICK);
	assert_false(look.may_list);
	stream_ticked(stream, 1, STREAM_IDLE);
	look_up(stream, "a", "");
	written(stream, expect_sent(stream, 1));
	struct stream_tick tick = stream_log_call(stream, 100001);
	assert_int_equal(tick.closed, 1);
	assert_false(tick.may_list);
	stream_ticked(stream, 100001, STREAM_NOTED);
	assert_int_equal(stream_log_call(stream, 100001).call, STREAM_DIGESTS);
	stream_digests_end(stream, 0);
	assert_true(stream_log_call(stream, 100001).may_list);
	stream_destroy(stream);
}

static void what_the_producer_refuses_is_parked_when_it_is_alone(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_window(stream, 1, STREAM_ROWS, "orders", 1, abab, 4);
	written(stream, expect_sent(stream, 1));
	uint64_t second = expect_sent(stream, 2), third = expect_sent(stream, 3);
	stream_report(stream, 1, third, STREAM_UNSENDABLE, -1, "too large");
	expect_none_sent(stream);
	written(stream, second);
	stream_report(stream, 1, expect_sent(stream, 3), STREAM_UNSENDABLE, -1, "too large");
	expect_parks(stream, 1, "[[3,1003,\"too large\",41]]");
	expect_sent(stream, 4);
	assert_null(stream_producer_verdict(stream, 1));
	stream_destroy(stream);
}

static void a_row_for_a_partition_that_is_not_there_waits_for_those_before_it(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	stream_log_call(stream, 1);
	stream_ticked(stream, 1, STREAM_ROWS);
	give_row(stream, 1, "orders", "a", -1);
	give_row(stream, 2, "orders", "a", 9);
	give_row(stream, 3, "orders", "b", -1);
	stream_rows_end(stream);
	uint64_t first = expect_sent(stream, 1);
	expect_none_sent(stream);
	written(stream, first);
	expect_sent(stream, 3);
	expect_parks(stream, 1, "[[2,1002,\"the row wants partition 9, the topic has 1\",41]]");
	stream_destroy(stream);
}

static void where_the_topic_says_pass_nobody_waits(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_window(stream, 1, STREAM_ROWS, "pass", 1, abab, 4);
	refused(stream, expect_sent(stream, 1));
	expect_parks(stream, 1, "[[1,1001,\"too large\",41]]");
	written(stream, expect_sent(stream, 2));
	expect_sent(stream, 3);
	stream_destroy(stream);
}

static void a_row_without_a_key_is_parked_alone(void **state)
{
	(void)state;
	static const char *const none[] = {NULL, NULL};
	struct stream *stream = owner(false);
	open_window(stream, 1, STREAM_ROWS, "orders", 1, none, 2);
	refused(stream, expect_sent(stream, 1));
	expect_parks(stream, 1, "[[1,1001,\"too large\",41]]");
	written(stream, expect_sent(stream, 2));
	stream_destroy(stream);
}

static void a_row_that_is_read_again_and_stands_there_already_is_done(void **state)
{
	(void)state;
	static const char *const none[] = {NULL, NULL};
	struct stream *stream = owner_of(true, 1);
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_PLACES);
	stream_places_end(stream, 0);
	assert_true(stream_read_call(stream, 1).wanted);
	for (int i = 0; i < 2; i++)
		give_row(stream, 1 + i, "orders", none[i], -1);
	stream_page_end(stream, 1, true, 0);
	expect_none_sent(stream);
	struct stream_tick tick = stream_log_call(stream, 1);
	while (tick.call != STREAM_LOOKUP) {
		assert_int_equal(tick.call, STREAM_TICK);
		stream_parked_news(stream, 1, 7, -1);
		stream_ticked(stream, 1, STREAM_IDLE);
		tick = stream_log_call(stream, 1);
	}
	assert_int_equal(tick.most, 2);
	assert_int_equal(tick.lookups[0].id, 1);
	assert_false(tick.lookups[0].has_digest);
	stream_looked_up(stream, 0, true);
	stream_lookup_end(stream);
	written(stream, expect_sent(stream, 2));
	expect_none_sent(stream);
	tick = stream_log_call(stream, 200000);
	assert_null(tick.parks);
	assert_int_equal(tick.closed, 1);
	stream_ticked(stream, 200000, STREAM_NOTED);
	stream_destroy(stream);
}

/* A window of one row with a deliver_at. */
static void open_scheduled(struct stream *stream, int64_t now, enum stream_verdict verdict,
    const char *topic, int64_t id, const char *key)
{
	assert_int_equal(stream_log_call(stream, now).call, STREAM_TICK);
	stream_ticked(stream, now, verdict);
	give(stream, id, topic, key, -1, true);
	stream_rows_end(stream);
}

static void a_row_with_a_time_of_its_own_is_noted_and_nobody_waits_for_it(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_scheduled(stream, 1, STREAM_ROWS, "orders", 1, "a");
	open_window(stream, 2, STREAM_ROWS, "orders", 2, abab, 1); /* of the same key */
	written(stream, expect_sent(stream, 2));
	expect_kept(stream, 3, "[]", "[[1,1001,41]]");
	struct stream_tick tick = stream_log_call(stream, 200000);
	assert_int_equal(tick.closed, 2);
	assert_null(tick.parks);
	assert_int_equal(stream_status(stream, 3).scheduled, 1);
	assert_int_equal(stream_status(stream, 3).parked, 0);
	stream_destroy(stream);
}

static void a_row_of_a_topic_that_is_missing_waits_for_its_time_all_the_same(void **state)
{
	(void)state;
	struct stream *stream = owner(false);
	open_scheduled(stream, 1, STREAM_ROWS, "missing", 1, "a");
	expect_none_sent(stream);
	expect_kept(stream, 3, "[]", "[[1,1001,41]]");
	stream_destroy(stream);
}

static void a_row_that_is_due_flows_unless_its_key_is_parked(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "a");
	assert_true(stream_log_call(stream, 1).may_list);
	stream_ticked(stream, 1, STREAM_LISTED);
	give(stream, 1, "orders", "b", -1, true);
	give(stream, 2, "orders", "a", -1, true);
	stream_rows_end(stream);
	look_up(stream, "a", "a");
	written(stream, expect_sent(stream, 1));
	expect_none_sent(stream);
	expect_parks(stream, 1, "[[2,1002,null,41]]");
	stream_destroy(stream);
}

static void a_row_that_is_refused_when_it_is_due_is_parked(void **state)
{
	(void)state;
	struct stream *stream = owner(true);
	load(stream, "");
	open_scheduled(stream, 1, STREAM_LISTED, "orders", 1, "a");
	refused(stream, expect_sent(stream, 1));
	expect_parks(stream, 1, "[[1,1001,\"too large\",41]]");
	assert_int_equal(stream_status(stream, 1).refusals, 1);
	stream_destroy(stream);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_refused_alone_is_parked_with_what_comes_behind_it),
	    cmocka_unit_test(a_message_for_a_refused_topic_is_dead_at_once_and_holds_back_nothing),
	    cmocka_unit_test(parked_rows_are_progress_once_they_are_noted),
	    cmocka_unit_test(a_row_that_was_not_noted_is_noted_with_the_next),
	    cmocka_unit_test(nothing_is_sent_before_its_key_was_looked_up),
	    cmocka_unit_test(a_row_that_was_looked_up_while_its_topic_was_away_flows),
	    cmocka_unit_test(what_the_filter_does_not_hold_flows_without_a_look_up),
	    cmocka_unit_test(a_renewal_that_is_due_comes_before_a_question_about_parked_rows),
	    cmocka_unit_test(a_look_up_that_failed_is_made_again),
	    cmocka_unit_test(when_nothing_is_parked_any_more_nothing_is_looked_up),
	    cmocka_unit_test(a_key_of_which_nothing_is_parked_any_more_flows),
	    cmocka_unit_test(a_filter_stays_in_force_until_the_next_one_is_loaded),
	    cmocka_unit_test(a_key_that_is_parked_during_a_reload_is_in_the_next_filter),
	    cmocka_unit_test(a_key_enters_the_filter_with_each_row_that_is_noted),
	    cmocka_unit_test(a_listed_row_goes_though_its_key_is_parked),
	    cmocka_unit_test(behind_a_row_that_is_refused_again_the_rest_of_its_list_waits),
	    cmocka_unit_test(a_list_is_asked_for_when_a_row_is_due),
	    cmocka_unit_test(a_request_of_an_operator_is_looked_at),
	    cmocka_unit_test(
		nothing_is_listed_before_the_windows_of_the_former_owner_are_published),
	    cmocka_unit_test(what_the_producer_refuses_is_parked_when_it_is_alone),
	    cmocka_unit_test(a_row_for_a_partition_that_is_not_there_waits_for_those_before_it),
	    cmocka_unit_test(where_the_topic_says_pass_nobody_waits),
	    cmocka_unit_test(a_row_without_a_key_is_parked_alone),
	    cmocka_unit_test(a_row_that_is_read_again_and_stands_there_already_is_done),
	    cmocka_unit_test(a_row_with_a_time_of_its_own_is_noted_and_nobody_waits_for_it),
	    cmocka_unit_test(a_row_of_a_topic_that_is_missing_waits_for_its_time_all_the_same),
	    cmocka_unit_test(a_row_that_is_due_flows_unless_its_key_is_parked),
	    cmocka_unit_test(a_row_that_is_refused_when_it_is_due_is_parked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
