/* The texts are those of librdkafka 2.0.2 with Kafka 3.9.1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <openssl/x509_vfy.h>

#include "connect_fault.h"

#define VERIFY                                                                                     \
	"[thrd:ssl://kafka-1:9094/bootstrap]: ssl://kafka-1:9094/bootstrap: SSL handshake "        \
	"failed: "                                                                                 \
	"error:0A000086:SSL routines::certificate verify failed: broker certificate could not be " \
	"verified, verify that ssl.ca.location is correctly configured (after 22ms in state "      \
	"SSL_HANDSHAKE, 1 identical error(s) suppressed)"

static void certificates_are_told_apart(void **state)
{
	static const struct {
		int error;
		const char *what, *cure;
	} cases[] = {
	    {X509_V_ERR_CERT_HAS_EXPIRED, "certificate has expired", "renew"},
	    {X509_V_ERR_CERT_NOT_YET_VALID, "not yet valid", "clocks"},
	    {X509_V_ERR_HOSTNAME_MISMATCH, "for another host", "bootstrap.servers"},
	    {X509_V_ERR_IP_ADDRESS_MISMATCH, "for another host", "bootstrap.servers"},
	    {X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, "self-signed", "ssl.ca.location"},
	    {X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, "issuer", "ssl.ca.location"},
	    {0, "cannot be verified", "ssl.ca.location"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct connect_fault fault;

		assert_true(connect_fault_read(VERIFY, cases[i].error, &fault));
		assert_int_equal(
		    strncmp(fault.what, "kafka-1:9094: the broker's certificate", 38), 0);
		assert_non_null(strstr(fault.what, cases[i].what));
		assert_non_null(strstr(fault.cure, cases[i].cure));
		assert_true(fault.sure);
	}
}

static void other_faults_have_a_place_and_a_cure(void **state)
{
	static const struct {
		const char *text, *what, *cure;
	} cases[] = {
	    {"[thrd:sasl_ssl://kafka-1:9096/bootstrap]: sasl_ssl://kafka-1:9096/2: SASL "
	     "authentication "
	     "error: Authentication failed during authentication due to invalid credentials with "
	     "SASL "
	     "mechanism SCRAM-SHA-512 (after 488ms in state AUTH_REQ)",
		"kafka-1:9096: the broker refuses the user name or the password", "sasl.password"},
	    {"sasl_ssl://kafka-1:9096/bootstrap: SASL authentication error: Authentication failed: "
	     "Invalid username or password (after 307ms in state AUTH_REQ)",
		"kafka-1:9096: the broker refuses the user name or the password", "sasl.password"},
	    {"[thrd:TxnCoordinator]: TxnCoordinator: kafka-1:9096: SASL authentication error: "
	     "Authentication failed: too many (after 307ms in state AUTH_REQ)",
		"kafka-1:9096: the broker refuses the login: Authentication failed: too many",
		"sasl.username"},
	    {"sasl_ssl://[::1]:9096/bootstrap: SASL PLAIN mechanism handshake failed: Broker: "
	     "Unsupported SASL mechanism: broker's supported mechanisms: "
	     "SCRAM-SHA-512,SCRAM-SHA-256 "
	     "(after 304ms in state AUTH_HANDSHAKE)",
		"[::1]:9096: the broker does not offer this sasl.mechanism, but "
		"SCRAM-SHA-512,SCRAM-SHA-256",
		"sasl.mechanism"},
	    {"sasl_ssl://kafka-1:9094/bootstrap: SASL PLAIN mechanism handshake failed: Broker: "
	     "Request "
	     "not valid in current SASL state: broker's supported mechanisms:  (after 2ms in state "
	     "AUTH_HANDSHAKE)",
		"kafka-1:9094: the listener takes no password", "security.protocol"},
	    {"ssl://kafka-1:9094/bootstrap: Receive failed: error:0A000412:SSL routines::sslv3 "
	     "alert bad "
	     "certificate: SSL alert number 42 (after 4ms in state APIVERSION_QUERY)",
		"kafka-1:9094: the broker refuses the client's certificate", "ssl.key.location"},
	    {"localhost:9094/bootstrap: Disconnected while requesting ApiVersion: might be caused "
	     "by "
	     "incorrect security.protocol configuration (connecting to a SSL listener?) or broker "
	     "version is < 0.10 (see api.version.request) (after 2ms in state APIVERSION_QUERY)",
		"localhost:9094: the broker ends connections without TLS", "security.protocol"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct connect_fault fault;

		assert_true(connect_fault_read(cases[i].text, 0, &fault));
		assert_int_equal(strncmp(fault.what, cases[i].what, strlen(cases[i].what)), 0);
		assert_null(strstr(fault.what, "(after"));
		assert_non_null(strstr(fault.cure, cases[i].cure));
	}
}

static void other_texts_are_no_fault(void **state)
{
	static const char destroyed[] =
	    "sasl_ssl://kafka-1:9096/1: SASL authentication error: SaslAuthenticateRequest failed: "
	    "Local: Broker handle destroyed (after 0ms in state DOWN)";
	static const char *const texts[] = {"", ":", "ssl://", "1/1 brokers are down",
	    "ssl://kafka-1:9094/1: Disconnected (after 3545ms in state UP)", destroyed, "[thrd:a",
	    "kafka-1:9094/1: Connect to ipv4#127.0.0.1:9094 failed: Connection refused"};
	struct connect_fault fault;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_false(connect_fault_read(texts[i], 0, &fault));
}

static void a_long_text_is_cut(void **state)
{
	char text[2000] = "SASL authentication error: Authentication failed ";
	struct connect_fault fault;

	(void)state;
	memset(text + strlen(text), 'x', sizeof text - strlen(text) - 1);
	assert_true(connect_fault_read(text, 0, &fault));
	assert_true(strlen(fault.what) < sizeof fault.what);
}

static void errors_of_a_new_client_have_a_cure(void **state)
{
	(void)state;
	assert_non_null(strstr(connect_fault_cure("ssl.key.location failed: error:05800074:x509 "
						  "certificate routines::key values mismatch"),
	    "ssl.certificate.location"));
	assert_null(connect_fault_cure("out of memory"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(certificates_are_told_apart),
	    cmocka_unit_test(other_faults_have_a_place_and_a_cure),
	    cmocka_unit_test(other_texts_are_no_fault),
	    cmocka_unit_test(a_long_text_is_cut),
	    cmocka_unit_test(errors_of_a_new_client_have_a_cure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
