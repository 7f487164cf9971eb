#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "redis_slots.h"

static int slot_of(const char *key)
{
	return redis_slot(key, strlen(key));
}

/* The values are those of "Redis Cluster specification". */
static void a_key_has_the_slot_of_the_specification(void **state)
{
	(void)state;
	assert_int_equal(slot_of("123456789"), 0x31c3 % REDIS_SLOTS);
	assert_int_equal(slot_of(""), 0);
	assert_int_equal(slot_of("{user1000}.following"), slot_of("{user1000}.followers"));
	assert_int_equal(slot_of("{user1000}.following"), slot_of("user1000"));
	/* an empty tag is none, and the first closing brace ends a tag */
	assert_int_not_equal(slot_of("foo{}{bar}"), slot_of("bar"));
	assert_int_equal(slot_of("foo{{bar}}zap"), slot_of("{bar"));
	assert_int_equal(slot_of("foo{bar}{zap}"), slot_of("bar"));
	assert_int_not_equal(slot_of("foo{bar"), slot_of("bar"));
}

struct redirection {
	const char *error;
	int slot;
	const char *host;
	int port;
	bool ask;
};

static void a_redirection_names_slot_and_node(void **state)
{
	static const struct redirection rows[] = {
	    {"MOVED 3999 127.0.0.1:6381", 3999, "127.0.0.1", 6381, false},
	    {"ASK 0 redis-2.internal:6379", 0, "redis-2.internal", 6379, true},
	    {"MOVED 16383 ::1:7000", 16383, "::1", 7000, false},
	    {"MOVED 1 :7000", 1, "seed", 7000, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct redis_place place;
		int slot;
		bool ask;

		assert_true(redis_slots_redirection(rows[i].error, "seed", &slot, &place, &ask));
		assert_int_equal(slot, rows[i].slot);
		assert_string_equal(place.host, rows[i].host);
		assert_int_equal(place.port, rows[i].port);
		assert_int_equal(ask, rows[i].ask);
		free(place.host);
	}
}

static void other_errors_redirect_nowhere(void **state)
{
	static const char *const errors[] = {"ERR unknown", "MOVED", "MOVED ", "MOVED 1",
	    "MOVED 1 host", "MOVED 16384 h:1", "MOVED -1 h:1", "MOVED x h:1", "ASK 1 h:0",
	    "ASK 1 h:65536", "ASK 1 h:x", "ASKING 1 h:1"};

	(void)state;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		struct redis_place place = {0};
		int slot;
		bool ask;

		assert_false(redis_slots_redirection(errors[i], "seed", &slot, &place, &ask));
		assert_null(place.host);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_key_has_the_slot_of_the_specification),
	    cmocka_unit_test(a_redirection_names_slot_and_node),
	    cmocka_unit_test(other_errors_redirect_nowhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
