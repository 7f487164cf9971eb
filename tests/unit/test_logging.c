#include "logging.h"
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "clock.h"
#include "text.h"

static int saved_stderr;
static FILE *caught;

static void catch_begin(void)
{
	fflush(stderr);
	saved_stderr = dup(STDERR_FILENO);
	caught = tmpfile();
	assert_non_null(caught);
	assert_true(dup2(fileno(caught), STDERR_FILENO) >= 0);
}

/* What was written to stderr since catch_begin; the caller frees. */
static char *catch_end(void)
{
	struct text text = {0};
	char bytes[4096];
	size_t length;

	assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
	close(saved_stderr);
	rewind(caught);
	while ((length = fread(bytes, 1, sizeof bytes, caught)) > 0)
		text_append(&text, bytes, length);
	fclose(caught);
	return text.data ? text.data : xstrdup("");
}

static int count_lines(const char *text)
{
	int lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

static int teardown(void **state)
{
	(void)state;
	log_configure(LOG_LEVEL_INFO, LOG_LOGFMT);
	return 0;
}

static void a_line_is_logfmt_with_time_level_and_event(void **state)
{
	char *line;

	(void)state;
	catch_begin();
	log_warn("publish_refused", {"publisher", LOG_TEXT("main")}, {"id", LOG_INT(-7)});
	line = catch_end();
	/* ts=2026-01-02T03:04:05.678Z */
	assert_true(text_starts(line, "ts=20"));
	assert_int_equal(line[13], 'T');
	assert_int_equal(line[22], '.');
	assert_string_equal(line + 26, "Z level=warn event=publish_refused publisher=main id=-7\n");
	free(line);
}

static void an_event_needs_no_fields(void **state)
{
	char *line;

	(void)state;
	catch_begin();
	log_info("started");
	line = catch_end();
	assert_non_null(strstr(line, "Z level=info event=started\n"));
	free(line);
}

static void logfmt_quotes_what_is_not_a_bare_word(void **state)
{
	char *line;

	(void)state;
	catch_begin();
	log_info("quoting", {"a", LOG_TEXT("")}, {"b", LOG_TEXT("two words")},
	    {"c", LOG_TEXT("k=v")}, {"d", LOG_TEXT("say \"hi\"\\")}, {"e", LOG_TEXT("x\ny\tz")},
	    {"f", LOG_TEXT(NULL)}, {"g", LOG_TEXT("\xc3\xa4")}, {"h", LOG_TEXT("a,b:c/d")});
	line = catch_end();
	assert_non_null(strstr(line, " a=\"\" b=\"two words\" c=\"k=v\" d=\"say \\\"hi\\\"\\\\\" "
				     "e=\"x\\ny\\tz\" f=\"\" g=\"\xc3\xa4\" h=a,b:c/d\n"));
	free(line);
}

static void json_is_escaped_and_always_utf8(void **state)
{
	char *line;

	(void)state;
	log_configure(LOG_LEVEL_INFO, LOG_JSON);
	catch_begin();
	log_error("escaping", {"quote", LOG_TEXT("\"\\")},
	    {"control", LOG_TEXT("\x01\x1b[31m\x7f")}, {"c1", LOG_TEXT("\xc2\x9b")},
	    {"wrong", LOG_TEXT("a\xff\xc3(\xed\xa0\x80z")}, {"right", LOG_TEXT("\xf0\x9f\x98\x80")},
	    {"n", LOG_INT(INT64_MIN)});
	line = catch_end();
	assert_true(text_starts(line, "{\"ts\":\"20"));
	assert_non_null(strstr(line,
	    "Z\",\"level\":\"error\",\"event\":\"escaping\",\"quote\":\"\\\"\\\\\","
	    "\"control\":\"\\u0001\\u001b[31m\\u007f\",\"c1\":\"\\u009b\","
	    "\"wrong\":\"a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\","
	    "\"right\":\"\xf0\x9f\x98\x80\",\"n\":-9223372036854775808}\n"));
	free(line);
}

static void a_level_hides_those_below_it(void **state)
{
	char *lines;

	(void)state;
	assert_false(log_enabled(LOG_LEVEL_DEBUG));
	log_configure(LOG_LEVEL_WARN, LOG_LOGFMT);
	catch_begin();
	log_debug("hidden");
	log_info("hidden");
	log_warn("seen");
	log_error("seen");
	lines = catch_end();
	assert_int_equal(count_lines(lines), 2);
	assert_null(strstr(lines, "hidden"));
	free(lines);
}

/* Lines are counted by the second: a flood that is slower is none; the next has its own code. */
static const char *flood_within_a_second(void)
{
	static const char *const codes[] = {"flood0", "flood1", "flood2", "flood3", "flood4"};

	for (size_t try = 0; try < sizeof codes / sizeof *codes; try++) {
		int64_t began = clock_ms();

		catch_begin();
		for (int i = 0; i < 1000; i++)
			log_warn(codes[try], {"i", LOG_INT(i)});
		if (clock_ms() - began < 1000)
			return codes[try];
		free(catch_end());
	}
	fail_msg("a thousand lines take longer than a second");
	return NULL;
}

static bool holds(const char *lines, const char *code, const char *rest)
{
	char line[100];

	snprintf(line, sizeof line, "event=%s %s\n", code, rest);
	return strstr(lines, line) != NULL;
}

static void a_flood_is_cut_and_what_was_left_out_is_counted(void **state)
{
	struct timespec pause = {.tv_sec = 1, .tv_nsec = 50000000};
	const char *flood;
	char *lines;

	(void)state;
	flood = flood_within_a_second();
	log_warn("trickle");
	nanosleep(&pause, NULL);
	log_warn(flood, {"i", LOG_INT(1000)});
	log_warn(flood, {"i", LOG_INT(1001)});
	lines = catch_end();
	assert_int_equal(count_lines(lines), 23);
	assert_true(holds(lines, flood, "i=19"));
	assert_false(holds(lines, flood, "i=20"));
	assert_non_null(strstr(lines, "event=trickle\n"));
	assert_true(holds(lines, flood, "i=1000 suppressed=980"));
	assert_true(holds(lines, flood, "i=1001"));
	free(lines);
}

static void *shout(void *argument)
{
	for (int i = 0; i < 500; i++) {
		log_configure(LOG_LEVEL_INFO, LOG_LOGFMT);
		log_info(argument, {"i", LOG_INT(i)}, {"filler", LOG_TEXT("some words to say")});
		log_info("everybody", {"i", LOG_INT(i)});
	}
	return NULL;
}

static void threads_write_whole_lines(void **state)
{
	static char names[4][8] = {"one", "two", "three", "four"};
	pthread_t threads[4];
	char *lines;

	(void)state;
	catch_begin();
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, shout, names[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	lines = catch_end();
	assert_true(count_lines(lines) >= 5 * 20);
	for (char *line = lines; *line; line = strchr(line, '\n') + 1)
		assert_true(text_starts(line, "ts=20"));
	free(lines);
}

/* A pipe as stderr, filled up to the last `space` bytes. Who waits for it is killed in the end. */
static int catch_in_full_pipe(int space)
{
	static const char filler[PIPE_BUF];
	int ends[2];
	int size;

	alarm(30);
	assert_int_equal(pipe(ends), 0);
	size = fcntl(ends[1], F_GETPIPE_SZ);
	for (int i = 0; i < (size - space) / PIPE_BUF; i++)
		assert_int_equal(write(ends[1], filler, PIPE_BUF), PIPE_BUF);
	saved_stderr = dup(STDERR_FILENO);
	assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
	close(ends[1]);
	return ends[0];
}

/* What was logged into the pipe until now; the caller frees. */
static char *empty_pipe(int fd)
{
	struct text text = {0};
	char bytes[PIPE_BUF];
	ssize_t length;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while ((length = read(fd, bytes, sizeof bytes)) > 0)
		for (ssize_t i = 0; i < length; i++)
			if (bytes[i])
				text_append(&text, bytes + i, 1);
	return text.data ? text.data : xstrdup("");
}

static void end_pipe(int fd)
{
	assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
	close(saved_stderr);
	close(fd);
	alarm(0);
}

static void nobody_waits_for_a_reader_that_does_not_read(void **state)
{
	int fd = catch_in_full_pipe(0);
	char *before, *after;

	(void)state;
	log_warn("unread", {"i", LOG_INT(1)});
	log_warn("unread", {"i", LOG_INT(2)});
	before = empty_pipe(fd);
	log_warn("unread", {"i", LOG_INT(3)});
	after = empty_pipe(fd);
	end_pipe(fd);
	assert_string_equal(before, "");
	assert_true(text_starts(after, "ts=20"));
	assert_non_null(strstr(after, "event=unread i=3 suppressed=2\n"));
	free(before);
	free(after);
}

static void a_line_that_was_cut_off_spoils_no_other(void **state)
{
	int fd = catch_in_full_pipe(PIPE_BUF);
	char value[2 * PIPE_BUF] = "";
	char *before, *after;

	(void)state;
	memset(value, 'x', sizeof value - 1);
	log_warn("cut_off", {"value", LOG_TEXT(value)});
	before = empty_pipe(fd);
	log_warn("cut_off", {"i", LOG_INT(2)});
	after = empty_pipe(fd);
	end_pipe(fd);
	assert_int_equal(strlen(before), PIPE_BUF);
	assert_true(text_starts(after, "\nts=20"));
	assert_non_null(strstr(after, "event=cut_off i=2 suppressed=1\n"));
	free(before);
	free(after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(a_line_is_logfmt_with_time_level_and_event, teardown),
	    cmocka_unit_test_teardown(an_event_needs_no_fields, teardown),
	    cmocka_unit_test_teardown(logfmt_quotes_what_is_not_a_bare_word, teardown),
	    cmocka_unit_test_teardown(json_is_escaped_and_always_utf8, teardown),
	    cmocka_unit_test_teardown(a_level_hides_those_below_it, teardown),
	    cmocka_unit_test_teardown(a_flood_is_cut_and_what_was_left_out_is_counted, teardown),
	    cmocka_unit_test_teardown(nobody_waits_for_a_reader_that_does_not_read, teardown),
	    cmocka_unit_test_teardown(a_line_that_was_cut_off_spoils_no_other, teardown),
	    cmocka_unit_test_teardown(threads_write_whole_lines, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
