#include "http_credentials.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "clock.h"
#include "temporary.h"
#include "text.h"

static struct http_credentials_texts none(void)
{
	return (struct http_credentials_texts){.section = "check shop",
	    .token_url = "",
	    .client_id = "",
	    .client_secret = "",
	    .scope = "",
	    .audience = "",
	    .token_ca = ""};
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void assert_refused(
    const struct http_credentials_texts *texts, const char *key, const char *why)
{
	const char *told = "";
	struct err err;

	assert_null(http_credentials_open(texts, &told, &err));
	assert_string_equal(told, key);
	assert_int_equal(err.kind, ERR_CONFIG);
	if (!strstr(err.message, why))
		fail_msg("%s", err.message);
	/* no value of a header */
	assert_null(strstr(err.message, "geheim"));
}

static void assert_line_refused(const char *line, const char *why)
{
	const char *const lines[] = {"X-Shop: 1", line};
	struct http_credentials_texts texts = none();

	texts.headers = lines;
	texts.header_count = 2;
	assert_refused(&texts, "headers", why);
}

/* "Name: value\n" of each header that a request gets. */
static void assert_headers(struct http_credentials *credentials, int64_t now, const char *expected)
{
	struct http_header headers[HTTP_CREDENTIALS_HEADERS];
	struct text all = {0};
	const char *error;
	size_t count = 0;

	assert_int_equal(
	    http_credentials_access(credentials, NULL, now, &error), HTTP_ACCESS_READY);
	http_credentials_add(credentials, headers, &count);
	for (size_t i = 0; i < count; i++)
		text_addf(&all, "%s: %s\n", headers[i].name, headers[i].value);
	assert_string_equal(text_string(&all), expected);
	text_finish(&all);
}

static void headers_are_sent_as_they_are_written(void **state)
{
	static const char *const lines[] = {
	    "Authorization:Bearer 1|abc=:x ", "X-Tenant: \t shop 7"};
	struct http_credentials_texts texts = none();
	const char *key;
	struct err err;
	struct http_credentials *credentials;

	(void)state;
	texts.headers = lines;
	texts.header_count = 2;
	credentials = http_credentials_open(&texts, &key, &err);
	assert_non_null(credentials);
	assert_true(http_credentials_any(credentials));
	assert_headers(
	    credentials, clock_ms(), "Authorization: Bearer 1|abc=:x\nX-Tenant: shop 7\n");
	http_credentials_close(credentials);

	texts = none();
	credentials = http_credentials_open(&texts, &key, &err);
	assert_non_null(credentials);
	assert_false(http_credentials_any(credentials));
	assert_headers(credentials, clock_ms(), "");
	http_credentials_close(credentials);
}

static void a_line_that_cannot_be_sent_is_refused_by_its_number(void **state)
{
	(void)state;
	assert_line_refused("geheim", "line 2 has no colon");
	assert_line_refused(": geheim", "line 2: its name");
	assert_line_refused("X Y: geheim", "line 2: its name");
	assert_line_refused("X-Y:", "line 2: the header has no value");
	assert_line_refused("X-Y: geheim\x01", "line 2: its value holds a control character");
	assert_line_refused("Host: geheim", "line 2: the HTTP client sets it itself");
	assert_line_refused("content-type: geheim", "line 2: the relay itself sets");
	assert_line_refused("Webhook-Signature: geheim", "line 2: the relay itself sets");
	assert_line_refused("ce-id: geheim", "line 2: the relay itself sets");
	assert_line_refused("grpc-timeout: geheim", "line 2: the relay itself sets");
}

static void a_changed_file_is_used_and_a_wrong_one_is_not(void **state)
{
	char folder[TEMPORARY], path[TEMPORARY + 16];
	struct http_credentials_texts texts = none();
	const char *key;
	struct err err;
	struct http_credentials *credentials;
	int64_t now;

	(void)state;
	assert_true(temporary_make(folder));
	snprintf(path, sizeof path, "%s/headers", folder);
	write_file(path, "# comment\r\nAuthorization: Bearer one\r\n\n");
	texts.headers_file = path;
	credentials = http_credentials_open(&texts, &key, &err);
	assert_non_null(credentials);
	now = clock_ms() + HTTP_CREDENTIALS_LOOK_MS; /* of the first look */
	assert_headers(credentials, now, "Authorization: Bearer one\n");

	write_file(path, "Authorization: Bearer two\n");
	assert_headers(
	    credentials, now + HTTP_CREDENTIALS_LOOK_MS - 1, "Authorization: Bearer one\n");
	assert_headers(credentials, now + HTTP_CREDENTIALS_LOOK_MS, "Authorization: Bearer two\n");

	/* A refusal by the business makes it look at once. */
	write_file(path, "Authorization: Bearer three");
	http_credentials_refused(credentials, now + HTTP_CREDENTIALS_LOOK_MS);
	assert_headers(
	    credentials, now + HTTP_CREDENTIALS_LOOK_MS, "Authorization: Bearer three\n");

	write_file(path, "Authorization Bearer four");
	assert_headers(credentials, now + 10000, "Authorization: Bearer three\n");
	unlink(path);
	assert_headers(credentials, now + 20000, "Authorization: Bearer three\n");
	/* Whoever writes it again in place empties it first. */
	write_file(path, "\r\n");
	assert_headers(credentials, now + 30000, "Authorization: Bearer three\n");
	write_file(path, "# none\n");
	assert_headers(credentials, now + 40000, "");
	http_credentials_close(credentials);
	temporary_remove(folder);
}

static void files_that_cannot_be_read_are_named(void **state)
{
	struct http_credentials_texts texts = none();

	(void)state;
	texts.headers_file = "/nowhere/headers";
	assert_refused(&texts, "headers_file", "/nowhere/headers cannot be read: No such file");
	texts.headers_file = "/dev/null";
	assert_refused(&texts, "headers_file", "/dev/null is empty");
	texts = none();
	texts.token_url = "https://id.example/token";
	texts.client_id = "relay";
	texts.client_secret_file = "/nowhere/secret";
	assert_refused(&texts, "client_secret_file", "/nowhere/secret cannot be read");
	texts.client_secret_file = "/dev/null";
	assert_refused(&texts, "client_secret_file", "is empty");
	texts.client_secret_file = NULL;
	texts.client_secret = "geheim";
	texts.token_ca = "/nowhere/ca.pem";
	assert_refused(&texts, "token_ca", "/nowhere/ca.pem cannot be read");
}

static void keys_of_the_token_go_together(void **state)
{
	static const char *const lines[] = {"authorization: geheim"};
	struct http_credentials_texts texts = none();

	(void)state;
	texts.client_secret = "geheim";
	assert_refused(&texts, "client_secret", "without token_url");
	texts = none();
	texts.scope = "a";
	assert_refused(&texts, "scope", "without token_url");
	texts = none();
	texts.token_url = "https://id.example/token";
	assert_refused(&texts, "client_id", "token_url needs it");
	texts.client_id = "relay";
	assert_refused(&texts, "client_secret", "token_url needs it");
	texts.client_secret = "geheim";
	texts.headers = lines;
	texts.header_count = 1;
	assert_refused(&texts, "headers", "token_url sets as well");
	texts.token_url = "ftp://id.example/";
	assert_refused(&texts, "token_url", "only http and https");
}

/* Nobody listens at the port. The query of a URL may hold a key. */
static void an_error_has_no_query_in_it(void **state)
{
	struct http_credentials_texts texts = none();
	struct http_networks networks;
	const char *key;
	struct err err;
	struct http_credentials *credentials;

	(void)state;
	texts.token_url = "http://127.0.0.1:1/token?key=geheim";
	texts.client_id = "relay";
	texts.client_secret = "geheim";
	assert_true(http_networks_parse("127.0.0.1", &networks, &err));
	credentials = http_credentials_open(&texts, &key, &err);
	assert_non_null(credentials);
	assert_false(http_credentials_try(credentials, &networks, &err));
	if (!text_starts(err.message, "http://127.0.0.1:1/token: connect: ") ||
	    strstr(err.message, "geheim"))
		fail_msg("%s", err.message);
	http_credentials_close(credentials);
	http_networks_finish(&networks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(headers_are_sent_as_they_are_written),
	    cmocka_unit_test(a_line_that_cannot_be_sent_is_refused_by_its_number),
	    cmocka_unit_test(a_changed_file_is_used_and_a_wrong_one_is_not),
	    cmocka_unit_test(files_that_cannot_be_read_are_named),
	    cmocka_unit_test(keys_of_the_token_go_together),
	    cmocka_unit_test(an_error_has_no_query_in_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
