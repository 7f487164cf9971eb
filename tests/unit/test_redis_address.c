#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "redis_address.h"
#include "text.h"

static bool is_same(const char *found, const char *wanted)
{
	return found && wanted ? text_equal(found, wanted) : found == wanted;
}

static bool parse_url(const char *url, struct redis_address *ret_address, struct err *err)
{
	const struct redis_access access = {.url = (char *)url};

	return redis_address_parse(&access, ret_address, err);
}

static void a_url_names_the_server_and_the_login(void **state)
{
	static const struct {
		const char *url, *place, *host, *path, *user, *password;
		int database;
	} rows[] = {
	    {"redis://cache", "redis at cache:6379", "cache", NULL, NULL, NULL, 0},
	    {"redis://:a@b@cache:1/2", "redis at cache:1", "cache", NULL, NULL, "a@b", 2},
	    {"redis://me:it%20@cache", "redis at cache:6379", "cache", NULL, "me", "it ", 0},
	    {"redis://[::1]", "redis at [::1]:6379", "::1", NULL, NULL, NULL, 0},
	    {"redis://:it@[fe80::1]:7/3", "redis at [fe80::1]:7", "fe80::1", NULL, NULL, "it", 3},
	    {"unix:///run/a.sock", "redis at /run/a.sock", NULL, "/run/a.sock", NULL, NULL, 0},
	    {"unix:///run/a@b.sock?db=4", "redis at /run/a@b.sock", NULL, "/run/a@b.sock", NULL,
		NULL, 4},
	    {"unix://:it@/run/a@b.sock", "redis at /run/a@b.sock", NULL, "/run/a@b.sock", NULL,
		"it", 0},
	    {"unix://:a@/b@/run/a.sock", "redis at /run/a.sock", NULL, "/run/a.sock", NULL, "a@/b",
		0},
	    {"redis+sentinel://me:it@one,two:3/shop/4", "redis at one:26379", "one", NULL, "me",
		"it", 4},
	    {"unix://me:a@b@/run/a.sock?db=1", "redis at /run/a.sock", NULL, "/run/a.sock", "me",
		"a@b", 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct redis_address address;
		struct err err = {0};

		if (!parse_url(rows[i].url, &address, &err))
			fail_msg("%s: %s", rows[i].url, err.message);
		assert_string_equal(address.place, rows[i].place);
		if (!is_same(address.host, rows[i].host) || !is_same(address.path, rows[i].path) ||
		    !is_same(address.user, rows[i].user) ||
		    !is_same(address.password, rows[i].password) ||
		    address.database != rows[i].database)
			fail_msg("%s is read otherwise", rows[i].url);
		redis_address_finish(&address);
	}
}

static void a_url_without_a_server_is_refused(void **state)
{
	static const char *const urls[] = {"redis://", "redis://me:it@", "redis://[::1",
	    "redis://cache:0", "unix://run/a.sock", "unix://me:it@run/a.sock", "unix://me:it@"};

	(void)state;
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		struct redis_address address;
		struct err err = {0};

		assert_false(parse_url(urls[i], &address, &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		assert_null(strstr(err.message, "me:it"));
		redis_address_finish(&address);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_url_names_the_server_and_the_login),
	    cmocka_unit_test(a_url_without_a_server_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
