#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "dedup_walk.h"
#include "position.h"
#include "temporary.h"
#include "text.h"

static char folder[TEMPORARY], line[TEMPORARY + 20];

static int begin(void **state)
{
	(void)state;
	if (!temporary_make(folder))
		return -1;
	snprintf(line, sizeof line, "sequence path=%s", folder);
	return 0;
}

static int end(void **state)
{
	(void)state;
	temporary_remove(folder);
	return 0;
}

struct named {
	char text[OUTBOX_POSITION_SIZE];
	struct outbox_dedup_id id;
};

static struct named name_of(const struct outbox_position *position, int64_t offset)
{
	struct named named;
	named.id = (struct outbox_dedup_id){
	    NULL, outbox_position_format(position, named.text), -1, offset};
	return named;
}

static struct named name(int shard, int64_t epoch, int64_t tick, int64_t id, int64_t offset)
{
	const struct outbox_position position = {"orders", "1a2b3c4d", shard, epoch, tick, id};
	return name_of(&position, offset);
}

static const char *look(struct outbox_dedup *dedup, struct named named)
{
	static const char *const names[] = {"new", "pending", "done"};
	static struct outbox_error error;
	enum outbox_dedup_state state;
	named.id.id = named.text;
	if (outbox_dedup_check(dedup, &named.id, 1, &state, &error))
		return names[state];
	assert_int_equal(error.kind, OUTBOX_REJECT);
	return strstr(error.message, "order of their offsets") ? "late" : error.message;
}

static void finish(struct outbox_dedup *dedup, struct named named, bool good)
{
	struct outbox_error error;
	named.id.id = named.text;
	if (!(good ? outbox_dedup_done : outbox_dedup_release)(dedup, &named.id, 1, &error))
		fail_msg("%s", error.message);
}

/* Position (tick 1, id) of shard 0 in epoch 5, whose record has that offset. */
static struct named at(int64_t id, int64_t offset)
{
	return name(0, 5, 1, id, offset);
}

static void handle(struct outbox_dedup *dedup, struct named named)
{
	assert_string_equal(look(dedup, named), "new");
	finish(dedup, named, true);
}

static const char *mark_of(struct outbox_dedup *dedup)
{
	static char mark[4096];
	assert_in_range(outbox_dedup_mark(dedup, mark, sizeof mark), 0, sizeof mark - 1);
	return mark;
}

static void copies_are_told_from_what_is_new(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = dedup_walk_open(line);
	handle(dedup, at(1, 0));
	handle(dedup, at(2, 1));
	assert_string_equal(look(dedup, at(1, 2)), "done");
	assert_string_equal(look(dedup, at(7, 3)), "new");
	assert_string_equal(look(dedup, at(7, 4)), "pending");
	finish(dedup, at(7, 3), false);
	assert_string_equal(look(dedup, at(7, 4)), "new");
	handle(dedup, name(0, 5, 2, 0, 5)); /* a later tick, with a smaller id */
	assert_string_equal(look(dedup, name(0, 5, 2, 0, 6)), "done");
	outbox_dedup_close(dedup);
}

static void shards_publishers_and_epochs_are_apart(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = dedup_walk_open(line);
	handle(dedup, name(0, 5, 9, 9, 0));
	handle(dedup, name(1, 5, 1, 1, 1));
	handle(dedup, name(0, 4, 1, 1, 2));
	assert_string_equal(look(dedup, name(0, 5, 1, 1, 0)), "late");
	assert_string_equal(look(dedup, name(0, 5, 9, 9, 3)), "done");
	assert_string_equal(look(dedup, name(0, 4, 1, 1, 4)), "done");
	outbox_dedup_close(dedup);
}

/* Their publishers have one name, and even the epoch and the ids are the same. */
static void two_databases_are_apart(void **state)
{
	(void)state;
	const struct outbox_position others = {"orders", "99999999", 0, 5, 1, 1};
	struct outbox_error error;
	struct outbox_dedup *dedup = dedup_walk_open(line);
	handle(dedup, at(1, 0));
	handle(dedup, at(9, 1));
	handle(dedup, name_of(&others, 2));
	assert_string_equal(look(dedup, name_of(&others, 3)), "done");
	assert_string_equal(look(dedup, at(9, 4)), "done");
	dedup_walk_checkpoint(dedup, 5);
	owned_text char *mark = xstrdup(mark_of(dedup));
	assert_string_equal(mark, "2:orders:1a2b3c4d:0:5:1:9 2:orders:99999999:0:5:1:1");
	outbox_dedup_close(dedup);

	dedup = dedup_walk_open("sequence");
	assert_true(outbox_dedup_resume(dedup, mark, &error));
	assert_string_equal(look(dedup, name_of(&others, 2)), "done");
	assert_string_equal(look(dedup, at(9, 4)), "done");
	handle(dedup, at(10, 5));
	outbox_dedup_close(dedup);
}

/* The oldest epoch of a shard makes room, and none of another database's. */
static void epochs_of_two_databases_are_counted_apart(void **state)
{
	(void)state;
	struct outbox_position others = {"orders", "99999999", 0, 0, 1, 1};
	struct outbox_dedup *dedup = dedup_walk_open("sequence");
	handle(dedup, at(1, 0));
	for (int epoch = 1; epoch <= 4; epoch++) {
		others.epoch = epoch;
		handle(dedup, name_of(&others, epoch));
		dedup_walk_checkpoint(dedup, epoch + 1);
	}
	assert_string_equal(look(dedup, at(1, 9)), "done");
	outbox_dedup_close(dedup);
}

/* Nobody can know that it is none: it would be lost, or come twice. */
static void what_comes_behind_a_later_one_is_refused(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = dedup_walk_open(line);
	assert_string_equal(look(dedup, at(10, 3)), "new");
	assert_string_equal(look(dedup, at(5, 1)), "late");
	finish(dedup, at(10, 3), true);
	assert_string_equal(look(dedup, at(5, 1)), "late");
	dedup_walk_checkpoint(dedup, -1);
	assert_string_equal(look(dedup, at(5, 4)), "done"); /* the mark is at 10 */
	outbox_dedup_close(dedup);
}

/* Its first is of an offset from which this consumer did not read. */
static void a_copy_of_what_was_before_the_beginning_is_one(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = dedup_walk_open("sequence");
	assert_string_equal(look(dedup, at(50, 100)), "new");
	assert_string_equal(look(dedup, at(51, 101)), "new");
	assert_string_equal(look(dedup, at(40, 102)), "done");
	assert_string_equal(look(dedup, at(50, 103)), "pending");
	assert_string_equal(look(dedup, at(52, 104)), "new");
	assert_string_equal(look(dedup, at(41, 104)), "late");
	assert_string_equal(look(dedup, at(41, -1)), "late");
	outbox_dedup_close(dedup);
}

static void the_mark_is_never_beyond_what_is_done(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = dedup_walk_open("sequence");
	for (int i = 0; i < 5; i++)
		assert_string_equal(look(dedup, at(i + 1, i)), "new");
	finish(dedup, at(1, 0), true);
	finish(dedup, at(2, 1), true);
	finish(dedup, at(4, 3), true);
	dedup_walk_checkpoint(dedup, -1);
	assert_string_equal(mark_of(dedup), "2:orders:1a2b3c4d:0:5:1:2");
	dedup_walk_checkpoint(dedup, 1); /* less than what is known */
	assert_string_equal(mark_of(dedup), "2:orders:1a2b3c4d:0:5:1:2");
	finish(dedup, at(3, 2), false); /* given up: its offset says that it is done with */
	dedup_walk_checkpoint(dedup, 4);
	assert_string_equal(mark_of(dedup), "2:orders:1a2b3c4d:0:5:1:4");
	finish(dedup, at(5, 4), true);
	dedup_walk_checkpoint(dedup, 5);
	assert_string_equal(mark_of(dedup), "2:orders:1a2b3c4d:0:5:1:5");
	outbox_dedup_close(dedup);
}

static void another_owner_goes_on_from_the_mark(void **state)
{
	(void)state;
	struct outbox_error error;
	struct outbox_dedup *dedup = dedup_walk_open("sequence");
	for (int shard = 0; shard < 3; shard++)
		handle(dedup, name(shard, 5, 1, shard, shard));
	assert_string_equal(look(dedup, name(0, 5, 1, 7, 3)), "new");
	dedup_walk_checkpoint(dedup, 3);
	owned_text char *mark = xstrdup(mark_of(dedup));
	outbox_dedup_close(dedup);

	dedup = dedup_walk_open("sequence");
	assert_true(outbox_dedup_resume(dedup, mark, &error));
	assert_string_equal(mark_of(dedup), mark);
	assert_string_equal(look(dedup, name(2, 5, 1, 2, 3)), "done");
	handle(dedup, name(0, 5, 1, 7, 4));
	assert_false(outbox_dedup_resume(dedup, "2:orders:1a2b3c4d:0:5:1:7 nonsense", &error));
	assert_int_equal(error.kind, OUTBOX_REJECT);
	outbox_dedup_close(dedup);

	dedup = dedup_walk_open("exact ids=10");
	assert_int_equal(outbox_dedup_mark(dedup, NULL, 0), 0);
	assert_false(outbox_dedup_resume(dedup, mark, &error));
	assert_int_equal(error.kind, OUTBOX_CONFIG);
	outbox_dedup_close(dedup);
}

static void a_mark_without_room_is_cut_and_says_so(void **state)
{
	(void)state;
	char small[10];
	struct outbox_dedup *dedup = dedup_walk_open("sequence");
	handle(dedup, at(1, 0));
	dedup_walk_checkpoint(dedup, 1);
	assert_int_equal(outbox_dedup_mark(dedup, small, sizeof small), 25);
	assert_string_equal(small, "2:orders:");
	outbox_dedup_close(dedup);
}

static void the_folder_remembers_what_was_checkpointed(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = dedup_walk_open(line);
	handle(dedup, at(1, 0));
	dedup_walk_checkpoint(dedup, 1);
	handle(dedup, at(2, 1));
	assert_null(outbox_dedup_open(line, NULL)); /* another has it */
	outbox_dedup_close(dedup);
	dedup = dedup_walk_open(line);
	assert_int_equal(dedup_walk_stats(dedup).offset, 1);
	assert_string_equal(look(dedup, at(1, 1)), "done");
	assert_string_equal(look(dedup, at(2, 1)), "new");
	outbox_dedup_close(dedup);
}

static void four_epochs_of_a_shard_are_remembered(void **state)
{
	(void)state;
	struct outbox_dedup *dedup = dedup_walk_open("sequence");
	for (int epoch = 1; epoch <= 6; epoch++) {
		handle(dedup, name(0, epoch, 1, 1, epoch));
		dedup_walk_checkpoint(dedup, epoch + 1);
	}
	for (int epoch = 3; epoch <= 6; epoch++)
		assert_string_equal(look(dedup, name(0, epoch, 1, 1, 10 + epoch)), "done");
	assert_string_equal(look(dedup, name(0, 2, 1, 1, 20)), "new");
	outbox_dedup_close(dedup);
}

static void what_is_no_position_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {"17", "2:orders:1a2b3c4d:0:5:1",
	    "2:orders:1a2b3c4d:0:5:1:2:3", "1:o:0:5:1:2", "2:o:0:5:1:2", "2::1a2b3c4d:0:5:1:2",
	    "2:o:1a2b3c4d:-1:5:1:2", "2:o:1a2b3c4d:0:5:1:99999999999999999999"};
	struct outbox_dedup *dedup = dedup_walk_open("sequence");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct outbox_dedup_id id = {bad[i], strlen(bad[i]), -1, 0};
		struct outbox_error error;
		enum outbox_dedup_state found;
		assert_false(outbox_dedup_check(dedup, &id, 1, &found, &error));
		assert_int_equal(error.kind, OUTBOX_REJECT);
		assert_non_null(strstr(error.message, "outbox-position"));
	}
	struct named named = at(1, 0);
	memcpy(named.text + named.id.length, "\0x", 2);
	named.id.length += 2;
	assert_non_null(strstr(look(dedup, named), "no position"));
	outbox_dedup_close(dedup);
}

/* --- the file ------------------------------------------------------------------------------- */

static size_t read_file(char *bytes, size_t size)
{
	owned_text char *path = xformat("%s/positions", folder);
	owned_file FILE *file = fopen(path, "r");
	assert_non_null(file);
	return fread(bytes, 1, size, file);
}

static void write_file(const char *bytes, size_t size)
{
	owned_text char *path = xformat("%s/positions", folder);
	owned_file FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, size, file), size);
}

static void expect_refused(void)
{
	struct outbox_error error;
	assert_null(outbox_dedup_open(line, &error));
	assert_int_equal(error.kind, OUTBOX_CONFIG);
	assert_non_null(strstr(error.message, "damaged"));
}

static void a_damaged_file_is_refused(void **state)
{
	(void)state;
	char good[500], bad[500];
	struct outbox_dedup *dedup = dedup_walk_open(line);
	handle(dedup, at(1, 0));
	dedup_walk_checkpoint(dedup, 1);
	outbox_dedup_close(dedup);
	size_t size = read_file(good, sizeof good);
	for (size_t i = 0; i < size; i++) {
		memcpy(bad, good, size);
		bad[i] ^= 1;
		write_file(bad, size);
		expect_refused();
		write_file(good, i); /* cut off */
		expect_refused();
	}
	write_file(good, size);
	outbox_dedup_close(dedup_walk_open(line));
}

/* --- a topic and its consumers -------------------------------------------------------------- */

enum { RECORDS = 3000, SHARDS = 3 };

/* As our relay writes it: what was sent may come again from any earlier one on, in order. */
static void write_topic(struct named *topic)
{
	int64_t next[SHARDS] = {0}, most[SHARDS] = {0};
	for (int offset = 0; offset < RECORDS; offset++) {
		int shard = rand() % SHARDS;
		if (rand() % 50 == 0)
			next[shard] -= rand() % (next[shard] < 30 ? (int)next[shard] + 1 : 30);
		topic[offset] = name(shard, 5, next[shard] / 10, next[shard], offset);
		next[shard]++;
		most[shard] = next[shard] > most[shard] ? next[shard] : most[shard];
	}
}

static void count_handled(const struct named *named, int *handled)
{
	struct outbox_position position;
	assert_true(outbox_position_parse(named->text, named->id.length, &position));
	handled[position.shard * RECORDS + position.id]++;
}

/* Handles from the committed offset on, in flight up to 20, and dies somewhere. */
static int64_t consume(const struct named *topic, int64_t from, int *handled, bool *dies)
{
	struct outbox_dedup *dedup = dedup_walk_open(line);
	int64_t waiting[20], committed = from;
	size_t count = 0;
	for (int64_t offset = from; offset < RECORDS || count;) {
		if (offset < RECORDS && count < 20 && rand() % 2) {
			if (strcmp(look(dedup, topic[offset]), "new") == 0)
				waiting[count++] = offset;
			offset++;
		} else if (count) {
			size_t chosen = (size_t)rand() % count;
			count_handled(&topic[waiting[chosen]], handled);
			finish(dedup, topic[waiting[chosen]], true);
			waiting[chosen] = waiting[--count];
		}
		int64_t oldest = offset;
		for (size_t i = 0; i < count; i++)
			oldest = waiting[i] < oldest ? waiting[i] : oldest;
		if (rand() % 30 == 0) {
			dedup_walk_checkpoint(dedup, oldest);
			committed = rand() % 4 ? oldest : committed; /* or the commit failed */
		}
		if (rand() % 400 == 0) {
			*dies = true;
			break;
		}
	}
	outbox_dedup_close(dedup);
	return committed;
}

static void none_is_lost_and_only_a_death_doubles(void **state)
{
	(void)state;
	static struct named topic[RECORDS];
	static int handled[SHARDS * RECORDS];
	for (unsigned seed = 1; seed <= 8; seed++) {
		bool dies = true;
		int64_t committed = 0;
		int deaths = 0, doubled = 0;
		srand(seed);
		write_topic(topic);
		memset(handled, 0, sizeof handled);
		temporary_empty(folder);
		for (; dies; deaths++) {
			dies = false;
			committed = consume(topic, committed, handled, &dies);
		}
		for (int offset = 0; offset < RECORDS; offset++) {
			struct outbox_position position;
			outbox_position_parse(
			    topic[offset].text, topic[offset].id.length, &position);
			int times = handled[position.shard * RECORDS + position.id];
			assert_int_not_equal(times, 0);
			doubled += times > 1;
		}
		assert_true(deaths > 1 || doubled == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(copies_are_told_from_what_is_new, begin, end),
	    cmocka_unit_test_setup_teardown(shards_publishers_and_epochs_are_apart, begin, end),
	    cmocka_unit_test_setup_teardown(two_databases_are_apart, begin, end),
	    cmocka_unit_test_setup_teardown(epochs_of_two_databases_are_counted_apart, begin, end),
	    cmocka_unit_test_setup_teardown(what_comes_behind_a_later_one_is_refused, begin, end),
	    cmocka_unit_test_setup_teardown(
		a_copy_of_what_was_before_the_beginning_is_one, begin, end),
	    cmocka_unit_test_setup_teardown(the_mark_is_never_beyond_what_is_done, begin, end),
	    cmocka_unit_test_setup_teardown(another_owner_goes_on_from_the_mark, begin, end),
	    cmocka_unit_test_setup_teardown(a_mark_without_room_is_cut_and_says_so, begin, end),
	    cmocka_unit_test_setup_teardown(the_folder_remembers_what_was_checkpointed, begin, end),
	    cmocka_unit_test_setup_teardown(four_epochs_of_a_shard_are_remembered, begin, end),
	    cmocka_unit_test_setup_teardown(what_is_no_position_is_refused, begin, end),
	    cmocka_unit_test_setup_teardown(a_damaged_file_is_refused, begin, end),
	    cmocka_unit_test_setup_teardown(none_is_lost_and_only_a_death_doubles, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
