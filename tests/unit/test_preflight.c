#include "preflight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cleanup.h"
#include "kafka_conf.h"

enum { DAY_MS = 86400000 };

/* A topic that nothing can be said against. */
static struct topic_setting good[] = {
    {"replication.factor", "3"},
    {"min.insync.replicas", "2"},
    {"unclean.leader.election.enable", "false"},
    {"flush.messages", "9223372036854775807"},
    {"flush.ms", "9223372036854775807"},
    {"cleanup.policy", "delete"},
    {"max.message.bytes", "1048588"},
    {"retention.ms", "604800000"},
    {"message.timestamp.difference.max.ms", "9223372036854775807"},
};
enum { SETTINGS = sizeof good / sizeof *good };

static struct kafka_property no_property[1];
static const struct kafka_settings plain = {"main", no_property, 0};

/* The good topic, with one setting changed. */
static void judge(struct preflight *report, const char *name, char *value, int64_t oldest_age_ms,
    const struct kafka_settings *kafka)
{
	struct topic_setting settings[SETTINGS];

	memcpy(settings, good, sizeof settings);
	for (int i = 0; i < SETTINGS; i++)
		if (strcmp(settings[i].name, name) == 0)
			settings[i].value = value;
	preflight_topic_settings(report, kafka, "orders", settings, SETTINGS, oldest_age_ms);
}

static enum preflight_severity worst(const struct preflight *report)
{
	enum preflight_severity severity = PREFLIGHT_OK;

	for (int i = 0; i < report->count; i++)
		if (report->findings[i].severity > severity)
			severity = report->findings[i].severity;
	return severity;
}

static void expect(
    const char *name, char *value, enum preflight_severity severity, const char *what)
{
	OWNED(preflight_finish) struct preflight report = {0};
	bool found = false;

	judge(&report, name, value, 2 * (int64_t)DAY_MS, &plain);
	assert_int_equal(worst(&report), severity);
	for (int i = 0; i < report.count; i++) {
		assert_string_equal(report.findings[i].place, "topic orders");
		found |= report.findings[i].severity == severity &&
			 strstr(report.findings[i].what, what);
	}
	assert_true(found);
}

static void a_replicated_topic_is_no_cause_for_worry(void **state)
{
	(void)state;
	expect("", "", PREFLIGHT_INFO, "power");
}

static void what_can_lose_acknowledged_records_is_unsafe(void **state)
{
	(void)state;
	expect("replication.factor", "1", PREFLIGHT_UNSAFE, "replication factor 1");
	expect("min.insync.replicas", "1", PREFLIGHT_UNSAFE, "min.insync.replicas = 1");
	expect("unclean.leader.election.enable", "true", PREFLIGHT_UNSAFE, "may become the leader");
}

static void what_will_stop_a_publisher_some_day_is_a_warning(void **state)
{
	(void)state;
	expect("min.insync.replicas", "3", PREFLIGHT_WARN, "one broker is away");
	expect("cleanup.policy", "compact,delete", PREFLIGHT_WARN, "null key");
	expect("max.message.bytes", "500000", PREFLIGHT_WARN, "message.max.bytes = 1048576");
	expect("retention.ms", "3600000", PREFLIGHT_WARN, "delete them at once");
	expect("message.timestamp.difference.max.ms", "3600000", PREFLIGHT_WARN, "are refused");
}

static void the_sections_own_sizes_are_compared(void **state)
{
	struct kafka_property properties[] = {{"batch.size", "400000", "relay.ini:3"},
	    {"message.max.bytes", "300000", "relay.ini:4"}};
	const struct kafka_settings small = {"main", properties, 2};
	OWNED(preflight_finish) struct preflight fits = {0}, batches = {0};

	(void)state;
	judge(&fits, "max.message.bytes", "500000", 0, &small);
	assert_int_equal(worst(&fits), PREFLIGHT_INFO);
	judge(&batches, "max.message.bytes", "350000", 0, &small);
	assert_int_equal(worst(&batches), PREFLIGHT_WARN);
	assert_non_null(strstr(batches.findings[batches.count - 1].what, "batch.size = 400000"));
}

/* Of the relay's own producer; the caller frees. */
static char *producers(const char *name)
{
	struct kafka_property servers = {"bootstrap.servers", "127.0.0.1:1", "relay.ini:2"};
	const struct kafka_settings section = {"main", &servers, 1};
	struct err err = {0};
	rd_kafka_conf_t *conf = kafka_conf_producer(&section, NULL, 1 << 20, 1000, &err);
	char *value = xcalloc(1, 32);
	size_t size = 32;

	if (!conf)
		fail_msg("%s", err.message);
	assert_int_equal(rd_kafka_conf_get(conf, name, value, &size), RD_KAFKA_CONF_OK);
	rd_kafka_conf_destroy(conf);
	return value;
}

static void without_a_setting_the_producers_own_sizes_are_compared(void **state)
{
	static const char *const names[] = {"message.max.bytes", "batch.size"};
	OWNED(preflight_finish) struct preflight fits = {0};
	owned_text char *largest = producers("message.max.bytes");

	(void)state;
	judge(&fits, "max.message.bytes", largest, 0, &plain);
	assert_int_equal(worst(&fits), PREFLIGHT_INFO);
	for (int i = 0; i < 2; i++) {
		OWNED(preflight_finish) struct preflight report = {0};
		struct kafka_property small = {"message.max.bytes", "1000", "relay.ini:3"};
		const struct kafka_settings batches = {"main", &small, 1};
		owned_text char *own = producers(names[i]);
		owned_text char *below = xformat("%lld", strtoll(own, NULL, 10) - 1);
		owned_text char *told = xformat("below %s = %s", names[i], own);

		judge(&report, "max.message.bytes", below, 0, i == 0 ? &plain : &batches);
		assert_int_equal(worst(&report), PREFLIGHT_WARN);
		assert_non_null(strstr(report.findings[report.count - 1].what, told));
	}
}

static void unlimited_retention_never_warns(void **state)
{
	(void)state;
	expect("retention.ms", "-1", PREFLIGHT_INFO, "power");
}

/* A connection that only begins: what it was told is known. */
static bool may_land_on_standby(const char *dsn)
{
	struct err err = {0};
	OWNED(owned_pg_destroy) struct pg *pg = pg_start(dsn, "test", &err);

	if (!pg)
		fail_msg("%s: %s", dsn, err.message);
	return pg_may_land_on_standby(pg);
}

static void several_hosts_need_target_session_attrs(void **state)
{
	(void)state;
	unsetenv("PGTARGETSESSIONATTRS");
	assert_true(may_land_on_standby("host=127.0.0.1,127.0.0.2 port=1"));
	assert_true(may_land_on_standby("postgresql://127.0.0.1:1,127.0.0.2:1/shop"));
	assert_true(may_land_on_standby("hostaddr=127.0.0.1,127.0.0.2 port=1"));
	assert_true(may_land_on_standby("host=127.0.0.1,127.0.0.2 port=1 "
					"target_session_attrs=any"));
	assert_true(may_land_on_standby("host=127.0.0.1,127.0.0.2 port=1 "
					"target_session_attrs=prefer-standby"));
	assert_false(may_land_on_standby("host=127.0.0.1,127.0.0.2 port=1 "
					 "target_session_attrs=read-write"));
	assert_false(may_land_on_standby(
	    "postgresql://127.0.0.1:1,127.0.0.2:1/shop?target_session_attrs=primary"));
	assert_false(may_land_on_standby("host=127.0.0.1 port=1"));
}

static void hosts_may_be_named_by_the_environment(void **state)
{
	(void)state;
	setenv("PGHOST", "127.0.0.1,127.0.0.2", 1);
	assert_true(may_land_on_standby("port=1"));
	assert_false(may_land_on_standby("host=127.0.0.1 port=1"));
	setenv("PGTARGETSESSIONATTRS", "read-write", 1);
	assert_false(may_land_on_standby("port=1"));
	unsetenv("PGTARGETSESSIONATTRS");
	unsetenv("PGHOST");
}

static void strict_makes_unsafe_fatal(void **state)
{
	(void)state;
	assert_true(preflight_is_fatal(PREFLIGHT_UNSAFE, SAFETY_STRICT));
	assert_false(preflight_is_fatal(PREFLIGHT_UNSAFE, SAFETY_WARN));
	assert_true(preflight_is_fatal(PREFLIGHT_FAIL, SAFETY_WARN));
	assert_false(preflight_is_fatal(PREFLIGHT_WARN, SAFETY_STRICT));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_replicated_topic_is_no_cause_for_worry),
	    cmocka_unit_test(what_can_lose_acknowledged_records_is_unsafe),
	    cmocka_unit_test(what_will_stop_a_publisher_some_day_is_a_warning),
	    cmocka_unit_test(the_sections_own_sizes_are_compared),
	    cmocka_unit_test(without_a_setting_the_producers_own_sizes_are_compared),
	    cmocka_unit_test(unlimited_retention_never_warns),
	    cmocka_unit_test(several_hosts_need_target_session_attrs),
	    cmocka_unit_test(hosts_may_be_named_by_the_environment),
	    cmocka_unit_test(strict_makes_unsafe_fatal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
