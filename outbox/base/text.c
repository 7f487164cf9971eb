#include "text.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Allocation first, then struct text, then conversions: decimals, UTF-8, base64. The functions can
 * be read in any order.
 */

_Noreturn static void text_alloc_failed(void)
{
	static const char line[] = "level=error event=out_of_memory\n";

	if (write(STDERR_FILENO, line, sizeof line - 1) < 0)
		abort();
	abort();
}

void *xrealloc(void *pointer, size_t size)
{
	void *moved = realloc(pointer, size ? size : 1);

	if (!moved)
		text_alloc_failed();
	return moved;
}

void *xmalloc(size_t size)
{
	return xrealloc(NULL, size);
}

void *xcalloc(size_t count, size_t size)
{
	void *pointer = calloc(count ? count : 1, size ? size : 1);

	if (!pointer)
		text_alloc_failed();
	return pointer;
}

char *xstrdup(const char *text)
{
	size_t size;

	if (!text)
		return NULL;
	size = strlen(text) + 1;
	return memcpy(xmalloc(size), text, size);
}

char *xformat(const char *format, ...)
{
	char *text;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text_alloc_failed();
	va_end(args);
	return text;
}

void text_finish(struct text *text)
{
	free(text->data);
	*text = (struct text){0};
}

void text_clear(struct text *text)
{
	text->length = 0;
	if (text->data)
		text->data[0] = '\0';
}

/* Makes room for `more` bytes and the NUL after them. */
void text_reserve(struct text *text, size_t more)
{
	size_t capacity = text->capacity ? text->capacity : 64;

	if (more >= SIZE_MAX / 2 - text->length)
		text_alloc_failed();
	while (capacity <= text->length + more)
		capacity *= 2;
	if (capacity == text->capacity)
		return;
	text->data = xrealloc(text->data, capacity);
	text->capacity = capacity;
}

void text_append(struct text *text, const char *bytes, size_t length)
{
	text_reserve(text, length);
	if (length)
		memcpy(text->data + text->length, bytes, length);
	text->length += length;
	text->data[text->length] = '\0';
}

void text_add(struct text *text, const char *string)
{
	text_append(text, string, strlen(string));
}

/* Most additions are short and fit at the first try. */
void text_addf(struct text *text, const char *format, ...)
{
	va_list args;
	size_t room;
	int length;

	text_reserve(text, 64);
	room = text->capacity - text->length;
	va_start(args, format);
	length = vsnprintf(text->data + text->length, room, format, args);
	va_end(args);
	if (length < 0)
		text_alloc_failed();
	if ((size_t)length >= room) {
		text_reserve(text, (size_t)length);
		va_start(args, format);
		vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
		va_end(args);
	}
	text->length += (size_t)length;
}

const char *text_string(const struct text *text)
{
	return text->data ? text->data : "";
}

void text_copy(char *to, size_t size, const char *from)
{
	size_t length = from ? strnlen(from, size - 1) : 0;
	memcpy(to, from ? from : "", length);
	to[length] = '\0';
}

bool text_equal(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

const char *text_plural(int64_t count)
{
	return count == 1 ? "" : "s";
}

bool text_starts(const char *string, const char *prefix)
{
	return strncmp(string, prefix, strlen(prefix)) == 0;
}

bool text_is_blank(const char *string)
{
	return !string[strspn(string, " \t\r\n")];
}

void text_cut_line_end(char *string)
{
	for (size_t length = strlen(string); length && strchr("\r\n", string[length - 1]); length--)
		string[length - 1] = '\0';
}

bool text_to_int64(const char *string, int64_t low, int64_t high, int64_t *ret_value)
{
	bool negative = *string == '-';
	int64_t value = 0;

	string += negative;
	if (!*string)
		return false;
	/* Counts downwards, as the negative range is the larger one. */
	for (; *string; string++) {
		if (*string < '0' || *string > '9')
			return false;
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_sub_overflow(value, *string - '0', &value))
			return false;
	}
	if (!negative && __builtin_sub_overflow((int64_t)0, value, &value))
		return false;
	if (value < low || value > high)
		return false;
	*ret_value = value;
	return true;
}

char *text_write_int64(char *at, int64_t value)
{
	char digits[20];
	char *first = digits + sizeof digits;
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	size_t length;

	do {
		*--first = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (value < 0)
		*at++ = '-';
	length = (size_t)(digits + sizeof digits - first);
	memcpy(at, first, length);
	return at + length;
}

static int utf8_length(unsigned char first)
{
	if (first < 0x80)
		return 1;
	if (first < 0xc0)
		return 0; /* a continuation byte without a first byte */
	return first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
}

int text_utf8(const char *at, uint32_t *ret_code)
{
	static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *byte = (const unsigned char *)at;
	uint32_t code = byte[0];
	int length = utf8_length(byte[0]);

	if (length > 1)
		code &= 0x7fu >> length;
	for (int i = 1; i < length; i++) {
		if (byte[i] >> 6 != 2)
			return 0;
		code = code << 6 | (byte[i] & 0x3f);
	}
	/*
	 * Overlong forms and surrogates are no UTF-8: a second spelling could pass a check of the
	 * first.
	 */
	if (!length || code < lowest[length] || code > 0x10ffff ||
	    (code >= 0xd800 && code <= 0xdfff))
		return 0;
	*ret_code = code;
	return length;
}

/* Checks eight bytes at a time for ASCII, as payloads are mostly ASCII. */
bool text_is_utf8(const void *bytes, size_t length)
{
	static const uint64_t beyond_ascii = UINT64_C(0x8080808080808080);
	const char *at = bytes, *end = at + length;
	uint64_t eight;
	uint32_t code;

	while (at < end) {
		size_t left = (size_t)(end - at), step = (size_t)utf8_length((unsigned char)*at);

		if (left >= sizeof eight) {
			memcpy(&eight, at, sizeof eight);
			if (!(eight & beyond_ascii)) {
				at += sizeof eight;
				continue;
			}
		}
		/* text_utf8 must not read behind the end. */
		if (step == 0 || step > left || !text_utf8(at, &code))
			return false;
		at += step;
	}
	return true;
}

bool text_is_control(const char *at)
{
	const unsigned char *byte = (const unsigned char *)at;

	return byte[0] < 0x20 || byte[0] == 0x7f || (byte[0] == 0xc2 && byte[1] < 0xa0);
}

void text_add_line(struct text *text, const char *line)
{
	for (; *line; line++)
		text_append(text, text_is_control(line) ? " " : line, 1);
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes a group of four characters, `digits` of them before the padding. False: a character is
 * not a digit, or unused low bits are set. */
static bool base64_group(const char *group, int digits, unsigned char *out)
{
	uint32_t bits = 0;

	for (int i = 0; i < 4; i++) {
		int digit = i < digits ? base64_digit(group[i]) : 0;
		if (digit < 0)
			return false;
		bits = bits << 6 | (uint32_t)digit;
	}
	for (int i = 0; i < digits - 1; i++)
		out[i] = (unsigned char)(bits >> (16 - 8 * i));
	return digits == 4 || (bits & (0xffffffu >> (8 * (digits - 1)))) == 0;
}

bool text_base64_decode(const char *string, size_t length, void **ret_bytes, size_t *ret_length)
{
	int padding = 0;
	unsigned char *bytes;

	if (length % 4 != 0)
		return false;
	/* A third "=" is no padding, and base64_group refuses it. */
	while (padding < 2 && length && string[length - 1 - (size_t)padding] == '=')
		padding++;
	bytes = xmalloc(length / 4 * 3);
	for (size_t at = 0; at < length; at += 4) {
		int digits = at + 4 == length ? 4 - padding : 4;
		if (!base64_group(string + at, digits, bytes + at / 4 * 3)) {
			free(bytes);
			return false;
		}
	}
	*ret_bytes = bytes;
	*ret_length = length / 4 * 3 - (size_t)padding;
	return true;
}
