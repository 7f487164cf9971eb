#include "request_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LINE "GET / HTTP/1.1\r\n"
#define HOST "Host: relay\r\n"

/* NULL: it is a good head; else why it is not. *head points into *bytes, which the caller frees. */
static const char *check(const char *text, size_t length, struct request_head *head, char **bytes)
{
	const char *why = NULL;
	size_t scanned = 0;
	ssize_t span;

	*bytes = xmalloc(length);
	memcpy(*bytes, text, length);
	span = request_head_span(*bytes, length, &scanned, &why);
	if (span < 0)
		return why;
	assert_int_equal(span, length);
	return request_head_parse(*bytes, length, head, &why) ? NULL : why;
}

static void assert_good(const char *text, const char *host, bool has_body)
{
	struct request_head head;
	char *bytes;
	const char *why = check(text, strlen(text), &head, &bytes);

	if (why)
		fail_msg("%s: %s", text, why);
	assert_string_equal(head.host, host);
	assert_int_equal(head.has_body, has_body);
	free(bytes);
}

static void good_heads_tell_their_host_and_whether_a_body_comes(void **state)
{
	(void)state;
	assert_good(LINE HOST "\r\n", "relay", false);
	assert_good("GET / HTTP/1.0\r\n" HOST "\r\n", "relay", false);
	assert_good(LINE "hOsT:relay:9187 \t\r\n\r\n", "relay", false);
	assert_good(LINE "Host: 127.0.0.1:65535\r\n\r\n", "127.0.0.1", false);
	assert_good(LINE "Host: [::1]:9187\r\n\r\n", "::1", false);
	assert_good(LINE "Host: [fe80::1]\r\n\r\n", "fe80::1", false);
	assert_good("GET /a%20b/%C3%a4?x=%2f&y HTTP/1.1\r\n" HOST "\r\n", "relay", false);
	assert_good(LINE HOST "X: \xc3\xa4 \t,;\r\nEmpty:\r\n\r\n", "relay", false);
	assert_good("POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "relay", false);
	assert_good("POST / HTTP/1.1\r\n" HOST "content-length:  7 \r\n\r\n", "relay", true);
	assert_good("POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n", "relay", true);
}

static void heads_with_two_readings_are_refused(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
	    {"\r\n", "empty line"},
	    {"GET / HTTP/1.1\n", "LF alone"},
	    {LINE HOST "X: a\n\r\n", "LF alone"},
	    {LINE HOST "X: a\rb\r\n\r\n", "CR has no LF"},
	    {LINE HOST "X: a\vb\r\n\r\n", "control character"},
	    {LINE HOST "X: a\x7f\r\n\r\n", "control character"},
	    {"GET /\r\n" HOST "\r\n", "METHOD PATH HTTP/1.1"},
	    {"G@T / HTTP/1.1\r\n" HOST "\r\n", "METHOD PATH HTTP/1.1"},
	    {" / HTTP/1.1\r\n" HOST "\r\n", "METHOD PATH HTTP/1.1"},
	    {"GET / HTTP/1.1 \r\n" HOST "\r\n", "version"},
	    {"GET / HTTP/2.0\r\n" HOST "\r\n", "version"},
	    {"GET / http/1.1\r\n" HOST "\r\n", "version"},
	    {"GET  HTTP/1.1\r\n" HOST "\r\n", "slash"},
	    {"GET * HTTP/1.1\r\n" HOST "\r\n", "slash"},
	    {"GET http://relay/ HTTP/1.1\r\n" HOST "\r\n", "slash"},
	    {"GET /#a HTTP/1.1\r\n" HOST "\r\n", "not encoded"},
	    {"GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", "not encoded"},
	    {"GET /%00 HTTP/1.1\r\n" HOST "\r\n", "encoded well"},
	    {"GET /?a=%00 HTTP/1.1\r\n" HOST "\r\n", "encoded well"},
	    {"GET /% HTTP/1.1\r\n" HOST "\r\n", "encoded well"},
	    {"GET /%a HTTP/1.1\r\n" HOST "\r\n", "encoded well"},
	    {"GET /%ag HTTP/1.1\r\n" HOST "\r\n", "encoded well"},
	    {LINE HOST "X\r\n\r\n", "no colon"},
	    {LINE HOST "X : a\r\n\r\n", "name of a field"},
	    {LINE HOST ": a\r\n\r\n", "name of a field"},
	    {LINE HOST " X: a\r\n\r\n", "folded"},
	    {LINE HOST "X: a\r\n\tb\r\n\r\n", "folded"},
	    {LINE "\r\n", "no Host"},
	    {"GET / HTTP/1.0\r\n\r\n", "no Host"},
	    {LINE HOST HOST "\r\n", "two Host"},
	    {LINE "Host:\r\n\r\n", "no name or address"},
	    {LINE "Host: a b\r\n\r\n", "no name or address"},
	    {LINE "Host: a@b\r\n\r\n", "no name or address"},
	    {LINE "Host: a:b\r\n\r\n", "no name or address"},
	    {LINE "Host: a:65536\r\n\r\n", "no name or address"},
	    {LINE "Host: [::1\r\n\r\n", "no name or address"},
	    {LINE "Host: [::1]a\r\n\r\n", "no name or address"},
	    {LINE HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "two Content-Length"},
	    {LINE HOST "Content-Length: 1, 1\r\n\r\n", "no number"},
	    {LINE HOST "Content-Length: +1\r\n\r\n", "no number"},
	    {LINE HOST "Content-Length: -1\r\n\r\n", "no number"},
	    {LINE HOST "Content-Length:\r\n\r\n", "no number"},
	    {LINE HOST "Content-Length: 9223372036854775808\r\n\r\n", "no number"},
	    {LINE HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"Content-Length and Transfer-Encoding"},
	    {LINE HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", "not chunked"},
	    {LINE HOST "Transfer-Encoding:\r\n\r\n", "not chunked"},
	    {LINE HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"two Transfer-Encoding"},
	    {"GET / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct request_head head;
		char *bytes;
		const char *why = check(rows[i].text, strlen(rows[i].text), &head, &bytes);

		if (!why || !strstr(why, rows[i].why))
			fail_msg("%s: %s", rows[i].text, why ? why : "taken");
		free(bytes);
	}
}

static void a_nul_is_refused_wherever_it_is(void **state)
{
	static const char good[] = LINE HOST "X: a\r\n\r\n";

	(void)state;
	for (size_t i = 0; i < strlen(good); i++) {
		char *text = xstrdup(good), *bytes;
		struct request_head head;

		text[i] = '\0';
		assert_non_null(check(text, strlen(good), &head, &bytes));
		free(bytes);
		free(text);
	}
}

static void a_head_has_64_fields_at_most(void **state)
{
	struct text text = {0};

	(void)state;
	text_add(&text, LINE HOST);
	for (int i = 1; i < REQUEST_FIELDS; i++)
		text_add(&text, "X: a\r\n");
	for (int more = 0; more < 2; more++) {
		struct text whole = {0};
		struct request_head head;
		char *bytes;

		text_addf(&whole, "%s%s\r\n", text_string(&text), more ? "X: a\r\n" : "");
		assert_int_equal(
		    check(text_string(&whole), whole.length, &head, &bytes) != NULL, more);
		free(bytes);
		text_finish(&whole);
	}
	text_finish(&text);
}

/* However the bytes come, the head ends at the same place; what stands behind it is not read. */
static void a_head_ends_at_its_blank_line(void **state)
{
	static const char text[] = LINE HOST "\r\nGET /\0";
	size_t whole = strlen(LINE HOST "\r\n");
	const char *why = NULL;

	(void)state;
	for (size_t step = 1; step < sizeof text; step++) {
		size_t scanned = 0, length = 0;
		ssize_t span = 0;

		while (span == 0 && length < sizeof text) {
			assert_true(length < whole);
			length = length + step < sizeof text ? length + step : sizeof text;
			span = request_head_span(text, length, &scanned, &why);
		}
		assert_int_equal(span, whole);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(good_heads_tell_their_host_and_whether_a_body_comes),
	    cmocka_unit_test(heads_with_two_readings_are_refused),
	    cmocka_unit_test(a_nul_is_refused_wherever_it_is),
	    cmocka_unit_test(a_head_has_64_fields_at_most),
	    cmocka_unit_test(a_head_ends_at_its_blank_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
