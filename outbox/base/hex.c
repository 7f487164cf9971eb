#include "hex.h"

#include <string.h>

int hex_digit(char c)
{
	char lower = (char)(c | 0x20);
	if (c >= '0' && c <= '9')
		return c - '0';
	return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Computed and not looked up: so a compiler can write many digits at a time. */
static inline char digit_of(unsigned char value)
{
	return (char)(value + '0' + (value > 9 ? 'a' - '9' - 1 : 0));
}

char *hex_write(char *at, const void *bytes, size_t size)
{
	const unsigned char *byte = bytes;
	for (size_t i = 0; i < size; i++) {
		at[2 * i] = digit_of(byte[i] >> 4);
		at[2 * i + 1] = digit_of(byte[i] & 15);
	}
	return at + 2 * size;
}

bool hex_read(const char *digits, size_t size, void *ret_bytes)
{
	unsigned char *bytes = ret_bytes;
	for (size_t i = 0; i < size; i++) {
		int high = hex_digit(digits[2 * i]);
		int low = high < 0 ? -1 : hex_digit(digits[2 * i + 1]);
		if (low < 0)
			return false;
		bytes[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

/* --- UUIDs ---------------------------------------------------------------------------------- */

static const unsigned char groups[] = {4, 2, 2, 2, 6};
enum { GROUPS = sizeof groups };

void uuid_write(const void *uuid, char text[UUID_TEXT])
{
	char digits[2 * UUID_BYTES];

	hex_write(digits, uuid, UUID_BYTES);
	memcpy(text, digits, 8);
	memcpy(text + 9, digits + 8, 4);
	memcpy(text + 14, digits + 12, 4);
	memcpy(text + 19, digits + 16, 4);
	memcpy(text + 24, digits + 20, 12);
	text[8] = text[13] = text[18] = text[23] = '-';
}

bool uuid_read(const char *text, size_t length, void *ret_uuid)
{
	unsigned char *bytes = ret_uuid;
	/* The text need not end with NUL: nothing may be read behind its length. */
	if (length != UUID_TEXT)
		return false;

	for (int i = 0; i < GROUPS; bytes += groups[i++]) {
		if (i > 0 && *text++ != '-')
			return false;
		if (!hex_read(text, groups[i], bytes))
			return false;
		text += 2 * groups[i];
	}
	return true;
}
