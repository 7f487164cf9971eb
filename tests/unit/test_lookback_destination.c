/* relay/lookback/destination: who is asked about a message, and where; a URL goes nowhere unless
 * listed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "destination.h"

static const char usual[] =
    "[check \"shop\"]\nurl = https://Shop.example/ask?key=secret\n"
    "allow = https://*.shop.example/ask, http://10.0.0.7:8080/, http://plain.example\ntypes = "
    "order, refund\n"
    "[check \"any\"]\nallow = https://a.shop.example/ask, https://any.example/\n"
    "[check \"base\"]\ntransport = sql\ndsn = host=nowhere\n"
    "[check \"many\"]\nurl = grpc://10.0.0.1:1,10.0.0.2:1\nallow = https://b.example/\n"
    "[check \"six\"]\nurl = http://[2001:db8::1]/x\n"
    "[lookback \"shop\"]\ntypes = order, stock\ncheck = shop\n";

struct stage {
	struct config *config;
	struct route *route;
};

static struct stage set_stage(const char *ini)
{
	struct err err = {0};
	char *const nothing[] = {NULL};
	struct stage stage = {.config = config_parse("test", ini, nothing, &err)};

	if (!stage.config)
		fail_msg("%s", err.message);
	stage.route = route_create(stage.config, &err);
	if (!stage.route)
		fail_msg("%s", err.message);
	return stage;
}

static void clear_stage(struct stage *stage)
{
	route_destroy(stage->route);
	config_destroy(stage->config);
}

/* Where it goes, as "service host"; or why not. */
static void assert_route(struct stage *stage, const char *type, const char *service,
    const char *url, const char *expected)
{
	struct destination route = destination_find(
	    stage->route, stage->config, &stage->config->lookbacks[0], type, service, url);
	char *told = route.service < 0
			 ? xformat("%s", route.refusal.code)
			 : xformat("%s %s", stage->config->checks[route.service].name, route.host);

	if (strcmp(told, expected) != 0)
		fail_msg("%s, not %s: %s", told, expected, route.refusal.text);
	if (route.service < 0)
		assert_null(strstr(route.refusal.text, "secret"));
	free(told);
}

static void a_message_without_either_is_asked_at_its_sections_service(void **state)
{
	struct stage stage = set_stage(usual);

	(void)state;
	assert_route(&stage, "order", NULL, NULL, "shop shop.example:443");
	assert_route(&stage, "stock", NULL, NULL, "no_route"); /* it does not serve the type */
	clear_stage(&stage);
	stage = set_stage("[lookback \"shop\"]\n");
	assert_route(&stage, "shop", NULL, NULL, "no_route");
	clear_stage(&stage);
}

static void a_named_service_is_asked_where_it_says_and_only_about_its_types(void **state)
{
	struct stage stage = set_stage(usual);

	(void)state;
	assert_route(&stage, "order", "base", NULL, "base sql base");
	/* One breaker for all addresses of a service; those of its messages have their own. */
	assert_route(&stage, "order", "many", NULL, "many grpc many");
	assert_route(&stage, "order", "many", "https://b.example/", "many b.example:443");
	assert_route(&stage, "order", "six", NULL, "six [2001:db8::1]:80");
	assert_route(&stage, "order", "nobody", NULL, "unknown_service");
	assert_route(&stage, "stock", "shop", NULL, "service_not_allowed");
	assert_route(&stage, "order", "any", NULL, "no_route"); /* it has no url */
	assert_route(&stage, "order", "any", "https://any.example/x", "any any.example:443");
	clear_stage(&stage);
}

static void a_url_goes_to_the_service_that_allows_it_the_sections_own_first(void **state)
{
	struct stage stage = set_stage(usual);

	(void)state;
	assert_route(
	    &stage, "order", NULL, "https://a.shop.example/ask/7", "shop a.shop.example:443");
	assert_route(
	    &stage, "stock", NULL, "https://a.shop.example/ask/7", "any a.shop.example:443");
	assert_route(&stage, "order", NULL, "http://10.0.0.7:8080/x", "shop 10.0.0.7:8080");
	assert_route(&stage, "order", NULL, "HTTP://Plain.Example/x", "shop plain.example:80");
	assert_route(
	    &stage, "order", NULL, "HTTPS://A.shop.example/ask", "shop a.shop.example:443");
	assert_route(&stage, "stock", NULL, "http://10.0.0.7:8080/x", "url_not_allowed");
	clear_stage(&stage);
}

static void no_other_url_goes_anywhere(void **state)
{
	static const char *const urls[] = {"https://evil.example/ask", "https://shop.example/ask",
	    "http://a.shop.example/ask", "https://a.shop.example:8443/ask",
	    "https://a.shop.example/other", "https://a.shop.example/ask/../x",
	    "https://a.shop.example@evil.example/ask", "https://user:secret@a.shop.example/ask",
	    "https://a.shop.example/ask#x", "file:///etc/passwd", "gopher://a.shop.example/ask",
	    "http://169.254.169.254/?secret", "http://127.0.0.1/", "a.shop.example/ask", "", " "};
	struct stage stage = set_stage(usual);

	(void)state;
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		assert_route(&stage, "order", NULL, urls[i], "url_not_allowed");
		assert_route(&stage, "order", "shop", urls[i], "url_not_allowed");
		assert_route(&stage, "order", "base", urls[i], "url_not_allowed");
	}
	clear_stage(&stage);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_message_without_either_is_asked_at_its_sections_service),
	    cmocka_unit_test(a_named_service_is_asked_where_it_says_and_only_about_its_types),
	    cmocka_unit_test(a_url_goes_to_the_service_that_allows_it_the_sections_own_first),
	    cmocka_unit_test(no_other_url_goes_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
