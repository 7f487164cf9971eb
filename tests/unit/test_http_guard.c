#include "http_guard.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cmocka.h>

static struct http_destinations listed(const char *text)
{
	struct http_destinations list;
	struct err err;

	if (!http_destinations_parse(text, &list, &err))
		fail_msg("%s", err.message);
	return list;
}

/* The code of the refusal; "" when it is allowed. */
static const char *verdict(const struct http_destinations *list, const char *url)
{
	struct refusal refusal = {.code = "none"};

	if (http_guard_url(list, url, &refusal))
		return "";
	assert_true(strlen(refusal.text) > 10);
	return refusal.code;
}

static void assert_verdict(
    const struct http_destinations *list, const char *url, const char *expected)
{
	const char *got = verdict(list, url);

	if (strcmp(got, expected) != 0)
		fail_msg("%s: \"%s\", not \"%s\"", url, got, expected);
}

static void an_empty_list_allows_nothing(void **state)
{
	struct http_destinations list = listed(" , \n");

	(void)state;
	assert_int_equal(list.count, 0);
	assert_verdict(&list, "https://example.com/", "not_listed");
}

static void a_destination_fits_by_scheme_host_port_and_path(void **state)
{
	static const struct {
		const char *url, *code;
	} rows[] = {
	    {"https://pay.example.com/lookback", ""},
	    {"https://pay.example.com/lookback/", ""},
	    {"https://pay.example.com/lookback/42?x=/../%2e", ""},
	    {"https://pay.example.com/lookback?id=1", ""},
	    {"https://pay.example.com:443/lookback", ""},
	    {"HTTPS://PAY.Example.COM/lookback", ""},
	    {"https://pay.example.com/lookbacks", "not_listed"},
	    {"https://pay.example.com/Lookback", "not_listed"},
	    {"https://pay.example.com/", "not_listed"},
	    {"https://pay.example.com", "not_listed"},
	    {"https://pay.example.com:8443/lookback", "not_listed"},
	    {"http://pay.example.com/lookback", "not_listed"},
	    {"http://pay.example.com:443/lookback", "not_listed"},
	    {"https://example.com/lookback", "not_listed"},
	    {"https://pay.example.com.evil.org/lookback", "not_listed"},
	    {"https://evil.org/pay.example.com/lookback", "not_listed"},
	    {"https://xpay.example.com/lookback", "not_listed"},
	    {"http://127.0.0.1:8080/under/x", ""},
	    {"http://127.0.0.1:8080/under/", ""},
	    {"http://127.0.0.1:8080/under", "not_listed"},
	    {"http://[::1]:8080/anything", ""},
	    {"http://[::1]/anything", "not_listed"},
	};
	struct http_destinations list = listed("https://Pay.example.com/lookback, "
					       "http://127.0.0.1:8080/under/\nhttp://[::1]:8080");

	(void)state;
	assert_int_equal(list.count, 3);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_verdict(&list, rows[i].url, rows[i].code);
	http_destinations_finish(&list);
}

static void a_star_stands_for_names_below(void **state)
{
	struct http_destinations list = listed("https://*.shop.example.com/cb");

	(void)state;
	assert_verdict(&list, "https://a.shop.example.com/cb", "");
	assert_verdict(&list, "https://a.b.SHOP.example.com/cb/1", "");
	assert_verdict(&list, "https://shop.example.com/cb", "not_listed");
	assert_verdict(&list, "https://evilshop.example.com/cb", "not_listed");
	assert_verdict(&list, "https://shop.example.com.evil.org/cb", "not_listed");
	assert_verdict(&list, "https://a.shop.example.com/other", "not_listed");
	assert_string_not_equal(verdict(&list, "https://.shop.example.com/cb"), "");
	assert_string_not_equal(verdict(&list, "https://*.shop.example.com/cb"), "");
	http_destinations_finish(&list);
}

/* Each would be allowed if it were understood the way its author hopes. */
static void a_url_that_can_be_read_in_two_ways_is_refused(void **state)
{
	static const struct {
		const char *url, *code;
	} rows[] = {
	    {"", "malformed"},
	    {"good.org/a", "malformed"},
	    {"//good.org/a", "malformed"},
	    {"http:/good.org/a", "malformed"},
	    {"http:///good.org/a", "host"},
	    {"http:good.org/a", "malformed"},
	    {"http://", "host"},
	    {"http://?a", "host"},
	    {"http://:80/a", "host"},
	    {"ftp://good.org/a", "scheme"},
	    {"file:///etc/passwd", "scheme"},
	    {"gopher://good.org/a", "scheme"},
	    {"unix://good.org/a", "scheme"},
	    {"javascript:alert(1)", "malformed"},
	    {"http://user@good.org/a", "credentials"},
	    {"http://user:pass@good.org/a", "credentials"},
	    {"http://@good.org/a", "credentials"},
	    {"http://good.org@evil.org/a", "credentials"},
	    {"http://good.org/a#b", "fragment"},
	    {"http://good.org/a#", "fragment"},
	    {"http://evil.org#@good.org/a", "fragment"},
	    {"http://good.org/a b", "characters"},
	    {" http://good.org/a", "characters"},
	    {"http://good.org/a\n", "characters"},
	    {"http://good.org/a\r\nHost: evil.org", "characters"},
	    {"http://good.org\t/a", "characters"},
	    {"http://good.org/\x7f", "characters"},
	    {"http://good.org\\@evil.org/a", "characters"},
	    {"http://good.org/a\\..\\b", "characters"},
	    {"http://g\xc3\xb6od.org/a", "characters"},
	    {"http://good%2eorg/a", "host"},
	    {"http://%67ood.org/a", "host"},
	    {"http://good.org./a", "host"},
	    {"http://127.1/a", "host"},
	    {"http://0x7f.1/a", "host"},
	    {"http://2130706433/a", "host"},
	    {"http://0177.0.0.1/a", "host"},
	    {"http://017700000001/a", "host"},
	    {"http://0/a", "host"},
	    {"http://[::0001]/a", "host"},
	    {"http://[::1%25lo]/a", "host"},
	    {"http://[::1/a", "host"},
	    {"http://good.org:/a", "port"},
	    {"http://good.org:0/a", "port"},
	    {"http://good.org:65536/a", "port"},
	    {"http://good.org:80x/a", "port"},
	    {"http://good.org:+80/a", "port"},
	    {"http://good.org/a/../b", "path"},
	    {"http://good.org/a/..", "path"},
	    {"http://good.org/a/./b", "path"},
	    {"http://good.org/a/..;x/b", "path"},
	    {"http://good.org/a/%2e%2e/b", "path"},
	    {"http://good.org/a/.%2E/b", "path"},
	    {"http://good.org/a%2fb", "path"},
	    {"http://good.org/a%2Fb", "path"},
	    {"http://good.org/a%5cb", "path"},
	    {"http://good.org/a%252e%252e/b", "path"},
	    {"http://good.org/a%00", "path"},
	    {"http://good.org/a%0d%0ab", "path"},
	    {"http://good.org/a%", "path"},
	    {"http://good.org/a%4", "path"},
	    {"http://good.org/a%zz", "path"},
	};
	struct http_destinations list = listed("http://good.org http://127.0.0.1 http://[::1]");

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_verdict(&list, rows[i].url, rows[i].code);
	assert_verdict(&list, "http://good.org/a/...b/.c/d..;e/%20%C3%B6", "");
	http_destinations_finish(&list);
}

static void a_url_has_a_longest_length(void **state)
{
	struct http_destinations list = listed("http://good.org/");
	char url[HTTP_URL_MAX + 2];

	(void)state;
	memset(url, 'a', sizeof url);
	memcpy(url, "http://good.org/", 16);
	url[HTTP_URL_MAX] = '\0';
	assert_verdict(&list, url, "");
	url[HTTP_URL_MAX] = 'a';
	url[HTTP_URL_MAX + 1] = '\0';
	assert_verdict(&list, url, "too_long");
	http_destinations_finish(&list);
}

static void a_refusal_never_tells_the_query_or_a_password(void **state)
{
	static const char *const urls[] = {"http://evil.org/?token=geheim",
	    "http://u:geheim@good.org/", "http://good.org/other?token=geheim",
	    "http://good.org/cb/../?geheim", "http://good.org/#geheim", "http://good.org/ geheim"};
	struct http_destinations list = listed("http://good.org/cb");
	struct refusal refusal;

	(void)state;
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		assert_false(http_guard_url(&list, urls[i], &refusal));
		assert_null(strstr(refusal.text, "geheim"));
	}
	assert_false(http_guard_url(&list, urls[2], &refusal));
	assert_string_equal(refusal.text, "the path on http://good.org:80 is not listed");
	http_destinations_finish(&list);
}

static void a_wrong_destination_is_named(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
	    {"https://a.org, pay.example.com", "destination 2, \"pay.example.com\": not a URL"},
	    {"ftp://a.org/", "only http and https"},
	    {"https://a.org/x?y", "no query"},
	    {"https://a.org/x/../y", "\"..\""},
	    {"https://*.127.0.0.1/", "not for addresses"},
	    {"https://a.*.org/", "the host is not one"},
	    {"https://*/", "the host is not one"},
	    {"https://127.1/", "\"127.0.0.1\" is the plain one"},
	    {"https://u:geheim@a.org/", "credentials"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct http_destinations list;
		struct err err = {.message = "none"};
		assert_false(http_destinations_parse(rows[i].text, &list, &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		if (!strstr(err.message, rows[i].why))
			fail_msg("%s: %s", rows[i].text, err.message);
		assert_null(strstr(err.message, "geheim"));
	}
}

static const char *address_code(const char *text, const struct http_networks *allowed)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	const char *code;

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
		code = http_guard_address((struct sockaddr *)&v4, allowed);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
		code = http_guard_address((struct sockaddr *)&v6, allowed);
	}
	return code ? code : "";
}

static void only_public_addresses_may_be_connected_to(void **state)
{
	static const struct {
		const char *address, *code;
	} rows[] = {
	    {"8.8.8.8", ""},
	    {"1.1.1.1", ""},
	    {"9.255.255.255", ""},
	    {"11.0.0.0", ""},
	    {"100.63.255.255", ""},
	    {"100.128.0.0", ""},
	    {"126.255.255.255", ""},
	    {"128.0.0.0", ""},
	    {"169.253.255.255", ""},
	    {"169.255.0.0", ""},
	    {"172.15.255.255", ""},
	    {"172.32.0.0", ""},
	    {"192.167.255.255", ""},
	    {"192.169.0.0", ""},
	    {"198.17.255.255", ""},
	    {"198.20.0.0", ""},
	    {"223.255.255.255", ""},
	    {"0.0.0.0", "unspecified"},
	    {"0.255.255.255", "unspecified"},
	    {"10.0.0.0", "private"},
	    {"10.255.255.255", "private"},
	    {"100.64.0.0", "cgnat"},
	    {"100.127.255.255", "cgnat"},
	    {"100.100.100.200", "cgnat"},
	    {"127.0.0.1", "loopback"},
	    {"127.255.255.255", "loopback"},
	    {"168.63.129.16", "metadata"},
	    {"169.254.169.254", "metadata"},
	    {"169.254.0.1", "link_local"},
	    {"169.254.170.2", "link_local"},
	    {"172.16.0.0", "private"},
	    {"172.31.255.255", "private"},
	    {"192.0.0.192", "reserved"},
	    {"192.0.2.1", "documentation"},
	    {"192.88.99.1", "reserved"},
	    {"192.168.0.0", "private"},
	    {"192.168.255.255", "private"},
	    {"198.18.0.0", "benchmark"},
	    {"198.19.255.255", "benchmark"},
	    {"198.51.100.1", "documentation"},
	    {"203.0.113.1", "documentation"},
	    {"224.0.0.1", "multicast"},
	    {"239.255.255.255", "multicast"},
	    {"240.0.0.1", "reserved"},
	    {"255.255.255.254", "reserved"},
	    {"255.255.255.255", "broadcast"},
	    {"2606:4700:4700::1111", ""},
	    {"2001:4860:4860::8888", ""},
	    {"2a00::1", ""},
	    {"3ffe::1", ""},
	    {"::", "unspecified"},
	    {"::1", "loopback"},
	    {"::2", "v4_in_v6"},
	    {"::127.0.0.1", "v4_in_v6"},
	    {"::8.8.8.8", "v4_in_v6"},
	    {"::ffff:127.0.0.1", "v4_in_v6"},
	    {"::ffff:169.254.169.254", "v4_in_v6"},
	    {"::ffff:8.8.8.8", "v4_in_v6"},
	    {"::ffff:0:127.0.0.1", "v4_in_v6"},
	    {"64:ff9b::8.8.8.8", ""},
	    {"64:ff9b::127.0.0.1", "loopback"},
	    {"64:ff9b::10.1.2.3", "private"},
	    {"64:ff9b::169.254.169.254", "metadata"},
	    {"64:ff9b::1:8.8.8.8", "reserved"},
	    {"64:ff9b:1::7f00:1", "v4_in_v6"},
	    {"64:ff9b:1:ffff::808:808", "v4_in_v6"},
	    {"64:ff9b:2::1", "reserved"},
	    {"100::1", "reserved"},
	    {"2001::1", "v4_in_v6"},
	    {"2001:0:7f00:1::", "v4_in_v6"},
	    {"2001:2::1", "benchmark"},
	    {"2001:10::1", "reserved"},
	    {"2001:20::1", "reserved"},
	    {"2001:1ff:ffff::1", "reserved"},
	    {"2001:200::1", ""},
	    {"2001:db8::1", "documentation"},
	    {"2002:7f00:1::", "v4_in_v6"},
	    {"2002:808:808::1", "v4_in_v6"},
	    {"3fff:fff::1", "documentation"},
	    {"3fff:1000::1", ""},
	    {"4000::1", "reserved"},
	    {"5f00::1", "reserved"},
	    {"fbff::1", "reserved"},
	    {"fc00::1", "private"},
	    {"fdff:ffff::1", "private"},
	    {"fd00:ec2::254", "metadata"},
	    {"fe80::1", "link_local"},
	    {"febf::1", "link_local"},
	    {"fec0::1", "site_local"},
	    {"feff::1", "site_local"},
	    {"ff02::1", "multicast"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *code = address_code(rows[i].address, NULL);
		if (strcmp(code, rows[i].code) != 0)
			fail_msg("%s: \"%s\"", rows[i].address, code);
	}
}

static void only_internet_sockets_are_addresses(void **state)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};

	(void)state;
	assert_string_equal(http_guard_address((struct sockaddr *)&name, NULL), "family");
}

static struct http_networks networks(const char *text)
{
	struct http_networks list;
	struct err err;

	if (!http_networks_parse(text, &list, &err))
		fail_msg("%s", err.message);
	return list;
}

static void a_listed_network_may_be_connected_to(void **state)
{
	struct http_networks list =
	    networks("127.0.0.0/8, 10.2.0.0/15\n192.168.1.7 ::1/128,fd12:3456::/33");

	(void)state;
	assert_int_equal(list.count, 5);
	assert_string_equal(address_code("127.3.2.1", &list), "");
	assert_string_equal(address_code("10.3.255.255", &list), "");
	assert_string_equal(address_code("10.4.0.0", &list), "private");
	assert_string_equal(address_code("192.168.1.7", &list), "");
	assert_string_equal(address_code("192.168.1.6", &list), "private");
	assert_string_equal(address_code("::1", &list), "");
	assert_string_equal(address_code("fd12:3456:7fff::1", &list), "");
	assert_string_equal(address_code("fd12:3456:8000::1", &list), "private");
	assert_string_equal(address_code("8.8.8.8", &list), "");
	http_networks_finish(&list);
	assert_string_equal(address_code("127.3.2.1", &list), "loopback");
}

static void a_network_of_one_family_allows_no_address_of_the_other(void **state)
{
	struct http_networks v4 = networks("0.0.0.0/0"), v6 = networks("::/0"),
			     mapped = networks("::ffff:127.0.0.0/104");

	(void)state;
	assert_string_equal(address_code("127.0.0.1", &v4), "");
	assert_string_equal(address_code("::ffff:127.0.0.1", &v4), "v4_in_v6");
	assert_string_equal(address_code("::1", &v4), "loopback");
	assert_string_equal(address_code("64:ff9b::127.0.0.1", &v4), "");
	assert_string_equal(address_code("127.0.0.1", &v6), "loopback");
	assert_string_equal(address_code("::ffff:127.0.0.1", &v6), "");
	assert_string_equal(address_code("::ffff:127.0.0.1", &mapped), "");
	assert_string_equal(address_code("::ffff:128.0.0.1", &mapped), "v4_in_v6");
	http_networks_finish(&v4);
	http_networks_finish(&v6);
	http_networks_finish(&mapped);
}

static void a_wrong_network_is_named(void **state)
{
	static const struct {
		const char *text, *why;
	} rows[] = {
	    {"127.0.0.0/8, 10.2.3.4/16", "network 2, \"10.2.3.4/16\": the address has bits behind "
					 "its prefix: write 10.2.0.0/16"},
	    {"fd00::1/64", "write fd00::/64"},
	    {"10.0.0.0/33", "a number from 0 to 32"},
	    {"::/129", "a number from 0 to 128"},
	    {"10.0.0.0/", "a number from 0 to 32"},
	    {"10.0.0.0/-1", "a number from 0 to 32"},
	    {"10.0.0.0/8/8", "a number from 0 to 32"},
	    {"10.0.0/8", "not an address"},
	    {"010.0.0.0/8", "not an address"},
	    {"localhost", "not an address"},
	    {"::1%lo", "not an address"},
	    {"/8", "not an address"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct http_networks list;
		struct err err = {.message = "none"};
		assert_false(http_networks_parse(rows[i].text, &list, &err));
		assert_int_equal(err.kind, ERR_CONFIG);
		if (!strstr(err.message, rows[i].why))
			fail_msg("%s: %s", rows[i].text, err.message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_empty_list_allows_nothing),
	    cmocka_unit_test(a_destination_fits_by_scheme_host_port_and_path),
	    cmocka_unit_test(a_star_stands_for_names_below),
	    cmocka_unit_test(a_url_that_can_be_read_in_two_ways_is_refused),
	    cmocka_unit_test(a_url_has_a_longest_length),
	    cmocka_unit_test(a_refusal_never_tells_the_query_or_a_password),
	    cmocka_unit_test(a_wrong_destination_is_named),
	    cmocka_unit_test(only_public_addresses_may_be_connected_to),
	    cmocka_unit_test(only_internet_sockets_are_addresses),
	    cmocka_unit_test(a_listed_network_may_be_connected_to),
	    cmocka_unit_test(a_network_of_one_family_allows_no_address_of_the_other),
	    cmocka_unit_test(a_wrong_network_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
