#include "deliver_answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct deliver_judge single = {.form = DELIVER_SINGLE, .retry_after_max_ms = 60000};
static const struct deliver_judge batch = {.form = DELIVER_BATCH, .retry_after_max_ms = 60000};
static const struct deliver_judge let_in = {
    .form = DELIVER_SINGLE, .retry_after_max_ms = 60000, .has_credentials = true};
static const char *const ids[] = {"7", "8", "9"};

static struct deliver_answer judged(
    const struct deliver_judge *judge, size_t count, const struct deliver_response *response)
{
	struct deliver_answer answer;

	deliver_answer_read(&answer, judge, ids, count, response);
	return answer;
}

static struct deliver_answer judged_status(
    const struct deliver_judge *judge, size_t count, int status, int64_t retry_after_ms)
{
	return judged(judge, count,
	    &(struct deliver_response){
		.status = status, .retry_after_ms = retry_after_ms, .body = "why", .length = 3});
}

static struct deliver_answer judged_body(const char *body)
{
	return judged(&batch, 3,
	    &(struct deliver_response){
		.status = 200, .retry_after_ms = -1, .body = body, .length = strlen(body)});
}

static void assert_all(const struct deliver_answer *answer, enum outbox_inbox_result result)
{
	for (size_t i = 0; i < answer->count; i++)
		assert_int_equal(answer->verdicts[i].result, result);
}

static void each_status_says_what_becomes_of_a_message(void **state)
{
	static const struct {
		int status;
		enum outbox_inbox_result result;
		enum breaker_outcome outcome;
		const char *label;
	} cases[] = {
	    {200, OUTBOX_INBOX_DONE, BREAKER_SUCCESS, "2xx"},
	    {202, OUTBOX_INBOX_DONE, BREAKER_SUCCESS, "2xx"},
	    {299, OUTBOX_INBOX_DONE, BREAKER_SUCCESS, "2xx"},
	    {301, OUTBOX_INBOX_DEAD, BREAKER_SUCCESS, "3xx"},
	    {400, OUTBOX_INBOX_DEAD, BREAKER_SUCCESS, "4xx"},
	    {401, OUTBOX_INBOX_DEAD, BREAKER_SUCCESS, "4xx"},
	    {408, OUTBOX_INBOX_RETRY, BREAKER_FAILURE, "4xx"},
	    {409, OUTBOX_INBOX_DUPLICATE, BREAKER_SUCCESS, "4xx"},
	    {410, OUTBOX_INBOX_DEAD, BREAKER_SUCCESS, "4xx"},
	    {413, OUTBOX_INBOX_DEAD, BREAKER_SUCCESS, "4xx"},
	    {429, OUTBOX_INBOX_RETRY, BREAKER_FAILURE, "4xx"},
	    {500, OUTBOX_INBOX_RETRY, BREAKER_FAILURE, "5xx"},
	    {503, OUTBOX_INBOX_RETRY, BREAKER_FAILURE, "5xx"},
	    {599, OUTBOX_INBOX_RETRY, BREAKER_FAILURE, "5xx"},
	    {600, OUTBOX_INBOX_DEAD, BREAKER_SUCCESS, "answer"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct deliver_answer answer = judged_status(&single, 1, cases[i].status, -1);

		assert_int_equal(answer.verdicts[0].result, cases[i].result);
		assert_int_equal(answer.verdicts[0].after_ms, 0);
		assert_int_equal(answer.outcome, cases[i].outcome);
		assert_string_equal(answer.label, cases[i].label);
		assert_false(answer.apart);
		deliver_answer_finish(&answer);
	}
}

static void a_refusal_of_the_credentials_is_about_no_message(void **state)
{
	struct deliver_answer answer = judged_status(&let_in, 1, 401, -1);

	(void)state;
	assert_int_equal(answer.verdicts[0].result, OUTBOX_INBOX_WAIT);
	assert_true(answer.verdicts[0].after_ms > 0);
	/* The body ("why") may repeat the password. */
	assert_string_equal(answer.verdicts[0].reason,
	    "status 401: the application refuses the headers or the token of the section; correct "
	    "headers or token_url, or the application");
	assert_int_equal(answer.outcome, BREAKER_FAILURE);
	assert_false(answer.apart);
	deliver_answer_finish(&answer);

	answer = judged_status(&let_in, 1, 403, -1);
	assert_int_equal(answer.verdicts[0].result, OUTBOX_INBOX_DEAD);
	deliver_answer_finish(&answer);
}

static void retry_after_is_kept_to_up_to_a_limit(void **state)
{
	static const struct {
		int status;
		int64_t said, after;
		enum outbox_inbox_result result;
	} cases[] = {
	    {429, 5000, 5000, OUTBOX_INBOX_WAIT},
	    {503, 5000, 5000, OUTBOX_INBOX_WAIT},
	    {503, 0, 1, OUTBOX_INBOX_WAIT}, /* a date that has passed */
	    {503, 3600000, 60000, OUTBOX_INBOX_WAIT},
	    {500, 5000, 0, OUTBOX_INBOX_RETRY},
	    {400, 5000, 0, OUTBOX_INBOX_DEAD},
	    {200, 5000, 0, OUTBOX_INBOX_DONE},
	};
	const struct deliver_judge deaf = {.form = DELIVER_SINGLE};
	struct deliver_answer answer;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		answer = judged_status(&single, 1, cases[i].status, cases[i].said);
		assert_int_equal(answer.verdicts[0].result, cases[i].result);
		assert_int_equal(answer.verdicts[0].after_ms, cases[i].after);
		deliver_answer_finish(&answer);
	}
	answer = judged_status(&deaf, 1, 503, 5000);
	assert_int_equal(answer.verdicts[0].result, OUTBOX_INBOX_RETRY);
	deliver_answer_finish(&answer);
}

static void a_reason_has_the_status_and_the_beginning_of_the_body(void **state)
{
	struct deliver_answer answer = judged(&single, 1,
	    &(struct deliver_response){.status = 422,
		.retry_after_ms = -1,
		.body = "no\tsuch\xc2\x85 \xc3\xa9\xff",
		.length = 13});
	char whole[1000];

	(void)state;
	assert_string_equal(answer.verdicts[0].reason, "status 422: no such   \xc3\xa9?");
	deliver_answer_finish(&answer);
	memset(whole, 'x', sizeof whole);
	answer = judged(&single, 1,
	    &(struct deliver_response){
		.status = 500, .retry_after_ms = -1, .body = whole, .length = sizeof whole});
	assert_int_equal(strlen(answer.verdicts[0].reason), strlen("status 500: ") + 200);
	deliver_answer_finish(&answer);
	answer = judged(&single, 1, &(struct deliver_response){.status = 500, .body = ""});
	assert_string_equal(answer.verdicts[0].reason, "status 500");
	deliver_answer_finish(&answer);
	answer = judged_status(&single, 1, 200, -1);
	assert_string_equal(answer.verdicts[0].reason, "");
	deliver_answer_finish(&answer);
}

static void an_encoded_answer_is_named_as_such(void **state)
{
	const struct deliver_response encoded = {
	    .status = 200, .encoding = "gzip", .body = "\x1f\x8b", .length = 2};
	struct deliver_response refused = encoded;
	struct deliver_answer answer = judged(&batch, 3, &encoded);

	(void)state;
	assert_int_equal(answer.outcome, BREAKER_FAILURE);
	assert_non_null(strstr(answer.verdicts[2].reason, "an encoded body (gzip)"));
	deliver_answer_finish(&answer);
	answer = judged(&single, 1, &encoded);
	assert_int_equal(answer.verdicts[0].result, OUTBOX_INBOX_DONE);
	deliver_answer_finish(&answer);
	refused.status = 422;
	answer = judged(&single, 1, &refused);
	assert_string_equal(answer.verdicts[0].reason, "status 422: the body is encoded (gzip)");
	deliver_answer_finish(&answer);
}

static void what_got_no_answer_is_tried_again_and_costs_an_attempt_if_it_went_out(void **state)
{
	static const char *const failures[] = {"resolve", "connect", "connect_timeout", "tls",
	    "timeout", "too_slow", "closed", "garbled", "address_refused", "url"};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof failures / sizeof *failures; i++) {
		bool tried = i % 2;
		struct deliver_answer answer = judged(&batch, 2,
		    &(struct deliver_response){.failure = failures[i / 2],
			.tried = tried,
			.error = "http://a: why",
			.body = ""});

		assert_all(&answer, tried ? OUTBOX_INBOX_RETRY : OUTBOX_INBOX_WAIT);
		assert_int_equal(answer.verdicts[0].after_ms > 0, !tried);
		assert_int_equal(answer.outcome, BREAKER_FAILURE);
		assert_string_equal(answer.label, failures[i / 2]);
		assert_non_null(strstr(answer.verdicts[1].reason, ": http://a: why"));
		deliver_answer_finish(&answer);
	}
}

static void a_failure_of_our_own_costs_no_attempt(void **state)
{
	static const char *const failures[] = {"internal", "queue_timeout"};

	(void)state;
	for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
		struct deliver_answer answer = judged(&single, 1,
		    &(struct deliver_response){.failure = failures[i], .error = "", .body = ""});

		assert_all(&answer, OUTBOX_INBOX_WAIT);
		assert_true(answer.verdicts[0].after_ms > 0);
		assert_int_equal(answer.outcome, BREAKER_NEITHER);
		deliver_answer_finish(&answer);
	}
}

static void the_status_counts_where_the_body_was_too_long(void **state)
{
	struct deliver_response response = {
	    .failure = "too_large", .error = "", .status = 200, .body = ""};
	struct deliver_answer answer = judged(&single, 1, &response);

	(void)state;
	assert_all(&answer, OUTBOX_INBOX_DONE);
	deliver_answer_finish(&answer);
	answer = judged(&batch, 2, &response);
	assert_all(&answer, OUTBOX_INBOX_RETRY);
	assert_int_equal(answer.outcome, BREAKER_FAILURE);
	deliver_answer_finish(&answer);
	response.status = 422;
	answer = judged(&batch, 1, &response);
	assert_all(&answer, OUTBOX_INBOX_DEAD);
	deliver_answer_finish(&answer);
	response.status = 0;
	response.tried = true;
	answer = judged(&single, 1, &response);
	assert_all(&answer, OUTBOX_INBOX_RETRY);
	deliver_answer_finish(&answer);
}

static void an_empty_answer_says_that_the_whole_batch_is_done(void **state)
{
	struct deliver_answer answer = judged_body("");

	(void)state;
	assert_all(&answer, OUTBOX_INBOX_DONE);
	assert_string_equal(answer.label, "2xx");
	deliver_answer_finish(&answer);
}

static void each_message_of_a_batch_has_an_answer_of_its_own(void **state)
{
	struct deliver_answer answer = judged_body(
	    "[{\"id\":\"9\",\"status\":503,\"retry_after\":1.5,\"reason\":\"full\"},"
	    "{\"id\":\"7\",\"status\":200},{\"id\":\"8\",\"status\":413,\"reason\":\"long\"}]");

	(void)state;
	assert_int_equal(answer.verdicts[0].result, OUTBOX_INBOX_DONE);
	assert_int_equal(answer.verdicts[1].result, OUTBOX_INBOX_DEAD);
	assert_string_equal(answer.verdicts[1].reason, "status 413: long");
	assert_int_equal(answer.verdicts[2].result, OUTBOX_INBOX_WAIT);
	assert_int_equal(answer.verdicts[2].after_ms, 1500);
	assert_string_equal(answer.verdicts[2].reason, "status 503: full");
	assert_int_equal(answer.outcome, BREAKER_SUCCESS);
	assert_false(answer.apart);
	deliver_answer_finish(&answer);
}

static void a_message_that_the_answer_leaves_out_is_tried_again(void **state)
{
	struct deliver_answer answer = judged_body("[{\"id\":\"8\",\"status\":409}]");

	(void)state;
	assert_int_equal(answer.verdicts[0].result, OUTBOX_INBOX_RETRY);
	assert_string_equal(answer.verdicts[0].reason, "the answer says nothing of it");
	assert_int_equal(answer.verdicts[1].result, OUTBOX_INBOX_DUPLICATE);
	assert_int_equal(answer.verdicts[2].result, OUTBOX_INBOX_RETRY);
	deliver_answer_finish(&answer);
}

static void an_answer_whose_form_is_wrong_is_worth_nothing(void **state)
{
	static const char *const bodies[] = {
	    "OK",
	    " ",
	    "{}",
	    "[7]",
	    "[{\"id\":\"7\",\"status\":200}",
	    "[{\"id\":\"7\",\"status\":200}] x",
	    "[{\"id\":7,\"status\":200}]",
	    "[{\"id\":\"7\"}]",
	    "[{\"status\":200}]",
	    "[{\"id\":\"7\",\"status\":\"200\"}]",
	    "[{\"id\":\"7\",\"status\":200.0}]",
	    "[{\"id\":\"7\",\"status\":100}]",
	    "[{\"id\":\"7\",\"status\":600}]",
	    "[{\"id\":\"7\",\"status\":200,\"more\":1}]",
	    "[{\"id\":\"7\",\"id\":\"7\",\"status\":200}]",
	    "[{\"id\":\"7\\u0000\",\"status\":200}]",
	    "[{\"id\":\"7\",\"status\":503,\"retry_after\":\"5\"}]",
	    "[{\"id\":\"7\",\"status\":503,\"retry_after\":-1}]",
	    "[{\"id\":\"7\",\"status\":503,\"retry_after\":1e10}]",
	    "[{\"id\":\"7\",\"status\":503,\"retry_after\":null}]",
	    "[{\"id\":\"7\",\"status\":400,\"reason\":5}]",
	    "[{\"id\":\"7\",\"status\":200},{\"id\":\"7\",\"status\":200}]",
	    "[{\"id\":\"7\",\"status\":200},{\"id\":\"6\",\"status\":200}]",
	};

	(void)state;
	for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
		struct deliver_answer answer = judged_body(bodies[i]);

		for (size_t k = 0; k < answer.count; k++)
			if (answer.verdicts[k].result != OUTBOX_INBOX_RETRY)
				fail_msg("%s", bodies[i]);
		assert_string_equal(answer.label, "answer");
		assert_int_equal(answer.outcome, BREAKER_FAILURE);
		assert_true(answer.verdicts[0].reason[0] != '\0');
		deliver_answer_finish(&answer);
	}
}

static void another_status_than_2xx_is_said_of_the_whole_batch(void **state)
{
	struct deliver_answer answer = judged_status(&batch, 3, 409, -1);

	(void)state;
	assert_all(&answer, OUTBOX_INBOX_DUPLICATE);
	deliver_answer_finish(&answer);
	answer = judged_status(&batch, 3, 429, 2000);
	assert_all(&answer, OUTBOX_INBOX_WAIT);
	deliver_answer_finish(&answer);
	answer = judged_status(&batch, 3, 502, -1);
	assert_all(&answer, OUTBOX_INBOX_RETRY);
	assert_false(answer.apart);
	deliver_answer_finish(&answer);
}

static void a_batch_that_is_refused_for_good_is_sent_apart_before_any_of_it_is_dead(void **state)
{
	static const int statuses[] = {301, 400, 404, 413, 422};
	struct deliver_answer answer;

	(void)state;
	for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
		answer = judged_status(&batch, 3, statuses[i], -1);
		assert_true(answer.apart);
		deliver_answer_finish(&answer);
		answer = judged_status(&batch, 1, statuses[i], -1);
		assert_false(answer.apart);
		assert_all(&answer, OUTBOX_INBOX_DEAD);
		deliver_answer_finish(&answer);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_status_says_what_becomes_of_a_message),
	    cmocka_unit_test(a_refusal_of_the_credentials_is_about_no_message),
	    cmocka_unit_test(retry_after_is_kept_to_up_to_a_limit),
	    cmocka_unit_test(a_reason_has_the_status_and_the_beginning_of_the_body),
	    cmocka_unit_test(an_encoded_answer_is_named_as_such),
	    cmocka_unit_test(what_got_no_answer_is_tried_again_and_costs_an_attempt_if_it_went_out),
	    cmocka_unit_test(a_failure_of_our_own_costs_no_attempt),
	    cmocka_unit_test(the_status_counts_where_the_body_was_too_long),
	    cmocka_unit_test(an_empty_answer_says_that_the_whole_batch_is_done),
	    cmocka_unit_test(each_message_of_a_batch_has_an_answer_of_its_own),
	    cmocka_unit_test(a_message_that_the_answer_leaves_out_is_tried_again),
	    cmocka_unit_test(an_answer_whose_form_is_wrong_is_worth_nothing),
	    cmocka_unit_test(another_status_than_2xx_is_said_of_the_whole_batch),
	    cmocka_unit_test(
		a_batch_that_is_refused_for_good_is_sent_apart_before_any_of_it_is_dead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
