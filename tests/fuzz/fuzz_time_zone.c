/*
 * Any bytes are a TZif file, or the rule at its end, or are refused. What is taken in has one
 * offset at each second, in stretches that follow each other without a gap.
 */
#include <stdlib.h>
#include <string.h>
#include "time_zone.h"

enum { STEPS = 200 };
static const int64_t furthest = INT64_C(1) << 52, first = -(INT64_C(1) << 33);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check(struct zone_span span, int64_t second)
{
	require(span.begin <= second && second < span.end);
	require(span.offset > -26 * 3600 && span.offset < 26 * 3600);
}

static void walk(const struct time_zone *zone)
{
	int64_t at = first;
	for (int i = 0; i < STEPS && at < furthest; i++) {
		struct zone_span span = time_zone_span(zone, at);
		check(span, at);
		if (at > first)
			require(span.begin == at);
		at = span.end;
	}
	check(time_zone_span(zone, furthest), furthest);
	check(time_zone_span(zone, -furthest), -furthest);
}

static void walk_rule(const struct posix_zone *zone)
{
	int64_t at = first;
	for (int i = 0; i < STEPS && at < furthest; i++) {
		struct zone_span span = posix_zone_span(zone, at);
		check(span, at);
		at = span.end;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct posix_zone rule;
	struct time_zone *zone = time_zone_read(data, size);
	if (zone)
		walk(zone);
	time_zone_destroy(zone);
	char *text = malloc(size + 1);
	memcpy(text, data, size);
	text[size] = '\0';
	if (posix_zone_parse(text, &rule))
		walk_rule(&rule);
	free(text);
	return 0;
}
