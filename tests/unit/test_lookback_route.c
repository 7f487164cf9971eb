#include "route.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char shops[] = "[lookback \"orders\"]\n"
			    "types = orders, refunds\n"
			    "topics = orders.*, refunds\n"
			    "check = shop\n"
			    "[lookback \"stock\"]\n"
			    "default = yes\n"
			    "[lookback \"bank\"]\n"
			    "topic = bank_look_back\n"
			    "check = narrow\n"
			    "[check \"shop\"]\n"
			    "url = http://127.0.0.1:8080/lookback\n"
			    "allow = https://shop.example.com/lookback\n"
			    "[check \"narrow\"]\n"
			    "types = stock\n"
			    "url = https://stock.example.com/\n"
			    "allow = https://stock.example.com/a, https://*.stock.example.com/\n"
			    "[check \"table\"]\n"
			    "transport = sql\n"
			    "[check \"callers\"]\n"
			    "types = orders\n"
			    "transport = grpc\n"
			    "allow = https://callers.example.com/\n";

struct world {
	struct config *config;
	struct route *route;
};

static struct world world_of(const char *ini)
{
	struct world world;
	struct err err;

	world.config = config_parse("relay.ini", ini, (char *[]){NULL}, &err);
	if (!world.config)
		fail_msg("%s", err.message);
	world.route = route_create(world.config, &err);
	if (!world.route)
		fail_msg("%s", err.message);
	return world;
}

static void world_finish(struct world *world)
{
	route_destroy(world->route);
	config_destroy(world->config);
}

/* A prepare of orders to a topic of theirs, as a test wants it otherwise. */
static struct lookback_request prepared(const char *type, const char *topic)
{
	return (struct lookback_request){.op = LOOKBACK_PREPARE,
	    .biz_type = (char *)type,
	    .biz_id = (char *)"1",
	    .topic = (char *)topic,
	    .check_after_ms = -1,
	    .expires_after_ms = -1};
}

/* The code of the refusal; "" when it is taken. */
static const char *verdict(const struct world *world, const struct lookback_request *request)
{
	const struct config_lookback *section;
	struct refusal refusal;

	if (route_judge(world->route, request, &section, &refusal)) {
		assert_non_null(section);
		return "";
	}
	assert_true(strlen(refusal.text) > 20);
	return refusal.code;
}

static const char *verdict_of_check(
    const struct world *world, const char *type, const char *service, const char *url)
{
	struct lookback_request request = prepared(type, "t");

	if (strcmp(type, "orders") == 0)
		request.topic = (char *)"orders.new";
	request.check_service = (char *)service;
	request.check_url = (char *)url;
	return verdict(world, &request);
}

/* The name of the section that would be asked; "" when nobody. */
static const char *asked(
    const struct world *world, const char *type, const char *service, const char *url)
{
	struct refusal refusal;
	const struct config_check *check = route_check(
	    world->route, route_section(world->route, type), type, service, url, &refusal);

	return check ? check->name : "";
}

static void a_type_has_the_section_that_lists_it(void **state)
{
	struct world world = world_of(shops);

	(void)state;
	assert_string_equal(route_section(world.route, "refunds")->name, "orders");
	assert_string_equal(route_section(world.route, "stock")->name, "stock");
	assert_null(route_section(world.route, "Stock"));
	assert_null(route_section(world.route, NULL));
	world_finish(&world);
}

static void a_type_of_no_section_is_refused_whatever_is_said_of_it(void **state)
{
	struct world world = world_of(shops);
	struct lookback_request request = prepared("payroll", "orders.new");

	(void)state;
	for (int op = 0; op < LOOKBACK_OPS; op++) {
		request.op = (enum lookback_op)op;
		assert_string_equal(verdict(&world, &request), "unknown_type");
	}
	world_finish(&world);
}

static void a_decision_is_judged_by_its_type_alone(void **state)
{
	struct world world = world_of(shops);
	struct lookback_request request = prepared("stock", NULL);

	(void)state;
	request.op = LOOKBACK_COMMIT;
	assert_string_equal(verdict(&world, &request), "");
	request.op = LOOKBACK_ROLLBACK;
	assert_string_equal(verdict(&world, &request), "");
	world_finish(&world);
}

static void a_message_goes_to_topics_of_its_section_only(void **state)
{
	static const struct {
		const char *type, *topic, *code;
	} rows[] = {
	    {"orders", "orders.new", ""},
	    {"orders", "orders.", ""},
	    {"orders", "refunds", ""},
	    {"orders", "orders", "topic_not_allowed"},
	    {"orders", "refunds.new", "topic_not_allowed"},
	    {"orders", "Orders.new", "topic_not_allowed"},
	    {"refunds", "other", "topic_not_allowed"},
	};
	struct world world = world_of(shops);

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lookback_request request = prepared(rows[i].type, rows[i].topic);

		if (strcmp(verdict(&world, &request), rows[i].code) != 0)
			fail_msg("%s to %s: not \"%s\"", rows[i].type, rows[i].topic, rows[i].code);
	}
	world_finish(&world);
}

static void a_section_that_lists_no_topics_takes_any_but_those_of_look_backs(void **state)
{
	struct world world = world_of(shops);
	struct lookback_request request = prepared("stock", "whatever");

	(void)state;
	request.check_service = (char *)"table";
	assert_string_equal(verdict(&world, &request), "");
	request.topic = (char *)"look_back_msg";
	assert_string_equal(verdict(&world, &request), "topic_not_allowed");
	request.topic = (char *)"bank_look_back";
	assert_string_equal(verdict(&world, &request), "topic_not_allowed");
	world_finish(&world);
}

static void without_anybody_to_ask_a_prepare_is_refused(void **state)
{
	struct world world = world_of(shops);

	(void)state;
	assert_string_equal(verdict_of_check(&world, "orders", NULL, NULL), "");
	assert_string_equal(verdict_of_check(&world, "stock", NULL, NULL), "no_route");
	/* its section's check is for another type */
	assert_string_equal(verdict_of_check(&world, "bank", NULL, NULL), "no_route");
	/* callers has no URL of its own */
	assert_string_equal(verdict_of_check(&world, "orders", "callers", NULL), "no_route");
	world_finish(&world);
}

static void a_service_has_to_be_there_and_to_be_for_the_type(void **state)
{
	struct world world = world_of(shops);

	(void)state;
	assert_string_equal(verdict_of_check(&world, "orders", "shop", NULL), "");
	assert_string_equal(verdict_of_check(&world, "stock", "narrow", NULL), "");
	assert_string_equal(verdict_of_check(&world, "stock", "table", NULL), "");
	assert_string_equal(verdict_of_check(&world, "orders", "shops", NULL), "unknown_service");
	assert_string_equal(
	    verdict_of_check(&world, "orders", "narrow", NULL), "service_not_allowed");
	world_finish(&world);
}

static void a_url_is_allowed_by_a_service_for_the_type_or_refused(void **state)
{
	static const struct {
		const char *type, *service, *url, *code;
	} rows[] = {
	    {"orders", NULL, "https://shop.example.com/lookback/7", ""},
	    {"orders", NULL, "https://callers.example.com/", ""},
	    {"stock", NULL, "https://eu.stock.example.com/x", ""},
	    {"stock", "narrow", "https://stock.example.com/a", ""},
	    {"orders", NULL, "https://evil.example.com/", "url_not_allowed"},
	    {"orders", NULL, "https://shop.example.com/other", "url_not_allowed"},
	    {"orders", NULL, "http://shop.example.com/lookback", "url_not_allowed"},
	    {"orders", NULL, "https://shop.example.com/lookback/../other", "url_not_allowed"},
	    {"orders", NULL, "file:///etc/passwd", "url_not_allowed"},
	    {"orders", NULL, "no URL", "url_not_allowed"},
	    /* allowed by others, which are not for this type or not the one that is named */
	    {"orders", NULL, "https://stock.example.com/a", "url_not_allowed"},
	    {"stock", NULL, "https://callers.example.com/", "url_not_allowed"},
	    {"stock", "narrow", "https://shop.example.com/lookback", "url_not_allowed"},
	    /* even a service's own URL has to be listed when a message brings it */
	    {"orders", "shop", "http://127.0.0.1:8080/lookback", "url_not_allowed"},
	    {"stock", "table", "https://stock.example.com/a", "url_not_allowed"},
	};
	struct world world = world_of(shops);

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *got =
		    verdict_of_check(&world, rows[i].type, rows[i].service, rows[i].url);

		if (strcmp(got, rows[i].code) != 0)
			fail_msg("%s %s: \"%s\", not \"%s\"", rows[i].type, rows[i].url, got,
			    rows[i].code);
	}
	world_finish(&world);
}

static void who_is_asked_is_the_service_the_sections_check_or_who_allows_the_url(void **state)
{
	struct world world = world_of(shops);

	(void)state;
	assert_string_equal(asked(&world, "orders", NULL, NULL), "shop");
	assert_string_equal(asked(&world, "orders", "table", NULL), "table");
	assert_string_equal(
	    asked(&world, "orders", NULL, "https://shop.example.com/lookback"), "shop");
	assert_string_equal(
	    asked(&world, "orders", NULL, "https://callers.example.com/7"), "callers");
	assert_string_equal(
	    asked(&world, "stock", NULL, "https://shop.example.com/lookback"), "shop");
	assert_string_equal(asked(&world, "stock", NULL, NULL), "");
	world_finish(&world);
}

static void what_expires_before_anybody_is_asked_is_refused(void **state)
{
	static const struct {
		int64_t check_ms, expire_ms;
		const char *code;
	} rows[] = {
	    {-1, -1, ""}, {1000, 1001, ""}, {1000, 1000, "expired"}, {0, 0, "expired"},
	    {-1, 0, "expired"}, {-1, 30000, "expired"}, /* against the 30 s of the section */
	    {-1, 30001, ""}, {INT64_C(4) * 86400000, -1, "expired"}, /* against its 3 d */
	};
	struct world world = world_of(shops);

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct lookback_request request = prepared("orders", "refunds");

		request.check_after_ms = rows[i].check_ms;
		request.expires_after_ms = rows[i].expire_ms;
		if (strcmp(verdict(&world, &request), rows[i].code) != 0)
			fail_msg("row %zu: not \"%s\"", i, rows[i].code);
	}
	world_finish(&world);
}

static void the_section_is_told_with_a_refusal_too(void **state)
{
	struct world world = world_of(shops);
	struct lookback_request request = prepared("stock", "t");
	const struct config_lookback *section = NULL;
	struct refusal refusal;

	(void)state;
	assert_false(route_judge(world.route, &request, &section, &refusal));
	assert_string_equal(section->name, "stock");
	request.biz_type = (char *)"payroll";
	assert_false(route_judge(world.route, &request, &section, &refusal));
	assert_null(section);
	world_finish(&world);
}

static enum route_part part(const struct world *world, const char *section, const char *type)
{
	struct refusal refusal = {0};
	enum route_part found =
	    route_part(world->route, route_section(world->route, section), type, &refusal);

	assert_int_equal(refusal.code != NULL, found == ROUTE_NOBODYS);
	return found;
}

static void exactly_one_section_of_a_topic_answers_for_a_record(void **state)
{
	struct world world = world_of(shops);

	(void)state;
	assert_int_equal(part(&world, "orders", "refunds"), ROUTE_OWN);
	assert_int_equal(part(&world, "stock", "refunds"), ROUTE_OTHERS);
	/* the default takes what is nobody's, or cannot be read */
	assert_int_equal(part(&world, "orders", "payroll"), ROUTE_OTHERS);
	assert_int_equal(part(&world, "stock", "payroll"), ROUTE_NOBODYS);
	assert_int_equal(part(&world, "orders", NULL), ROUTE_OTHERS);
	assert_int_equal(part(&world, "stock", NULL), ROUTE_NOBODYS);
	/* who is alone on its topic is the default of it */
	assert_int_equal(part(&world, "bank", "payroll"), ROUTE_NOBODYS);
	/* and nobody on this topic reads for a section of another one */
	assert_int_equal(part(&world, "stock", "bank"), ROUTE_NOBODYS);
	assert_int_equal(part(&world, "orders", "bank"), ROUTE_OTHERS);
	assert_int_equal(part(&world, "bank", "orders"), ROUTE_NOBODYS);
	world_finish(&world);
}

static void the_same_topic_of_another_cluster_is_another_topic(void **state)
{
	struct world world = world_of("[kafka]\n[kafka \"far\"]\nbootstrap.servers = far:9092\n"
				      "[lookback \"here\"]\n[lookback \"there\"]\nkafka = far\n");

	(void)state;
	assert_int_equal(part(&world, "here", "there"), ROUTE_NOBODYS);
	assert_int_equal(part(&world, "there", "there"), ROUTE_OWN);
	world_finish(&world);
}

static void a_list_that_cannot_be_read_is_an_error_of_its_section(void **state)
{
	struct err err;
	struct config *config = config_parse("relay.ini",
	    "[check \"shop\"]\nallow = https://a.example.com/, gopher://b/\n", (char *[]){NULL},
	    &err);

	(void)state;
	assert_non_null(config);
	assert_null(route_create(config, &err));
	assert_int_equal(err.kind, ERR_CONFIG);
	assert_non_null(strstr(err.message, "relay.ini:1: [check \"shop\"] allow: destination 2"));
	config_destroy(config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_type_has_the_section_that_lists_it),
	    cmocka_unit_test(a_type_of_no_section_is_refused_whatever_is_said_of_it),
	    cmocka_unit_test(a_decision_is_judged_by_its_type_alone),
	    cmocka_unit_test(a_message_goes_to_topics_of_its_section_only),
	    cmocka_unit_test(a_section_that_lists_no_topics_takes_any_but_those_of_look_backs),
	    cmocka_unit_test(without_anybody_to_ask_a_prepare_is_refused),
	    cmocka_unit_test(a_service_has_to_be_there_and_to_be_for_the_type),
	    cmocka_unit_test(a_url_is_allowed_by_a_service_for_the_type_or_refused),
	    cmocka_unit_test(who_is_asked_is_the_service_the_sections_check_or_who_allows_the_url),
	    cmocka_unit_test(what_expires_before_anybody_is_asked_is_refused),
	    cmocka_unit_test(the_section_is_told_with_a_refusal_too),
	    cmocka_unit_test(exactly_one_section_of_a_topic_answers_for_a_record),
	    cmocka_unit_test(the_same_topic_of_another_cluster_is_another_topic),
	    cmocka_unit_test(a_list_that_cannot_be_read_is_an_error_of_its_section),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
