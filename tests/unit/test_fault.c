/* Fault points are in test builds only, so this test brings its own. */
#ifndef FAULT_POINTS
#define FAULT_POINTS
#endif
#include "fault.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "fault.c"

/* Passes a, b, a, b, … ten times; the number of passages until the kill, -1: lives. */
static int passages_until_killed(const char *choice)
{
	int pipe_ends[2], count = 0, status;
	char byte;
	pid_t child;

	assert_int_equal(pipe(pipe_ends), 0);
	child = fork();
	if (child == 0) {
		setenv("OUTBOX_RELAY_FAULT", choice, 1);
		for (int i = 0; i < 10; i++) {
			fault_point(i % 2 ? "b" : "a");
			if (write(pipe_ends[1], "x", 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	close(pipe_ends[1]);
	while (read(pipe_ends[0], &byte, 1) == 1)
		count++;
	close(pipe_ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return -1;
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	return count;
}

static void the_process_dies_at_the_chosen_passage(void **state)
{
	(void)state;
	assert_int_equal(passages_until_killed("a"), 0);
	assert_int_equal(passages_until_killed("b"), 1);
	assert_int_equal(passages_until_killed("a:3"), 4);
	assert_int_equal(passages_until_killed("b:5"), 9);
}

static void another_point_does_no_harm(void **state)
{
	(void)state;
	assert_int_equal(passages_until_killed("a:6"), -1);
	assert_int_equal(passages_until_killed("ab"), -1);
	assert_int_equal(passages_until_killed("c"), -1);
}

static void the_process_stops_at_the_chosen_passage_and_goes_on_from_there(void **state)
{
	int pipe_ends[2], status;
	char bytes[8];
	pid_t child;

	(void)state;
	assert_int_equal(pipe(pipe_ends), 0);
	child = fork();
	if (child == 0) {
		setenv("OUTBOX_RELAY_FAULT_STOP", "a:2", 1);
		for (int i = 0; i < 3; i++) {
			fault_point("a");
			if (write(pipe_ends[1], "x", 1) != 1)
				_exit(1);
		}
		_exit(0);
	}
	close(pipe_ends[1]);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	assert_int_equal(read(pipe_ends[0], bytes, sizeof bytes), 1);
	assert_int_equal(kill(child, SIGCONT), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(read(pipe_ends[0], bytes, sizeof bytes), 2);
	close(pipe_ends[0]);
}

static void each_name_is_listed_once(void **state)
{
	char path[] = "/tmp/test_fault_XXXXXX", content[64] = "";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	setenv("OUTBOX_RELAY_FAULT_LIST", path, 1);
	for (int i = 0; i < 3; i++) {
		fault_point("first");
		fault_point("second");
	}
	unsetenv("OUTBOX_RELAY_FAULT_LIST");
	assert_true(read(fd, content, sizeof content - 1) > 0);
	assert_string_equal(content, "first\nsecond\n");
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_process_dies_at_the_chosen_passage),
	    cmocka_unit_test(another_point_does_no_harm),
	    cmocka_unit_test(the_process_stops_at_the_chosen_passage_and_goes_on_from_there),
	    cmocka_unit_test(each_name_is_listed_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
