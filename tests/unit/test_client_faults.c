/* Clients are only keys here: none is made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <librdkafka/rdkafka.h>

#include "client_faults.h"
#include "logging.h"

static const char refusal[] = "sasl_ssl://kafka-1:9094/bootstrap: SASL authentication error: "
			      "Authentication failed: Invalid username or password";
static const char first, second;

static const rd_kafka_t *key_of(const char *place)
{
	return (const rd_kafka_t *)(const void *)place;
}

static void begin_client(void)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	client_faults_begin(conf);
	rd_kafka_conf_destroy(conf);
}

static void a_client_has_its_fault_until_it_ends(void **state)
{
	struct connect_fault fault;

	(void)state;
	begin_client();
	assert_true(client_faults_note(key_of(&first), refusal));
	client_faults_end(key_of(&first), "main");
	assert_true(client_faults_get(key_of(&first), &fault));
	client_faults_forget(key_of(&first));
	assert_false(client_faults_get(key_of(&first), &fault));
	assert_true(client_faults_note(key_of(&first), refusal));
	assert_false(client_faults_get(key_of(&first), &fault));
}

/* Another client may get its address, and would have its fault. */
static void a_client_that_ends_while_another_opens_is_not_kept(void **state)
{
	struct connect_fault fault;

	(void)state;
	begin_client();
	assert_true(client_faults_note(key_of(&first), refusal));
	client_faults_end(key_of(&second), "main");
	assert_false(client_faults_get(key_of(&first), &fault));
	assert_false(client_faults_get(key_of(&second), &fault));
	client_faults_forget(key_of(&second));
}

static void a_client_that_cannot_be_made_is_not_kept(void **state)
{
	struct connect_fault fault;

	(void)state;
	begin_client();
	assert_true(client_faults_note(key_of(&first), refusal));
	client_faults_end(NULL, "main");
	assert_false(client_faults_get(key_of(&first), &fault));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_client_has_its_fault_until_it_ends),
	    cmocka_unit_test(a_client_that_ends_while_another_opens_is_not_kept),
	    cmocka_unit_test(a_client_that_cannot_be_made_is_not_kept),
	};

	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
