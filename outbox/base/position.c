#include "position.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

size_t outbox_position_format(
    const struct outbox_position *position, char text[OUTBOX_POSITION_SIZE])
{
	char *at = text + snprintf(text, OUTBOX_POSITION_SIZE, "1:%s:", position->slot);
	at = text_write_int64(at, position->shard);
	*at++ = ':';
	at = text_write_int64(at, position->epoch);
	*at++ = ':';
	at = text_write_int64(at, position->tick);
	*at++ = ':';
	at = text_write_int64(at, position->id);
	*at = '\0';
	return (size_t)(at - text);
}

/* Digits up to `end`, or a colon, which is passed over. It is read thrice a message. */
static bool read_number(const char **at, const char *end, int64_t most, int64_t *ret_number)
{
	const char *digit = *at;
	int64_t number = 0;
	for (; digit < end && *digit >= '0' && *digit <= '9'; digit++)
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

bool outbox_position_parse(const char *text, size_t length, struct outbox_position *ret_position)
{
	const char *at = text + 2, *end = text + length;
	int64_t shard;
	if (length < 2 || text[0] != '1' || text[1] != ':' || text[length - 1] == ':')
		return false;
	const char *colon = memchr(at, ':', (size_t)(end - at));
	size_t slot = colon ? (size_t)(colon - at) : 0;
	if (slot == 0 || slot >= sizeof ret_position->slot || memchr(at, '\0', slot))
		return false;
	memcpy(ret_position->slot, at, slot);
	ret_position->slot[slot] = '\0';
	at = colon + 1;
	if (!read_number(&at, end, INT32_MAX, &shard) ||
	    !read_number(&at, end, INT64_MAX, &ret_position->epoch) ||
	    !read_number(&at, end, INT64_MAX, &ret_position->tick) ||
	    !read_number(&at, end, INT64_MAX, &ret_position->id) || at != end)
		return false;
	ret_position->shard = (int32_t)shard;
	return true;
}

int outbox_position_compare(const struct outbox_position *a, const struct outbox_position *b)
{
	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}
