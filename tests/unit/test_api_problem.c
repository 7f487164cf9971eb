#include "api_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static void assert_problem(
    const char *code, unsigned status, const char *detail, const char *request_id, const char *json)
{
	json_t *problem = api_problem(code, status, detail, request_id);
	char *text = json_dumps(problem, JSON_COMPACT);

	assert_string_equal(text, json);
	free(text);
	json_decref(problem);
}

static void a_problem_has_the_members_of_rfc_9457(void **state)
{
	(void)state;
	assert_problem("too_large", 413, "the body has more than 9 bytes", "a-1",
	    "{\"type\":\"urn:outbox-relay:problem:too_large\",\"title\":\"The body or record is "
	    "too large\",\"status\":413,\"detail\":\"the body has more than 9 bytes\","
	    "\"instance\":\"urn:outbox-relay:request:a-1\"}");
}

static void without_a_request_there_is_no_instance(void **state)
{
	(void)state;
	assert_problem("busy", 503, "too many connections", NULL,
	    "{\"type\":\"urn:outbox-relay:problem:busy\",\"title\":\"The relay is busy\","
	    "\"status\":503,\"detail\":\"too many connections\"}");
}

static void a_detail_may_have_been_cut_or_need_escapes(void **state)
{
	(void)state;
	assert_problem("busy", 503, "\"a\nb\" \xc3 is none: \xc3\xa4\xc3", NULL,
	    "{\"type\":\"urn:outbox-relay:problem:busy\",\"title\":\"The relay is busy\","
	    "\"status\":503,\"detail\":\"\\\"a\\nb\\\" \xef\xbf\xbd is none: "
	    "\xc3\xa4\xef\xbf\xbd\"}");
}

/* The lint test of the codes finds one first. */
static void a_code_without_a_row_is_a_refusal_all_the_same(void **state)
{
	(void)state;
	assert_int_equal(api_problem_status("of_tomorrow"), 400);
	assert_problem("of_tomorrow", 400, "wait", NULL,
	    "{\"type\":\"urn:outbox-relay:problem:of_tomorrow\",\"title\":\"The request or message "
	    "was refused\",\"status\":400,\"detail\":\"wait\"}");
}

static void each_code_has_its_status(void **state)
{
	(void)state;
	assert_int_equal(api_problem_status("bad_json"), 400);
	assert_int_equal(api_problem_status("id_taken"), 409);
	assert_int_equal(api_problem_status("no_topic"), 503);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_problem_has_the_members_of_rfc_9457),
	    cmocka_unit_test(without_a_request_there_is_no_instance),
	    cmocka_unit_test(a_detail_may_have_been_cut_or_need_escapes),
	    cmocka_unit_test(a_code_without_a_row_is_a_refusal_all_the_same),
	    cmocka_unit_test(each_code_has_its_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
