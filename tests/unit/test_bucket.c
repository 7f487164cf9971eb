#include "bucket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static int taken_until(struct bucket *bucket, int64_t rate, int64_t from, int64_t until)
{
	int taken = 0;

	for (int64_t now = from; now < until; now++)
		while (bucket_wait(bucket, rate, now) == 0) {
			bucket_take(bucket, rate);
			taken++;
		}
	return taken;
}

static void no_more_go_in_a_second_than_the_rate(void **state)
{
	struct bucket bucket;

	(void)state;
	bucket_init(&bucket, 5000);
	assert_in_range(taken_until(&bucket, 100, 5000, 6000), 99, 101);
	assert_in_range(taken_until(&bucket, 100, 6000, 16000), 999, 1001);
}

static void an_idle_time_lets_a_twentieth_of_a_second_go_at_once(void **state)
{
	struct bucket bucket;

	(void)state;
	bucket_init(&bucket, 0);
	assert_int_equal(taken_until(&bucket, 100, 1000000, 1000001), 5);
	assert_int_equal(taken_until(&bucket, 1, 2000000, 2000001), 1);
}

static void the_wait_is_until_there_is_a_token(void **state)
{
	struct bucket bucket;
	int64_t wait;

	(void)state;
	bucket_init(&bucket, 0);
	bucket_take(&bucket, 2);
	wait = bucket_wait(&bucket, 2, 0);
	assert_in_range(wait, 500, 501);
	assert_true(bucket_wait(&bucket, 2, wait - 2) > 0);
	assert_int_equal(bucket_wait(&bucket, 2, wait), 0);
}

static void a_token_that_was_not_used_may_be_given_back(void **state)
{
	struct bucket bucket;

	(void)state;
	bucket_init(&bucket, 0);
	bucket_take(&bucket, 1);
	bucket_give_back(&bucket, 1);
	assert_int_equal(bucket_wait(&bucket, 1, 0), 0);
}

static void a_rate_of_0_is_no_limit(void **state)
{
	struct bucket bucket;

	(void)state;
	bucket_init(&bucket, 0);
	for (int i = 0; i < 1000; i++)
		bucket_take(&bucket, 0);
	assert_int_equal(bucket_wait(&bucket, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_more_go_in_a_second_than_the_rate),
	    cmocka_unit_test(an_idle_time_lets_a_twentieth_of_a_second_go_at_once),
	    cmocka_unit_test(the_wait_is_until_there_is_a_token),
	    cmocka_unit_test(a_token_that_was_not_used_may_be_given_back),
	    cmocka_unit_test(a_rate_of_0_is_no_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
