#include "service_url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "dns_answer.h"

/* --- the URL --------------------------------------------------------------------------------- */

static struct service_url parsed(const char *text)
{
	struct service_url url;
	struct err err = {0};

	assert_true(service_url_is(text));
	if (!service_url_parse(text, &url, &err))
		fail_msg("%s: %s", text, err.message);
	return url;
}

static void assert_located(
    const char *text, const struct service_address *address, const char *where, const char *connect)
{
	struct service_url url = parsed(text);
	struct text located = {0}, connect_to = {0};

	service_url_locate(&url, address ? address : url.addresses, &located, &connect_to);
	assert_string_equal(text_string(&located), where);
	assert_string_equal(text_string(&connect_to), connect);
	text_finish(&located);
	text_finish(&connect_to);
	service_url_finish(&url);
}

static void a_request_keeps_the_name_and_goes_to_the_address(void **state)
{
	const unsigned char v4[] = {10, 0, 0, 1}, v6[16] = {[0] = 0xfd, [15] = 1};
	const struct service_address four = service_address_make(AF_INET, v4, 50051),
				     six = service_address_make(AF_INET6, v6, 7);

	(void)state;
	assert_located("grpc://shop", &four, "http://shop:50051", "::10.0.0.1:");
	assert_located("GRPCS://shop/a/", &six, "https://shop:7/a/", "::[fd00::1]:");
	assert_located("grpc://shop:50051/a", &four, "http://shop:50051/a", "::10.0.0.1:");
	assert_located("grpc://10.0.0.2:5,10.0.0.3:6/a", NULL, "http://10.0.0.2:5/a", "");
	assert_located("grpcs://[fd00::2]:5", NULL, "https://[fd00::2]:5", "");
}

static void a_url_is_a_name_or_a_list(void **state)
{
	struct service_url url = parsed("grpc://10.0.0.1:1, [::1]:2,10.0.0.1:3,");
	char text[SERVICE_ADDRESS_TEXT];

	(void)state;
	assert_null(url.name);
	assert_int_equal(url.address_count, 3);
	service_address_print(&url.addresses[1], text);
	assert_string_equal(text, "[::1]:2");
	assert_false(service_address_equal(&url.addresses[0], &url.addresses[2]));
	service_url_finish(&url);

	url = parsed("grpc://shop_1.example:50051");
	assert_string_equal(url.name, "shop_1.example");
	assert_int_equal(url.port, 50051);
	assert_int_equal(url.address_count, 0);
	service_url_finish(&url);
	assert_false(service_url_is("http://shop") || service_url_is("grpc:shop"));
}

/* --- answers of DNS -------------------------------------------------------------------------- */

struct bytes {
	unsigned char data[4096];
	size_t length;
};

static void put(struct bytes *bytes, const void *data, size_t length)
{
	memcpy(bytes->data + bytes->length, data, length);
	bytes->length += length;
}

static void put_number(struct bytes *bytes, uint32_t number, int size)
{
	for (int i = size - 1; i >= 0; i--) {
		unsigned char byte = (unsigned char)(number >> 8 * i);
		put(bytes, &byte, 1);
	}
}

/* An answer to a question about the root, with so many records in two sections. */
static void begin_answer(struct bytes *bytes, uint32_t answers, uint32_t extras)
{
	static const unsigned char question[] = {0, 0, 33, 0, 1};

	bytes->length = 0;
	put_number(bytes, 0x12348180, 4);
	put_number(bytes, 1, 2);
	put_number(bytes, answers, 2);
	put_number(bytes, 0, 2);
	put_number(bytes, extras, 2);
	put(bytes, question, sizeof question);
}

static void put_record(
    struct bytes *bytes, const char *owner, int type, uint32_t ttl, const char *data, size_t length)
{
	put(bytes, owner, strlen(owner) + 1);
	put_number(bytes, (uint32_t)type, 2);
	put_number(bytes, 1, 2);
	put_number(bytes, ttl, 4);
	put_number(bytes, (uint32_t)length, 2);
	put(bytes, data, length);
}

#define SRV "\0\5\0\7\xc3\x83\1a\4shop"

static void records_come_with_the_least_time_to_live(void **state)
{
	static struct dns_answer answer;
	struct bytes bytes;

	(void)state;
	begin_answer(&bytes, 3, 1);
	put_record(&bytes, "\4shop", 33, 30, SRV, sizeof SRV);
	put_record(&bytes, "\4shop", 33, 20, "\0\0\0\0\0\0", 7);
	put_record(&bytes, "\5alias", 5, 7, "\4shop", 6);
	put_record(&bytes, "\1a\4shop", 1, 3, "\12\0\0\1", 4);
	assert_true(dns_answer_parse(bytes.data, bytes.length, &answer));
	assert_int_equal(answer.count, 3);
	assert_int_equal(answer.ttl_s, 7);
	assert_string_equal(answer.records[0].target, "a.shop");
	assert_int_equal(answer.records[0].priority, 5);
	assert_int_equal(answer.records[0].weight, 7);
	assert_int_equal(answer.records[0].port, 50051);
	assert_string_equal(answer.records[1].target, ".");
	assert_true(answer.records[2].is_extra);
	assert_int_equal(answer.records[2].ttl_s, 3);
	assert_memory_equal(answer.records[2].address, "\12\0\0\1", 4);
}

static void a_time_with_the_highest_bit_counts_as_none(void **state)
{
	static struct dns_answer answer;
	struct bytes bytes;

	(void)state;
	begin_answer(&bytes, 1, 0);
	put_record(&bytes, "\4shop", 1, 0x80000001, "\12\0\0\1", 4);
	assert_true(dns_answer_parse(bytes.data, bytes.length, &answer));
	assert_int_equal(answer.ttl_s, 0);
}

static void an_answer_that_is_cut_off_anywhere_is_none(void **state)
{
	static struct dns_answer answer;
	struct bytes bytes;

	(void)state;
	begin_answer(&bytes, 2, 0);
	put_record(&bytes, "\4shop", 33, 30, SRV, sizeof SRV);
	put_record(&bytes, "\4shop", 1, 30, "\12\0\0\1", 4);
	for (size_t length = 0; length < bytes.length; length++)
		assert_false(dns_answer_parse(bytes.data, length, &answer));
	assert_true(dns_answer_parse(bytes.data, bytes.length, &answer));
}

static void records_of_a_wrong_length_are_left_out(void **state)
{
	static struct dns_answer answer;
	struct bytes bytes;

	(void)state;
	begin_answer(&bytes, 4, 0);
	put_record(&bytes, "\4shop", 1, 30, "\12\0\0", 3);
	put_record(&bytes, "\4shop", 28, 30, "\12\0\0\1", 4);
	put_record(&bytes, "\4shop", 33, 30, "\0\0\0\0\0\1", 6);
	put_record(&bytes, "\4shop", 16, 30, "\1x", 2);
	assert_true(dns_answer_parse(bytes.data, bytes.length, &answer));
	assert_int_equal(answer.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_request_keeps_the_name_and_goes_to_the_address),
	    cmocka_unit_test(a_url_is_a_name_or_a_list),
	    cmocka_unit_test(records_come_with_the_least_time_to_live),
	    cmocka_unit_test(a_time_with_the_highest_bit_counts_as_none),
	    cmocka_unit_test(an_answer_that_is_cut_off_anywhere_is_none),
	    cmocka_unit_test(records_of_a_wrong_length_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
