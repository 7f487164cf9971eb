#include "arena.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void what_was_taken_stays_where_it_is(void **state)
{
	enum { COUNT = 1000 };
	struct arena arena = {0};
	char *texts[COUNT];

	(void)state;
	for (int i = 0; i < COUNT; i++) {
		texts[i] = arena_copy(&arena, "0123456789", (size_t)i % 11);
		assert_int_equal((uintptr_t)texts[i] % _Alignof(max_align_t), 0);
	}
	for (int i = 0; i < COUNT; i++) {
		assert_int_equal(strlen(texts[i]), i % 11);
		assert_memory_equal(texts[i], "0123456789", (size_t)i % 11);
	}
	arena_finish(&arena);
	assert_string_equal(arena_text(&arena, "again"), "again");
	arena_finish(&arena);
}

static void one_thing_may_be_larger_than_a_block(void **state)
{
	enum { LARGE = 1 << 20 };
	struct arena arena = {0};
	char *small = arena_text(&arena, "small"), *large = arena_take(&arena, LARGE);

	(void)state;
	memset(large, 'x', LARGE);
	assert_string_equal(small, "small");
	assert_string_equal(arena_text(&arena, "more"), "more");
	arena_finish(&arena);
}

static void parts_are_joined(void **state)
{
	struct arena arena = {0};

	(void)state;
	assert_string_equal(arena_join(&arena, "a", "", "bc", NULL), "abc");
	assert_string_equal(arena_join(&arena, "", NULL), "");
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_was_taken_stays_where_it_is),
	    cmocka_unit_test(one_thing_may_be_larger_than_a_block),
	    cmocka_unit_test(parts_are_joined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
