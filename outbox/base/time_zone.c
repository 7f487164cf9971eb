/*
 * A file of version 1 is one block with times of 32 bits. A later file has a second block with
 * times of 64 bits, and then the rule for the years after its last change. A block is a head and
 * tables, here with the bytes of each entry:
 *
 *   head        44  "TZif", version, 15 zeroes, and six counts (UT marks, standard marks, leap
 *                   seconds, changes, types, bytes of designations)
 *   changes     8   (4 in the first block) the second of each change
 *   numbers     1   for each change, the number of the type that begins then
 *   types       6   offset, flag for daylight time, index of the name
 *   designations, leap seconds, marks: not used here
 *
 * All numbers are big-endian. Before the first change the first type applies.
 */
#include "time_zone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

enum { HEAD = 44, TYPE = 6, MOST_FILE = 1 << 18, MOST_OFFSET = 26 * 3600, DAY = 86400 };

struct change {
	int64_t second;
	int32_t offset;
};

struct time_zone {
	int32_t first; /* offset before the first change */
	struct change *changes;
	size_t count;
	bool has_rule; /* for the time after the last change */
	struct posix_zone rule;
};

/* The bytes that are still to be read. */
struct bytes {
	const unsigned char *at;
	size_t length;
};

struct block {
	uint32_t ut, standard, leaps, changes, types, designations;
	int version, width; /* width: bytes of a time */
	const unsigned char *tables;
};

/* --- the file ------------------------------------------------------------------------------- */

static int64_t read_big_endian(const unsigned char *at, int width)
{
	uint64_t value = at[0] & 0x80 ? UINT64_MAX : 0;
	for (int i = 0; i < width; i++)
		value = value << 8 | at[i];
	return (int64_t)value;
}

static bool take_bytes(struct bytes *bytes, size_t length, const unsigned char **ret_at)
{
	if (length > bytes->length)
		return false;
	*ret_at = bytes->at;
	bytes->at += length;
	bytes->length -= length;
	return true;
}

static size_t length_of(const struct block *block)
{
	size_t width = (size_t)block->width;
	return block->changes * (width + 1) + (size_t)block->types * TYPE + block->designations +
	       block->leaps * (width + 4) + block->standard + (size_t)block->ut;
}

static bool take_block(struct bytes *bytes, int width, struct block *ret_block)
{
	const unsigned char *head;
	uint32_t counts[6];

	if (!take_bytes(bytes, HEAD, &head) || memcmp(head, "TZif", 4) != 0)
		return false;
	for (int i = 0; i < 6; i++) {
		counts[i] = (uint32_t)read_big_endian(head + 20 + 4 * i, 4);
		/*
		 * No table can have more entries than a file has bytes; so length_of cannot
		 * overflow.
		 */
		if (counts[i] > MOST_FILE)
			return false;
	}
	*ret_block = (struct block){
	    counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], head[4], width, NULL};
	return take_bytes(bytes, length_of(ret_block), &ret_block->tables);
}

static bool read_type(const struct block *block, size_t type, int32_t *ret_offset)
{
	const unsigned char *types = block->tables + block->changes * ((size_t)block->width + 1);
	if (type >= block->types)
		return false;
	*ret_offset = (int32_t)read_big_endian(types + type * TYPE, 4);
	return *ret_offset > -MOST_OFFSET && *ret_offset < MOST_OFFSET;
}

static bool read_changes(struct time_zone *zone, const struct block *block)
{
	size_t width = (size_t)block->width;
	const unsigned char *types = block->tables + block->changes * width;

	zone->changes = xcalloc(block->changes, sizeof *zone->changes);
	for (zone->count = 0; zone->count < block->changes; zone->count++) {
		struct change *change = &zone->changes[zone->count];
		change->second = read_big_endian(block->tables + zone->count * width, block->width);
		/* changes_until searches by halves, and needs them in order. */
		if (zone->count > 0 && change->second <= change[-1].second)
			return false;
		if (!read_type(block, types[zone->count], &change->offset))
			return false;
	}
	return block->leaps == 0 && read_type(block, 0, &zone->first);
}

/* The rule is a line; an empty line means no rule. */
static bool read_rule(struct time_zone *zone, const struct bytes *bytes)
{
	const unsigned char *end =
	    bytes->length ? memchr(bytes->at + 1, '\n', bytes->length - 1) : NULL;
	if (!end || bytes->at[0] != '\n')
		return false;
	owned_text char *text =
	    xformat("%.*s", (int)(end - bytes->at - 1), (const char *)bytes->at + 1);
	zone->has_rule = text[0];
	return !text[0] || posix_zone_parse(text, &zone->rule);
}

static bool parse_zone_file(struct time_zone *zone, struct bytes bytes)
{
	struct block block;
	if (bytes.length > MOST_FILE || !take_block(&bytes, 4, &block))
		return false;
	if (block.version == 0)
		return read_changes(zone, &block);
	return take_block(&bytes, 8, &block) && read_changes(zone, &block) &&
	       read_rule(zone, &bytes);
}

struct time_zone *time_zone_read(const void *bytes, size_t length)
{
	struct time_zone *zone = xcalloc(1, sizeof *zone);
	if (parse_zone_file(zone, (struct bytes){bytes, length}))
		return zone;
	time_zone_destroy(zone);
	return NULL;
}

void time_zone_destroy(struct time_zone *zone)
{
	if (zone)
		free(zone->changes);
	free(zone);
}

/* --- by name -------------------------------------------------------------------------------- */

/* Does the name stay below the folder? */
static bool is_zone_name(const char *name)
{
	return name[0] && name[0] != '/' && !strstr(name, "..");
}

static struct time_zone *read_zone_file(const char *name)
{
	const char *folder = getenv("TZDIR");
	owned_text char *path =
	    xformat("%s/%s", folder && folder[0] ? folder : "/usr/share/zoneinfo", name);
	owned_file FILE *file = fopen(path, "re");
	owned_text char *bytes = xmalloc(MOST_FILE + 1);
	return file ? time_zone_read(bytes, fread(bytes, 1, MOST_FILE + 1, file)) : NULL;
}

struct time_zone *time_zone_open(const char *name, struct err *err)
{
	if (text_equal(name, "UTC"))
		return xcalloc(1, sizeof(struct time_zone));
	struct time_zone *zone = is_zone_name(name) ? read_zone_file(name) : NULL;
	if (!zone)
		err_set(err, ERR_CONFIG,
		    "zone=%.60s is no time zone of this system; write one that "
		    "`timedatectl list-timezones` has, as zone=Europe/Berlin, install tzdata if "
		    "there are none, or leave it out for UTC",
		    name);
	return zone;
}

/* --- the clock ------------------------------------------------------------------------------ */

/* The number of changes up to that second, included. */
static size_t changes_until(const struct time_zone *zone, int64_t second)
{
	size_t low = 0, high = zone->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (zone->changes[middle].second <= second)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct zone_span time_zone_span(const struct time_zone *zone, int64_t second)
{
	size_t past = changes_until(zone, second);
	const struct change *last = past ? &zone->changes[past - 1] : NULL;
	struct zone_span span = {INT64_MIN, INT64_MAX, last ? last->offset : zone->first};
	if (past == zone->count && zone->has_rule)
		span = posix_zone_span(&zone->rule, second);
	/* The rule holds only after the last change of the table. */
	if (last && last->second > span.begin)
		span.begin = last->second;
	if (past < zone->count)
		span.end = zone->changes[past].second;
	return span;
}

/* --- days ----------------------------------------------------------------------------------- */

int64_t time_zone_day(const struct time_zone *zone, int64_t second)
{
	int64_t local = second + time_zone_span(zone, second).offset;
	return local / DAY - (local % DAY < 0);
}

int64_t time_zone_day_begin(const struct time_zone *zone, int64_t day)
{
	/* The first span of the zone that has a part of the day; a later part follows where the
	 * clock goes back over midnight. */
	for (int64_t at = day * DAY - MOST_OFFSET; at < (day + 1) * DAY + MOST_OFFSET;) {
		struct zone_span span = time_zone_span(zone, at);
		int64_t begin = day * DAY - span.offset, end = begin + DAY;
		if (begin < span.begin)
			begin = span.begin;
		if (begin < end && begin < span.end)
			return begin;
		at = span.end;
	}
	return time_zone_day_begin(zone, day + 1);
}
