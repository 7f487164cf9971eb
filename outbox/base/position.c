#include "position.h"

#include <string.h>

#include "position_prefix.h"
#include "text.h"

enum { VERSION = '2', IDENTITY_DIGITS = 8, SAFE_DIGITS = 18 /* of an int64_t */ };

static char *append_text(char *at, const char *text)
{
	size_t length = strlen(text);
	memcpy(at, text, length);
	at[length] = ':';
	return at + length + 1;
}

static char *append_number(char *at, int64_t number)
{
	at = text_write_int64(at, number);
	*at = ':';
	return at + 1;
}

size_t position_prefix_write(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE])
{
	char *at = text;
	*at++ = VERSION;
	*at++ = ':';
	at = append_text(at, position->publisher);
	at = append_text(at, position->identity);
	at = append_number(at, position->shard);
	at = append_number(at, position->epoch);
	return (size_t)(at - text);
}

size_t position_prefix_complete(
    char text[OUTBOX_POSITION_SIZE], size_t prefix, int64_t tick, int64_t id)
{
	char *at = text_write_int64(append_number(text + prefix, tick), id);
	*at = '\0';
	return (size_t)(at - text);
}

size_t outbox_position_format(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE])
{
	size_t prefix = position_prefix_write(position, text);
	return position_prefix_complete(text, prefix, position->tick, position->id);
}

static bool is_decimal(char c)
{
	return c >= '0' && c <= '9';
}

/* A consumer reads a position up to three times for each message: no library calls for numbers. */
static bool read_position_number(
    const char **at, const char *end, int64_t most, int64_t *ret_number)
{
	const char *digit = *at, *safe = end - *at > SAFE_DIGITS ? *at + SAFE_DIGITS : end;
	int64_t number = 0;

	/* so few digits cannot overflow */
	for (; digit < safe && is_decimal(*digit); digit++)
		number = number * 10 + (*digit - '0');
	for (; digit < end && is_decimal(*digit); digit++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, *digit - '0', &number))
			return false;
	bool some = digit > *at, last = digit == end;
	if (!some || number > most || (!last && *digit != ':'))
		return false;
	*at = last ? end : digit + 1;
	*ret_number = number;
	return true;
}

static bool is_of_a_name(char c)
{
	return (c >= 'a' && c <= 'z') || is_decimal(c) || c == '-' || c == '_';
}

/* Other characters in a name could break texts that list several positions, separated by blanks. */
static bool read_publisher_name(const char **at, const char *end, char ret_publisher[41])
{
	const char *from = *at;
	size_t length = 0;
	for (; from < end && length < 40 && is_of_a_name(*from); from++)
		ret_publisher[length++] = *from;
	ret_publisher[length] = '\0';
	if (length == 0 || from == end || *from != ':')
		return false;
	*at = from + 1;
	return true;
}

static bool is_lower_digit(char c)
{
	return is_decimal(c) || (c >= 'a' && c <= 'f');
}

static bool read_identity(const char **at, const char *end, char ret_identity[9])
{
	/* Checked first: the colon behind the digits must exist before it is read. */
	if (end - *at <= IDENTITY_DIGITS || (*at)[IDENTITY_DIGITS] != ':')
		return false;
	for (int i = 0; i < IDENTITY_DIGITS; i++)
		if (!is_lower_digit((*at)[i]))
			return false;
	memcpy(ret_identity, *at, IDENTITY_DIGITS);
	ret_identity[IDENTITY_DIGITS] = '\0';
	*at += IDENTITY_DIGITS + 1;
	return true;
}

bool outbox_position_parse(const char *text, size_t length, struct outbox_position *ret_position)
{
	const char *at = text + 2, *end = text + length;
	int64_t shard;

	/* A final colon would pass read_position_number, which takes the colon with its number. */
	if (length < 2 || text[0] != VERSION || text[1] != ':' || text[length - 1] == ':')
		return false;
	if (!read_publisher_name(&at, end, ret_position->publisher) ||
	    !read_identity(&at, end, ret_position->identity) ||
	    !read_position_number(&at, end, INT32_MAX, &shard) ||
	    !read_position_number(&at, end, INT64_MAX, &ret_position->epoch) ||
	    !read_position_number(&at, end, INT64_MAX, &ret_position->tick) ||
	    !read_position_number(&at, end, INT64_MAX, &ret_position->id) || at != end)
		return false;
	ret_position->shard = (int32_t)shard;
	return true;
}

/* The length of the text up to its tick. The text is a position. */
static size_t prefix_length(const char *text, size_t length)
{
	for (int colons = 0; length > 0; length--)
		if (text[length - 1] == ':' && ++colons == 2)
			break;
	return length;
}

bool position_prefix_parse(struct position_memo *memo, const char *text, size_t length,
    struct outbox_position *ret_position)
{
	const char *at = text + memo->length, *end = text + length;

	if (memo->length && length > memo->length &&
	    memcmp(text, memo->prefix, memo->length) == 0) {
		*ret_position = memo->position;
		return end[-1] != ':' &&
		       read_position_number(&at, end, INT64_MAX, &ret_position->tick) &&
		       read_position_number(&at, end, INT64_MAX, &ret_position->id) && at == end;
	}

	if (!outbox_position_parse(text, length, ret_position))
		return false;
	/* a text with many leading zeros may be longer than any that is written */
	memo->length = prefix_length(text, length);
	if (memo->length > sizeof memo->prefix)
		memo->length = 0;
	memcpy(memo->prefix, text, memo->length);
	memo->position = *ret_position;
	return true;
}

bool outbox_position_comparable(const struct outbox_position *a, const struct outbox_position *b)
{
	return a->shard == b->shard && a->epoch == b->epoch &&
	       strcmp(a->identity, b->identity) == 0 && strcmp(a->publisher, b->publisher) == 0;
}

int outbox_position_compare(const struct outbox_position *a, const struct outbox_position *b)
{
	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}
