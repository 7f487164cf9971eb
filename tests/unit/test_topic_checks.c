/* The checks of topics with a broker that answers what the test says. */
#include "topic_checks.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "clock.h"
#include "logging.h"
#include "preflight.h"
#include "text.h"

enum { PATIENCE_MS = 20000 };

enum answer { NO_ANSWER, MISSING, UNSAFE, SAFE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum answer answer;
static int questions;

/* In the place of the one in preflight_kafka.c, which asks a broker. */
bool preflight_topic(struct preflight *report, struct topic_metadata *metadata,
    const struct kafka_settings *kafka, const char *topic, int64_t oldest_age_ms, int timeout_ms,
    struct err *err)
{
	enum answer given;

	(void)metadata, (void)kafka, (void)oldest_age_ms, (void)timeout_ms;
	pthread_mutex_lock(&lock);
	given = answer;
	questions++;
	pthread_mutex_unlock(&lock);
	if (given == NO_ANSWER)
		return err_set(err, ERR_RETRY, "nobody answers");
	if (given == MISSING)
		preflight_add(report, PREFLIGHT_FAIL, topic, NULL, "it is not there");
	if (given == UNSAFE)
		preflight_add(report, PREFLIGHT_UNSAFE, topic, NULL, "one copy");
	preflight_add(report, PREFLIGHT_INFO, topic, NULL, "it was asked for");
	return true;
}

static void will_be(enum answer next)
{
	pthread_mutex_lock(&lock);
	answer = next;
	pthread_mutex_unlock(&lock);
}

static int asked(void)
{
	int count;

	pthread_mutex_lock(&lock);
	count = questions;
	pthread_mutex_unlock(&lock);
	return count;
}

static struct topic_checks *start(enum answer first)
{
	static const struct kafka_settings kafka = {.name = "main"};
	struct topic_checks *checks;
	struct err err;

	log_configure(LOG_LEVEL_ERROR + 1, LOG_LOGFMT);
	will_be(first);
	questions = 0;
	checks = topic_checks_create(NULL, &kafka, &err);
	assert_non_null(checks);
	return checks;
}

/* Until strict's list of closed topics reads so; "" is an empty one. */
static void wait_until_closed(struct topic_checks *checks, const char *expected)
{
	int64_t until = clock_ms() + PATIENCE_MS;
	OWNED(text_finish) struct text closed = {0};

	for (;;) {
		int count = topic_checks_closed(checks, &closed);

		if (text_equal(text_string(&closed), expected)) {
			assert_int_equal(count, expected[0] != '\0');
			return;
		}
		if (clock_ms() > until)
			fail_msg("\"%s\", not \"%s\"", text_string(&closed), expected);
		text_finish(&closed);
		closed = (struct text){0};
		poll(NULL, 0, 1);
	}
}

static void wait_until_asked(int times)
{
	int64_t until = clock_ms() + PATIENCE_MS;

	while (asked() < times) {
		assert_true(clock_ms() < until);
		poll(NULL, 0, 1);
	}
}

static bool allows(struct topic_checks *checks, enum safety safety)
{
	return topic_checks_allow(checks, "orders", safety);
}

static void with_strict_a_topic_is_closed_until_it_was_found_safe(void **state)
{
	struct topic_checks *checks = start(NO_ANSWER);

	(void)state;
	assert_false(allows(checks, SAFETY_STRICT));
	wait_until_asked(1);
	wait_until_closed(checks, "topic orders: not checked yet\n");
	assert_false(allows(checks, SAFETY_STRICT));
	will_be(SAFE);
	wait_until_closed(checks, "");
	assert_true(allows(checks, SAFETY_STRICT));
	assert_int_equal(asked(), 2);
	topic_checks_destroy(checks);
}

static void with_warn_an_unsafe_topic_is_open_until_somebody_is_strict(void **state)
{
	struct topic_checks *checks = start(UNSAFE);

	(void)state;
	assert_true(allows(checks, SAFETY_WARN));
	wait_until_asked(1);
	wait_until_closed(checks, "");
	assert_false(allows(checks, SAFETY_STRICT));
	wait_until_asked(2);
	wait_until_closed(checks, "topic orders: one copy\n");
	assert_true(allows(checks, SAFETY_WARN));
	topic_checks_destroy(checks);
}

static void a_missing_topic_is_judged_once_it_is_there(void **state)
{
	struct topic_checks *checks = start(MISSING);

	(void)state;
	assert_true(allows(checks, SAFETY_WARN));
	wait_until_asked(1);
	will_be(UNSAFE);
	wait_until_asked(2);
	assert_false(allows(checks, SAFETY_STRICT));
	wait_until_closed(checks, "topic orders: one copy\n");
	topic_checks_destroy(checks);
}

/* The fifth question would come after 8 s; who sees the topic hastens it. */
static void with_strict_a_missing_topic_opens_soon_after_it_was_made(void **state)
{
	struct topic_checks *checks = start(MISSING);
	int64_t since;

	(void)state;
	assert_false(allows(checks, SAFETY_STRICT));
	wait_until_closed(checks, "topic orders: it is not there\n");
	wait_until_asked(4);
	since = clock_ms();
	will_be(SAFE);
	assert_false(allows(checks, SAFETY_STRICT));
	wait_until_closed(checks, "");
	assert_true(clock_ms() - since < 7000);
	assert_true(allows(checks, SAFETY_STRICT));
	topic_checks_destroy(checks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(with_strict_a_topic_is_closed_until_it_was_found_safe),
	    cmocka_unit_test(with_warn_an_unsafe_topic_is_open_until_somebody_is_strict),
	    cmocka_unit_test(a_missing_topic_is_judged_once_it_is_there),
	    cmocka_unit_test(with_strict_a_missing_topic_opens_soon_after_it_was_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
