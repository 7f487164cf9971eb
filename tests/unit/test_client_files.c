/* Files of a section with open clients, which have no broker. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <librdkafka/rdkafka.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "client_files.h"
#include "clock.h"
#include "kafka_client.h"
#include "kafka_conf.h"
#include "temporary.h"
#include "text.h"
#include "topic_metadata_private.h"

struct fixture {
	char folder[TEMPORARY];
	char *password, *certificate, *key;
	struct kafka_settings kafka;
};

/* Replaces the file in one step, as Kubernetes does. */
static void write_file(const char *path, const char *content)
{
	char *fresh = xformat("%s.new", path);
	FILE *file = fopen(fresh, "w");

	assert_non_null(file);
	fputs(content, file);
	fclose(file);
	assert_int_equal(rename(fresh, path), 0);
	free(fresh);
}

/* A new key, and a certificate of it. */
static void write_pair(const char *certificate, const char *key)
{
	EVP_PKEY *pair = EVP_EC_gen("P-256");
	X509 *made = X509_new();
	FILE *file;

	ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
	X509_gmtime_adj(X509_getm_notBefore(made), 0);
	X509_gmtime_adj(X509_getm_notAfter(made), 3600);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
	    (const unsigned char *)"client", -1, -1, 0);
	X509_set_issuer_name(made, X509_get_subject_name(made));
	X509_set_pubkey(made, pair);
	assert_true(X509_sign(made, pair, EVP_sha256()) > 0);

	if (certificate) {
		file = fopen(certificate, "w");
		PEM_write_X509(file, made);
		fclose(file);
	}
	if (key) {
		file = fopen(key, "w");
		PEM_write_PrivateKey(file, pair, NULL, NULL, 0, NULL, NULL);
		fclose(file);
	}
	X509_free(made);
	EVP_PKEY_free(pair);
}

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	struct kafka_settings *kafka = &fixture->kafka;

	assert_true(temporary_make(fixture->folder));
	fixture->password = xformat("%s/password", fixture->folder);
	fixture->certificate = xformat("%s/client.pem", fixture->folder);
	fixture->key = xformat("%s/client.key", fixture->folder);
	write_file(fixture->password, "first\n");
	write_pair(fixture->certificate, fixture->key);

	kafka->name = xstrdup("main");
	kafka_settings_add(kafka, "bootstrap.servers", "127.0.0.1:1", "relay.ini:1");
	kafka_settings_add(kafka, "security.protocol", "SASL_SSL", "relay.ini:2");
	kafka_settings_add(kafka, "sasl.mechanism", "PLAIN", "relay.ini:3");
	kafka_settings_add(kafka, "sasl.username", "relay", "relay.ini:4");
	kafka_settings_add(kafka, "sasl.password", "of the start", "relay.ini:5");
	kafka_settings_set_file(kafka, fixture->password);
	kafka_settings_add(kafka, "ssl.certificate.location", fixture->certificate, "relay.ini:6");
	kafka_settings_add(kafka, "ssl.key.location", fixture->key, "relay.ini:7");
	kafka_settings_add(kafka, "ssl.ca.location", "probe", "relay.ini:8");
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	temporary_remove(fixture->folder);
	kafka_settings_finish(&fixture->kafka);
	free(fixture->password);
	free(fixture->certificate);
	free(fixture->key);
	free(fixture);
	return 0;
}

static rd_kafka_t *open_client(const struct fixture *fixture)
{
	struct err err;
	rd_kafka_conf_t *conf = kafka_conf_client(&fixture->kafka, &err);

	assert_non_null(conf);
	rd_kafka_conf_set_log_cb(conf, NULL);
	rd_kafka_t *handle = kafka_client_open(RD_KAFKA_CONSUMER, conf, &fixture->kafka, &err);
	assert_non_null(handle);
	return handle;
}

static void client_name(struct topic_metadata *metadata, char ret_name[64])
{
	OWNED(topic_metadata_return)
	struct topic_metadata *borrowed = topic_metadata_borrow(metadata, 0);

	text_copy(ret_name, 64, rd_kafka_name(topic_metadata_handle(borrowed)));
}

static void assert_password(const struct fixture *fixture, const char *expected)
{
	struct err err;
	rd_kafka_conf_t *conf = kafka_conf_client(&fixture->kafka, &err);
	char value[64] = "";
	size_t size = sizeof value;
	struct client_files_use use;

	client_files_begin(conf, &fixture->kafka, &use);
	rd_kafka_conf_get(conf, "sasl.password", value, &size);
	client_files_end(&use, NULL);
	rd_kafka_conf_destroy(conf);
	assert_string_equal(value, expected);
}

static void a_password_reaches_open_clients(void **state)
{
	struct fixture *fixture = *state;
	rd_kafka_t *handle = open_client(fixture);

	assert_password(fixture, "first");
	write_file(fixture->password, "second\r\n");
	assert_password(fixture, "first"); /* not before the check */
	client_files_check();
	assert_password(fixture, "second");
	assert_false(client_files_is_stale(handle));
	kafka_client_close(handle, 5000);
}

static void certificates_make_clients_stale(void **state)
{
	struct fixture *fixture = *state;
	rd_kafka_t *handle = open_client(fixture);

	write_pair(fixture->certificate, fixture->key);
	client_files_check();
	assert_true(client_files_is_stale(handle));

	rd_kafka_t *successor = open_client(fixture);
	assert_false(client_files_is_stale(successor));
	kafka_client_close(handle, 5000);
	client_files_check();
	assert_false(client_files_is_stale(successor));
	kafka_client_close(successor, 5000);
}

static void half_a_pair_stops_nobody(void **state)
{
	struct fixture *fixture = *state;
	rd_kafka_t *handle = open_client(fixture);

	write_pair(fixture->certificate, NULL);
	write_file(fixture->password, "second");
	client_files_check();
	assert_false(client_files_is_stale(handle));
	assert_password(fixture, "first");              /* all or nothing */
	kafka_client_close(open_client(fixture), 5000); /* with the former pair */

	write_pair(fixture->certificate, fixture->key);
	client_files_check();
	assert_true(client_files_is_stale(handle));
	assert_password(fixture, "second");
	kafka_client_close(handle, 5000);
}

static void missing_and_empty_files_stop_nobody(void **state)
{
	struct fixture *fixture = *state;
	rd_kafka_t *handle = open_client(fixture);

	assert_int_equal(unlink(fixture->password), 0);
	client_files_check();
	assert_password(fixture, "first");
	write_file(fixture->password, "\n");
	client_files_check();
	assert_password(fixture, "first");
	write_file(fixture->password, "second");
	write_file(fixture->certificate, "");
	client_files_check();
	assert_false(client_files_is_stale(handle));
	kafka_client_close(handle, 5000);
}

static void the_same_content_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	rd_kafka_t *handle = open_client(fixture);

	write_file(fixture->password, "first\n");
	client_files_check();
	assert_false(client_files_is_stale(handle));
	assert_password(fixture, "first");
	kafka_client_close(handle, 5000);
}

static void a_missing_file_is_named(void **state)
{
	struct fixture *fixture = *state;
	struct err err;

	assert_int_equal(unlink(fixture->key), 0);
	assert_false(kafka_conf_check(&fixture->kafka, false, &err));
	assert_non_null(strstr(err.message, "relay.ini:7: [kafka \"main\"] ssl.key.location: "));
	assert_non_null(strstr(err.message, "No such file"));
}

static void a_missing_file_of_a_value_is_named(void **state)
{
	struct fixture *fixture = *state;
	struct err err;

	client_files_add(&fixture->kafka, "client.id_file", "/missing/name", "settings.kafka");
	assert_false(kafka_conf_check(&fixture->kafka, false, &err));
	assert_non_null(strstr(err.message, "settings.kafka: [kafka \"main\"] client.id_file: "));
	assert_non_null(strstr(err.message, "No such file"));
}

/* It does not end after a mebibyte, in the middle of a certificate. */
static void a_long_list_of_authorities_is_whole(void **state)
{
	struct fixture *fixture = *state;
	char *authorities = xformat("%s/authorities.pem", fixture->folder);
	OWNED(text_finish) struct text list = {0};
	OWNED(text_finish) struct text certificate = {0};
	FILE *file = fopen(fixture->certificate, "r");
	char line[128];

	while (fgets(line, sizeof line, file))
		text_add(&certificate, line);
	fclose(file);
	text_add(&list, text_string(&certificate));
	while (list.length < (1 << 20) - certificate.length / 2)
		text_add(&list, "#\n");
	text_add(&list, text_string(&certificate));
	write_file(authorities, text_string(&list));
	kafka_settings_add(&fixture->kafka, "ssl.ca.location", authorities, "relay.ini:9");

	kafka_client_close(open_client(fixture), 5000);
	free(authorities);
}

static void an_idle_client_for_metadata_is_replaced(void **state)
{
	struct fixture *fixture = *state;
	struct err err;
	struct topic_metadata *metadata = topic_metadata_create(&fixture->kafka, &err);
	int64_t until = clock_ms() + 4 * CLIENT_FILES_MS;
	bool replaced = false;
	char before[64], now[64];

	assert_non_null(metadata);
	client_name(metadata, before);
	write_pair(fixture->certificate, fixture->key);
	while (!replaced && clock_ms() < until) {
		poll(NULL, 0, 50);
		client_name(metadata, now);
		replaced = !text_equal(before, now);
	}
	assert_true(replaced);
	topic_metadata_destroy(metadata);
}

static void a_pair_that_does_not_fit_has_a_cure(void **state)
{
	struct fixture *fixture = *state;
	struct err err;

	write_pair(NULL, fixture->key);
	assert_false(kafka_conf_check(&fixture->kafka, false, &err));
	assert_non_null(strstr(err.message, "ssl.key.location must hold the key"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_password_reaches_open_clients, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(certificates_make_clients_stale, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(half_a_pair_stops_nobody, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(missing_and_empty_files_stop_nobody, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(the_same_content_changes_nothing, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_missing_file_is_named, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_missing_file_of_a_value_is_named, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_long_list_of_authorities_is_whole, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(
		an_idle_client_for_metadata_is_replaced, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(a_pair_that_does_not_fit_has_a_cure, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
