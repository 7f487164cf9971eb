#include "dedup_walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "clock.h"
#include "temporary.h"

enum { ROW = 1000 };

const char *dedup_walk_prefix = "";

struct outbox_dedup *dedup_walk_open(const char *line)
{
	struct outbox_error error;
	struct outbox_dedup *dedup = outbox_dedup_open(line, &error);
	if (!dedup)
		fail_msg("%s", error.message);
	return dedup;
}

void dedup_walk_name(struct dedup_walk_id *id, uint64_t number, int64_t time_ms)
{
	id->id = (struct outbox_dedup_id){.id = id->text,
	    .length = (size_t)snprintf(
		id->text, sizeof id->text, "%s%llu", dedup_walk_prefix, (unsigned long long)number),
	    .time_ms = time_ms,
	    .offset = (int64_t)number};
}

static uint64_t walk_row(
    struct outbox_dedup *dedup, uint64_t first, size_t count, int64_t time_ms, bool finish)
{
	static struct dedup_walk_id names[ROW];
	static struct outbox_dedup_id ids[ROW];
	static enum outbox_dedup_state states[ROW];
	struct outbox_error error;
	size_t fresh = 0;
	for (size_t i = 0; i < count; i++) {
		dedup_walk_name(&names[i], first + i, time_ms);
		ids[i] = names[i].id;
	}
	if (!outbox_dedup_check(dedup, ids, count, states, &error))
		fail_msg("check: %s", error.message);
	for (size_t i = 0; i < count; i++) {
		assert_int_not_equal(states[i], OUTBOX_DEDUP_PENDING);
		if (states[i] == OUTBOX_DEDUP_NEW)
			ids[fresh++] = ids[i];
	}
	if (!(finish ? outbox_dedup_done : outbox_dedup_release)(dedup, ids, fresh, &error))
		fail_msg("%s: %s", finish ? "done" : "release", error.message);
	return fresh;
}

uint64_t dedup_walk(
    struct outbox_dedup *dedup, uint64_t first, uint64_t count, int64_t time_ms, bool finish)
{
	uint64_t fresh = 0;
	for (uint64_t i = 0; i < count; i += ROW)
		fresh +=
		    walk_row(dedup, first + i, count - i < ROW ? count - i : ROW, time_ms, finish);
	return fresh;
}

struct outbox_dedup_stats dedup_walk_stats(const struct outbox_dedup *dedup)
{
	struct outbox_dedup_stats stats;
	outbox_dedup_stats(dedup, &stats);
	return stats;
}

void dedup_walk_checkpoint(struct outbox_dedup *dedup, int64_t offset)
{
	struct outbox_error error;
	if (!outbox_dedup_checkpoint(dedup, offset, &error))
		fail_msg("checkpoint: %s", error.message);
}

void dedup_walk_odd_window(const char *line, const char *folder)
{
	int64_t now_ms = clock_wall_us() / 1000;

	for (int64_t age = 2000; age < 2120; age += 7) {
		struct outbox_dedup *dedup = dedup_walk_open(line);
		dedup_walk(dedup, 1, 1, now_ms - age, true);
		dedup_walk(dedup, 2, 1, now_ms - age + 1009, true);
		assert_int_equal(dedup_walk(dedup, 1, 1, now_ms - age + 1009, false), 0);
		outbox_dedup_close(dedup);
		temporary_empty(folder);
	}
}
