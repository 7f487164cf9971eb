/* The thread of the gate, with a poll of the test that fails as it does when memory is short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dev_gate.h"

enum { WATCHED_US = 300000, MOST_TURNS = 100 };

static atomic_bool memory_is_short = true;
static atomic_int turns;

int poll(struct pollfd *polls, nfds_t count, int timeout_ms)
{
	struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};

	turns++;
	if (!memory_is_short)
		return ppoll(polls, count, timeout_ms < 0 ? NULL : &timeout, NULL);
	errno = ENOMEM;
	return -1;
}

static void a_poll_that_fails_takes_no_whole_core(void **state)
{
	struct err err;
	struct dev_gate *gate = dev_gate_create("127.0.0.1:1", 0, &err);

	(void)state;
	if (!gate)
		fail_msg("%s", err.message);
	usleep(WATCHED_US);
	assert_in_range(turns, 1, MOST_TURNS);
	memory_is_short = false;
	dev_gate_destroy(gate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(a_poll_that_fails_takes_no_whole_core)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
