#pragma once
/* What a stream asks of the log after it was taken, answered: topics that are open. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include "stream.h"

enum { OPEN_NONE = -2 };

struct open_topic {
	const char *name; /* NULL: behind the last one */
	int32_t partitions;
	int64_t offset; /* of each partition; OPEN_NONE: not known */
};

static inline void open_topics(struct stream *stream, int64_t now, const struct open_topic *topics)
{
	const struct stream_tick call = stream_log_call(stream, now);
	int64_t offsets[16];
	assert_int_equal(call.call, STREAM_DESTINATIONS);
	assert_null(call.topics);
	for (const struct open_topic *topic = topics; topic->name; topic++) {
		for (int32_t p = 0; p < topic->partitions; p++)
			offsets[p] = topic->offset;
		stream_destination(
		    stream, &(struct stream_destination){topic->name, topic->partitions, true, 0,
				offsets, topic->partitions});
	}
	stream_destinations_end(stream, true);
}

/* It asks for these topics, an array in Postgres' text form; NULL: the log knows none of them. */
static inline void named_topic(struct stream *stream, int64_t now, const char *topics,
    const struct stream_destination *destination)
{
	const struct stream_tick call = stream_log_call(stream, now);
	assert_int_equal(call.call, STREAM_DESTINATIONS);
	assert_string_equal(call.topics, topics);
	if (destination)
		stream_destination(stream, destination);
	stream_destinations_end(stream, true);
}
