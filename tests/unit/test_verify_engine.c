#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "verify_engine.h"
#include "digest.h"

enum { MEMORY = 1 << 20 };

static uint64_t event_of(int64_t id)
{
	return digest_add(DIGEST_BEGIN, &id, sizeof id);
}

static void add_row(struct verify_engine *engine, int64_t id, enum verify_state state)
{
	const struct verify_row row = {id, event_of(id), (uint64_t)id * 7 + 1, state};

	struct err err;
	assert_true(verify_engine_row(engine, &row, &err));
}

/* A record of partition 0 as the relay writes it: tick 1, key "k". */
static struct verify_record record_of(int64_t id)
{
	struct verify_record record = {.topic = "orders",
	    .offset = id,
	    .key = "k",
	    .key_length = 1,
	    .position = {"main", "1a2b3c4d", 0, 5, 1, id},
	    .event = event_of(id),
	    .content = (uint64_t)id * 7 + 1};

	return record;
}

static enum verify_outcome see(struct verify_engine *engine, struct verify_record record)
{
	return verify_engine_record(engine, &record);
}

/* Rows 1 … count, acknowledged, in a round that is the last. */
static struct verify_engine *engine_of_rows(int count)
{
	struct verify_engine *engine = verify_engine_create(MEMORY);

	verify_engine_begin(engine, 0);
	for (int id = 1; id <= count; id++)
		add_row(engine, id, VERIFY_ACKNOWLEDGED);
	verify_engine_rows_end(engine, true);
	return engine;
}

static int64_t count_missing(struct verify_engine *engine)
{
	int64_t cursor = 0, id, count = 0;

	while (verify_engine_missing(engine, &cursor, &id))
		count++;
	return count;
}

static void rows_that_are_not_to_be_published_yet_are_counted_and_not_missing(void **state)
{
	(void)state;
	struct verify_engine *engine = verify_engine_create(MEMORY);

	verify_engine_begin(engine, 0);
	add_row(engine, 1, VERIFY_PENDING);
	add_row(engine, 2, VERIFY_PARKED);
	add_row(engine, 3, VERIFY_BEFORE);
	add_row(engine, 4, VERIFY_PARKED);
	verify_engine_rows_end(engine, true);
	see(engine, record_of(4)); /* it was drained meanwhile */
	assert_false(verify_engine_is_missing(engine));
	assert_int_equal(count_missing(engine), 0);
	assert_int_equal(verify_engine_verdict(engine)->pending, 1);
	assert_int_equal(verify_engine_verdict(engine)->parked, 1);
	assert_int_equal(verify_engine_verdict(engine)->before, 1);
	assert_true(verify_is_clean(verify_engine_verdict(engine), true));
	verify_engine_destroy(engine);
}

static void rows_that_share_an_id_are_missing_one_by_one(void **state)
{
	(void)state;
	struct verify_engine *engine = verify_engine_create(MEMORY);
	static const enum verify_state states[] = {
	    VERIFY_ACKNOWLEDGED, VERIFY_ACKNOWLEDGED, VERIFY_PARKED, VERIFY_ACKNOWLEDGED};
	int64_t cursor = 0, id;
	struct err err;

	/* four rows have id 5, and the first one has its record */
	verify_engine_begin(engine, 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_true(verify_engine_row(
		    engine, &(const struct verify_row){5, event_of(5) + i, 36, states[i]}, &err));
	verify_engine_rows_end(engine, true);
	see(engine, record_of(5));

	assert_true(verify_engine_missing(engine, &cursor, &id));
	assert_int_equal(id, 5);
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(
		    verify_engine_take_missing(engine, 5, event_of(5) + i), i == 1 || i == 3);
	/* none counts twice, though the id may be returned in two batches */
	assert_false(verify_engine_take_missing(engine, 5, event_of(5) + 3));
	assert_false(verify_engine_missing(engine, &cursor, &id));
	assert_int_equal(verify_engine_verdict(engine)->parked, 1);
	assert_false(verify_engine_is_missing(engine));
	verify_engine_destroy(engine);
}

static void asking_whether_something_is_missing_changes_nothing(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(2);

	see(engine, record_of(1));
	assert_true(verify_engine_is_missing(engine));
	see(engine, record_of(2));
	assert_false(verify_engine_is_missing(engine));
	assert_int_equal(count_missing(engine), 0);
	verify_engine_destroy(engine);
}

static void rows_that_were_published_once_in_order_are_clean(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(1000);

	for (int id = 1; id <= 1000; id++)
		assert_int_equal(see(engine, record_of(id)), VERIFY_JUDGED);
	assert_int_equal(count_missing(engine), 0);
	assert_int_equal(verify_engine_verdict(engine)->published, 1000);
	assert_true(verify_is_clean(verify_engine_verdict(engine), true));
	verify_engine_destroy(engine);
}

static void an_acknowledged_row_without_a_record_is_missing_and_another_pending(void **state)
{
	(void)state;
	struct verify_engine *engine = verify_engine_create(MEMORY);
	int64_t cursor = 0, id;

	verify_engine_begin(engine, 0);
	add_row(engine, 3, VERIFY_ACKNOWLEDGED);
	add_row(engine, 9, VERIFY_PENDING);
	verify_engine_rows_end(engine, true);
	assert_true(verify_engine_missing(engine, &cursor, &id));
	assert_int_equal(id, 3);
	assert_false(verify_engine_missing(engine, &cursor, &id));
	assert_int_equal(verify_engine_verdict(engine)->pending, 1);
	verify_engine_destroy(engine);
}

static void a_record_without_a_row_is_unknown_and_so_is_one_with_another_event(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(3);
	struct verify_record record = record_of(2);

	record.event++;
	assert_int_equal(see(engine, record_of(4)), VERIFY_UNKNOWN);
	assert_int_equal(see(engine, record), VERIFY_UNKNOWN);
	assert_int_equal(verify_engine_verdict(engine)->published, 0);
	verify_engine_destroy(engine);
}

static void a_first_occurrence_behind_a_later_position_is_out_of_order(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(3);

	see(engine, record_of(1));
	see(engine, record_of(3));
	see(engine, record_of(2));
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_OUT_OF_ORDER], 1);
	assert_false(verify_is_clean(verify_engine_verdict(engine), false));
	verify_engine_destroy(engine);
}

static void a_later_tick_comes_after_whatever_its_ids(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(3);
	struct verify_record late = record_of(1);

	late.position.tick = 2;
	see(engine, record_of(2));
	see(engine, record_of(3));
	see(engine, late);
	assert_true(verify_is_clean(verify_engine_verdict(engine), true));
	verify_engine_destroy(engine);
}

static void partitions_shards_and_epochs_are_ordered_each_for_itself(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(4);
	struct verify_record other_partition = record_of(3), other_shard = record_of(2),
			     other_epoch = record_of(1);

	other_partition.partition = 1;
	other_shard.position.shard = 1;
	other_epoch.position.epoch = 6;
	see(engine, record_of(4));
	see(engine, other_partition);
	see(engine, other_shard);
	see(engine, other_epoch);
	assert_true(verify_is_clean(verify_engine_verdict(engine), true));
	verify_engine_destroy(engine);
}

static void records_without_a_key_have_no_order(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(2);
	struct verify_record late = record_of(1);

	late.key = NULL;
	see(engine, record_of(2));
	see(engine, late);
	assert_true(verify_is_clean(verify_engine_verdict(engine), true));
	verify_engine_destroy(engine);
}

static void what_is_sent_again_is_a_duplicate_and_not_out_of_order(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(3);

	for (int again = 0; again < 2; again++)
		for (int id = 1; id <= 3; id++)
			see(engine, record_of(id));
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_DUPLICATE], 3);
	assert_int_equal(verify_engine_verdict(engine)->published, 3);
	assert_true(verify_is_clean(verify_engine_verdict(engine), false));
	assert_false(verify_is_clean(verify_engine_verdict(engine), true));
	verify_engine_destroy(engine);
}

static void a_duplicate_with_another_tick_or_partition_is_unequal(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(2);
	struct verify_record tick = record_of(1), partition = record_of(2);

	see(engine, record_of(1));
	see(engine, record_of(2));
	tick.position.tick = 9;
	partition.partition = 1;
	see(engine, tick);
	see(engine, partition);
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_UNEQUAL], 2);
	assert_false(verify_is_clean(verify_engine_verdict(engine), false));
	verify_engine_destroy(engine);
}

static void a_new_epoch_may_give_a_duplicate_another_position(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(1);
	struct verify_record again = record_of(1);

	again.position.epoch = 6;
	again.position.tick = 3;
	see(engine, record_of(1));
	see(engine, again);
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_UNEQUAL], 0);
	verify_engine_destroy(engine);
}

static void a_record_that_is_not_its_rows_is_altered(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(1);
	struct verify_record record = record_of(1);

	record.content++;
	see(engine, record);
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_ALTERED], 1);
	assert_non_null(verify_engine_verdict(engine)->samples[VERIFY_ALTERED][0]);
	verify_engine_destroy(engine);
}

/* Positions may be right and the rows all the same in a wrong order: the application's own count
 * says. */
static void a_sequence_that_falls_is_out_of_order(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(4);

	for (int id = 1; id <= 4; id++) {
		static const int64_t sequences[] = {1, 2, 4, 3};
		struct verify_record record = record_of(id);

		record.has_sequence = true;
		record.sequence = sequences[id - 1];
		see(engine, record);
	}
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_OUT_OF_ORDER], 1);
	verify_engine_destroy(engine);
}

static void each_key_has_a_sequence_of_its_own(void **state)
{
	(void)state;
	struct verify_engine *engine = engine_of_rows(20000);
	char key[16];

	for (int id = 1; id <= 20000; id++) {
		struct verify_record record = record_of(id);

		record.key = key;
		record.key_length = (size_t)snprintf(key, sizeof key, "key-%d", id % 9000);
		record.has_sequence = true;
		record.sequence = id / 9000;
		see(engine, record);
	}
	assert_true(verify_is_clean(verify_engine_verdict(engine), true));
	verify_engine_destroy(engine);
}

static void rounds_judge_each_row_once(void **state)
{
	(void)state;
	struct verify_engine *engine = verify_engine_create((int64_t)VERIFY_ROW_BYTES * 10);
	int64_t after = INT64_MIN, missing = 0;

	for (int round = 0; round < 3; round++) {
		verify_engine_begin(engine, after);
		for (int i = 1; i <= (round == 2 ? 5 : 10); i++)
			add_row(engine, round * 10 + i, VERIFY_ACKNOWLEDGED);
		after = verify_engine_rows_end(engine, round == 2);
		for (int id = 1; id <= 26; id++)
			if (id != 14)
				see(engine, record_of(id));
		see(engine, record_of(13)); /* a duplicate, in every round */
		missing += count_missing(engine);
	}
	assert_int_equal(missing, 1);
	assert_int_equal(verify_engine_verdict(engine)->committed, 25);
	assert_int_equal(verify_engine_verdict(engine)->published, 24);
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_DUPLICATE], 1);
	assert_int_equal(verify_engine_verdict(engine)->found[VERIFY_OUT_OF_ORDER], 0);
	verify_engine_destroy(engine);
}

static void ids_with_holes_are_found(void **state)
{
	(void)state;
	struct verify_engine *engine = verify_engine_create(MEMORY);

	verify_engine_begin(engine, INT64_MIN);
	for (int64_t id = 1; id < (INT64_C(1) << 40); id = id * 2 + id % 3)
		add_row(engine, id, VERIFY_ACKNOWLEDGED);
	verify_engine_rows_end(engine, true);
	for (int64_t id = 1; id < (INT64_C(1) << 40); id = id * 2 + id % 3) {
		assert_int_equal(see(engine, record_of(id)), VERIFY_JUDGED);
		assert_int_equal(see(engine, record_of(id + (INT64_C(1) << 41))), VERIFY_UNKNOWN);
	}
	assert_int_equal(count_missing(engine), 0);
	verify_engine_destroy(engine);
}

static void fields_do_not_run_into_each_other(void **state)
{
	(void)state;
	uint64_t one = digest_add(digest_add(DIGEST_BEGIN, "ab", 2), "c", 1);
	uint64_t two = digest_add(digest_add(DIGEST_BEGIN, "a", 1), "bc", 2);

	assert_true(one != two);
	assert_true(digest_add(DIGEST_BEGIN, "", 0) != digest_add(DIGEST_BEGIN, NULL, 0));
	assert_true(digest_add(DIGEST_BEGIN, "\0", 1) != digest_add(DIGEST_BEGIN, "\0\0", 2));
}

static void rows_that_a_server_sends_out_of_order_or_in_excess_are_an_error(void **state)
{
	struct verify_engine *engine = verify_engine_create(2 * VERIFY_ROW_BYTES);
	struct err err = {0};
	const struct verify_row two = {.id = 2}, one = {.id = 1}, three = {.id = 3},
				four = {.id = 4};

	(void)state;
	verify_engine_begin(engine, 1);
	assert_false(verify_engine_row(engine, &one, &err));
	assert_true(verify_engine_row(engine, &two, &err));
	assert_false(verify_engine_row(engine, &two, &err));
	assert_non_null(strstr(err.message, "row 2 behind row 2"));
	assert_false(verify_engine_row(engine, &one, &err));
	assert_true(verify_engine_row(engine, &three, &err));
	assert_false(verify_engine_row(engine, &four, &err));
	assert_non_null(strstr(err.message, "more than the 2 rows"));
	verify_engine_destroy(engine);
}

/* After the sequence of ids went back. A page has all of them, beyond the capacity if need be. */
static void rows_that_share_an_id_are_judged_each_by_its_event(void **state)
{
	struct verify_engine *engine = verify_engine_create(2 * VERIFY_ROW_BYTES);
	struct verify_row row = {.id = 2, .state = VERIFY_ACKNOWLEDGED};
	struct verify_record record = record_of(2);
	struct err err = {0};

	(void)state;
	verify_engine_begin(engine, 0);
	add_row(engine, 1, VERIFY_ACKNOWLEDGED);
	for (row.event = 1; row.event <= 3; row.event++)
		assert_true(verify_engine_row(engine, &row, &err));
	row.event = 3;
	assert_false(verify_engine_row(engine, &row, &err));
	verify_engine_rows_end(engine, true);
	for (record.event = 2; record.event <= 4; record.event++)
		assert_int_equal(
		    see(engine, record), record.event <= 3 ? VERIFY_JUDGED : VERIFY_UNKNOWN);
	assert_int_equal(count_missing(engine), 2); /* row 1 and the first of these */
	verify_engine_destroy(engine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_that_were_published_once_in_order_are_clean),
	    cmocka_unit_test(rows_that_are_not_to_be_published_yet_are_counted_and_not_missing),
	    cmocka_unit_test(rows_that_share_an_id_are_missing_one_by_one),
	    cmocka_unit_test(asking_whether_something_is_missing_changes_nothing),
	    cmocka_unit_test(an_acknowledged_row_without_a_record_is_missing_and_another_pending),
	    cmocka_unit_test(a_record_without_a_row_is_unknown_and_so_is_one_with_another_event),
	    cmocka_unit_test(a_first_occurrence_behind_a_later_position_is_out_of_order),
	    cmocka_unit_test(a_later_tick_comes_after_whatever_its_ids),
	    cmocka_unit_test(partitions_shards_and_epochs_are_ordered_each_for_itself),
	    cmocka_unit_test(records_without_a_key_have_no_order),
	    cmocka_unit_test(what_is_sent_again_is_a_duplicate_and_not_out_of_order),
	    cmocka_unit_test(a_duplicate_with_another_tick_or_partition_is_unequal),
	    cmocka_unit_test(a_new_epoch_may_give_a_duplicate_another_position),
	    cmocka_unit_test(a_record_that_is_not_its_rows_is_altered),
	    cmocka_unit_test(a_sequence_that_falls_is_out_of_order),
	    cmocka_unit_test(each_key_has_a_sequence_of_its_own),
	    cmocka_unit_test(rounds_judge_each_row_once),
	    cmocka_unit_test(ids_with_holes_are_found),
	    cmocka_unit_test(fields_do_not_run_into_each_other),
	    cmocka_unit_test(rows_that_a_server_sends_out_of_order_or_in_excess_are_an_error),
	    cmocka_unit_test(rows_that_share_an_id_are_judged_each_by_its_event),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
