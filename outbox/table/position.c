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

bool outbox_position_parse(const char *text, size_t length, struct outbox_position *ret_position)
{
	char copy[OUTBOX_POSITION_SIZE];
	if (length >= sizeof copy)
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	char *fields[6];
	int count = 0;
	char *rest = copy;
	for (char *field; count < 6 && (field = strsep(&rest, ":"));)
		fields[count++] = field;
	int64_t shard;
	if (count != 6 || rest || strcmp(fields[0], "1") != 0 || fields[1][0] == '\0' ||
	    strlen(fields[1]) >= sizeof ret_position->slot ||
	    !text_to_int64(fields[2], 0, INT32_MAX, &shard) ||
	    !text_to_int64(fields[3], 0, INT64_MAX, &ret_position->epoch) ||
	    !text_to_int64(fields[4], 0, INT64_MAX, &ret_position->tick) ||
	    !text_to_int64(fields[5], 0, INT64_MAX, &ret_position->id))
		return false;
	ret_position->shard = (int32_t)shard;
	memcpy(ret_position->slot, fields[1], strlen(fields[1]) + 1);
	return true;
}

int outbox_position_compare(const struct outbox_position *a, const struct outbox_position *b)
{
	if (a->tick != b->tick)
		return a->tick < b->tick ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}
