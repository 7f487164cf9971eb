#include "http_sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The vector of the specification's reference libraries. */
static const char spec_secret[] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
static const char spec_id[] = "msg_p5jXN8AQM9LWM0D4loKWxJek";
static const char spec_body[] = "{\"test\": 2432232314}";
static const char spec_signature[] = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
enum { SPEC_TIMESTAMP = 1614265330 };

/* 64 bytes 00, 01 … 3f, and 24 bytes ff. */
static const char long_secret[] =
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKiss"
    "LS4vMDEyMzQ1Njc4OTo7PD0+Pw==";
static const char short_secret[] = "whsec_////////////////////////////////";

static struct http_secret parsed(const char *text)
{
	struct http_secret secret;
	struct err err;

	assert_true(http_secret_parse(text, &secret, &err));
	return secret;
}

static char *signature_of(const struct http_secret *secrets, size_t count, const char *id,
    int64_t timestamp, const void *body, size_t length)
{
	struct text text = {0};
	struct err err;

	assert_true(http_sign(secrets, count, id, timestamp, body, length, &text, &err));
	return text.data;
}

static void the_vector_of_the_specification_is_signed(void **state)
{
	struct http_secret secret = parsed(spec_secret);
	char *got =
	    signature_of(&secret, 1, spec_id, SPEC_TIMESTAMP, spec_body, sizeof spec_body - 1);

	(void)state;
	assert_string_equal(got, spec_signature);
	free(got);
}

/* Computed by Python's hmac, hashlib and base64. */
static void signatures_agree_with_another_implementation(void **state)
{
	static const struct {
		const char *secret, *id;
		int64_t timestamp;
		const char *body;
		size_t length;
		const char *signature;
	} rows[] = {
	    {long_secret, spec_id, SPEC_TIMESTAMP, spec_body, sizeof spec_body - 1,
		"v1,LZ5zuwHTqQH3VM8ERUusjzVQq1FXzemvpR8Mk7Ivp5c="},
	    {short_secret, "id-0", 0, NULL, 0, "v1,nhAJdHZnoB6G7Hf8qav6BCQJvvp15qmaPZszgoZ4fQE="},
	    {short_secret, "id_1", 9999999999, "\x00\x01\xff\n\r.", 6,
		"v1,eLmi44lKk06nGpSPoeLXsHSdEFgoj0t/7tZdrz+JIFU="},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct http_secret secret = parsed(rows[i].secret);
		char *got = signature_of(
		    &secret, 1, rows[i].id, rows[i].timestamp, rows[i].body, rows[i].length);
		assert_string_equal(got, rows[i].signature);
		free(got);
	}
}

static void every_key_signs_while_one_is_rotated(void **state)
{
	struct http_secret secrets[] = {parsed(long_secret), parsed(spec_secret)};
	char *got =
	    signature_of(secrets, 2, spec_id, SPEC_TIMESTAMP, spec_body, sizeof spec_body - 1);

	(void)state;
	assert_string_equal(got, "v1,LZ5zuwHTqQH3VM8ERUusjzVQq1FXzemvpR8Mk7Ivp5c= "
				 "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
	free(got);
}

static void an_id_that_could_be_read_in_two_ways_is_not_signed(void **state)
{
	struct http_secret secret = parsed(spec_secret);
	char longest[HTTP_SIGN_ID_MAX + 2];
	const char *wrong[] = {"", "a.1", "a b", "a\n", "\xc3\xa9", longest};

	(void)state;
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct text text = {0};
		struct err err;
		assert_false(http_sign(&secret, 1, wrong[i], 1, "", 0, &text, &err));
		assert_int_equal(err.kind, ERR_REJECT);
		assert_null(text.data);
	}
	longest[HTTP_SIGN_ID_MAX] = '\0';
	free(signature_of(&secret, 1, longest, INT64_MAX, "", 0));
}

static void a_wrong_secret_is_told_without_showing_it(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
	    {"", "begins with \"whsec_\""},
	    {"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begins with \"whsec_\""},
	    {"WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begins with \"whsec_\""},
	    {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "not base64"},
	    {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-", "not base64"},
	    {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", "not base64"},
	    {"whsec_", "this one has 0"},
	    {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaQ=", "this one has 23"},
	    {"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4"
	     "OTo7PD0+P0A=",
		"this one has 65"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct http_secret secret;
		struct err err;
		assert_false(http_secret_parse(rows[i].text, &secret, &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_non_null(strstr(err.message, rows[i].why));
		assert_null(strstr(err.message, "MfKQ"));
		assert_null(strstr(err.message, "AAEC"));
	}
}

static void a_finished_secret_is_wiped(void **state)
{
	static const struct http_secret nothing;
	struct http_secret secret = parsed(long_secret);

	(void)state;
	assert_int_equal(secret.length, 64);
	http_secret_finish(&secret);
	assert_memory_equal(&secret, &nothing, sizeof secret);
}

static struct http_signed spec(void)
{
	return (struct http_signed){
	    spec_id, "1614265330", spec_signature, spec_body, sizeof spec_body - 1};
}

static bool accepted(const struct http_signed *what, int64_t now, struct err *err)
{
	struct http_secret secrets[] = {parsed(long_secret), parsed(spec_secret)};

	return http_verify(secrets, 2, what, now, 300, err);
}

static void assert_denied(const struct http_signed *what, int64_t now, const char *why)
{
	struct err err;

	assert_false(accepted(what, now, &err));
	assert_int_equal(err.kind, ERR_DENIED);
	assert_non_null(strstr(err.message, why));
}

static void a_good_signature_is_accepted_within_the_tolerance(void **state)
{
	struct http_signed what = spec();
	struct err err;

	(void)state;
	assert_true(accepted(&what, SPEC_TIMESTAMP, &err));
	assert_true(accepted(&what, SPEC_TIMESTAMP + 300, &err));
	assert_true(accepted(&what, SPEC_TIMESTAMP - 300, &err));
	assert_denied(&what, SPEC_TIMESTAMP + 301, "is 301 s old");
	assert_denied(&what, SPEC_TIMESTAMP - 301, "301 s in the future");
}

static void one_good_signature_among_others_is_enough(void **state)
{
	struct http_signed what = spec();
	struct err err;

	(void)state;
	what.signature = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= "
			 "v2,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v1,short "
			 "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= "
			 "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=";
	assert_true(accepted(&what, SPEC_TIMESTAMP, &err));
}

static void a_signature_that_does_not_fit_is_denied(void **state)
{
	static const char *const wrong[] = {"", " ", "v1,", "v1,g0hM9",
	    "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	    "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	    "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OF=",
	    "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=,"};
	struct http_signed what = spec();

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		what.signature = wrong[i];
		assert_denied(&what, SPEC_TIMESTAMP, "no webhook-signature fits");
	}
}

static void what_was_changed_on_the_way_is_denied(void **state)
{
	struct http_signed id = spec(), timestamp = spec(), body = spec(), cut = spec();

	(void)state;
	id.id = "msg_p5jXN8AQM9LWM0D4loKWxJel";
	assert_denied(&id, SPEC_TIMESTAMP, "no webhook-signature fits");
	timestamp.timestamp = "1614265331";
	assert_denied(&timestamp, SPEC_TIMESTAMP, "no webhook-signature fits");
	body.body = "{\"test\": 2432232315}";
	assert_denied(&body, SPEC_TIMESTAMP, "no webhook-signature fits");
	cut.length--;
	assert_denied(&cut, SPEC_TIMESTAMP, "no webhook-signature fits");
}

static void missing_and_unreadable_headers_are_denied(void **state)
{
	static const char *const times[] = {
	    "", "hello", "1614265330.0", "-1", " 1614265330", "99999999999999999999"};
	struct http_signed id = spec(), timestamp = spec(), signature = spec();

	(void)state;
	id.id = NULL;
	assert_denied(&id, SPEC_TIMESTAMP, "webhook-id is missing");
	id.id = "a.b";
	assert_denied(&id, SPEC_TIMESTAMP, "webhook-id is not one");
	signature.signature = NULL;
	assert_denied(&signature, SPEC_TIMESTAMP, "webhook-signature is missing");
	timestamp.timestamp = NULL;
	assert_denied(&timestamp, SPEC_TIMESTAMP, "webhook-timestamp is missing");
	for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
		timestamp.timestamp = times[i];
		assert_denied(&timestamp, SPEC_TIMESTAMP, "not a number of seconds");
	}
	timestamp.timestamp = "00000000000000000000000000000000000000001614265330";
	assert_denied(&timestamp, SPEC_TIMESTAMP, "no webhook-signature fits");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_vector_of_the_specification_is_signed),
	    cmocka_unit_test(signatures_agree_with_another_implementation),
	    cmocka_unit_test(every_key_signs_while_one_is_rotated),
	    cmocka_unit_test(an_id_that_could_be_read_in_two_ways_is_not_signed),
	    cmocka_unit_test(a_wrong_secret_is_told_without_showing_it),
	    cmocka_unit_test(a_finished_secret_is_wiped),
	    cmocka_unit_test(a_good_signature_is_accepted_within_the_tolerance),
	    cmocka_unit_test(one_good_signature_among_others_is_enough),
	    cmocka_unit_test(a_signature_that_does_not_fit_is_denied),
	    cmocka_unit_test(what_was_changed_on_the_way_is_denied),
	    cmocka_unit_test(missing_and_unreadable_headers_are_denied),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
