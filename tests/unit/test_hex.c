#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <string.h>

#include "hex.h"

static void a_digit_is_what_isxdigit_says(void **state)
{
	(void)state;
	for (int c = 0; c < 256; c++)
		assert_int_equal(hex_digit((char)c) >= 0, isxdigit(c) != 0);
	assert_int_equal(hex_digit('0'), 0);
	assert_int_equal(hex_digit('a'), 10);
	assert_int_equal(hex_digit('F'), 15);
}

static void bytes_survive_their_text(void **state)
{
	(void)state;
	unsigned char bytes[256], read[256];
	char text[2 * sizeof bytes];
	for (int i = 0; i < 256; i++)
		bytes[i] = (unsigned char)i;
	assert_ptr_equal(hex_write(text, bytes, sizeof bytes), text + sizeof text);
	assert_memory_equal(text + 2 * 0x9e, "9e9fa0", 6);
	assert_true(hex_read(text, sizeof read, read));
	assert_memory_equal(read, bytes, sizeof bytes);
	for (size_t at = 0; at < sizeof text; at++) {
		char was = text[at];
		text[at] = 'g';
		assert_false(hex_read(text, sizeof read, read));
		text[at] = was;
	}
}

static const char UUID[] = "00112233-4455-6677-8899-aabbccddeeff";

static void a_uuid_survives_its_text(void **state)
{
	(void)state;
	static const unsigned char bytes[UUID_BYTES] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
	    0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
	unsigned char read[UUID_BYTES];
	char text[UUID_TEXT];
	uuid_write(bytes, text);
	assert_memory_equal(text, UUID, UUID_TEXT);
	assert_true(uuid_read(UUID, UUID_TEXT, read));
	assert_memory_equal(read, bytes, sizeof bytes);
	assert_true(uuid_read("00112233-4455-6677-8899-AABBCCDDEEFF", UUID_TEXT, read));
	assert_memory_equal(read, bytes, sizeof bytes);
}

static void what_is_no_uuid_is_refused(void **state)
{
	(void)state;
	char text[UUID_TEXT + 2] = "00112233-4455-6677-8899-aabbccddeeff0";
	unsigned char read[UUID_BYTES];
	for (size_t length = 0; length < sizeof text; length++)
		assert_int_equal(uuid_read(text, length, read), length == UUID_TEXT);
	for (int at = 0; at < UUID_TEXT; at++) {
		static const char wrong[] = {'-', 'g', '\0', '0', '{'};
		for (size_t i = 0; i < sizeof wrong; i++) {
			char was = text[at];
			text[at] = wrong[i];
			assert_int_equal(uuid_read(text, UUID_TEXT, read),
			    wrong[i] == was || (wrong[i] == '0' && was != '-'));
			text[at] = was;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_digit_is_what_isxdigit_says),
	    cmocka_unit_test(bytes_survive_their_text),
	    cmocka_unit_test(a_uuid_survives_its_text),
	    cmocka_unit_test(what_is_no_uuid_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
