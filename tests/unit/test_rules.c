#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "rules_private.h"
#include "temporary.h"
#include "text.h"
#include "utc.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };
enum { PASS = OUTBOX_RULES_PASS, DROP = OUTBOX_RULES_DROP, DEAD = OUTBOX_RULES_DEAD_LETTER };

#define TWO_IN_10S "sliding name=two most=2 within=10s key=key action=drop"

static const int64_t begin_ms = INT64_C(1700000000000);
static char folder[TEMPORARY];
static int64_t now_ms, next_offset;
static struct outbox_rules *rules;

static int begin(void **state)
{
	(void)state;
	now_ms = begin_ms + 3650 * (int64_t)DAY;
	next_offset = 0;
	return temporary_make(folder) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	outbox_rules_close(rules);
	rules = NULL;
	temporary_remove(folder);
	return 0;
}

static void open_rules(const char *const *lines, size_t count)
{
	struct outbox_error error;
	outbox_rules_close(rules);
	rules = outbox_rules_open(folder, lines, count, &error);
	if (!rules)
		fail_msg("%s", error.message);
}

static void open_rule(const char *line)
{
	open_rules(&line, 1);
}

static void checkpoint(int64_t offset)
{
	struct outbox_error error;
	if (!outbox_rules_checkpoint(rules, offset, &error))
		fail_msg("%s", error.message);
}

static struct outbox_rules_message message_of(const char *key, int64_t time_ms, int64_t offset)
{
	return (struct outbox_rules_message){.topic = "orders",
	    .offset = offset,
	    .time_ms = time_ms,
	    .key = key,
	    .key_length = strlen(key)};
}

static struct outbox_rules_verdict judge(const struct outbox_rules_message *message)
{
	struct outbox_rules_verdict verdict;
	struct err err;
	if (!rules_check_at(rules, message, 1, now_ms, &verdict, &err))
		fail_msg("%s", err.message);
	return verdict;
}

static int judge_at(const char *key, int64_t time_ms, int64_t offset)
{
	const struct outbox_rules_message message = message_of(key, time_ms, offset);
	return (int)judge(&message).action;
}

/* The next one of the topic, so many milliseconds after the beginning. */
static int send(const char *key, int64_t at)
{
	return judge_at(key, begin_ms + at, next_offset++);
}

static struct outbox_rule_stats stats_of(size_t number)
{
	struct outbox_rule_stats stats;
	assert_true(outbox_rule_stats(rules, number, &stats));
	return stats;
}

static struct outbox_rules_stats stats(void)
{
	struct outbox_rules_stats all;
	outbox_rules_stats(rules, &all);
	return all;
}

/* --- sliding -------------------------------------------------------------------------------- */

static void the_message_after_the_most_is_refused(void **state)
{
	(void)state;
	open_rule("sliding name=r most=5 within=10s key=key action=drop");
	for (int i = 0; i < 5; i++)
		assert_int_equal(send("a", i), PASS);
	for (int i = 5; i < 8; i++)
		assert_int_equal(send("a", i), DROP);
	assert_int_equal(send("b", 8), PASS);
	assert_int_equal(stats_of(0).seen, 9);
	assert_int_equal(stats_of(0).exceeded, 3);
	assert_int_equal(stats().passed, 6);
	assert_int_equal(stats().dropped, 3);
}

static void a_stretch_ends_to_the_millisecond(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	assert_int_equal(send("a", 0), PASS);
	assert_int_equal(send("a", 1), PASS);
	assert_int_equal(send("a", 9999), DROP);
	assert_int_equal(send("a", 10000), PASS);
	assert_int_equal(send("a", 10000), DROP); /* with 1 and 10000 */
	assert_int_equal(send("a", 10001), PASS);
	assert_int_equal(send("a", 19999), DROP);
	assert_int_equal(send("a", 20000), PASS);
}

static void any_stretch_counts_and_no_grid_of_them(void **state)
{
	(void)state;
	open_rule("sliding name=r most=1 within=1ms key=key action=drop");
	for (int i = 0; i < 100; i++) {
		assert_int_equal(send("a", i), PASS);
		assert_int_equal(send("a", i), DROP);
	}
	open_rule("sliding name=s most=3 within=1m key=key action=drop");
	assert_int_equal(send("b", 59 * SECOND), PASS);
	assert_int_equal(send("b", 59 * SECOND), PASS);
	assert_int_equal(send("b", 61 * SECOND), PASS);
	assert_int_equal(send("b", 62 * SECOND), DROP);
	assert_int_equal(send("b", 119 * SECOND - 1), DROP);
	assert_int_equal(send("b", 119 * SECOND), PASS);
}

static void what_is_refused_takes_no_room(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	send("a", 0);
	send("a", 5000);
	for (int at = 5001; at < 10000; at += 100)
		assert_int_equal(send("a", at), DROP);
	assert_int_equal(send("a", 10000), PASS);
	assert_int_equal(stats_of(0).occurrences, 3);
}

static void a_late_message_is_held_against_those_before_and_behind_it(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	assert_int_equal(send("a", 100000), PASS);
	assert_int_equal(send("a", 109999), PASS);
	assert_int_equal(send("a", 90000), PASS);  /* alone in each stretch */
	assert_int_equal(send("a", 100001), DROP); /* in the midst */
	assert_int_equal(send("a", 99999), PASS);  /* with 90000, with 100000, and no third */
	assert_int_equal(send("a", 95000), DROP);
	assert_int_equal(send("a", 80000), PASS);
	assert_int_equal(send("a", 119998), PASS);
	assert_int_equal(send("a", 119997), DROP);
	assert_int_equal(send("a", 70000), PASS);
	assert_int_equal(send("a", 70000), PASS);
	assert_int_equal(send("a", 60001), DROP);
	assert_int_equal(send("a", 60000), PASS);
}

/* The rule itself, told as simply as can be. */
static bool is_too_many(const int64_t *times, size_t count, int64_t time, int most, int within)
{
	for (int64_t from = time - within + 1; from <= time; from++) {
		int found = 0;
		for (size_t i = 0; i < count; i++)
			found += times[i] >= from && times[i] < from + within;
		if (found >= most)
			return true;
	}
	return false;
}

static void any_order_is_judged_as_the_rule_says(void **state)
{
	(void)state;
	for (int most = 1; most <= 4; most++) {
		int64_t times[400];
		size_t count = 0;
		owned_text char *line =
		    xformat("sliding name=r%d most=%d within=20ms key=key action=drop", most, most);
		open_rule(line);
		srand((unsigned)most);
		for (int i = 0; i < 400; i++) {
			int64_t time = rand() % 600;
			bool many = is_too_many(times, count, time, most, 20);
			assert_int_equal(send("a", time), many ? DROP : PASS);
			if (!many)
				times[count++] = time;
		}
	}
}

static void a_message_that_is_later_than_late_may_pass_and_none_is_refused_wrongly(void **state)
{
	(void)state;
	open_rule("sliding name=r most=1 within=10s late=10s key=key action=drop");
	assert_int_equal(send("a", 0), PASS);
	assert_int_equal(send("a", 19999), PASS);
	assert_int_equal(send("a", 9999), DROP);
	for (int i = 0; i < 200; i++)
		send("b", HOUR + i * 10 * SECOND); /* and the sweep comes by */
	assert_int_equal(send("a", 5000), PASS);
	assert_int_equal(send("a", HOUR), PASS);
}

/* Of a key that no earlier message has, so that the first one is recorded and moves the time. The
 * sweep comes by every key. */
static void sweep_at(int64_t at)
{
	owned_text char *key = xformat("swept at %lld", (long long)at);

	for (int i = 0; i < 200; i++)
		send(key, at);
}

/* 0 and 9999 are in one stretch, 9999 is exactly 10 s late: 0 must be known for so long. */
static void a_message_that_is_exactly_late_is_held_against_all_of_its_stretch(void **state)
{
	static const char line[] = "sliding name=r most=1 within=10s late=10s key=key action=drop";
	(void)state;
	open_rule(line);
	assert_int_equal(send("a", 0), PASS);
	sweep_at(19999);
	assert_int_equal(send("a", 9999), DROP);
	checkpoint(next_offset);
	open_rule(line);
	assert_int_equal(send("a", 9999), DROP);
	sweep_at(20000);
	assert_int_equal(send("a", 9999), PASS);
}

/* "a" at 5 s exceeds the first rule only as long as that rule remembers "a" at 0. */
static void refused_messages_do_not_move_the_time(void **state)
{
	static const char *const lines[] = {
	    "sliding name=burst most=1 within=10s late=10s key=key action=drop",
	    "daily name=quota most=2 key=topic action=drop"};
	const struct outbox_rules_message late = message_of("a", begin_ms + 5 * SECOND, 1000);

	(void)state;
	open_rules(lines, COUNT(lines));
	assert_int_equal(send("a", 0), PASS);
	assert_int_equal(send("b", 1), PASS);
	for (int i = 0; i < 200; i++)
		assert_int_equal(send("c", HOUR), DROP);
	assert_int_equal(stats().newest_ms, begin_ms + 1);
	assert_int_equal(judge(&late).rule, 0);

	checkpoint(next_offset);
	open_rules(lines, COUNT(lines));
	assert_int_equal(stats().newest_ms, begin_ms + 1);
	assert_int_equal(judge(&late).rule, 0);
}

/* --- daily ---------------------------------------------------------------------------------- */

/* Milliseconds from the beginning of the tests to a moment in UTC. */
static int64_t at_utc(int year, int month, int day, int hour, int minute)
{
	return utc_second(year, month, day, hour, minute) * 1000 - begin_ms;
}

/* A day of this zone has room for two, in its first and its last millisecond, and not beyond. */
static void expect_day(const char *zone, int64_t first, int64_t end)
{
	owned_text char *line =
	    xformat("daily name=r most=2 zone=%s key=key action=dead-letter", zone);
	outbox_rules_close(rules);
	rules = NULL;
	temporary_empty(folder);
	open_rule(line);
	assert_int_equal(send("a", first - 1), PASS); /* the day before */
	assert_int_equal(send("a", first - 1), PASS);
	assert_int_equal(send("a", first - 1), DEAD);
	assert_int_equal(send("a", first), PASS);
	assert_int_equal(send("a", end - 1), PASS);
	assert_int_equal(send("a", (first + end) / 2), DEAD);
	assert_int_equal(send("a", end - 1), DEAD);
	assert_int_equal(send("a", end), PASS); /* the day behind */
	assert_int_equal(send("a", end), PASS);
	assert_int_equal(send("a", end), DEAD);
}

static void a_day_ends_at_midnight_of_its_zone(void **state)
{
	(void)state;
	expect_day("UTC", at_utc(2024, 2, 29, 0, 0), at_utc(2024, 3, 1, 0, 0));
	expect_day("Europe/Berlin", at_utc(2024, 2, 28, 23, 0), at_utc(2024, 2, 29, 23, 0));
	expect_day("Asia/Kathmandu", at_utc(2024, 2, 28, 18, 15), at_utc(2024, 2, 29, 18, 15));
	expect_day("Pacific/Kiritimati", at_utc(2024, 2, 28, 10, 0), at_utc(2024, 2, 29, 10, 0));
}

static void a_day_may_have_23_or_25_hours(void **state)
{
	(void)state;
	expect_day("Europe/Berlin", at_utc(2024, 3, 30, 23, 0), at_utc(2024, 3, 31, 22, 0));
	expect_day("Europe/Berlin", at_utc(2024, 10, 26, 22, 0), at_utc(2024, 10, 27, 23, 0));
	expect_day("America/New_York", at_utc(2024, 3, 10, 5, 0), at_utc(2024, 3, 11, 4, 0));
	expect_day("America/New_York", at_utc(2024, 11, 3, 4, 0), at_utc(2024, 11, 4, 5, 0));
	/* 24.5, where the clock changes by half an hour; and one that begins at one o'clock */
	expect_day("Australia/Lord_Howe", at_utc(2024, 4, 6, 13, 0), at_utc(2024, 4, 7, 13, 30));
	expect_day("America/Sao_Paulo", at_utc(2018, 11, 4, 3, 0), at_utc(2018, 11, 5, 2, 0));
	/* the 30th was left out */
	expect_day("Pacific/Apia", at_utc(2011, 12, 29, 10, 0), at_utc(2011, 12, 30, 10, 0));
}

/* At 00:01 it is 23:01 again: the last hour of the day comes once more behind the next day. */
static void a_day_may_come_in_two_pieces(void **state)
{
	(void)state;
	int64_t midnight = at_utc(2006, 10, 29, 2, 30), second = midnight + HOUR;
	open_rule("daily name=r most=2 late=0 zone=America/St_Johns key=key action=drop");
	assert_int_equal(send("a", midnight - HOUR), PASS);
	assert_int_equal(send("a", midnight), PASS); /* Sunday */
	for (int i = 0; i < 100; i++)
		send("b", midnight);                          /* nothing is forgotten yet */
	assert_int_equal(send("a", midnight + MINUTE), PASS); /* Saturday */
	assert_int_equal(send("a", midnight + MINUTE), DROP);
	assert_int_equal(send("a", second - 1), DROP);
	assert_int_equal(send("a", second), PASS); /* Sunday */
	assert_int_equal(send("a", second + MINUTE), DROP);
	assert_int_equal(send("a", midnight + MINUTE - 1), DROP);
}

static void a_late_message_counts_on_its_own_day(void **state)
{
	(void)state;
	int64_t midnight = at_utc(2024, 5, 5, 0, 0);
	open_rule("daily name=r most=1 late=1h key=key action=drop");
	assert_int_equal(send("a", midnight - 1), PASS);
	assert_int_equal(send("a", midnight), PASS);
	for (int i = 0; i < 100; i++)
		send("b", midnight + HOUR - 1);
	assert_int_equal(send("a", midnight - 2), DROP);
	assert_int_equal(send("c", midnight - 1), PASS);
	for (int i = 0; i < 100; i++)
		send("d", midnight + 2 * HOUR);
	assert_int_equal(stats().occurrences, 3); /* those of the day before are forgotten */
}

static void days_and_stretches_are_read_again_after_a_restart(void **state)
{
	(void)state;
	static const char *const lines[] = {
	    TWO_IN_10S, "daily name=quota most=3 zone=Europe/Berlin key=key action=dead-letter"};
	int64_t midnight = at_utc(2024, 10, 26, 22, 0), offset = 0;
	for (int i = 0; i < 4; i++) {
		open_rules(lines, COUNT(lines));
		assert_int_equal(
		    judge_at("a", begin_ms + midnight + i * HOUR, offset++), i < 3 ? PASS : DEAD);
		checkpoint(offset);
	}
	open_rules(lines, COUNT(lines));
	assert_int_equal(judge_at("a", begin_ms + midnight + 25 * HOUR - 1, offset++), DEAD);
	assert_int_equal(judge_at("a", begin_ms + midnight, 0), PASS); /* it comes again */
	assert_int_equal(judge_at("a", begin_ms + midnight + 25 * HOUR, offset++), PASS);
}

/* --- the clock ------------------------------------------------------------------------------ */

static void a_time_beyond_now_is_now(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	now_ms = begin_ms;
	assert_int_equal(send("a", DAY), PASS);
	assert_int_equal(send("a", 365 * (int64_t)DAY), PASS);
	assert_int_equal(send("a", 0), DROP);
	assert_int_equal(stats().newest_ms, begin_ms);
	assert_int_equal(judge_at("a", -1, next_offset++), DROP);
	now_ms += 10000;
	assert_int_equal(judge_at("a", -1, next_offset++), PASS);
}

static void a_clock_that_is_moved_back_changes_no_time_that_was_reached(void **state)
{
	(void)state;
	open_rule("sliding name=r most=2 within=10s late=2h key=key action=drop");
	now_ms = begin_ms + HOUR;
	assert_int_equal(send("a", 0), PASS);
	assert_int_equal(send("a", 1), PASS);
	assert_int_equal(send("a", HOUR), PASS);
	now_ms = begin_ms + 5000;
	assert_int_equal(send("a", HOUR - 1), PASS); /* as its record says, and not as of now */
	assert_int_equal(send("a", HOUR), DROP);
	assert_int_equal(send("a", HOUR + 10000), DROP); /* beyond: as of now, beside 0 and 1 */
	now_ms = begin_ms + HOUR + 10000;
	assert_int_equal(send("a", HOUR + 10000), PASS);
}

/* --- redelivery ----------------------------------------------------------------------------- */

static void what_was_recorded_passes_again_and_counts_once(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	assert_int_equal(judge_at("a", begin_ms, 0), PASS);
	for (int i = 0; i < 3; i++) {
		const struct outbox_rules_message same = message_of("a", begin_ms, 0);
		struct outbox_rules_verdict verdict = judge(&same);
		assert_int_equal(verdict.action, PASS);
		assert_true(verdict.again);
	}
	assert_int_equal(judge_at("a", begin_ms + 1, 1), PASS);
	assert_int_equal(judge_at("a", begin_ms + 2, 2), DROP);
	assert_int_equal(judge_at("a", begin_ms + 1, 1), PASS);
	assert_int_equal(judge_at("a", begin_ms + 2, 2), DROP);
	assert_int_equal(judge_at("a", begin_ms, 0), PASS);
	assert_int_equal(stats().again, 5);
	assert_int_equal(stats_of(0).occurrences, 2);
}

static void another_topic_or_partition_has_other_messages(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	struct outbox_rules_message message = message_of("a", begin_ms, 7);
	assert_int_equal(judge(&message).action, PASS);
	message.partition = 1;
	assert_int_equal(judge(&message).action, PASS);
	message.topic = "bills";
	assert_int_equal(judge(&message).action, DROP);
}

static void without_an_offset_each_is_another_one(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	assert_int_equal(judge_at("a", begin_ms, -1), PASS);
	assert_int_equal(judge_at("a", begin_ms, -1), PASS);
	assert_int_equal(judge_at("a", begin_ms, -1), DROP);
}

/* As of a machine whose clock is behind: records are taken as of now, and now is another. */
static void a_message_that_was_early_is_recognised_at_any_time(void **state)
{
	(void)state;
	for (int restart = 0; restart < 2; restart++) {
		now_ms = begin_ms;
		open_rule(TWO_IN_10S);
		const char *key = restart ? "a" : "b";
		int64_t first = next_offset;
		assert_int_equal(send(key, 3000), PASS);
		assert_int_equal(send(key, 4000), PASS);
		assert_int_equal(judge_at(key, -1, 1000 + first), DROP);
		checkpoint(-1);
		if (restart)
			open_rule(TWO_IN_10S);
		for (now_ms += 1000; now_ms < begin_ms + 20000; now_ms += 1500) {
			assert_int_equal(judge_at(key, begin_ms + 3000, first), PASS);
			assert_int_equal(judge_at(key, begin_ms + 4000, first + 1), PASS);
		}
		assert_int_equal(stats_of(0).occurrences, restart ? 4 : 2);
	}
}

/* --- several rules -------------------------------------------------------------------------- */

static void one_that_a_rule_refuses_is_recorded_by_none(void **state)
{
	(void)state;
	static const char *const lines[] = {
	    "sliding name=wide most=3 within=1h key=topic action=dead-letter", TWO_IN_10S};
	open_rules(lines, COUNT(lines));
	assert_int_equal(send("a", 0), PASS);
	assert_int_equal(send("a", 1), PASS);
	for (int i = 2; i < 10; i++)
		assert_int_equal(send("a", i), DROP);
	assert_int_equal(send("b", 10), PASS); /* the third of `wide` */
	assert_int_equal(send("c", 11), DEAD);
	assert_int_equal(stats_of(0).occurrences, 3);
	assert_int_equal(stats_of(1).occurrences, 3);
	assert_int_equal(stats_of(1).keys, 2);
	assert_int_equal(stats().dead_lettered, 1);
}

static void the_first_rule_that_refuses_decides(void **state)
{
	(void)state;
	static const char *const lines[] = {
	    "sliding name=counted most=1 within=1h key=key action=count",
	    "sliding name=first most=2 within=1h key=key action=dead-letter",
	    "sliding name=second most=2 within=1h key=key action=drop",
	    "sliding name=last most=1 within=1h key=key action=count"};
	open_rules(lines, COUNT(lines));
	struct outbox_rules_message message = message_of("a", begin_ms, 0);
	struct outbox_rules_verdict verdict = judge(&message);
	assert_int_equal(verdict.rule, -1);
	assert_null(verdict.name);
	message.offset = 1;
	verdict = judge(&message); /* it passes, and is one too many for two that count */
	assert_int_equal(verdict.action, PASS);
	assert_int_equal(verdict.rule, 0);
	assert_string_equal(verdict.name, "counted");
	message.offset = 2;
	verdict = judge(&message);
	assert_int_equal(verdict.action, DEAD);
	assert_int_equal(verdict.rule, 1);
	assert_string_equal(verdict.name, "first");
	for (size_t i = 0; i < COUNT(lines); i++)
		assert_int_equal(stats_of(i).exceeded, i == 0 || i == 3 ? 2 : 1);
}

static void a_rule_that_counts_lets_pass_and_records(void **state)
{
	(void)state;
	open_rule("sliding name=r most=2 within=10s key=key action=count");
	for (int i = 0; i < 10; i++)
		assert_int_equal(send("a", i), PASS);
	assert_int_equal(stats_of(0).exceeded, 8);
	assert_int_equal(stats_of(0).occurrences, 10);
}

static void a_message_without_a_key_passes_that_rule(void **state)
{
	(void)state;
	static const char *const lines[] = {
	    "sliding name=user most=1 within=1h key=header:user action=drop", TWO_IN_10S};
	open_rules(lines, COUNT(lines));
	assert_int_equal(send("a", 0), PASS);
	assert_int_equal(send("a", 1), PASS);
	assert_int_equal(send("a", 2), DROP);
	assert_int_equal(stats_of(0).keyless, 3);
	assert_int_equal(stats_of(0).seen, 0);
	assert_int_equal(stats_of(1).keyless, 0);
}

static void no_rules_let_all_pass(void **state)
{
	(void)state;
	open_rules(NULL, 0);
	for (int i = 0; i < 10; i++)
		assert_int_equal(send("a", 0), PASS);
	checkpoint(5);
}

static void a_batch_is_judged_one_by_one(void **state)
{
	(void)state;
	struct outbox_rules_message batch[4];
	struct outbox_rules_verdict verdicts[4];
	struct outbox_error error;
	open_rule(TWO_IN_10S);
	for (int i = 0; i < 4; i++)
		batch[i] = message_of("a", begin_ms + i * 4000, i);
	assert_true(outbox_rules_check(rules, batch, 4, verdicts, &error));
	static const int wanted[] = {PASS, PASS, DROP, PASS};
	for (int i = 0; i < 4; i++)
		assert_int_equal((int)verdicts[i].action, wanted[i]);
}

/* --- restart -------------------------------------------------------------------------------- */

/* What a child that is killed leaves behind. */
static void die_after(void (*live)(void))
{
	outbox_rules_close(rules);
	rules = NULL;
	pid_t child = fork();
	if (child == 0) {
		live();
		kill(getpid(), SIGKILL);
	}
	waitpid(child, NULL, 0);
}

static void send_some(void)
{
	open_rule(TWO_IN_10S);
	judge_at("a", begin_ms, 0);
	judge_at("a", begin_ms + 1, 1);
	judge_at("b", begin_ms + 2, 2);
	checkpoint(3);
	judge_at("b", begin_ms + 3, 3); /* lost */
	judge_at("c", begin_ms + 4, 4);
}

static void a_killed_process_forgets_nothing_of_a_checkpoint(void **state)
{
	(void)state;
	die_after(send_some);
	open_rule(TWO_IN_10S);
	assert_int_equal(stats().offset, 3);
	assert_int_equal(stats_of(0).occurrences, 3);
	assert_int_equal(judge_at("a", begin_ms + 9999, 7), DROP);
	assert_int_equal(judge_at("a", begin_ms, 0), PASS); /* they come again */
	assert_int_equal(judge_at("a", begin_ms + 1, 1), PASS);
	assert_int_equal(judge_at("b", begin_ms + 2, 2), PASS);
	assert_int_equal(judge_at("b", begin_ms + 3, 3), PASS);
	assert_int_equal(judge_at("b", begin_ms + 5, 5), DROP);
	assert_int_equal(judge_at("a", begin_ms + 10000, 8), PASS);
}

static void a_torn_tail_is_cut(void **state)
{
	(void)state;
	die_after(send_some);
	owned_text char *name = xformat("%s/16m", folder);
	owned_text char *list = xformat("cat >> $(ls %s/*.log | tail -1) </etc/hostname", name);
	assert_int_equal(system(list), 0);
	open_rule(TWO_IN_10S);
	assert_int_equal(stats_of(0).occurrences, 3);
	assert_int_equal(judge_at("a", begin_ms + 9999, 7), DROP);
}

static void lines_may_change_and_each_rule_keeps_what_it_knows(void **state)
{
	(void)state;
	open_rule(TWO_IN_10S);
	send("a", 0);
	send("a", 1);
	checkpoint(-1);
	static const char *const more[] = {
	    "sliding name=other most=1 within=1h key=key action=drop",
	    "sliding name=two most=3 within=10s key=key action=drop"};
	open_rules(more, COUNT(more));
	assert_int_equal(
	    send("a", 2), PASS); /* `other` knows nothing yet; `two` has two of three */
	assert_int_equal(stats_of(1).occurrences, 3);
	assert_int_equal(send("a", 3), DROP);
	checkpoint(-1);
	open_rule("sliding name=two most=3 within=10s key=topic,key action=drop");
	assert_int_equal(send("a", 4), PASS); /* another key: it begins anew */
}

/* Its logs are of another width then, and those of before go. */
static void a_rule_whose_stretch_changes_keeps_what_it_knows(void **state)
{
	(void)state;
	static const char *const withins[] = {"10s", "30d", "10s", "2h"};
	int64_t at = 0;
	for (size_t i = 0; i < COUNT(withins); i++) {
		owned_text char *line = xformat(
		    "sliding name=r most=%zu within=%s key=key action=drop", i + 2, withins[i]);
		open_rule(line);
		assert_int_equal(stats_of(0).occurrences, i ? i + 1 : 0);
		assert_int_equal(stats().offset, (int64_t)i - 1);
		while (send("a", at++) == PASS)
			;
		assert_int_equal(stats_of(0).occurrences, i + 2);
		checkpoint((int64_t)i);
	}
	owned_text char *old = xformat("%s/16m", folder), *now = xformat("%s/256m", folder);
	assert_int_equal(access(old, F_OK), -1);
	assert_int_equal(access(now, F_OK), 0);
}

static void rules_of_one_width_are_kept_apart(void **state)
{
	(void)state;
	static const char *const lines[] = {TWO_IN_10S,
	    "sliding name=one most=1 within=10s key=key action=count",
	    "sliding name=hour most=5 within=1h key=key action=drop"};
	open_rules(lines, COUNT(lines));
	send("a", 0);
	send("a", 1);
	checkpoint(-1);
	open_rules(lines, COUNT(lines));
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(stats_of(i).occurrences, 2);
	open_rule(lines[1]);
	assert_int_equal(stats().occurrences, 2);
	open_rules(lines, COUNT(lines)); /* `two` was away, and its logs were there for `one` */
	assert_int_equal(stats_of(0).occurrences, 2);
	assert_int_equal(stats_of(2).occurrences, 0);
}

static void flip_each_log(off_t at)
{
	owned_text char *pattern = xformat("%s/*/*.log", folder);
	glob_t found;
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++)
		temporary_flip(found.gl_pathv[i], at);
	globfree(&found);
}

static void a_folder_that_is_held_damaged_or_removed_is_told(void **state)
{
	(void)state;
	struct outbox_error error;
	const char *line = TWO_IN_10S;
	open_rule(line);
	assert_null(outbox_rules_open(folder, &line, 1, &error));
	assert_int_equal(error.kind, OUTBOX_FENCED);
	send("a", 0);
	checkpoint(-1);
	outbox_rules_close(rules);
	rules = NULL;
	flip_each_log(44); /* in the checksum of its head */
	assert_null(outbox_rules_open(folder, &line, 1, &error));
	assert_int_equal(error.kind, OUTBOX_CONFIG);
	temporary_empty(folder);
	open_rule(line);
	send("a", 0);
	temporary_empty(folder);
	assert_false(outbox_rules_checkpoint(rules, -1, &error));
	assert_int_equal(error.kind, OUTBOX_FATAL);
	assert_null(outbox_rules_open(NULL, &line, 1, &error));
	assert_non_null(strstr(error.message, "path"));
}

/* --- size ----------------------------------------------------------------------------------- */

static void ten_thousand_keys_are_kept_apart_and_forgotten(void **state)
{
	(void)state;
	enum { KEYS = 10000 };
	char key[16];
	open_rule("sliding name=r most=2 within=1m late=0 key=key action=drop");
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < KEYS; i++) {
			snprintf(key, sizeof key, "%d", i);
			assert_int_equal(send(key, round), round < 2 ? PASS : DROP);
		}
	assert_int_equal(stats().keys, KEYS);
	assert_int_equal(stats().occurrences, 2 * KEYS);
	assert_in_range(stats().memory_bytes / KEYS, 64, 120);
	checkpoint(-1);
	assert_in_range(stats().disk_bytes / KEYS, 64, 66);
	for (int i = 0; i < KEYS; i++)
		send("z", 3 * MINUTE + i);
	assert_int_equal(stats().keys, 1);
	assert_in_range(stats().memory_bytes - 16384 * 32, 0, 1000);
	checkpoint(-1);
	assert_in_range(stats().disk_bytes, 64, 10000); /* old logs are removed */
}

static void a_hot_key_is_bounded_by_its_limit(void **state)
{
	(void)state;
	open_rule("sliding name=r most=10 within=1s late=0 key=key action=drop");
	for (int i = 0; i < 200000; i++)
		send("a", i);
	assert_int_equal(stats().passed, 2000);
	assert_in_range(stats().occurrences, 10, 60);
}

/* --- lines ---------------------------------------------------------------------------------- */

static void a_bad_line_is_told_which_setting_and_what_to_write(void **state)
{
	(void)state;
	static const struct {
		const char *line, *place, *cure;
	} wrong[] = {
	    {"", "no kind of rule", "sliding"},
	    {"gliding name=r", "'gliding'", "sliding"},
	    {"sliding", "name is missing", "name=burst"},
	    {"sliding name=r most=1 key=key within=1s", "action is missing", "action=drop"},
	    {"sliding name=r most=1 key=key action=drop", "within is missing", "within=10s"},
	    {"sliding name=r key=key action=drop within=1s", "most is missing", "most=5"},
	    {"sliding name=r most=1 action=drop within=1s", "key is missing", "key=topic,key"},
	    {"sliding name=r most=0", "most '0'", "from 1"},
	    {"sliding name=r most=-1", "most '-1'", "from 1"},
	    {"sliding name=r most=2G", "most '2G'", "to 1G"},
	    {"sliding name=r most", "most ''", "most=5"},
	    {"sliding name=r within=0", "within '0'", "from 1ms"},
	    {"sliding name=r within=10", "within '10'", "within=10s"},
	    {"sliding name=r within=4000d", "within '4000d'", "3650d"},
	    {"sliding name=r late=2000d", "late '2000d'", "late=10m"},
	    {"sliding name=a/b", "name 'a/b'", "letters"},
	    {"sliding name=", "name ''", "letters"},
	    {"sliding name=r action=ignore", "action 'ignore'", "dead-letter"},
	    {"sliding name=r key=user", "key is refused at 'user'", "header:NAME"},
	    {"daily name=r zone=Mars/Olympus", "zone=Mars/Olympus", "Europe/Berlin"},
	    {"daily name=r within=5s", "'within' is no setting of 'daily'", "zone"},
	    {"sliding name=r most=1 \"key=key", "quote", "no end"},
	    {"sliding name=r rate=5", "'rate' is no setting of 'sliding'", "within"},
	};
	struct outbox_error error;
	for (size_t i = 0; i < COUNT(wrong); i++) {
		const char *lines[] = {TWO_IN_10S, wrong[i].line};
		assert_null(outbox_rules_open(folder, lines, 2, &error));
		assert_int_equal(error.kind, OUTBOX_CONFIG);
		if (!text_starts(error.message, "rule 2: ") ||
		    !strstr(error.message, wrong[i].place) || !strstr(error.message, wrong[i].cure))
			fail_msg("%s: %s", wrong[i].line, error.message);
	}
}

static void two_rules_of_one_name_are_refused(void **state)
{
	(void)state;
	static const char *const lines[] = {TWO_IN_10S, TWO_IN_10S};
	struct outbox_error error;
	assert_null(outbox_rules_open(folder, lines, 2, &error));
	assert_int_equal(error.kind, OUTBOX_CONFIG);
	assert_non_null(strstr(error.message, "name=two is also the name of rule 1"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(the_message_after_the_most_is_refused),
	    TEST(a_stretch_ends_to_the_millisecond),
	    TEST(any_stretch_counts_and_no_grid_of_them),
	    TEST(what_is_refused_takes_no_room),
	    TEST(a_late_message_is_held_against_those_before_and_behind_it),
	    TEST(any_order_is_judged_as_the_rule_says),
	    TEST(a_message_that_is_later_than_late_may_pass_and_none_is_refused_wrongly),
	    TEST(refused_messages_do_not_move_the_time),
	    TEST(a_message_that_is_exactly_late_is_held_against_all_of_its_stretch),
	    TEST(a_day_ends_at_midnight_of_its_zone),
	    TEST(a_day_may_have_23_or_25_hours),
	    TEST(a_day_may_come_in_two_pieces),
	    TEST(a_late_message_counts_on_its_own_day),
	    TEST(days_and_stretches_are_read_again_after_a_restart),
	    TEST(a_time_beyond_now_is_now),
	    TEST(a_clock_that_is_moved_back_changes_no_time_that_was_reached),
	    TEST(what_was_recorded_passes_again_and_counts_once),
	    TEST(another_topic_or_partition_has_other_messages),
	    TEST(without_an_offset_each_is_another_one),
	    TEST(a_message_that_was_early_is_recognised_at_any_time),
	    TEST(one_that_a_rule_refuses_is_recorded_by_none),
	    TEST(the_first_rule_that_refuses_decides),
	    TEST(a_rule_that_counts_lets_pass_and_records),
	    TEST(a_message_without_a_key_passes_that_rule),
	    TEST(no_rules_let_all_pass),
	    TEST(a_batch_is_judged_one_by_one),
	    TEST(a_killed_process_forgets_nothing_of_a_checkpoint),
	    TEST(a_torn_tail_is_cut),
	    TEST(lines_may_change_and_each_rule_keeps_what_it_knows),
	    TEST(a_rule_whose_stretch_changes_keeps_what_it_knows),
	    TEST(rules_of_one_width_are_kept_apart),
	    TEST(a_folder_that_is_held_damaged_or_removed_is_told),
	    TEST(ten_thousand_keys_are_kept_apart_and_forgotten),
	    TEST(a_hot_key_is_bounded_by_its_limit),
	    TEST(a_bad_line_is_told_which_setting_and_what_to_write),
	    TEST(two_rules_of_one_name_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
