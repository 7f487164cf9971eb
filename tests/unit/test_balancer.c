#include "balancer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { FAILURES = 3, PAUSE = 1000 };

static struct service_address address_of(int last, int priority, int weight)
{
	const unsigned char bytes[] = {10, 0, 0, (unsigned char)last};
	struct service_address made = service_address_make(AF_INET, bytes, 50051);

	made.priority = priority;
	made.weight = weight;
	return made;
}

static int last_byte(const struct balancer_address *row)
{
	return (int)(ntohl(row->address.at.v4.sin_addr.s_addr) & 0xff);
}

/* Begins a request, which stays in flight; 0: there was no address. */
static int begun(struct balancer *balancer, int64_t now)
{
	bool probe;
	struct balancer_address *row = balancer_begin(balancer, now, NULL, 0, &probe);

	return row ? last_byte(row) : 0;
}

static int asked(struct balancer *balancer, int64_t now, enum breaker_outcome outcome)
{
	bool probe;
	struct balancer_address *row = balancer_begin(balancer, now, NULL, 0, &probe);
	int last = row ? last_byte(row) : 0;

	if (row)
		balancer_end(balancer, now, row, probe, outcome);
	return last;
}

static void fail_address(struct balancer *balancer, int64_t now, int last)
{
	bool probe;

	for (int failed = 0; failed < FAILURES;) {
		struct balancer_address *row = balancer_begin(balancer, now, NULL, 0, &probe);
		bool fails = last_byte(row) == last;

		failed += fails;
		balancer_end(balancer, now, row, probe, fails ? BREAKER_FAILURE : BREAKER_SUCCESS);
	}
}

static void fill_balancer(struct balancer *balancer, int count)
{
	struct service_address addresses[16];

	for (int i = 0; i < count; i++)
		addresses[i] = address_of(i + 1, 0, 0);
	balancer_init(balancer, FAILURES, PAUSE, 42);
	balancer_update(balancer, addresses, count);
	assert_int_equal(balancer_size(balancer), count);
}

static void of_two_addresses_the_one_with_fewer_requests_is_chosen(void **state)
{
	struct balancer balancer;

	(void)state;
	fill_balancer(&balancer, 2);
	for (int i = 0; i < 1000; i++)
		begun(&balancer, 0);
	assert_int_equal(balancer.rows[0]->in_flight, 500);
	assert_int_equal(balancer.rows[1]->in_flight, 500);
	balancer_finish(&balancer);
}

/* A random address alone would leave one of 10 with 120 and more. */
static void two_choices_keep_the_largest_load_small(void **state)
{
	struct balancer balancer;
	int most = 0, least = 1000;

	(void)state;
	fill_balancer(&balancer, 10);
	for (int i = 0; i < 1000; i++)
		begun(&balancer, 0);
	for (int i = 0; i < 10; i++) {
		most = balancer.rows[i]->in_flight > most ? balancer.rows[i]->in_flight : most;
		least = balancer.rows[i]->in_flight < least ? balancer.rows[i]->in_flight : least;
	}
	assert_in_range(most, 100, 104);
	assert_in_range(least, 90, 100);
	balancer_finish(&balancer);
}

static void weights_share_the_load(void **state)
{
	const struct service_address addresses[] = {address_of(1, 0, 30), address_of(2, 0, 10)};
	struct balancer balancer;

	(void)state;
	balancer_init(&balancer, FAILURES, PAUSE, 7);
	balancer_update(&balancer, addresses, 2);
	for (int i = 0; i < 400; i++)
		begun(&balancer, 0);
	assert_in_range(balancer.rows[0]->in_flight, 298, 302);
	balancer_finish(&balancer);
}

static void an_address_that_fails_is_left_alone_and_probed_after_its_pause(void **state)
{
	struct balancer balancer;
	int probes = 0;

	(void)state;
	fill_balancer(&balancer, 3);
	fail_address(&balancer, 0, 2);
	for (int i = 0; i < 100; i++)
		assert_int_not_equal(asked(&balancer, PAUSE - 1, BREAKER_SUCCESS), 2);
	/* Half open: one request at a time. */
	for (int i = 0; i < 100; i++)
		probes += begun(&balancer, PAUSE) == 2;
	assert_int_equal(probes, 1);
	balancer_finish(&balancer);
}

static void a_probe_that_succeeds_closes_the_breaker(void **state)
{
	struct balancer balancer;
	int to_second = 0;

	(void)state;
	fill_balancer(&balancer, 2);
	fail_address(&balancer, 0, 2);
	while (asked(&balancer, PAUSE, BREAKER_SUCCESS) != 2)
		continue;
	for (int i = 0; i < 100; i++)
		to_second += asked(&balancer, PAUSE, BREAKER_SUCCESS) == 2;
	assert_in_range(to_second, 20, 80);
	assert_true(balancer.answered_at == PAUSE);
	balancer_finish(&balancer);
}

static void with_all_breakers_open_the_first_to_close_is_tried(void **state)
{
	struct balancer balancer;

	(void)state;
	fill_balancer(&balancer, 2);
	fail_address(&balancer, 0, 1);
	fail_address(&balancer, 10, 2);
	assert_int_equal(asked(&balancer, 20, BREAKER_FAILURE), 1);
	assert_int_equal(asked(&balancer, 20, BREAKER_FAILURE), 2);
	/* A success closes the breaker at once, before the pause is over. */
	assert_int_equal(asked(&balancer, 30, BREAKER_SUCCESS), 1);
	for (int i = 0; i < 20; i++)
		assert_int_equal(asked(&balancer, 30, BREAKER_SUCCESS), 1);
	balancer_finish(&balancer);
}

static void a_request_does_not_come_to_an_address_twice(void **state)
{
	struct balancer balancer;
	struct balancer_address *row;
	uint32_t tried[3];
	bool probe;

	(void)state;
	fill_balancer(&balancer, 3);
	for (int i = 0; i < 3; i++) {
		row = balancer_begin(&balancer, 0, tried, i, &probe);
		assert_non_null(row);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(row->number, tried[k]);
		tried[i] = row->number;
		balancer_end(&balancer, 0, row, probe, BREAKER_FAILURE);
	}
	assert_null(balancer_begin(&balancer, 0, tried, 3, &probe));
	balancer_finish(&balancer);
}

static void a_higher_priority_waits_for_all_lower_ones_to_fail(void **state)
{
	const struct service_address addresses[] = {
	    address_of(1, 5, 0), address_of(2, 1, 0), address_of(3, 1, 0)};
	struct balancer balancer;

	(void)state;
	balancer_init(&balancer, FAILURES, PAUSE, 1);
	balancer_update(&balancer, addresses, 3);
	for (int i = 0; i < 50; i++)
		assert_int_not_equal(begun(&balancer, 0), 1);
	fail_address(&balancer, 0, 2);
	for (int i = 0; i < 50; i++)
		assert_int_equal(asked(&balancer, 0, BREAKER_SUCCESS), 3);
	fail_address(&balancer, 0, 3);
	for (int i = 0; i < 50; i++)
		assert_int_equal(asked(&balancer, 0, BREAKER_SUCCESS), 1);
	balancer_finish(&balancer);
}

static void a_new_list_keeps_what_is_known_of_old_addresses(void **state)
{
	const struct service_address addresses[] = {
	    address_of(1, 0, 0), address_of(3, 0, 0), address_of(3, 0, 0)};
	struct balancer balancer;
	struct balancer_address *row;
	bool probe;

	(void)state;
	fill_balancer(&balancer, 2);
	fail_address(&balancer, 0, 1);
	row = balancer_begin(&balancer, 0, NULL, 0, &probe);
	assert_int_equal(last_byte(row), 2);
	balancer_update(&balancer, addresses, 3);
	assert_int_equal(balancer_size(&balancer), 2);
	for (int i = 0; i < 20; i++)
		assert_int_equal(asked(&balancer, 0, BREAKER_SUCCESS), 3);
	/* Its request still ends at the address that left. */
	assert_int_equal(balancer.count, 3);
	balancer_end(&balancer, 0, row, probe, BREAKER_SUCCESS);
	assert_int_equal(balancer.count, 2);
	balancer_update(&balancer, NULL, 0);
	assert_int_equal(begun(&balancer, 0), 0);
	balancer_finish(&balancer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(of_two_addresses_the_one_with_fewer_requests_is_chosen),
	    cmocka_unit_test(two_choices_keep_the_largest_load_small),
	    cmocka_unit_test(weights_share_the_load),
	    cmocka_unit_test(an_address_that_fails_is_left_alone_and_probed_after_its_pause),
	    cmocka_unit_test(a_probe_that_succeeds_closes_the_breaker),
	    cmocka_unit_test(with_all_breakers_open_the_first_to_close_is_tried),
	    cmocka_unit_test(a_request_does_not_come_to_an_address_twice),
	    cmocka_unit_test(a_higher_priority_waits_for_all_lower_ones_to_fail),
	    cmocka_unit_test(a_new_list_keeps_what_is_known_of_old_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
