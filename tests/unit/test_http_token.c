#include "http_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { NOW = 1000000, MINUTE = 60 * 1000 };

static void answer(struct http_token *token, int64_t now, int status, const char *body)
{
	const struct http_response response = {
	    .status = status, .body = body, .body_length = strlen(body)};

	http_token_begin(token, now);
	assert_false(http_token_is_due(token, now));
	http_token_end(token, &response, now);
	assert_false(token->asked);
}

static void assert_authorization(const struct http_token *token, const char *expected)
{
	assert_string_equal(text_string(&token->authorization), expected);
}

static void the_request_is_form_encoded_on_both_levels(void **state)
{
	const struct http_token_texts texts = {.client_id = "shop:eu",
	    .client_secret = "p&q \xc3\xa9",
	    .scope = "orders:write orders:read",
	    .audience = "https://api.example/"};
	struct text authorization = {0}, body = {0};

	(void)state;
	http_token_write(&texts, &authorization, &body);
	/* echo -n 'shop%3Aeu:p%26q%20%C3%A9' | base64 */
	assert_string_equal(text_string(&authorization), "Basic c2hvcCUzQWV1OnAlMjZxJTIwJUMzJUE5");
	assert_string_equal(text_string(&body),
	    "grant_type=client_credentials&scope=orders%3Awrite%20orders%3Aread"
	    "&audience=https%3A%2F%2Fapi.example%2F");
	http_token_wipe(&authorization);
	http_token_wipe(&body);
}

static void a_token_is_renewed_before_it_ends(void **state)
{
	struct http_token token = {0};

	(void)state;
	assert_true(http_token_is_due(&token, NOW));
	assert_false(http_token_is_valid(&token, NOW));
	answer(&token, NOW, 200,
	    "{\"access_token\": \"abc-1._~+/==\", \"token_type\": \"bearer\", \"expires_in\": "
	    "100}");
	assert_authorization(&token, "Bearer abc-1._~+/==");
	assert_true(token.changed || !token.error[0]);

	assert_false(http_token_is_due(&token, NOW + 79999));
	assert_true(http_token_is_due(&token, NOW + 80000));
	assert_true(http_token_is_valid(&token, NOW + 89999));
	assert_false(http_token_is_valid(&token, NOW + 90000));
	http_token_finish(&token);
}

static void lives_are_read_as_servers_write_them(void **state)
{
	static const struct {
		const char *member;
		int64_t life_ms;
	} cases[] = {{"", 5 * MINUTE}, {", \"expires_in\": \"600\"", 10 * MINUTE},
	    {", \"expires_in\": 600.7", 10 * MINUTE}, {", \"expires_in\": null", 5 * MINUTE},
	    {", \"expires_in\": \"soon\"", 5 * MINUTE}, {", \"expires_in\": 0", 1000},
	    {", \"expires_in\": -5", 1000}, {", \"expires_in\": -1e300", 1000},
	    {", \"expires_in\": 1e300", 1440 * MINUTE}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct http_token token = {0};
		char *body = xformat("{\"access_token\": \"a\"%s}", cases[i].member);

		answer(&token, NOW, 200, body);
		assert_int_equal(token.renew_at, NOW + cases[i].life_ms * 4 / 5);
		free(body);
		http_token_finish(&token);
	}
}

static void an_answer_that_is_no_token_says_what_to_correct(void **state)
{
	static const struct {
		int status;
		const char *body, *said;
	} cases[] = {{401, "{\"error\": \"invalid_client\"}",
			 "status 401 invalid_client; correct client_id or client_secret"},
	    {400, "{\"error\": \"invalid_scope\"}", "status 400 invalid_scope; correct scope"},
	    {400, "{\"error\": \"\\u001b[2J\"}", "status 400 ?[2J; correct token_url"},
	    {404, "<html>", "status 404; correct token_url"},
	    {301, "", "status 301; correct token_url"},
	    {503, "", "status 503; it is requested again"}, {200, "", "no JSON object"},
	    {200, "[1]", "no JSON object"}, {200, "{}", "no access_token"},
	    {200, "{\"access_token\": 7}", "no access_token"},
	    {200, "{\"access_token\": \"a\\r\\nX: y\"}", "no access_token"},
	    {200, "{\"access_token\": \"\"}", "no access_token"},
	    {200, "{\"access_token\": \"a\", \"token_type\": \"mac\"}", "token_type"}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct http_token token = {0};

		answer(&token, NOW, cases[i].status, cases[i].body);
		if (!strstr(token.error, cases[i].said))
			fail_msg("%s", token.error);
		assert_true(token.changed);
		assert_false(http_token_is_valid(&token, NOW));
		http_token_finish(&token);
	}
}

static void a_failure_leaves_the_present_token(void **state)
{
	struct http_token token = {0};
	int64_t at = NOW + 80000;

	(void)state;
	answer(&token, NOW, 200, "{\"access_token\": \"a\", \"expires_in\": 100}");
	answer(&token, at, 500, "");
	assert_true(http_token_is_valid(&token, at));
	assert_false(http_token_is_due(&token, at + 999));
	assert_true(http_token_is_due(&token, at + 1000));

	/* Each pause is twice as long, up to half a minute; the same failure is no change. */
	for (int i = 0; i < 10; i++) {
		answer(&token, at, 500, "");
		assert_false(token.changed);
	}
	assert_int_equal(token.renew_at, at + 30000);
	answer(&token, at, 200, "{\"access_token\": \"b\"}");
	assert_true(token.changed);
	assert_authorization(&token, "Bearer b");
	http_token_finish(&token);
}

/* Otherwise requests would wait for one such token after the other, and nothing would say so. */
static void a_token_that_has_ended_before_it_comes_is_a_failure(void **state)
{
	static const char body[] = "{\"access_token\": \"a\", \"expires_in\": 1}";
	const struct http_response response = {
	    .status = 200, .body = body, .body_length = strlen(body)};
	struct http_token token = {0};

	(void)state;
	http_token_begin(&token, NOW);
	http_token_end(&token, &response, NOW + 899);
	assert_true(http_token_is_valid(&token, NOW + 899));
	http_token_begin(&token, NOW + 1000);
	http_token_end(&token, &response, NOW + 1900);
	assert_false(http_token_is_valid(&token, NOW + 1900));
	assert_false(http_token_is_due(&token, NOW + 1900 + 999));
	assert_string_equal(token.error, "its tokens live 1 s, and the answer took longer; have "
					 "the server give tokens that live longer");
	http_token_finish(&token);
}

static void the_time_of_a_failure_makes_it_no_other_one(void **state)
{
	static const char *const errors[] = {"https://id:443: Connection timed out after 3001 ms",
	    "https://id:443: Connection timed out after 999 ms", "https://id:443: Connection reset",
	    "https://id:443: Connection reset 1"};
	static const bool changed[] = {true, false, true, true};
	struct http_token token = {0};

	(void)state;
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		struct http_response response = {.failure = "connect"};

		text_copy(response.error, sizeof response.error, errors[i]);
		http_token_begin(&token, NOW);
		http_token_end(&token, &response, NOW);
		assert_int_equal(token.changed, changed[i]);
	}
}

static void a_refused_token_is_exchanged_once(void **state)
{
	struct http_token token = {0};

	(void)state;
	answer(&token, NOW, 200, "{\"access_token\": \"a\", \"expires_in\": 1000}");
	/* Fresh: a request that went with the token before may be refused late. */
	http_token_refuse(&token, NOW + 9999);
	assert_true(http_token_is_valid(&token, NOW + 9999));
	assert_false(http_token_is_due(&token, NOW + 9999));

	http_token_refuse(&token, NOW + 10000);
	assert_false(http_token_is_valid(&token, NOW + 10000));
	assert_true(http_token_is_due(&token, NOW + 10000));
	http_token_finish(&token);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_request_is_form_encoded_on_both_levels),
	    cmocka_unit_test(a_token_is_renewed_before_it_ends),
	    cmocka_unit_test(lives_are_read_as_servers_write_them),
	    cmocka_unit_test(an_answer_that_is_no_token_says_what_to_correct),
	    cmocka_unit_test(a_failure_leaves_the_present_token),
	    cmocka_unit_test(a_token_that_has_ended_before_it_comes_is_a_failure),
	    cmocka_unit_test(the_time_of_a_failure_makes_it_no_other_one),
	    cmocka_unit_test(a_refused_token_is_exchanged_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
