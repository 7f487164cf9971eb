#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "epoch_check.h"
#include "kafka_conf.h"
#include "kafka_defaults.h"
#include "produce_fault.h"
#include "text.h"

enum { MAX = 4 };

/* A [kafka] section with servers and the given properties, as the configuration would make it. */
static struct kafka_settings section(struct kafka_property *properties, int count)
{
	return (struct kafka_settings){
	    .name = "main", .properties = properties, .property_count = count};
}
#define SERVERS                                                                                    \
	{                                                                                          \
		.name = "bootstrap.servers", .value = "127.0.0.1:1", .origin = "relay.ini:2"       \
	}

static bool check_one(const char *name, const char *value, struct err *err)
{
	struct kafka_property properties[] = {
	    SERVERS, {.name = (char *)name, .value = (char *)value, .origin = "relay.ini:3"}};
	struct kafka_settings kafka = section(properties, 2);

	return kafka_conf_check(&kafka, false, err);
}

static void assert_setting(rd_kafka_conf_t *conf, const char *name, const char *expected)
{
	char value[128];
	size_t size = sizeof value;

	assert_int_equal(rd_kafka_conf_get(conf, name, value, &size), RD_KAFKA_CONF_OK);
	assert_string_equal(value, expected);
}

static void what_breaks_a_promise_is_refused(void **state)
{
	static const char *const refused[][2] = {
	    {"enable.idempotence", "false"},
	    {"enable.gapless.guarantee", "false"},
	    {"acks", "1"},
	    {"request.required.acks", "0"},
	    {"message.timeout.ms", "300000"},
	    {"delivery.timeout.ms", "1"},
	    {"retries", "3"},
	    {"message.send.max.retries", "3"},
	    {"max.in.flight", "6"},
	    {"max.in.flight.requests.per.connection", "1000000"},
	    {"queuing.strategy", "lifo"},
	    {"partitioner", "murmur2"},
	    {"transactional.id", "x"},
	    {"delivery.report.only.error", "true"},
	    {"queue.buffering.max.messages", "1"},
	    {"queue.buffering.max.kbytes", "1"},
	    {"statistics.interval.ms", "1"},
	    {"test.mock.num.brokers", "3"},
	    {"group.id", "g"},
	    {"enable.auto.commit", "true"},
	    {"isolation.level", "read_committed"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		struct err err = {0};

		assert_false(check_one(refused[i][0], refused[i][1], &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_non_null(strstr(err.message, refused[i][0]));
		assert_non_null(strstr(err.message, "remove it"));
	}
}

static void what_breaks_none_passes(void **state)
{
	static const char *const allowed[][2] = {
	    {"enable.idempotence", "true"},
	    {"acks", "all"},
	    {"acks", "-1"},
	    {"max.in.flight", "1"},
	    {"max.in.flight.requests.per.connection", "5"},
	    {"linger.ms", "0"},
	    {"batch.size", "100000"},
	    {"compression.type", "zstd"},
	    {"client.id", "me"},
	    {"message.max.bytes", "2000000"},
	    {"fetch.wait.max.ms", "10"},
	    {"sasl.mechanisms", "PLAIN"},
	    {"sasl.username", "u"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
		struct err err = {0};

		if (!check_one(allowed[i][0], allowed[i][1], &err))
			fail_msg("%s", err.message);
	}
}

static void a_refusal_names_the_place_the_reason_and_the_cure(void **state)
{
	struct err err;

	(void)state;
	assert_false(check_one("acks", "1", &err));
	assert_string_equal(err.message,
	    "relay.ini:3: [kafka \"main\"] acks = 1: a record counts as published when every "
	    "in-sync replica has it; remove it or use all");
}

static void an_unknown_property_is_refused_by_librdkafka(void **state)
{
	struct err err;

	(void)state;
	assert_false(check_one("lingerms", "1", &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "relay.ini:3: [kafka \"main\"] lingerms: "));
}

static void a_value_out_of_range_is_refused_by_librdkafka(void **state)
{
	struct err err;

	(void)state;
	assert_false(check_one("linger.ms", "a while", &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "linger.ms = a while"));
}

static void no_message_holds_a_secret(void **state)
{
	struct err err;

	(void)state;
	assert_false(check_one("sasl.pasword", "hunter2", &err));
	assert_null(strstr(err.message, "hunter2"));
	assert_false(check_one("ssl_key", "hunter2", &err));
	assert_null(strstr(err.message, "hunter2"));
	/* librdkafka refuses it whatever it says: it is what a Java client has its password in */
	assert_false(check_one("sasl.jaas.config", "Login required password=hunter2;", &err));
	assert_null(strstr(err.message, "hunter2"));
	assert_non_null(strstr(err.message, "sasl.jaas.config = (hidden)"));
}

static void missing_servers_say_where_to_put_them(void **state)
{
	struct kafka_settings kafka = section(NULL, 0);
	struct err err;

	(void)state;
	assert_false(kafka_conf_check(&kafka, false, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "bootstrap.servers = host:port"));
	assert_non_null(strstr(err.message, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS"));
}

static void a_certificate_that_is_not_there_is_found_without_connecting(void **state)
{
	struct kafka_property properties[] = {
	    SERVERS,
	    {.name = "security.protocol", .value = "ssl", .origin = "relay.ini:3"},
	    {.name = "ssl.ca.location", .value = "/nonexistent/ca.pem", .origin = "relay.ini:4"},
	};
	struct kafka_settings kafka = section(properties, 3);
	struct err err;

	(void)state;
	assert_false(kafka_conf_check(&kafka, false, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "ssl.ca.location"));
}

static void the_producer_has_our_defaults_and_the_sections_wishes(void **state)
{
	struct kafka_property properties[] = {
	    SERVERS,
	    {.name = "linger.ms", .value = "7", .origin = "relay.ini:3"},
	    {.name = "compression.type", .value = "gzip", .origin = "relay.ini:4"},
	    {.name = "fetch.wait.max.ms", .value = "10", .origin = "relay.ini:5"},
	};
	struct kafka_settings plain = section(properties, 1), full = section(properties, MAX);
	struct err err;
	rd_kafka_conf_t *conf = kafka_conf_producer(&plain, NULL, 8 << 20, 10000, &err);

	(void)state;
	assert_non_null(conf);
	assert_setting(conf, "enable.idempotence", "true");
	assert_setting(conf, "enable.gapless.guarantee", "true");
	assert_setting(conf, "linger.ms", "0");
	assert_setting(conf, "compression.codec", "none");
	assert_setting(conf, "socket.nagle.disable", "true");
	assert_setting(conf, "reconnect.backoff.max.ms", "1000");
	assert_setting(conf, "queue.buffering.max.messages", "13500");
	assert_setting(conf, "queue.buffering.max.kbytes", "12288");
	rd_kafka_conf_destroy(conf);
	conf = kafka_conf_producer(&full, NULL, 8 << 20, 10000, &err);
	assert_non_null(conf);
	assert_setting(conf, "linger.ms", "7");
	assert_setting(conf, "compression.codec", "gzip");
	assert_setting(conf, "fetch.wait.max.ms", "500");
	rd_kafka_conf_destroy(conf);
	conf = kafka_conf_client(&full, &err);
	assert_non_null(conf);
	assert_setting(conf, "linger.ms", "5");
	assert_setting(conf, "fetch.wait.max.ms", "10");
	rd_kafka_conf_destroy(conf);
}

/* What librdkafka has when nobody sets anything; alternating names and values. */
static const char *value_of(const char **dump, size_t count, const char *name)
{
	for (size_t i = 0; i + 1 < count; i += 2)
		if (text_equal(dump[i], name))
			return dump[i + 1];
	return NULL;
}

static bool is_set_by_the_section_or_librdkafka(const char *name)
{
	/* pointers of this process, what idempotence implies, and the section's own servers */
	static const char *const others[] = {"bootstrap.servers", "metadata.broker.list", "log_cb",
	    "enabled_events", "opaque", "default_topic_conf", "stats_cb", "error_cb", "socket_cb",
	    "open_cb", "ssl.certificate.verify_cb"};

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (text_equal(others[i], name))
			return true;
	return false;
}

/* librdkafka lists a property that has two names under the other one. */
static const struct kafka_default *default_of(const char *listed)
{
	const char *name = text_equal(listed, "queue.buffering.max.ms") ? "linger.ms" : listed;

	for (int i = 0; i < kafka_default_count; i++)
		if (text_equal(kafka_defaults[i].name, name))
			return &kafka_defaults[i];
	return NULL;
}

/* Each property in which our producer differs from librdkafka's has a row with this value. */
static void the_table_has_every_property_that_we_set(void **state)
{
	struct kafka_property properties[] = {SERVERS};
	struct kafka_settings kafka = section(properties, 1);
	struct err err;
	rd_kafka_conf_t *ours = kafka_conf_producer(&kafka, "id", 8 << 20, 10000, &err);
	rd_kafka_conf_t *plain = rd_kafka_conf_new();
	size_t our_count, plain_count;
	const char **our_dump = rd_kafka_conf_dump(ours, &our_count);
	const char **plain_dump = rd_kafka_conf_dump(plain, &plain_count);

	(void)state;
	for (size_t i = 0; i + 1 < our_count; i += 2) {
		const char *usual = value_of(plain_dump, plain_count, our_dump[i]);
		const struct kafka_default *row = default_of(our_dump[i]);

		if ((usual && text_equal(usual, our_dump[i + 1])) ||
		    is_set_by_the_section_or_librdkafka(our_dump[i]))
			continue;
		if (!row)
			fail_msg("no row for %s = %s", our_dump[i], our_dump[i + 1]);
		if (row->value)
			assert_string_equal(row->value, our_dump[i + 1]);
	}
	for (int i = 0; i < kafka_default_count; i++)
		if (kafka_defaults[i].value && !text_equal(kafka_defaults[i].name, "acks"))
			assert_setting(ours, kafka_defaults[i].name, kafka_defaults[i].value);
	rd_kafka_conf_dump_free(our_dump, our_count);
	rd_kafka_conf_dump_free(plain_dump, plain_count);
	rd_kafka_conf_destroy(ours);
	rd_kafka_conf_destroy(plain);
}

static void what_is_in_force_includes_the_sections_wishes(void **state)
{
	struct kafka_property properties[] = {
	    SERVERS,
	    {.name = "compression.type", .value = "zstd", .origin = "relay.ini:3"},
	    {.name = "linger.ms", .value = "7", .origin = "relay.ini:4"},
	    {.name = "client.id", .value = "shop", .origin = "relay.ini:5"},
	};
	struct kafka_settings kafka = section(properties, MAX);
	struct err err;
	char *plain = kafka_conf_in_force(&kafka, false, 2, &err);
	char *exact = kafka_conf_in_force(&kafka, true, 2, &err);

	(void)state;
	assert_non_null(strstr(plain, "client.id = shop, "));
	assert_non_null(strstr(plain, "compression.codec = zstd, linger.ms = 7, "));
	assert_non_null(strstr(plain, "acks = -1, "));
	assert_null(strstr(plain, "transaction.timeout.ms"));
	assert_non_null(strstr(exact, "transaction.timeout.ms = 10000"));
	free(plain);
	free(exact);
}

/* Both names of the property win over the default that a publisher's pace gives. */
static void linger_is_the_default_of_the_pace_unless_the_section_has_it(void **state)
{
	struct kafka_property ours[] = {
	    SERVERS, {.name = "queue.buffering.max.ms", .value = "9", .origin = "relay.ini:4"}};
	struct kafka_settings plain = section(ours, 1), said = section(ours, 2);
	struct err err;
	char *by_pace = kafka_conf_in_force(&plain, false, 2, &err);
	char *by_section = kafka_conf_in_force(&said, false, 2, &err);

	(void)state;
	assert_non_null(strstr(by_pace, "linger.ms = 2, "));
	assert_non_null(strstr(by_section, "linger.ms = 9, "));
	free(by_pace);
	free(by_section);
}

static void a_transaction_that_is_left_open_ends_soon(void **state)
{
	struct kafka_property properties[] = {
	    SERVERS,
	    {.name = "transaction.timeout.ms", .value = "20000", .origin = "relay.ini:3"},
	};
	struct kafka_settings plain = section(properties, 1), longer = section(properties, 2);
	struct err err;
	rd_kafka_conf_t *conf = kafka_conf_producer(&plain, "a publisher's", 1 << 20, 1000, &err);

	(void)state;
	assert_non_null(conf);
	assert_setting(conf, "transactional.id", "a publisher's");
	assert_setting(conf, "transaction.timeout.ms", "10000");
	rd_kafka_conf_destroy(conf);
	conf = kafka_conf_producer(&longer, "a publisher's", 1 << 20, 1000, &err);
	assert_non_null(conf);
	assert_setting(conf, "transaction.timeout.ms", "20000");
	rd_kafka_conf_destroy(conf);
}

static void times_that_exclude_each_other_are_refused_with_transactions(void **state)
{
	struct kafka_property properties[] = {
	    SERVERS, {.name = "socket.timeout.ms", .value = "60000", .origin = "relay.ini:3"}};
	struct kafka_settings kafka = section(properties, 2);
	struct err err;

	(void)state;
	assert_true(kafka_conf_check(&kafka, false, &err));
	assert_false(kafka_conf_check(&kafka, true, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "socket.timeout.ms"));
	assert_non_null(strstr(err.message, "transaction.timeout.ms"));
}

static void a_huge_queue_stays_within_librdkafkas_range(void **state)
{
	struct kafka_property properties[] = {SERVERS};
	struct kafka_settings kafka = section(properties, 1);
	struct err err;
	rd_kafka_conf_t *conf =
	    kafka_conf_producer(&kafka, NULL, INT64_C(1) << 50, INT64_C(1) << 40, &err);

	(void)state;
	assert_non_null(conf);
	assert_setting(conf, "queue.buffering.max.kbytes", "2147483647");
	rd_kafka_conf_destroy(conf);
}

static void a_record_of_the_largest_size_fits_beside_a_full_queue(void **state)
{
	struct kafka_property properties[] = {
	    SERVERS,
	    {.name = "message.max.bytes", .value = "104857600", .origin = "relay.ini:3"},
	};
	struct kafka_settings kafka = section(properties, 2);
	struct err err;
	rd_kafka_conf_t *conf = kafka_conf_producer(&kafka, NULL, 1 << 20, 1000, &err);

	(void)state;
	assert_non_null(conf);
	assert_setting(conf, "queue.buffering.max.kbytes", "104704");
	rd_kafka_conf_destroy(conf);
}

static void only_a_refusal_for_good_is_a_reject(void **state)
{
	(void)state;
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE), ERR_REJECT);
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR_INVALID_RECORD), ERR_REJECT);
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP), ERR_REJECT);
	assert_int_equal(
	    kafka_error_kind(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED), ERR_DENIED);
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART), ERR_RETRY);
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR__PURGE_QUEUE), ERR_RETRY);
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE), ERR_RETRY);
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR_UNKNOWN), ERR_RETRY);
}

static void an_error_of_a_record_blames_what_it_speaks_of(void **state)
{
	static const struct {
		rd_kafka_resp_err_t code;
		enum produce_fault fault;
	} cases[] = {
	    {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, PRODUCE_FAULT_RECORD},
	    {RD_KAFKA_RESP_ERR_INVALID_RECORD, PRODUCE_FAULT_RECORD},
	    {RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, PRODUCE_FAULT_RECORD},
	    {RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, PRODUCE_FAULT_TOPIC},
	    {RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, PRODUCE_FAULT_TOPIC},
	    {RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, PRODUCE_FAULT_TOPIC},
	    {RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS, PRODUCE_FAULT_TOPIC},
	    {RD_KAFKA_RESP_ERR_UNKNOWN, PRODUCE_FAULT_UNKNOWN},
	    {RD_KAFKA_RESP_ERR_INVALID_MSG, PRODUCE_FAULT_UNKNOWN},
	    {RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR, PRODUCE_FAULT_UNKNOWN},
	    {12345, PRODUCE_FAULT_UNKNOWN}, /* of a broker of tomorrow */
	    {RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, PRODUCE_FAULT_NONE},
	    {RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, PRODUCE_FAULT_NONE},
	};
	const struct rd_kafka_err_desc *codes;
	size_t count;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(produce_fault_of(cases[i].code), cases[i].fault);
	rd_kafka_get_err_descs(&codes, &count);
	for (size_t i = 0; i < count; i++) /* librdkafka's own */
		if (codes[i].code < RD_KAFKA_RESP_ERR__END)
			assert_int_equal(produce_fault_of(codes[i].code), PRODUCE_FAULT_NONE);
}

/* It fails with a librdkafka whose debug lines of a new epoch have other names. */
static void a_new_epoch_is_seen_before_it_begins(void **state)
{
	struct err err;

	(void)state;
	if (!epoch_check(&err))
		fail_msg("%s", err.message);
}

/* librdkafka takes a word with a minus sign out of `debug`. */
static void no_debug_value_hides_new_epochs(void **state)
{
	static const char *const values[][2] = {{"-eos", "eos"}, {"all, -eos", ",eos,"},
	    {"-all", "eos"}, {"broker,-EOS", "broker,eos"}, {"broker", "broker,eos"}};

	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		struct kafka_property properties[] = {SERVERS,
		    {.name = "debug", .value = (char *)values[i][0], .origin = "relay.ini:3"}};
		struct kafka_settings kafka = section(properties, 2);
		struct err err = {0};
		rd_kafka_conf_t *conf = kafka_conf_producer(&kafka, NULL, 1 << 20, 1000, &err);
		char value[512];
		size_t size = sizeof value;

		assert_non_null(conf);
		assert_int_equal(rd_kafka_conf_get(conf, "debug", value, &size), RD_KAFKA_CONF_OK);
		assert_non_null(strstr(value, values[i][1]));
		rd_kafka_conf_destroy(conf);
	}
}

static void servers_of_other_machines_without_tls_are_exposed(void **state)
{
	static const struct {
		const char *servers, *protocol;
		bool exposed;
	} rows[] = {{"127.0.0.1:9092, localhost:9092,[::1]:1", NULL, false},
	    {"localhost", "plaintext", false}, {"kafka:9092", NULL, true},
	    {"localhost:1,kafka:9092", "SASL_PLAINTEXT", true}, {"localhosts:1", NULL, true},
	    {"127.example.com:1", NULL, true}, {"kafka:9092", "ssl", false},
	    {"PLAINTEXT://kafka:1", NULL, true}, {"kafka:9092", "sasl_ssl", false},
	    {"PLAINTEXT://127.0.0.1:1", NULL, false}};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct kafka_property properties[] = {
		    {.name = "bootstrap.servers", .value = (char *)rows[i].servers},
		    {.name = "security.protocol", .value = (char *)rows[i].protocol}};
		struct kafka_settings kafka = section(properties, rows[i].protocol ? 2 : 1);

		assert_int_equal(kafka_conf_is_exposed(&kafka), rows[i].exposed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_breaks_a_promise_is_refused),
	    cmocka_unit_test(what_breaks_none_passes),
	    cmocka_unit_test(a_refusal_names_the_place_the_reason_and_the_cure),
	    cmocka_unit_test(an_unknown_property_is_refused_by_librdkafka),
	    cmocka_unit_test(a_value_out_of_range_is_refused_by_librdkafka),
	    cmocka_unit_test(no_message_holds_a_secret),
	    cmocka_unit_test(servers_of_other_machines_without_tls_are_exposed),
	    cmocka_unit_test(missing_servers_say_where_to_put_them),
	    cmocka_unit_test(a_certificate_that_is_not_there_is_found_without_connecting),
	    cmocka_unit_test(the_producer_has_our_defaults_and_the_sections_wishes),
	    cmocka_unit_test(the_table_has_every_property_that_we_set),
	    cmocka_unit_test(what_is_in_force_includes_the_sections_wishes),
	    cmocka_unit_test(linger_is_the_default_of_the_pace_unless_the_section_has_it),
	    cmocka_unit_test(a_transaction_that_is_left_open_ends_soon),
	    cmocka_unit_test(times_that_exclude_each_other_are_refused_with_transactions),
	    cmocka_unit_test(a_huge_queue_stays_within_librdkafkas_range),
	    cmocka_unit_test(a_record_of_the_largest_size_fits_beside_a_full_queue),
	    cmocka_unit_test(only_a_refusal_for_good_is_a_reject),
	    cmocka_unit_test(an_error_of_a_record_blames_what_it_speaks_of),
	    cmocka_unit_test(a_new_epoch_is_seen_before_it_begins),
	    cmocka_unit_test(no_debug_value_hides_new_epochs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
