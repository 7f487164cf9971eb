#include "redis_slots.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 16384 };

/* CRC16 of the polynomial x^16 + x^12 + x^5 + 1, a byte at a time. */
static unsigned add_to_crc16(unsigned crc, unsigned char byte)
{
	crc = (crc << 8 | crc >> 8) & 0xffff;
	crc ^= byte;
	crc ^= (crc & 0xff) >> 4;
	crc ^= crc << 12 & 0xffff;
	return crc ^ (crc & 0xff) << 5;
}

int redis_slot(const void *key, size_t length)
{
	const unsigned char *bytes = key, *open = memchr(key, '{', length);
	const unsigned char *close =
	    open ? memchr(open, '}', length - (size_t)(open - bytes)) : NULL;
	unsigned crc = 0;

	if (close && close > open + 1) {
		length = (size_t)(close - open) - 1;
		bytes = open + 1;
	}
	for (size_t i = 0; i < length; i++)
		crc = add_to_crc16(crc, bytes[i]);
	return (int)(crc % REDIS_SLOTS);
}

int redis_slots_node(struct redis_slots *slots, const char *host, int port)
{
	for (int i = 0; i < slots->count; i++)
		if (slots->nodes[i].port == port && text_equal(slots->nodes[i].host, host))
			return i;
	slots->nodes = xrealloc(slots->nodes, (size_t)(slots->count + 1) * sizeof *slots->nodes);
	slots->nodes[slots->count] = (struct redis_place){xstrdup(host), port};
	return slots->count++;
}

void redis_slots_finish(struct redis_slots *slots)
{
	for (int i = 0; i < slots->count; i++)
		free(slots->nodes[i].host);
	free(slots->nodes);
	slots->nodes = NULL;
	slots->count = 0;
}

/* [first, last, [host, port, …] of the master, [host, port, …] of each replica] */
static bool read_range(
    const struct redis_answer *range, const char *host, struct redis_slots *slots)
{
	if (range->kind != REDIS_LIST || range->count < 3)
		return false;
	const struct redis_answer first = redis_answer_item(range, 0);
	const struct redis_answer last = redis_answer_item(range, 1);
	const struct redis_answer master = redis_answer_item(range, 2);
	if (first.kind != REDIS_NUMBER || last.kind != REDIS_NUMBER || first.number < 0 ||
	    last.number >= REDIS_SLOTS || master.kind != REDIS_LIST || master.count < 2)
		return false;

	const struct redis_answer name = redis_answer_item(&master, 0);
	const struct redis_answer port = redis_answer_item(&master, 1);
	bool named = name.kind == REDIS_TEXT && name.length && !text_equal(name.text, "?");
	if (port.kind != REDIS_NUMBER || port.number < 1 || port.number > 65535 ||
	    slots->count >= MOST_NODES)
		return false;

	int node = redis_slots_node(slots, named ? name.text : host, (int)port.number);
	for (int64_t slot = first.number; slot <= last.number; slot++)
		slots->node_of[slot] = (int16_t)node;
	return true;
}

bool redis_slots_read(
    const struct redis_answer *answer, const char *host, struct redis_slots *ret_slots)
{
	bool good = answer->kind == REDIS_LIST;

	*ret_slots = (struct redis_slots){0};
	for (int i = 0; i < REDIS_SLOTS; i++)
		ret_slots->node_of[i] = REDIS_NO_NODE;
	for (size_t i = 0; good && i < answer->count; i++) {
		const struct redis_answer range = redis_answer_item(answer, i);
		good = read_range(&range, host, ret_slots);
	}
	if (!good)
		redis_slots_finish(ret_slots);
	return good;
}

bool redis_slots_redirection(const char *error, const char *host, int *ret_slot,
    struct redis_place *ret_place, bool *ret_ask)
{
	bool moved = text_starts(error, "MOVED ");
	int64_t slot, port;

	*ret_ask = text_starts(error, "ASK ");
	if (!moved && !*ret_ask)
		return false;
	owned_text char *copy = xstrdup(strchr(error, ' ') + 1);
	char *blank = strchr(copy, ' ');
	/* the last colon: an IPv6 address has more */
	char *colon = blank ? strrchr(blank, ':') : NULL;
	if (!colon)
		return false;
	*blank = *colon = '\0';
	if (!text_to_int64(copy, 0, REDIS_SLOTS - 1, &slot) ||
	    !text_to_int64(colon + 1, 1, 65535, &port))
		return false;

	*ret_slot = (int)slot;
	*ret_place = (struct redis_place){xstrdup(blank[1] ? blank + 1 : host), (int)port};
	return true;
}
