#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include "batch.h"
#include "cleanup.h"

static struct batch *batch;
static int64_t offset;

static int begin(void **state)
{
	(void)state;
	batch = batch_create();
	offset = 0;
	return 0;
}

static int end(void **state)
{
	(void)state;
	batch_destroy(batch);
	return 0;
}

/* Where the elements of an array in binary form begin. */
enum { FIRST_ELEMENT = 5 * sizeof(uint32_t) };

static int64_t read_number(const char *bytes, size_t length)
{
	int64_t number = 0;

	for (size_t i = 0; i < length; i++)
		number = number << 8 | (unsigned char)bytes[i];
	return number;
}

/* An array as a server would show it, but for escapes. */
static char *show(struct pg_param array)
{
	struct text shown = {0};

	text_add(&shown, "{");
	for (size_t at = FIRST_ELEMENT; at < array.length;) {
		const char *element = array.text + at + sizeof(uint32_t);
		size_t length = (size_t)read_number(array.text + at, sizeof(uint32_t));
		bool is_null = length == UINT32_MAX;

		if (at > FIRST_ELEMENT)
			text_add(&shown, ",");
		at += sizeof(uint32_t) + (is_null ? 0 : length);
		switch (is_null ? 0 : read_number(array.text + 2 * sizeof(uint32_t), 4)) {
		case 0:
			text_add(&shown, "NULL");
			break;
		case PG_COLUMN_INT:
		case PG_COLUMN_BIGINT:
			text_addf(&shown, "%lld", (long long)read_number(element, length));
			break;
		case PG_COLUMN_BYTEA:
			for (size_t i = 0; i < length; i++)
				text_addf(&shown, "%02x", (unsigned char)element[i]);
			break;
		default:
			text_addf(&shown, "\"%.*s\"", (int)length, element);
		}
	}
	text_add(&shown, "}");
	return shown.data;
}

static void expect_array(struct pg_param array, const char *text)
{
	owned_text char *shown = show(array);

	assert_string_equal(shown, text);
}

/* says: P prepare, Q another prepare of the id, C commit, R rollback */
static void add(char says, const char *id)
{
	static const char *const ops[] = {
	    ['P'] = "prepare", ['Q'] = "prepare", ['C'] = "commit", ['R'] = "rollback"};
	owned_text char *value =
	    xformat("{\"version\": 1, \"op\": \"%s\", \"biz_type\": \"order\", \"biz_id\": \"%s\","
		    " \"topic\": \"orders\", \"payload\": \"%c\", \"check_after\": \"5s\"}",
		ops[(unsigned char)says], id, says);
	struct lookback_input input = {
	    .value = value, .value_length = strlen(value), .is_body = true};
	struct lookback_request request;
	struct refusal refusal;

	if (!lookback_wire_read(&input, &request, &refusal))
		fail_msg("%s", refusal.text);
	batch_add(batch, 3, offset++, &request);
	assert_null(request.biz_type); /* it is the batch's */
}

/* The digest of the prepare that add makes. */
static void know_prepare(char says, int place)
{
	struct batch *other = batch_create();
	struct batch *mine = batch;
	unsigned char digest[LOOKBACK_DIGEST];
	const char *array;

	batch = other;
	add(says, "x");
	offset--;
	batch_work(other);
	array = batch_column(other, BATCH_PREPARE_DIGEST).text;
	memcpy(digest, array + FIRST_ELEMENT + sizeof(uint32_t), sizeof digest);
	batch_destroy(other);
	batch = mine;
	batch_know(batch, place, "prepare", "2026-01-01 00:00:00+00", digest, NULL);
}

static void expect(enum batch_column column, const char *array)
{
	expect_array(batch_column(batch, column), array);
}

static void a_prepare_and_its_commit_in_one_batch_are_of_the_same_moment(void **state)
{
	(void)state;
	add('P', "1");
	add('C', "1");
	assert_int_equal(batch_id_count(batch), 1);
	expect_array(batch_types(batch), "{\"order\"}");
	expect_array(batch_ids(batch), "{\"1\"}");
	batch_work(batch);
	expect(BATCH_PREPARE_TYPE, "{\"order\"}");
	expect(BATCH_PREPARE_ID, "{\"1\"}");
	expect(BATCH_PREPARE_PARTITION, "{3}");
	expect(BATCH_PREPARE_OFFSET, "{0}");
	expect(BATCH_PREPARE_TOPIC, "{\"orders\"}");
	expect(BATCH_PREPARE_CHECK_MS, "{5000}");
	expect(BATCH_PREPARE_EXPIRE_MS, "{NULL}");
	expect(BATCH_DECISION_TYPE, "{\"order\"}");
	expect(BATCH_DECISION_ID, "{\"1\"}");
	expect(BATCH_DECISION_PARTITION, "{3}");
	expect(BATCH_DECISION_OFFSET, "{1}");
	expect(BATCH_DECISION_PREPARED_AT, "{NULL}");
	expect(BATCH_DECISION, "{\"commit\"}");
	expect(BATCH_NOTE_OP, "{}");
}

static void a_decision_of_a_known_prepare_names_its_moment(void **state)
{
	(void)state;
	add('R', "1");
	know_prepare('P', 1);
	batch_work(batch);
	expect(BATCH_PREPARE_ID, "{}");
	expect(BATCH_DECISION_PREPARED_AT, "{\"2026-01-01 00:00:00+00\"}");
	expect(BATCH_DECISION, "{\"rollback\"}");
}

static void a_decision_before_its_prepare_is_a_tombstone_and_decides_it_later(void **state)
{
	(void)state;
	add('C', "1");
	add('R', "2");
	batch_work(batch);
	expect(BATCH_NOTE_OP, "{\"tombstone\",\"tombstone\"}");
	expect(BATCH_NOTE_DECISION, "{\"commit\",\"rollback\"}");
	expect(BATCH_DECISION, "{}");
	batch_clear(batch);

	add('P', "1");
	add('P', "2");
	batch_know(batch, 1, "tombstone", "2026-01-01 00:00:00+00", NULL, "commit");
	batch_know(batch, 2, "tombstone", "2026-01-01 00:00:00+00", NULL, "rollback");
	batch_work(batch);
	expect(BATCH_PREPARE_ID, "{\"1\",\"2\"}");
	expect(BATCH_DECISION_ID, "{\"1\",\"2\"}");
	expect(BATCH_DECISION, "{\"commit\",\"rollback\"}");
	/* of the prepare, not of the tombstone */
	expect(BATCH_DECISION_PREPARED_AT, "{NULL,NULL}");
}

static void the_second_tombstone_is_nothing_or_a_conflict(void **state)
{
	(void)state;
	add('C', "1");
	add('C', "1");
	add('R', "1");
	add('P', "1");
	batch_work(batch);
	expect(BATCH_NOTE_OP, "{\"tombstone\",\"conflict\"}");
	expect(BATCH_NOTE_OFFSET, "{0,2}");
	expect(BATCH_NOTE_KEPT, "{NULL,\"commit\"}");
	expect(BATCH_NOTE_DECISION, "{\"commit\",\"rollback\"}");
	expect(BATCH_PREPARE_OFFSET, "{3}");
	expect(BATCH_DECISION, "{\"commit\"}");
	assert_int_equal(batch_figures(batch).duplicates, 1);
	assert_int_equal(batch_figures(batch).conflicts, 1);
}

static void the_same_prepare_again_is_counted_and_another_one_is_a_conflict(void **state)
{
	(void)state;
	add('P', "1");
	add('P', "1");
	add('Q', "1");
	add('P', "2");
	add('Q', "2");
	know_prepare('Q', 2);
	batch_work(batch);
	expect(BATCH_PREPARE_ID, "{\"1\"}");
	expect(BATCH_NOTE_OP, "{\"conflict\",\"conflict\"}");
	expect(BATCH_NOTE_ID, "{\"1\",\"2\"}");
	expect(BATCH_NOTE_PREPARED_AT, "{NULL,\"2026-01-01 00:00:00+00\"}");
	expect(BATCH_NOTE_KEPT, "{\"prepare\",\"prepare\"}");
	assert_int_equal(batch_figures(batch).duplicates, 2);
}

static void every_decision_of_a_prepare_goes_to_the_database(void **state)
{
	(void)state;
	add('P', "1");
	add('C', "1");
	add('R', "1");
	add('C', "1");
	add('C', "2");
	know_prepare('P', 2);
	batch_know(batch, 2, "decision", "2026-01-01 00:00:00+00", NULL, "rollback");
	batch_work(batch);
	expect(BATCH_PREPARE_ID, "{\"1\"}");
	expect(BATCH_DECISION, "{\"commit\",\"rollback\",\"commit\",\"commit\"}");
	expect(BATCH_DECISION_ID, "{\"1\",\"1\",\"1\",\"2\"}");
	assert_int_equal(batch_figures(batch).decisions, 4);
}

static void dead_letters_keep_their_place_among_the_records(void **state)
{
	(void)state;
	add('P', "1");
	batch_add_dead_letter(batch, 3, 7,
	    &(const struct batch_dead_letter){
		.topic = "dead", .payload = "\0x", .payload_length = 2, .headers = "{}"});
	add('C', "1");
	assert_int_equal(batch_records(batch), 3);
	batch_work(batch);
	expect(BATCH_PREPARE_PAYLOAD, "{225022}");
	expect(BATCH_PREPARE_KEY, "{NULL}");
	expect(BATCH_PREPARE_HEADERS, "{NULL}");
	expect(BATCH_DEAD_LETTER_TOPIC, "{\"dead\"}");
	expect(BATCH_DEAD_LETTER_PAYLOAD, "{0078}");
	expect(BATCH_DEAD_LETTER_KEY, "{NULL}");
	expect(BATCH_DEAD_LETTER_HEADERS, "{\"{}\"}");
	expect(BATCH_DEAD_LETTER_PARTITION, "{3}");
	expect(BATCH_DEAD_LETTER_OFFSET, "{7}");
	expect(BATCH_DECISION_OFFSET, "{1}");
}

static void a_cleared_batch_knows_nothing(void **state)
{
	(void)state;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 1000; i++) {
			owned_text char *id = xformat("%d", i);

			add(i % 2 ? 'P' : 'C', id);
		}
		assert_int_equal(batch_id_count(batch), 1000);
		assert_int_equal(batch_types(batch).length,
		    FIRST_ELEMENT + 1000 * (sizeof(uint32_t) + strlen("order")));
		batch_work(batch);
		assert_int_equal(batch_figures(batch).prepares, 500);
		assert_int_equal(batch_figures(batch).tombstones, 500);
		batch_clear(batch);
	}
	batch_work(batch);
	expect(BATCH_PREPARE_ID, "{}");
	expect(BATCH_NOTE_OP, "{}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		a_prepare_and_its_commit_in_one_batch_are_of_the_same_moment, begin, end),
	    cmocka_unit_test_setup_teardown(
		a_decision_of_a_known_prepare_names_its_moment, begin, end),
	    cmocka_unit_test_setup_teardown(
		a_decision_before_its_prepare_is_a_tombstone_and_decides_it_later, begin, end),
	    cmocka_unit_test_setup_teardown(
		the_second_tombstone_is_nothing_or_a_conflict, begin, end),
	    cmocka_unit_test_setup_teardown(
		the_same_prepare_again_is_counted_and_another_one_is_a_conflict, begin, end),
	    cmocka_unit_test_setup_teardown(
		every_decision_of_a_prepare_goes_to_the_database, begin, end),
	    cmocka_unit_test_setup_teardown(
		dead_letters_keep_their_place_among_the_records, begin, end),
	    cmocka_unit_test_setup_teardown(a_cleared_batch_knows_nothing, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
