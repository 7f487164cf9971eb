/*
 * A partition from where it begins to its commits, on a model of the broker: what subscription.h
 * and a record's headers say comes from this file.
 */
#include "inbox_partition.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "temporary.h"
#include "text.h"

enum { HOUR = 3600 * 1000 };

/* --- the broker ----------------------------------------------------------------------------- */

static struct {
	int64_t low, high;
	int64_t first_ms; /* of the record 0; each is a second later than the one before */
} broker;

bool subscription_range(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t *ret_low, int64_t *ret_high, struct err *err)
{
	(void)subscription, (void)topic, (void)partition, (void)err;
	*ret_low = broker.low;
	*ret_high = broker.high;
	return true;
}

bool subscription_at(struct subscription *subscription, const char *topic, int32_t partition,
    int64_t time_ms, int64_t *ret_offset, struct err *err)
{
	(void)subscription, (void)topic, (void)partition, (void)err;
	int64_t offset = (time_ms - broker.first_ms + 999) / 1000;
	offset = time_ms <= broker.first_ms ? 0 : offset;
	offset = offset < broker.low ? broker.low : offset;
	*ret_offset = offset < broker.high ? offset : INT64_MAX;
	return true;
}

const void *consumer_headers(const struct consumer_record *record)
{
	return record->internal;
}

/* Behind the id of each record; without a name: the end. */
static struct {
	const char *name, *value;
} further[16];

bool consumer_headers_at(const void *headers, size_t index, const char **ret_name,
    const void **ret_value, size_t *ret_length)
{
	if (!headers || (index > 0 && !further[index - 1].name))
		return false;
	if (index > 0) {
		*ret_name = further[index - 1].name;
		*ret_value = further[index - 1].value;
		*ret_length = strlen(further[index - 1].value);
		return true;
	}
	*ret_name = "outbox-id";
	*ret_value = headers;
	*ret_length = strlen(headers);
	return true;
}

/* --- a consumer ----------------------------------------------------------------------------- */

static char folder[TEMPORARY];
static struct inbox_settings *settings;
static struct inbox_partition_store common;

static void handle(void *context, struct outbox_inbox *inbox,
    const struct outbox_inbox_message *const *messages, size_t count)
{
	(void)context, (void)inbox, (void)messages, (void)count;
}

static void set(const struct outbox_inbox_settings *with)
{
	static const char *kafka[] = {"bootstrap.servers", "127.0.0.1:1", NULL};
	static const char *topics[] = {"orders", "bills", NULL};
	struct outbox_inbox_settings given = *with;
	struct err err;
	given.kafka = kafka;
	given.topics = topics;
	given.group = given.group ? given.group : "group";
	given.path = folder;
	given.handle = handle;
	inbox_settings_destroy(settings);
	settings = inbox_settings_create(&given, &err);
	if (!settings)
		fail_msg("%s", err.message);
}

static void use(const char *dedup)
{
	set(&(struct outbox_inbox_settings){.dedup = dedup});
}

static struct inbox_partition *open_text(int64_t committed, const char *text, int64_t *ret_from)
{
	struct subscription_place place = {"orders", 3, committed, text};
	struct err err;
	struct inbox_partition *assigned = inbox_partition_open(settings,
	    (struct inbox_partition_common){.store = common.dedup ? &common : NULL}, NULL, &place,
	    &err);
	if (!assigned)
		fail_msg("%s", err.message);
	*ret_from = place.offset;
	return assigned;
}

static struct inbox_partition *open_at(int64_t committed, int64_t *ret_from)
{
	return open_text(committed, "", ret_from);
}

static bool arrive(struct inbox_partition *assigned, int64_t offset, const char *id)
{
	char text[32];
	snprintf(text, sizeof text, "id-%d", (int)offset);
	const struct consumer_record record = {.topic = assigned->topic,
	    .partition = 3,
	    .offset = offset,
	    .timestamp_ms = broker.first_ms + offset * 1000,
	    .payload = "x",
	    .payload_length = 1,
	    .internal = (void *)(id ? id : text)};
	return inbox_partition_arrive(assigned, settings, item_create(NULL, &record));
}

/* Those that are admitted; the caller frees them. */
static struct item_list admit(struct inbox_partition *assigned)
{
	struct item_list items = {0};
	struct err err;
	int64_t *trouble;
	if (!inbox_partition_admit(assigned, settings, &items, &trouble, &err))
		fail_msg("%s", err.message);
	return items;
}

/* As the loop does it, without handlers. Returns how many of them were new. */
static int finish(struct inbox_partition *assigned, struct item_list *items)
{
	struct item_list logged = {0};
	struct err err;
	int fresh = 0;
	for (struct item *item; (item = item_list_take(items));) {
		fresh += !item->known && item->fate == FATE_HANDLE;
		item->state = ITEM_LOGGING;
		item_list_add(item->pending ? &assigned->logging : &logged, item);
	}
	while (assigned->logging.first)
		assert_true(inbox_partition_log(assigned, &logged, &err));
	for (struct item *item; (item = item_list_take(&logged));) {
		assigned->known -= item->known;
		assigned->items--;
		if (!item->known)
			offsets_finished(&assigned->offsets, item->public.offset);
		item_destroy(item);
	}
	return fresh;
}

static int handle_all(struct inbox_partition *assigned, int64_t from, int64_t to)
{
	for (int64_t offset = from; offset < to; offset++)
		assert_true(arrive(assigned, offset, NULL));
	struct item_list items = admit(assigned);
	return finish(assigned, &items);
}

static void checkpoint(struct inbox_partition *assigned)
{
	struct err err;
	if (!inbox_partition_checkpoint(assigned, settings, &err))
		fail_msg("%s", err.message);
}

static void drop(struct item_list *items)
{
	for (struct item *item; (item = item_list_take(items));)
		item_destroy(item);
}

static int set_up(void **state)
{
	(void)state;
	broker.low = 0;
	broker.high = 1000;
	broker.first_ms = clock_wall_us() / 1000 - 1000 * 1000;
	common = (struct inbox_partition_store){0};
	return temporary_make(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	temporary_remove(folder);
	inbox_settings_destroy(settings);
	settings = NULL;
	return 0;
}

/* -------------------------------------------------------------------------------------------- */

static const char exact[] = "exact ids=10k window=1h";

static void the_state_of_another_group_says_nothing_of_this_one(void **state)
{
	static const char *const groups[] = {"one", "two", "../one", "one/two", "%6Fne", "", "o"};
	int64_t from;
	(void)state;
	for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
		char longest[400];
		memset(longest, 'g', sizeof longest);
		longest[sizeof longest - 1] = '\0';
		set(&(struct outbox_inbox_settings){
		    .group = groups[i][0] ? groups[i] : longest, .dedup = exact});
		struct inbox_partition *assigned = open_at(0, &from);
		assert_int_equal(handle_all(assigned, 0, 20), 20);
		checkpoint(assigned);
		inbox_partition_close(assigned);
		assigned = open_at(20, &from);
		assert_int_equal(from, 20); /* and what it knows itself is there */
		inbox_partition_close(assigned);
	}
}

static void what_was_elsewhere_is_read_from_where_the_state_ends(void **state)
{
	int64_t from;
	(void)state;
	use(exact);
	struct inbox_partition *assigned = open_at(0, &from);
	handle_all(assigned, 0, 20);
	checkpoint(assigned);
	inbox_partition_close(assigned);
	assigned = open_at(50, &from);
	assert_int_equal(from, 20);
	assert_int_equal(handle_all(assigned, 20, 60), 10);
	checkpoint(assigned);
	inbox_partition_close(assigned);
	assigned = open_at(60, &from);
	assert_int_equal(from, 60);
	inbox_partition_close(assigned);
}

static void a_checkpoint_before_the_gap_is_read_does_not_say_that_it_was(void **state)
{
	int64_t from;
	(void)state;
	use(exact);
	struct inbox_partition *assigned = open_at(50, &from);
	assert_int_equal(from, 0);
	checkpoint(assigned); /* nothing of it was read */
	inbox_partition_close(assigned);
	assigned = open_at(50, &from);
	assert_int_equal(from, 0);
	for (int offset = 0; offset <= 50; offset++)
		assert_true(arrive(assigned, offset, NULL));
	struct item_list items = admit(assigned);
	checkpoint(assigned); /* all was read, and not logged yet */
	drop(&items);
	inbox_partition_close(assigned);
	assigned = open_at(50, &from);
	assert_int_equal(from, 0);
	handle_all(assigned, 0, 51);
	checkpoint(assigned);
	inbox_partition_close(assigned);
	assigned = open_at(51, &from);
	assert_int_equal(from, 51);
	inbox_partition_close(assigned);
}

static void the_window_of_one_that_lags_is_that_of_its_stream(void **state)
{
	int64_t from;
	(void)state;
	use("exact ids=10k window=10s");
	broker.high = 100000;
	broker.first_ms = clock_wall_us() / 1000 - 24 * HOUR; /* of which it has read an hour */
	struct inbox_partition *assigned = open_at(3600, &from);
	assert_true(from <= 3590);
	inbox_partition_close(assigned);
	broker.first_ms = clock_wall_us() / 1000 - 3600 * 1000; /* it is at the end */
	assigned = open_at(3600, &from);
	assert_in_range(from, 3500, 3590);
	inbox_partition_close(assigned);
}

static void a_state_beyond_the_end_is_of_another_topic_and_not_believed(void **state)
{
	int64_t from;
	(void)state;
	use(exact);
	struct inbox_partition *assigned = open_at(0, &from);
	handle_all(assigned, 0, 500);
	checkpoint(assigned);
	inbox_partition_close(assigned);
	broker.high = 100;
	assigned = open_at(50, &from);
	assert_int_equal(from, 0);
	handle_all(assigned, 0, 50);
	assert_int_equal(handle_all(assigned, 50, 60), 0); /* its ids are kept */
	inbox_partition_close(assigned);
}

static void what_is_not_in_the_partition_begins_as_the_settings_say(void **state)
{
	static const struct {
		enum outbox_inbox_start start;
		int64_t committed, from, done;
		bool finished; /* what the text says */
	} cases[] = {
	    {OUTBOX_INBOX_EARLIEST, -1, 100, 100, false},
	    {OUTBOX_INBOX_LATEST, -1, 1000, 1000, false},
	    {OUTBOX_INBOX_EARLIEST, 5000, 100, 100, false},
	    {OUTBOX_INBOX_LATEST, 5000, 1000, 1000, false},
	    {OUTBOX_INBOX_EARLIEST, 50, 100, 100, true},
	    {OUTBOX_INBOX_LATEST, 50, 1000, 1000, false},
	};
	(void)state;
	broker.low = 100;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int64_t from;
		set(&(struct outbox_inbox_settings){.dedup = exact, .start = cases[i].start});
		struct inbox_partition *assigned =
		    open_text(cases[i].committed, "inbox1:r8BB:", &from);
		assert_int_equal(from, cases[i].from);
		assert_int_equal(assigned->offsets.done, cases[i].done);
		assert_int_equal(offsets_is_finished(&assigned->offsets, cases[i].committed + 60),
		    cases[i].finished || cases[i].committed + 60 < cases[i].done);
		assert_int_equal(assigned->stops, 0);
		assert_true(assigned->changed); /* it is committed, and holds */
		inbox_partition_close(assigned);
	}
}

static void block_reads_and_commits_nothing(void **state)
{
	int64_t from;
	(void)state;
	set(&(struct outbox_inbox_settings){.dedup = exact, .start = OUTBOX_INBOX_BLOCK});
	for (int64_t committed = -1; committed < 5000; committed += 5000) {
		struct inbox_partition *assigned = open_at(committed, &from);
		assert_int_equal(assigned->state, ASSIGNED_UNSET);
		assert_false(arrive(assigned, 1000, NULL));
		inbox_partition_close(assigned);
	}
}

static void a_damaged_mark_is_not_taken(void **state)
{
	int64_t from;
	(void)state;
	use("sequence");
	struct inbox_partition *assigned =
	    open_text(5, "inbox1:bC:2:main:1a2b3c4d:0:1:9:9 what", &from);
	assert_int_equal(from, 5);
	assert_string_equal(assigned->text, "");
	inbox_partition_close(assigned);
	assigned = open_text(5, "inbox1:bC:2:main:1a2b3c4d:0:1:9:9", &from);
	assert_string_equal(assigned->text, "inbox1:bC:2:main:1a2b3c4d:0:1:9:9");
	inbox_partition_close(assigned);
}

static void a_message_without_an_id_is_told_once_a_topic(void **state)
{
	int64_t from;
	(void)state;
	set(&(struct outbox_inbox_settings){
	    .dedup = exact, .id = "header:absent", .without_id = OUTBOX_INBOX_PROCESS});
	struct inbox_partition *assigned = open_at(0, &from);
	assert_false(settings->told[0]);
	handle_all(assigned, 0, 2);
	inbox_partition_close(assigned);
	assert_true(settings->told[0]);
	assert_false(settings->told[1]);
}

static void what_is_too_far_behind_an_unfinished_one_waits_for_it(void **state)
{
	int64_t from, far = INT64_C(4000000000);
	(void)state;
	use(exact);
	broker.high = far + 10;
	struct inbox_partition *assigned = open_at(0, &from);
	arrive(assigned, 0, NULL);
	arrive(assigned, far, NULL);
	arrive(assigned, far + 1, NULL);
	struct item_list items = admit(assigned);
	assert_int_equal(items.count, 1);
	assert_int_equal(assigned->arrived.count, 2);
	assert_int_equal(finish(assigned, &items), 1);
	items = admit(assigned);
	assert_int_equal(finish(assigned, &items), 2);
	assert_true(assigned->offsets.done == far + 2);
	inbox_partition_close(assigned);
}

static void a_partition_leaves_room_in_the_store_of_all(void **state)
{
	struct outbox_error error;
	int64_t from;
	(void)state;
	/* a local store stands for that of all */
	use("exact ids=10k window=1h pending=30");
	owned_text char *line = xformat("exact ids=10k window=1h pending=30 path=%s/all", folder);
	common.dedup = outbox_dedup_open(line, &error);
	assert_non_null(common.dedup);
	settings->local = false;
	struct inbox_partition *partitions[3];
	struct item_list items[3];
	for (int i = 0; i < 3; i++)
		partitions[i] = open_at(0, &from);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 100; j++) {
			char id[32];
			snprintf(id, sizeof id, "%d-%d", i, j);
			arrive(partitions[i], j, id);
		}
		items[i] = admit(partitions[i]);
		assert_true(items[i].count > 1);
	}
	assert_true(common.pending < 30);
	for (int i = 0; i < 3; i++) {
		int count = (int)items[i].count;
		assert_int_equal(finish(partitions[i], &items[i]), count);
		inbox_partition_close(partitions[i]);
	}
	outbox_dedup_close(common.dedup);
}

static const struct outbox_rules_header *header_of(const struct item *item, const char *name)
{
	for (size_t i = 0; i < item->public.header_count; i++)
		if (strcmp(item->public.headers[i].name, name) == 0)
			return &item->public.headers[i];
	return NULL;
}

/* A producer may write any header. Only what the relay itself wrote, into a retry topic, counts. */
static void headers_of_redelivery_count_in_retry_topics_alone(void **state)
{
	(void)state;
	static const char *const claims[] = {"outbox-origin-topic", "outbox-origin-partition",
	    "outbox-origin-offset", "outbox-origin-time", "outbox-origin-position", "outbox-reason",
	    "outbox-retry-at", "outbox-attempts"};
	enum { CLAIMS = sizeof claims / sizeof *claims };
	int64_t from;
	broker.high = 1000;
	use(NULL);
	further[0].name = "ce_type";
	further[1].name = "outbox-group";
	further[2].name = "outbox-leg";
	further[0].value = "paid";
	further[1].value = "group";
	further[2].value = "/x";
	for (int i = 0; i < CLAIMS; i++) {
		further[3 + i].name = claims[i];
		further[3 + i].value = "7";
	}
	for (int retry = -1; retry <= 0; retry++) {
		struct inbox_partition *assigned = open_at(0, &from);
		assigned->retry = retry;
		assert_true(arrive(assigned, 0, NULL));
		struct item_list items = admit(assigned);
		struct item *item = items.first;
		assert_int_equal(items.count, 1);
		for (int i = 0; i < CLAIMS; i++) {
			assert_true((header_of(item, claims[i]) != NULL) == (retry >= 0));
			assert_true((item_header(item, claims[i]) != NULL) == (retry >= 0));
		}
		assert_int_equal(item->public.attempt, retry < 0 ? 1 : 8);
		assert_int_equal(item_header(item, "outbox-id")->length, strlen("id-0"));
		assert_memory_equal(item_header(item, "ce_type")->value, "paid", 4);
		assert_memory_equal(item_header(item, "outbox-leg")->value, "/x", 2);
		assert_int_equal(finish(assigned, &items), 1);
		inbox_partition_close(assigned);
	}
	memset(further, 0, sizeof further);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	    TEST(the_state_of_another_group_says_nothing_of_this_one),
	    TEST(what_was_elsewhere_is_read_from_where_the_state_ends),
	    TEST(a_checkpoint_before_the_gap_is_read_does_not_say_that_it_was),
	    TEST(the_window_of_one_that_lags_is_that_of_its_stream),
	    TEST(a_state_beyond_the_end_is_of_another_topic_and_not_believed),
	    TEST(what_is_not_in_the_partition_begins_as_the_settings_say),
	    TEST(block_reads_and_commits_nothing),
	    TEST(a_damaged_mark_is_not_taken),
	    TEST(a_message_without_an_id_is_told_once_a_topic),
	    TEST(what_is_too_far_behind_an_unfinished_one_waits_for_it),
	    TEST(a_partition_leaves_room_in_the_store_of_all),
	    TEST(headers_of_redelivery_count_in_retry_topics_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
