#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "key_queues.h"
#include "timers.h"

enum { ITEMS = 2000, KEYS = 37 };

static void of_a_key_one_is_first_and_the_others_follow_in_order(void **state)
{
	struct item *items = calloc(ITEMS, sizeof *items);
	struct key_queues queues;
	struct item *firsts[KEYS] = {NULL};
	int64_t last[KEYS];
	(void)state;
	memset(last, -1, sizeof last);
	key_queues_init(&queues, 10);
	for (int i = 0; i < ITEMS; i++) {
		items[i].key_hash =
		    (uint64_t)(i * 7919 % KEYS) << 32 | 5; /* alike in their low bits */
		items[i].public.offset = i;
		if (key_queues_add(&queues, &items[i])) {
			assert_null(firsts[items[i].key_hash >> 32]);
			firsts[items[i].key_hash >> 32] = &items[i];
		}
	}
	for (int left = ITEMS, turn = 0; left > 0; turn++) {
		int key = turn * 11 % KEYS;
		struct item *item = firsts[key];
		if (!item)
			continue;
		assert_true(item->public.offset > last[key]);
		assert_int_equal(item->key_hash >> 32, key);
		last[key] = item->public.offset;
		firsts[key] = key_queues_leave(&queues, item);
		left--;
	}
	assert_null(key_queues_first(&queues));
	key_queues_finish(&queues);
	free(items);
}

static void timers_come_in_the_order_of_their_time(void **state)
{
	struct item *items = calloc(ITEMS, sizeof *items);
	struct timers timers = {0};
	struct item *item;
	int64_t last = -1;
	int taken = 0;
	(void)state;
	assert_true(timers_next(&timers) == INT64_MAX);
	for (int i = 0; i < ITEMS; i++) {
		items[i].due_ms = i * INT64_C(7919) % 1009;
		timers_add(&timers, &items[i]);
	}
	assert_int_equal(timers_next(&timers), 0);
	for (int64_t now = 0; now < 1009; now++)
		while ((item = timers_take(&timers, now))) {
			assert_int_equal(item->due_ms, now);
			assert_true(item->due_ms >= last);
			last = item->due_ms;
			taken++;
		}
	assert_int_equal(taken, ITEMS);
	timers_finish(&timers);
	free(items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(of_a_key_one_is_first_and_the_others_follow_in_order),
	    cmocka_unit_test(timers_come_in_the_order_of_their_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
