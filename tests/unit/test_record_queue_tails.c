/* What a stream makes of the records that stand in Kafka already (record_queue_tails.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "open_topics.h"
#include "stream.h"

enum { EPOCH = 77, FIRST_TICK = 40 };

static const struct stream_settings settings = {
    .max_in_flight = 100,
    .memory = 1 << 20,
    .lease_ms = 10000,
    .poll_busy_ms = 1,
    .poll_idle_ms = 50,
    .ack_interval_ms = 0,
    .stall_after_ms = 5000,
    .resumes = true,
    .seed = 1,
};

/* The event id of a row: its id, then `history`. */
static void event_id_of(int64_t id, char history, char event_id[16])
{
	memset(event_id, history, 16);
	memcpy(event_id, &id, sizeof id);
}

/* Rows that share an id have different copies: their event ids and times differ. */
static void give_copy(struct stream *stream, int64_t id, int32_t partition, int copy)
{
	char *block = xcalloc(1, 64);
	memcpy(block, "orders", 6);
	event_id_of(id, (char)('a' + copy), block + 32);
	const struct message message = {
	    .block = block,
	    .id = id,
	    .created_us = copy,
	    .event_id = block + 32,
	    .topic = block,
	    .topic_length = 6,
	    .key = block,
	    .key_length = 6,
	    .partition = partition,
	    .bytes = 64,
	};
	stream_row(stream, &message);
}

static void give_row(struct stream *stream, int64_t id, int32_t partition)
{
	give_copy(stream, id, partition, 0);
}

static void taken_with(struct stream *stream, int windows, int64_t former_epoch)
{
	const struct stream_taken taken = {.n = 5,
	    .epoch = EPOCH,
	    .former_epoch = former_epoch,
	    .first_tick = FIRST_TICK,
	    .windows = windows};
	stream_taken(stream, 0, &taken);
}

/* An owner of a topic with two partitions, noted up to offset 9 each. */
static struct stream *owner_with(const struct stream_settings *own_settings, int windows)
{
	struct stream *stream = stream_create(own_settings);
	assert_int_equal(stream_log_call(stream, 0).call, STREAM_TAKE);
	taken_with(stream, windows, EPOCH);
	open_topics(stream, 0, (const struct open_topic[]){{"orders", 2, 9}, {0}});
	stream_topic(stream, "orders", 2);
	return stream;
}

static struct stream *owner_of(int windows)
{
	return owner_with(&settings, windows);
}

/* The newest question of each partition. */
static struct stream_question asked[18];

static void expect_question(struct stream *stream, int64_t now, int32_t partition, int64_t offset)
{
	struct stream_tail tail;
	assert_true(stream_tail_call(stream, now, &tail));
	assert_string_equal(tail.topic, "orders");
	assert_int_equal(tail.partition, partition);
	assert_int_equal(tail.offset, offset);
	asked[partition] = (struct stream_question){"orders", partition, tail.number};
}

static void tail_ends(struct stream *stream, int32_t partition, int64_t end, bool beyond)
{
	stream_tail_end(stream, &asked[partition], end, beyond);
}

static void expect_no_question(struct stream *stream, int64_t now)
{
	struct stream_tail tail;
	assert_false(stream_tail_call(stream, now, &tail));
}

static void expect_both_questions(struct stream *stream)
{
	expect_question(stream, 0, 0, 10);
	expect_question(stream, 0, 1, 10);
	expect_no_question(stream, 0);
}

static enum stream_found find(
    struct stream *stream, int32_t partition, int64_t offset, int64_t tick, int64_t id)
{
	char event_id[16];
	const struct outbox_position position = {.epoch = EPOCH, .tick = tick, .id = id};
	event_id_of(id, 'a', event_id);
	return stream_tail_record(stream, &asked[partition], offset, &position, event_id);
}

static void nothing_found(struct stream *stream)
{
	expect_both_questions(stream);
	tail_ends(stream, 0, 10, false);
	tail_ends(stream, 1, 10, false);
}

/* An owner of a window whose first page is being read; nothing of it was found. */
static struct stream *owner_that_reads(void)
{
	struct stream *stream = owner_of(1);
	nothing_found(stream);
	assert_true(stream_read_call(stream, 0).wanted);
	return stream;
}

static uint64_t expect_sent(struct stream *stream, int64_t id)
{
	struct stream_record record;
	assert_true(stream_send(stream, 0, &record));
	assert_int_equal(record.id, id);
	return record.sequence;
}

static void expect_none_sent(struct stream *stream)
{
	struct stream_record record;
	assert_false(stream_send(stream, 0, &record));
}

static void page_of(struct stream *stream, int64_t first, int64_t last, int32_t partition)
{
	assert_true(stream_read_call(stream, 0).wanted);
	for (int64_t id = first; id <= last; id++)
		give_row(stream, id, partition);
	stream_page_end(stream, 0, true, 0);
}

/* The next row of the log; it says of destinations what is expected. */
static struct stream_tick expect_row(struct stream *stream, int64_t now, const char *destinations)
{
	struct stream_tick tick = stream_log_call(stream, now);
	assert_int_equal(tick.call, STREAM_TICK);
	assert_string_equal(tick.destinations, destinations);
	stream_ticked(stream, now, STREAM_NOTED);
	return tick;
}

static void what_was_found_is_not_sent_again(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	expect_both_questions(stream);
	assert_int_equal(find(stream, 0, 10, FIRST_TICK + 1, 1), STREAM_FOUND);
	assert_int_equal(find(stream, 0, 11, FIRST_TICK + 1, 2), STREAM_FOUND);
	tail_ends(stream, 0, 12, false);
	page_of(stream, 1, 3, 0);
	expect_sent(stream, 3);
	expect_none_sent(stream);
	assert_int_equal(stream_status(stream, 0).skipped, 2);
	/* and it is progress, up to where it was found */
	struct stream_tick row = expect_row(stream, 1, "{\"orders\":[2,{\"0\":11}]}");
	assert_int_equal(row.acked_id, 2);
	stream_destroy(stream);
}

/* An owner of one partition, of which the offset 9 is logged, and of one window; asked for its
 * tail. */
static struct stream *owner_of_one_partition(int64_t acked_id, int64_t owners, int64_t alone)
{
	struct stream *stream = stream_create(&settings);
	assert_int_equal(stream_log_call(stream, 0).call, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5,
	    .epoch = EPOCH,
	    .former_epoch = EPOCH,
	    .first_tick = FIRST_TICK,
	    .acked_id = acked_id,
	    .windows = 1,
	    .deaths = {owners, alone, false}};
	stream_taken(stream, 0, &taken);
	open_topics(stream, 0, (const struct open_topic[]){{"orders", 1, 9}, {0}});
	stream_topic(stream, "orders", 1);
	expect_question(stream, 0, 0, 10);
	return stream;
}

static void what_is_passed_already_holds_no_offset_back(void **state)
{
	(void)state;
	struct stream *stream = owner_of_one_partition(3, 0, 0);
	/* a former owner kept its offset in front of row 4, and passed others behind it */
	find(stream, 0, 10, FIRST_TICK + 1, 4);
	find(stream, 0, 11, FIRST_TICK + 1, 2);
	find(stream, 0, 12, FIRST_TICK + 1, 3);
	tail_ends(stream, 0, 13, false);
	assert_true(stream_read_call(stream, 0).wanted);
	give_row(stream, 4, 0);
	give_row(stream, 5, 0);
	stream_page_end(stream, 0, false, 0);
	uint64_t fifth = expect_sent(stream, 5);
	stream_report(stream, 0, fifth, STREAM_WRITTEN, 13, NULL);
	expect_row(stream, 1, "{\"orders\":[1,{\"0\":13}]}");
	stream_destroy(stream);
}

static void what_was_found_is_parked_for_no_deaths(void **state)
{
	(void)state;
	struct stream *stream = owner_of_one_partition(0, 6, 3);
	/* the last of them died when Kafka had it */
	find(stream, 0, 10, FIRST_TICK + 1, 1);
	tail_ends(stream, 0, 11, false);
	assert_true(expect_row(stream, 1, "{}").deaths.marked);
	assert_true(stream_read_call(stream, 1).withheld);
	give_row(stream, 1, 0);
	stream_page_end(stream, 1, false, 0);
	expect_none_sent(stream);
	assert_int_equal(stream_status(stream, 1).skipped, 1);
	const struct stream_tick row = expect_row(stream, 2, "{\"orders\":[1,{\"0\":10}]}");
	assert_null(row.parks);
	assert_int_equal(row.acked_id, 1);
	stream_destroy(stream);
}

static void records_wait_until_their_partition_was_read(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	page_of(stream, 1, 2, 1);
	expect_none_sent(stream);
	expect_both_questions(stream);
	tail_ends(stream, 0, 10, false);
	expect_none_sent(stream);
	find(stream, 1, 10, FIRST_TICK + 1, 1);
	tail_ends(stream, 1, 11, false);
	expect_sent(stream, 2);
	stream_destroy(stream);
}

static void the_same_id_of_another_event_is_sent(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	char event_id[16];
	const struct outbox_position position = {.epoch = EPOCH, .tick = FIRST_TICK + 1, .id = 1};
	expect_both_questions(stream);
	event_id_of(1, 'b', event_id);
	stream_tail_record(stream, &asked[0], 10, &position, event_id);
	tail_ends(stream, 0, 11, false);
	page_of(stream, 1, 1, 0);
	expect_sent(stream, 1);
	stream_destroy(stream);
}

static void a_found_record_of_another_partition_is_no_reason_to_skip(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	expect_both_questions(stream);
	find(stream, 1, 10, FIRST_TICK + 1, 1);
	tail_ends(stream, 0, 10, false);
	tail_ends(stream, 1, 11, false);
	page_of(stream, 1, 1, 0);
	expect_sent(stream, 1);
	stream_destroy(stream);
}

static void where_a_new_topic_ends_is_noted_before_its_first_record(void **state)
{
	(void)state;
	struct stream *stream = stream_create(&settings);
	assert_int_equal(stream_log_call(stream, 0).call, STREAM_TAKE);
	taken_with(stream, 1, EPOCH);
	open_topics(stream, 0, (const struct open_topic[]){{0}});
	page_of(stream, 1, 1, 0);
	expect_none_sent(stream);
	named_topic(stream, 0, "{\"orders\"}", NULL);
	stream_topic(stream, "orders", 1);
	expect_row(stream, 0, "{\"orders\":[1,{}]}");
	expect_question(stream, 0, 0, STREAM_TAIL_END);
	expect_none_sent(stream);
	tail_ends(stream, 0, 0, false);
	expect_none_sent(stream);
	expect_row(stream, 0, "{\"orders\":[1,{\"0\":-1}]}");
	expect_sent(stream, 1);
	stream_destroy(stream);
}

static void a_lost_producer_reads_what_it_had_under_way(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	nothing_found(stream);
	page_of(stream, 1, 3, 0);
	stream_report(stream, 0, expect_sent(stream, 1), STREAM_WRITTEN, 10, NULL);
	expect_sent(stream, 2);
	stream_producer_lost(stream);
	expect_none_sent(stream);
	/* behind the last acknowledgement, and only there */
	expect_question(stream, 0, 0, 11);
	expect_no_question(stream, 0);
	find(stream, 0, 11, FIRST_TICK + 1, 2);
	tail_ends(stream, 0, 12, false);
	expect_sent(stream, 3);
	stream_destroy(stream);
}

static void the_noted_offset_stays_in_front_of_what_progress_does_not_cover(void **state)
{
	(void)state;
	struct stream *stream = owner_that_reads();
	give_row(stream, 1, 0);
	give_row(stream, 2, 1);
	stream_page_end(stream, 0, true, 0);
	uint64_t first = expect_sent(stream, 1);
	stream_report(stream, 0, expect_sent(stream, 2), STREAM_WRITTEN, 10, NULL);
	assert_int_equal(stream_log_call(stream, 8000).call, STREAM_TICK); /* the renewal */
	stream_ticked(stream, 8000, STREAM_NOTED);
	stream_report(stream, 8000, first, STREAM_WRITTEN, 10, NULL);
	expect_row(stream, 8001, "{\"orders\":[2,{\"0\":10,\"1\":10}]}");
	stream_destroy(stream);
}

static void no_window_opens_before_the_tails_are_read(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_both_questions(stream);
	tail_ends(stream, 0, 10, false);
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_NONE);
	assert_true(stream_wait(stream, 1) > 1);
	tail_ends(stream, 1, 10, false);
	assert_true(stream_log_call(stream, 1).may_open);
	stream_destroy(stream);
}

static void a_partition_that_is_away_does_not_stop_the_others_for_ever(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_both_questions(stream);
	assert_true(stream_log_call(stream, settings.stall_after_ms).may_open);
	stream_destroy(stream);
}

static void a_position_that_the_log_does_not_know_begins_a_new_epoch(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	expect_both_questions(stream);
	assert_int_equal(find(stream, 0, 10, FIRST_TICK + 1, 1), STREAM_FOUND);
	assert_int_equal(find(stream, 0, 11, FIRST_TICK + 2, 7), STREAM_FOUND_UNKNOWN);
	tail_ends(stream, 0, 12, false);
	page_of(stream, 1, 2, 0);
	expect_none_sent(stream);
	struct stream_tick tick = stream_log_call(stream, 0);
	assert_true(tick.new_epoch);
	assert_int_equal(stream_rewinds(stream), 0);
	stream_ticked(stream, 0, STREAM_NOTED);
	assert_int_equal(stream_rewinds(stream), 1);
	assert_int_equal(stream_epoch(stream), tick.fresh_epoch);
	expect_sent(stream, 2);
	stream_destroy(stream);
}

/* It lost the shard and does not know: the records are the next owner's. */
static void an_owner_that_is_fenced_knows_of_no_lost_history(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	expect_both_questions(stream);
	assert_int_equal(find(stream, 0, 11, FIRST_TICK + 2, 7), STREAM_FOUND_UNKNOWN);
	assert_true(stream_log_call(stream, 0).new_epoch);
	stream_ticked(stream, 0, STREAM_FENCED);
	assert_int_equal(stream_rewinds(stream), 0);
	assert_int_equal(stream_status(stream, 0).state, STREAM_STANDBY);
	stream_destroy(stream);
}

static void acknowledge(struct stream *stream, int64_t id, int64_t offset)
{
	stream_report(stream, 1, expect_sent(stream, id), STREAM_WRITTEN, offset, NULL);
}

/* After the sequence went back. Progress is noted by id. */
static void rows_that_share_an_id_are_acknowledged_together(void **state)
{
	(void)state;
	struct stream *stream = owner_that_reads();
	give_row(stream, 4, 0);
	give_row(stream, 5, 0);
	give_row(stream, 5, 1);
	stream_page_end(stream, 0, true, 0);
	acknowledge(stream, 4, 10);
	acknowledge(stream, 5, 10); /* of one of them */
	struct stream_tick tick = stream_log_call(stream, 2);
	assert_int_equal(tick.closed, 0);
	assert_int_equal(tick.acked_id, 4);
	stream_destroy(stream);
}

static void a_page_that_failed_between_rows_of_one_id_is_read_again_without_a_copy(void **state)
{
	(void)state;
	struct stream *stream = owner_that_reads();
	give_copy(stream, 4, 0, 0);
	give_copy(stream, 5, 0, 0);
	stream_read_failed(stream, 0);
	const struct stream_page again = stream_read_call(stream, 1000);
	assert_true(again.wanted);
	assert_int_equal(again.after_id, 4);
	give_copy(stream, 5, 0, 1); /* in whatever order */
	give_copy(stream, 5, 0, 0);
	give_copy(stream, 6, 0, 0);
	stream_page_end(stream, 1000, false, 0);
	assert_int_equal(stream_status(stream, 0).records, 4);
	assert_int_equal(stream_read_call(stream, 1000).after_id, 6);
	stream_destroy(stream);
}

static void a_row_of_a_lost_window_is_still_recognised(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	expect_both_questions(stream);
	find(stream, 0, 10, FIRST_TICK + 1, 7);
	tail_ends(stream, 0, 11, false);
	tail_ends(stream, 1, 10, false);
	assert_true(stream_log_call(stream, 0).may_open);
	stream_ticked(stream, 0, STREAM_ROWS);
	give_row(stream, 7, 0);
	give_row(stream, 8, 0);
	stream_rows_end(stream);
	expect_sent(stream, 8);
	stream_destroy(stream);
}

static void a_topic_made_anew_begins_a_new_epoch(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	expect_both_questions(stream);
	tail_ends(stream, 0, 3, true);
	page_of(stream, 1, 1, 0);
	expect_none_sent(stream);
	struct stream_tick row = expect_row(stream, 0, "{\"orders\":[2,{\"0\":2}]}");
	assert_true(row.new_epoch);
	expect_sent(stream, 1);
	stream_destroy(stream);
}

static void a_silent_partition_moves_its_offset_to_the_end(void **state)
{
	(void)state;
	struct stream *stream = owner_of(0);
	nothing_found(stream);
	expect_no_question(stream, 119999);
	expect_question(stream, 120000, 0, STREAM_TAIL_END);
	expect_question(stream, 120000, 1, STREAM_TAIL_END);
	tail_ends(stream, 0, 500, false);
	tail_ends(stream, 1, 10, false);
	expect_row(stream, 120000, "{\"orders\":[2,{\"0\":499}]}");
	stream_destroy(stream);
}

static void the_offset_does_not_move_past_records_under_way(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	nothing_found(stream);
	expect_question(stream, 120000, 0, STREAM_TAIL_END);
	page_of(stream, 1, 1, 0);
	uint64_t sequence = expect_sent(stream, 1);
	tail_ends(stream, 0, 500, false);
	stream_report(stream, 120000, sequence, STREAM_WRITTEN, 400, NULL);
	expect_row(stream, 120000, "{\"orders\":[2,{\"0\":400}]}");
	stream_destroy(stream);
}

static void a_partition_that_cannot_be_read_is_written_to_all_the_same(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	expect_both_questions(stream);
	page_of(stream, 1, 1, 0);
	stream_tail_failed(stream, 0, &asked[0]);
	expect_sent(stream, 1);
	stream_destroy(stream);
}

static void answers_that_nobody_waits_for_change_nothing(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	nothing_found(stream);
	assert_int_equal(find(stream, 0, 12, FIRST_TICK + 1, 1), STREAM_FOUND_ENOUGH);
	tail_ends(stream, 0, 3, true);
	asked[17] = (struct stream_question){"orders", 17, asked[0].number};
	tail_ends(stream, 17, 3, true);
	page_of(stream, 1, 1, 0);
	expect_sent(stream, 1);
	stream_destroy(stream);
}

/* The producer was lost meanwhile: its records may lie behind the end of the earlier answer. */
static void answers_to_an_earlier_question_change_nothing(void **state)
{
	(void)state;
	struct stream *stream = owner_of(1);
	nothing_found(stream);
	page_of(stream, 1, 2, 0);
	expect_sent(stream, 1);
	stream_producer_lost(stream);
	expect_question(stream, 0, 0, 10);
	const struct stream_question earlier = asked[0];
	stream_topic(stream, "orders", 0);
	stream_topic(stream, "orders", 2);
	expect_question(stream, 0, 0, 10);
	expect_question(stream, 0, 1, 10);
	stream_tail_end(stream, &earlier, 10, false);
	expect_none_sent(stream);
	stream_tail_failed(stream, 0, &earlier);
	expect_none_sent(stream);
	find(stream, 0, 10, FIRST_TICK + 1, 1);
	tail_ends(stream, 0, 11, false);
	expect_sent(stream, 2);
	stream_destroy(stream);
}

/* --- more than may be kept ------------------------------------------------------------------ */

/* An owner whose memory for records of tails holds only those of rows that wait. */
static struct stream *forgetful_owner(void)
{
	struct stream_settings forgetful = settings;
	forgetful.tail_memory = 1;
	return owner_with(&forgetful, 1);
}

/* The rows 1 to `rows` are in partition 0 from offset 10 on, and none of them waits. */
static struct stream *owner_with_a_cut(int64_t rows)
{
	struct stream *stream = forgetful_owner();
	expect_both_questions(stream);
	for (int64_t id = 1; id <= rows; id++)
		assert_int_equal(find(stream, 0, 9 + id, FIRST_TICK + 1, id), STREAM_FOUND);
	tail_ends(stream, 0, 10 + rows, false);
	tail_ends(stream, 1, 10, false);
	return stream;
}

static void give_rows(struct stream *stream, int64_t first, int64_t last, bool all)
{
	assert_true(stream_read_call(stream, 0).wanted);
	for (int64_t id = first; id <= last; id++)
		give_row(stream, id, 0);
	stream_page_end(stream, 0, all, 0);
}

static int64_t skipped(const struct stream *stream)
{
	return stream_status(stream, 0).skipped;
}

static void what_was_not_kept_is_looked_for_when_its_row_comes(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_cut(4);
	give_rows(stream, 1, 2, false);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	expect_no_question(stream, 0);
	/* both are found: nothing behind them needs to be read */
	assert_int_equal(find(stream, 0, 10, FIRST_TICK + 1, 1), STREAM_FOUND);
	assert_int_equal(find(stream, 0, 11, FIRST_TICK + 1, 2), STREAM_FOUND_ENOUGH);
	assert_int_equal(find(stream, 0, 12, FIRST_TICK + 1, 3), STREAM_FOUND_ENOUGH);
	expect_none_sent(stream);
	assert_int_equal(skipped(stream), 2);
	give_rows(stream, 3, 5, true);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	for (int64_t id = 1; id <= 4; id++)
		assert_int_equal(find(stream, 0, 9 + id, FIRST_TICK + 1, id), STREAM_FOUND);
	tail_ends(stream, 0, 14, false);
	expect_sent(stream, 5);
	assert_int_equal(skipped(stream), 4);
	stream_destroy(stream);
}

static void a_row_that_is_not_behind_the_cut_is_sent(void **state)
{
	(void)state;
	struct stream *stream = forgetful_owner();
	expect_both_questions(stream);
	find(stream, 0, 10, FIRST_TICK + 1, 1);
	find(stream, 0, 11, FIRST_TICK + 1, 4);
	tail_ends(stream, 0, 12, false);
	give_rows(stream, 2, 4, true);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	assert_int_equal(find(stream, 0, 10, FIRST_TICK + 1, 1), STREAM_FOUND);
	expect_none_sent(stream);
	assert_int_equal(find(stream, 0, 11, FIRST_TICK + 1, 4), STREAM_FOUND);
	expect_none_sent(stream);
	tail_ends(stream, 0, 12, false);
	expect_sent(stream, 2);
	stream_destroy(stream);
}

/* Found, or not there: those that waited when the reading came to what it could not keep. */
static void rows_that_wait_need_no_pass(void **state)
{
	(void)state;
	struct stream *stream = forgetful_owner();
	give_rows(stream, 1, 3, false);
	expect_none_sent(stream);
	expect_both_questions(stream);
	find(stream, 0, 10, FIRST_TICK + 1, 2);
	find(stream, 0, 11, FIRST_TICK + 1, 9);
	tail_ends(stream, 0, 12, false);
	uint64_t first = expect_sent(stream, 1);
	stream_report(stream, 0, first, STREAM_WRITTEN, 12, NULL);
	expect_sent(stream, 3);
	assert_int_equal(skipped(stream), 1);
	expect_no_question(stream, 0);
	stream_destroy(stream);
}

static void the_noted_offset_stays_in_front_of_the_cut(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_cut(3);
	give_rows(stream, 1, 1, false);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	assert_int_equal(find(stream, 0, 10, FIRST_TICK + 1, 1), STREAM_FOUND_ENOUGH);
	expect_none_sent(stream);
	assert_int_equal(expect_row(stream, 1, "{}").acked_id, 1);
	give_rows(stream, 7, 7, true);
	uint64_t sequence = expect_sent(stream, 7);
	stream_report(stream, 1, sequence, STREAM_WRITTEN, 13, NULL);
	expect_row(stream, 1, "{}");
	/* rows of the next window may have been found: a failover may have taken theirs back */
	assert_true(stream_log_call(stream, 2).may_open);
	stream_ticked(stream, 2, STREAM_ROWS);
	give_row(stream, 9, 0);
	stream_rows_end(stream);
	stream_report(stream, 2, expect_sent(stream, 9), STREAM_WRITTEN, 14, NULL);
	expect_row(stream, 3, "{}");
	/* no such row comes any more, and none that is parked */
	assert_true(stream_log_call(stream, 4).may_list);
	stream_parked_news(stream, 4, 0, -1);
	stream_ticked(stream, 4, STREAM_IDLE);
	expect_row(stream, 5000, "{\"orders\":[2,{\"0\":14}]}");
	stream_destroy(stream);
}

static void what_the_owner_wrote_itself_is_not_found(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_cut(3);
	give_rows(stream, 7, 7, false);
	uint64_t sequence = expect_sent(stream, 7);
	give_rows(stream, 8, 8, false);
	/* alone until the first is acknowledged */
	expect_none_sent(stream);
	expect_no_question(stream, 0);
	stream_report(stream, 0, sequence, STREAM_WRITTEN, 13, NULL);
	sequence = expect_sent(stream, 8);
	give_rows(stream, 2, 2, true);
	expect_none_sent(stream);
	/* a pass waits until nothing is under way */
	expect_no_question(stream, 0);
	stream_report(stream, 0, sequence, STREAM_WRITTEN, 14, NULL);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	assert_int_equal(stream_status(stream, 0).tail_bytes, 0);
	find(stream, 0, 13, FIRST_TICK + 1, 7);
	find(stream, 0, 14, FIRST_TICK + 1, 8);
	assert_int_equal(stream_status(stream, 0).tail_bytes, 0);
	tail_ends(stream, 0, 15, false);
	expect_sent(stream, 2);
	stream_destroy(stream);
}

static void a_lost_producer_reads_from_the_cut_on(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_cut(3);
	give_rows(stream, 7, 7, false);
	expect_sent(stream, 7);
	stream_producer_lost(stream);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	for (int64_t id = 1; id <= 3; id++)
		find(stream, 0, 9 + id, FIRST_TICK + 1, id);
	find(stream, 0, 13, FIRST_TICK + 1, 7);
	tail_ends(stream, 0, 14, false);
	expect_none_sent(stream);
	assert_int_equal(skipped(stream), 1);
	give_rows(stream, 9, 9, true);
	expect_sent(stream, 9);
	stream_destroy(stream);
}

static void a_pass_whose_question_was_given_up_decides_nothing(void **state)
{
	(void)state;
	struct stream *stream = owner_with_a_cut(3);
	give_rows(stream, 2, 2, true);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	const struct stream_question earlier = asked[0];
	stream_producer_lost(stream);
	expect_none_sent(stream);
	expect_question(stream, 0, 0, 10);
	stream_tail_end(stream, &earlier, 13, false);
	expect_none_sent(stream);
	assert_int_equal(find(stream, 0, 11, FIRST_TICK + 1, 2), STREAM_FOUND_ENOUGH);
	expect_none_sent(stream);
	assert_int_equal(skipped(stream), 1);
	stream_destroy(stream);
}

/*
 * An earlier owner parked row 1, unread, since its partition did not answer, and its window ended.
 * When the partition answers the row comes by once more: the record of a window that ended counts.
 */
static void a_parked_row_of_an_ended_window_is_looked_for_behind_the_cut(void **state)
{
	(void)state;
	struct stream_settings forgetful = settings;
	forgetful.tail_memory = 1;
	struct stream *stream = stream_create(&forgetful);
	assert_int_equal(stream_log_call(stream, 0).call, STREAM_TAKE);
	const struct stream_taken taken = {.n = 5,
	    .epoch = EPOCH,
	    .former_epoch = EPOCH,
	    .first_tick = FIRST_TICK,
	    .parked = true};
	stream_taken(stream, 0, &taken);
	open_topics(stream, 0, (const struct open_topic[]){{"orders", 2, 9}, {0}});
	stream_topic(stream, "orders", 2);
	/* a tail that is read too early leaves out the records of parked rows */
	expect_no_question(stream, 1);
	assert_int_equal(stream_log_call(stream, 1).call, STREAM_PLACES);
	stream_stalled_place(stream, "orders", 6, 0);
	stream_places_end(stream, 0);

	expect_both_questions(stream);
	for (int64_t id = 1; id <= 3; id++)
		assert_int_equal(find(stream, 0, 9 + id, FIRST_TICK, id), STREAM_FOUND);
	tail_ends(stream, 0, 13, false);
	tail_ends(stream, 1, 10, false);

	struct stream_tick tick = stream_log_call(stream, 1);
	assert_int_equal(tick.call, STREAM_TICK);
	assert_true(tick.may_list);
	stream_ticked(stream, 1, STREAM_LISTED);
	give_row(stream, 1, 0);
	stream_rows_end(stream);
	expect_none_sent(stream);
	expect_question(stream, 1, 0, 10);
	assert_int_equal(find(stream, 0, 10, FIRST_TICK, 1), STREAM_FOUND_ENOUGH);
	expect_none_sent(stream);
	assert_int_equal(skipped(stream), 1);
	stream_destroy(stream);
}

/* The processor time, in us, in which the rows 1 to 2000, all found, come by behind `strangers`. */
static int64_t time_of_matching(int64_t strangers)
{
	enum { ROWS = 2000 };
	struct stream_settings roomy = settings;
	roomy.max_in_flight = ROWS;
	roomy.memory = 1 << 28; /* a quarter of it holds what is found: the reading is not cut */
	struct stream *stream = owner_with(&roomy, 1);
	expect_both_questions(stream);
	for (int64_t i = 0; i < strangers; i++)
		find(stream, 0, 10 + i, FIRST_TICK + 1, ROWS + 1 + i);
	for (int64_t id = 1; id <= ROWS; id++)
		find(stream, 0, 10 + strangers + id, FIRST_TICK + 1, id);
	tail_ends(stream, 0, 11 + strangers + ROWS, false);
	page_of(stream, 1, ROWS, 0);
	clock_t begin = clock();
	expect_none_sent(stream);
	int64_t us = (clock() - begin) * 1000000 / CLOCKS_PER_SEC;
	assert_int_equal(stream_status(stream, 0).skipped, ROWS);
	stream_destroy(stream);
	return us + 100;
}

static void a_row_is_matched_in_the_same_time_whatever_else_was_found(void **state)
{
	(void)state;
	int64_t alone = time_of_matching(0);
	const char *full = getenv("TEST_FULL");
	int64_t among_others = time_of_matching(full && *full ? 250000 : 25000);
	assert_true(among_others < 20 * alone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_was_found_is_not_sent_again),
	    cmocka_unit_test(what_is_passed_already_holds_no_offset_back),
	    cmocka_unit_test(what_was_found_is_parked_for_no_deaths),
	    cmocka_unit_test(records_wait_until_their_partition_was_read),
	    cmocka_unit_test(the_same_id_of_another_event_is_sent),
	    cmocka_unit_test(a_found_record_of_another_partition_is_no_reason_to_skip),
	    cmocka_unit_test(where_a_new_topic_ends_is_noted_before_its_first_record),
	    cmocka_unit_test(a_lost_producer_reads_what_it_had_under_way),
	    cmocka_unit_test(the_noted_offset_stays_in_front_of_what_progress_does_not_cover),
	    cmocka_unit_test(no_window_opens_before_the_tails_are_read),
	    cmocka_unit_test(a_partition_that_is_away_does_not_stop_the_others_for_ever),
	    cmocka_unit_test(a_position_that_the_log_does_not_know_begins_a_new_epoch),
	    cmocka_unit_test(an_owner_that_is_fenced_knows_of_no_lost_history),
	    cmocka_unit_test(rows_that_share_an_id_are_acknowledged_together),
	    cmocka_unit_test(
		a_page_that_failed_between_rows_of_one_id_is_read_again_without_a_copy),
	    cmocka_unit_test(a_row_of_a_lost_window_is_still_recognised),
	    cmocka_unit_test(a_topic_made_anew_begins_a_new_epoch),
	    cmocka_unit_test(a_silent_partition_moves_its_offset_to_the_end),
	    cmocka_unit_test(the_offset_does_not_move_past_records_under_way),
	    cmocka_unit_test(a_partition_that_cannot_be_read_is_written_to_all_the_same),
	    cmocka_unit_test(a_row_is_matched_in_the_same_time_whatever_else_was_found),
	    cmocka_unit_test(answers_that_nobody_waits_for_change_nothing),
	    cmocka_unit_test(answers_to_an_earlier_question_change_nothing),
	    cmocka_unit_test(what_was_not_kept_is_looked_for_when_its_row_comes),
	    cmocka_unit_test(a_row_that_is_not_behind_the_cut_is_sent),
	    cmocka_unit_test(rows_that_wait_need_no_pass),
	    cmocka_unit_test(the_noted_offset_stays_in_front_of_the_cut),
	    cmocka_unit_test(what_the_owner_wrote_itself_is_not_found),
	    cmocka_unit_test(a_lost_producer_reads_from_the_cut_on),
	    cmocka_unit_test(a_pass_whose_question_was_given_up_decides_nothing),
	    cmocka_unit_test(a_parked_row_of_an_ended_window_is_looked_for_behind_the_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
