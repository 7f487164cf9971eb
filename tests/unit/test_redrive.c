/* Redrives dead letters without Kafka: this file defines the functions of Kafka's clients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "committed.h"
#include "consumer.h"
#include "item.h"
#include "offsets.h"
#include "redelivery.h"
#include "redrive.h"
#include "text.h"

enum { MOST = 8, NOBODY = -1 };

/* --- a dead-letter topic of one partition ----------------------------------------------------- */

struct letter {
	int64_t offset;
	const char *key, *origin;
};

static struct {
	const struct letter *letters;
	int count;
	int64_t refused; /* the offset that the broker refuses; NOBODY: none */
	int64_t committed;
	char *text;
	struct item *flying[MOST];
	int flying_count, steps;
	int64_t written[MOST]; /* offsets, in the order in which they were sent */
	int written_count;
} world;

/* Keeps what is committed, as the group does. */
static void begin_world(const struct letter *letters, int count)
{
	free(world.text);
	memset(&world, 0, sizeof world);
	world.letters = letters;
	world.count = count;
	world.refused = NOBODY;
	world.committed = SUBSCRIPTION_NONE;
	world.text = xstrdup("");
}

struct consumer *consumer_create(const struct kafka_settings *kafka, const char *const *topics,
    const char *isolation, struct err *err)
{
	(void)kafka, (void)topics, (void)isolation, (void)err;
	return (struct consumer *)&world;
}

struct consumer *consumer_create_range(const struct kafka_settings *kafka,
    const char *const *topics, const char *isolation, const struct consumer_range *range,
    struct err *err)
{
	(void)range;
	return consumer_create(kafka, topics, isolation, err);
}

void consumer_destroy(struct consumer *consumer)
{
	(void)consumer;
}

bool consumer_partition_at(
    const struct consumer *consumer, int index, struct consumer_partition *ret_partition)
{
	(void)consumer;
	*ret_partition = (struct consumer_partition){
	    .topic = "dead", .high = world.letters[world.count - 1].offset + 1};
	return index == 0;
}

bool consumer_read(struct consumer *consumer, int timeout_ms,
    bool (*see)(void *context, const struct consumer_record *record), void *context,
    bool *ret_at_end, struct err *err)
{
	(void)consumer, (void)timeout_ms, (void)err;
	bool goes_on = true;

	for (int i = 0; goes_on && i < world.count; i++) {
		const struct letter *letter = &world.letters[i];
		const struct consumer_record record = {.topic = "dead",
		    .offset = letter->offset,
		    .key = letter->key,
		    .key_length = strlen(letter->key),
		    .internal = (void *)letter};
		goes_on = see(context, &record);
	}
	*ret_at_end = true;
	return true;
}

const void *consumer_headers(const struct consumer_record *record)
{
	return record->internal;
}

bool consumer_headers_at(const void *headers, size_t index, const char **ret_name,
    const void **ret_value, size_t *ret_length)
{
	const struct letter *letter = headers;

	*ret_name = index == 0 ? "outbox-group" : "outbox-origin-topic";
	*ret_value = index == 0 ? "group" : letter->origin;
	*ret_length = strlen(*ret_value);
	return index < 2;
}

bool consumer_header(const struct consumer_record *record, const char *name, const void **ret_value,
    size_t *ret_length)
{
	const char *found;

	for (size_t i = 0; consumer_headers_at(record->internal, i, &found, ret_value, ret_length);
	     i++)
		if (text_equal(found, name))
			return true;
	return false;
}

/* --- the broker ------------------------------------------------------------------------------- */

struct redelivery *redelivery_create(const struct kafka_settings *kafka, const char *group)
{
	(void)kafka, (void)group;
	return (struct redelivery *)&world;
}

/* A real producer may write the rest while it is closed. */
void redelivery_drop(struct redelivery *redelivery)
{
	(void)redelivery;
	for (int i = 0; i < world.flying_count; i++)
		item_destroy(world.flying[i]);
	world.flying_count = world.steps = 0;
}

void redelivery_destroy(struct redelivery *redelivery)
{
	redelivery_drop(redelivery);
}

void redelivery_send(
    struct redelivery *redelivery, struct item *item, const char *topic, int64_t wait_ms)
{
	(void)redelivery, (void)topic, (void)wait_ms;
	assert_true(world.flying_count < MOST);
	world.flying[world.flying_count++] = item;
	if (item->public.offset != world.refused)
		world.written[world.written_count++] = item->public.offset;
}

int64_t redelivery_step(struct redelivery *redelivery, int64_t now_ms)
{
	(void)redelivery;
	world.steps++;
	return now_ms;
}

int redelivery_fd(const struct redelivery *redelivery)
{
	(void)redelivery;
	return -1;
}

/* One answer a step. */
struct item *redelivery_take(struct redelivery *redelivery, bool *ret_refused, struct err *ret_why)
{
	(void)redelivery;
	if (!world.steps || !world.flying_count)
		return NULL;
	struct item *item = world.flying[0];

	memmove(
	    world.flying, world.flying + 1, (size_t)--world.flying_count * sizeof *world.flying);
	world.steps--;
	*ret_refused = item->public.offset == world.refused;
	if (*ret_refused)
		err_set(ret_why, ERR_REJECT, "too large");
	return item;
}

size_t redelivery_count(const struct redelivery *redelivery)
{
	(void)redelivery;
	return (size_t)world.flying_count;
}

/* --- the group -------------------------------------------------------------------------------- */

struct committed *committed_open(
    const struct kafka_settings *kafka, const char *group, struct err *err)
{
	(void)kafka, (void)group, (void)err;
	return (struct committed *)&world;
}

void committed_close(struct committed *committed)
{
	(void)committed;
}

bool committed_read(struct committed *committed, const char *topic, int32_t partition,
    int64_t *ret_offset, char **ret_text, struct err *err)
{
	(void)committed, (void)topic, (void)partition, (void)err;
	*ret_offset = world.committed;
	*ret_text = xstrdup(world.text);
	return true;
}

bool committed_write(
    struct committed *committed, const struct subscription_place *place, struct err *err)
{
	(void)committed, (void)err;
	free(world.text);
	world.committed = place->offset;
	world.text = xstrdup(place->text);
	return true;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void ignore_letter(void *context, const struct redrive_found *found)
{
	(void)context, (void)found;
}

static void refuse_unnoted(void *context, int partition)
{
	(void)context, (void)partition;
	fail_msg("each dead letter can be noted");
}

static char *topics[] = {"orders"};
static const struct config_deliver section = {.name = "billing",
    .topics = {.items = topics, .count = 1},
    .group = "group",
    .id = "header:outbox-id",
    .dead_letter_topic = "dead"};
static const struct redrive_filter all = {
    .from_us = INT64_MIN, .to_us = INT64_MAX, .limit = INT64_MAX};

/* One call of the command; false: *err says why. key NULL: all dead letters. */
static bool redrive_letters(const char *key, struct redrive_figures *ret_figures, struct err *err)
{
	struct redrive_filter filter = all;
	struct redrive *redrive;

	filter.key = key;
	redrive = redrive_open(&section, &filter, err);
	bool done;

	done = redrive && redrive_find(redrive, ignore_letter, NULL, err);
	*ret_figures = redrive ? redrive_figures(redrive) : (struct redrive_figures){0};
	done = done && redrive_send(redrive, refuse_unnoted, NULL, err);
	ret_figures->sent = redrive ? redrive_figures(redrive).sent : 0;
	redrive_close(redrive);
	return done;
}

static void those_in_flight_behind_a_refused_one_go_back_once(void **state)
{
	static const struct letter letters[] = {
	    {0, "large", "orders"}, {1, "a", "orders"}, {2, "b", "orders"}};
	struct redrive_figures figures;
	struct err err;

	(void)state;
	begin_world(letters, 3);
	world.refused = 0;
	assert_false(redrive_letters(NULL, &figures, &err));
	assert_string_equal(err.message, "too large");
	assert_int_equal(figures.sent, 2);

	world.refused = NOBODY;
	assert_true(redrive_letters(NULL, &figures, &err));
	assert_int_equal(figures.gone_before, 2);
	assert_int_equal(world.written_count, 3);
	assert_int_equal(world.written[2], 0);
}

static void a_topic_that_the_section_does_not_read_is_refused_before_the_first_is_sent(void **state)
{
	static const struct letter letters[] = {{0, "a", "orders"}, {1, "b", "elsewhere"}};
	struct redrive_figures figures;
	struct err err;

	(void)state;
	begin_world(letters, 2);
	assert_false(redrive_letters(NULL, &figures, &err));
	assert_non_null(strstr(err.message, "dead letter 0/1 is of topic elsewhere, which "));
	assert_int_equal(world.written_count, 0);

	/* left out, it does not stop the other one */
	assert_true(redrive_letters("a", &figures, &err));
	assert_int_equal(figures.sent, 1);
}

static void one_that_cannot_be_noted_is_refused_before_the_first_is_sent(void **state)
{
	static const struct letter letters[] = {
	    {3, "old", "orders"}, {4, "near", "orders"}, {OFFSETS_REACH + 3, "new", "orders"}};
	struct redrive_figures figures;
	struct err err;

	(void)state;
	begin_world(letters, 3);
	assert_false(redrive_letters("new", &figures, &err));
	assert_non_null(strstr(err.message, "dead letter 0/67108867 "));
	assert_int_equal(world.written_count, 0);

	/* those in reach go back, and then the others are in reach, too */
	assert_true(redrive_letters("near", &figures, &err));
	assert_true(redrive_letters("old", &figures, &err));
	assert_true(redrive_letters("new", &figures, &err));
	assert_true(redrive_letters(NULL, &figures, &err));
	assert_int_equal(figures.gone_before, 3);
	assert_int_equal(world.written_count, 3);
}

static void limits_bound_what_is_found_and_what_is_sent(void **state)
{
	static const struct letter letters[] = {
	    {0, "a", "orders"}, {1, "b", "orders"}, {2, "c", "orders"}, {3, "d", "orders"}};
	const int64_t ends[] = {3}; /* the last one came later */
	const int64_t matching[] = {3, 1, 0}, sent[] = {2, 1, 0};
	const struct redrive_limits limits = {60000, 2, ends, 1};
	struct redrive *redrive;
	struct err err;

	(void)state;
	begin_world(letters, 4);
	for (int call = 0; call < 3; call++) {
		redrive = redrive_open(&section, &all, &err);
		redrive_limit(redrive, &limits);
		assert_true(redrive_find(redrive, ignore_letter, NULL, &err));
		assert_int_equal(redrive_figures(redrive).matching, matching[call]);
		assert_int_equal(redrive_end(redrive, 0), call < 2 ? 3 : 0);
		assert_true(redrive_send(redrive, refuse_unnoted, NULL, &err));
		assert_int_equal(redrive_figures(redrive).sent, sent[call]);
		redrive_close(redrive);
	}
	assert_int_equal(world.written_count, 3);
}

static void places_choose_single_letters(void **state)
{
	static const struct letter letters[] = {
	    {0, "a", "orders"}, {1, "b", "orders"}, {2, "c", "orders"}};
	const struct redrive_place places[] = {{0, 0}, {0, 2}, {1, 1}};
	struct redrive_filter filter = all;
	struct redrive *redrive;
	struct err err;

	(void)state;
	begin_world(letters, 3);
	filter.places = places;
	filter.place_count = 3;
	redrive = redrive_open(&section, &filter, &err);
	assert_true(redrive_find(redrive, ignore_letter, NULL, &err));
	assert_true(redrive_send(redrive, refuse_unnoted, NULL, &err));
	redrive_close(redrive);
	assert_int_equal(world.written_count, 2);
	assert_int_equal(world.written[0], 0);
	assert_int_equal(world.written[1], 2);
}

/* Takes two letters a page. */
static bool take_two(void *context, const struct redrive_found *found)
{
	char *seen = context;

	if (strlen(seen) == 2)
		return false;
	snprintf(seen + strlen(seen), 2, "%c", found->gone ? 'x' : (char)('0' + found->offset));
	return true;
}

static void a_page_shows_letters_by_offset_and_which_went_back(void **state)
{
	static const struct letter letters[] = {
	    {0, "a", "orders"}, {1, "b", "orders"}, {2, "c", "elsewhere"}};
	struct redrive_place next = {0, 0};
	struct redrive_figures figures;
	struct redrive *redrive;
	char seen[4] = "", rest[4] = "";
	struct err err;

	(void)state;
	begin_world(letters, 3);
	assert_true(redrive_letters("b", &figures, &err));

	redrive = redrive_open(&section, &all, &err);
	assert_true(redrive_page(redrive, next, take_two, seen, &next, &err));
	assert_string_equal(seen, "0x");
	assert_int_equal(next.partition, 0);
	assert_int_equal(next.offset, 2);
	assert_true(redrive_page(redrive, next, take_two, rest, &next, &err));
	assert_string_equal(rest, "2");
	assert_int_equal(next.partition, -1);
	redrive_close(redrive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(those_in_flight_behind_a_refused_one_go_back_once),
	    cmocka_unit_test(
		a_topic_that_the_section_does_not_read_is_refused_before_the_first_is_sent),
	    cmocka_unit_test(one_that_cannot_be_noted_is_refused_before_the_first_is_sent),
	    cmocka_unit_test(limits_bound_what_is_found_and_what_is_sent),
	    cmocka_unit_test(places_choose_single_letters),
	    cmocka_unit_test(a_page_shows_letters_by_offset_and_which_went_back),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	free(world.text);
	return failed;
}
