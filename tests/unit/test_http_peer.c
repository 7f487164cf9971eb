#include "http_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char secret[] = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
static const char old_secret[] = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4";

static struct http_peer_texts texts(void)
{
	return (struct http_peer_texts){.url = "https://shop.example/hook",
	    .networks = "",
	    .secret = "",
	    .old_secret = "",
	    .tls_ca = "",
	    .tls_certificate = "",
	    .tls_key = ""};
}

static void assert_refused(const struct http_peer_texts *wrong, const char *key, const char *why)
{
	struct http_peer peer;
	const char *told = "";
	struct err err;

	assert_false(http_peer_init(&peer, wrong, &told, &err));
	http_peer_finish(&peer);
	assert_string_equal(told, key);
	assert_int_equal(err.kind, ERR_CONFIG);
	if (!strstr(err.message, why))
		fail_msg("%s", err.message);
}

static void each_key_that_is_wrong_is_named(void **state)
{
	struct http_peer_texts wrong = texts();

	(void)state;
	wrong.url = "ftp://shop.example/";
	assert_refused(&wrong, "url", "only http and https");
	wrong = texts();
	wrong.networks = "10.0.0.0/99";
	assert_refused(&wrong, "networks", "10.0.0.0/99");
	wrong = texts();
	wrong.secret = "whsec_short";
	assert_refused(&wrong, "secret", "");
	wrong = texts();
	wrong.secret = secret;
	wrong.old_secret = "nonsense";
	assert_refused(&wrong, "old_secret", "whsec_");
	wrong = texts();
	wrong.old_secret = old_secret;
	assert_refused(&wrong, "old_secret", "secret is not set");
	wrong = texts();
	wrong.tls_key = "/dev/null";
	assert_refused(&wrong, "tls_key", "no tls_certificate");
	wrong = texts();
	wrong.tls_certificate = "/dev/null";
	assert_refused(&wrong, "tls_certificate", "no tls_key");
	wrong = texts();
	wrong.tls_ca = "/nowhere/ca.pem";
	assert_refused(&wrong, "tls_ca", "No such file");
	wrong.tls_ca = "/dev/null";
	assert_refused(&wrong, "tls_ca", "it is empty");
}

static void what_is_not_set_is_none(void **state)
{
	struct http_peer_texts none = texts();
	struct http_signature signature = {0};
	struct http_header headers[HTTP_PEER_HEADERS];
	struct http_peer peer;
	const char *key;
	size_t count = 0;
	struct err err;

	(void)state;
	none.url = "";
	assert_true(http_peer_init(&peer, &none, &key, &err));
	assert_null(peer.tls.ca_file);
	assert_null(peer.tls.certificate_file);
	assert_int_equal(peer.networks.count, 0);
	assert_true(http_peer_sign(&peer, "a", 1, "b", 1, &signature, headers, &count, &err));
	assert_int_equal(count, 0);
	http_signature_finish(&signature);
	http_peer_finish(&peer);
}

static void both_keys_sign_while_they_change(void **state)
{
	struct http_peer_texts both = texts();
	struct http_signature signature = {0};
	struct http_header headers[HTTP_PEER_HEADERS];
	struct http_peer peer;
	const char *key;
	size_t count = 0;
	struct err err;

	(void)state;
	both.secret = secret;
	both.old_secret = old_secret;
	assert_true(http_peer_init(&peer, &both, &key, &err));
	assert_true(
	    http_peer_sign(&peer, "7", 1700000000, "{}", 2, &signature, headers, &count, &err));
	assert_int_equal(count, HTTP_PEER_HEADERS);
	assert_string_equal(headers[0].value, "7");
	assert_string_equal(headers[1].value, "1700000000");
	for (size_t i = 0; i < peer.secret_count; i++)
		assert_true(http_verify(&peer.secrets[i], 1,
		    &(struct http_signed){
			headers[0].value, headers[1].value, headers[2].value, "{}", 2},
		    1700000000, 0, &err));
	http_signature_finish(&signature);
	http_peer_finish(&peer);
}

static void an_id_that_cannot_be_signed_is_refused(void **state)
{
	struct http_peer_texts signed_texts = texts();
	struct http_signature signature = {0};
	struct http_header headers[HTTP_PEER_HEADERS];
	struct http_peer peer;
	const char *key;
	size_t count = 0;
	struct err err;

	(void)state;
	signed_texts.secret = secret;
	assert_true(http_peer_init(&peer, &signed_texts, &key, &err));
	assert_false(http_peer_sign(&peer, "a.b", 1, "", 0, &signature, headers, &count, &err));
	assert_int_equal(err.kind, ERR_REJECT);
	assert_int_equal(count, 0);
	http_signature_finish(&signature);
	http_peer_finish(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_key_that_is_wrong_is_named),
	    cmocka_unit_test(what_is_not_set_is_none),
	    cmocka_unit_test(both_keys_sign_while_they_change),
	    cmocka_unit_test(an_id_that_cannot_be_signed_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
