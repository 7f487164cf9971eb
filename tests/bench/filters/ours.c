/*
 * ours filter|store FILE IDS RATE: adds the first ids of the file, looks at them and at as many
 * others, and prints nanoseconds an id, bits an id and false positives as a line of JSON. The file
 * has 36 bytes an id, nothing between.
 *
 *   filter  the filter alone, batched as the store uses it, with its hash
 *   store   the store `bloom` of liboutbox, 1,000 ids a call, a checkpoint each 100,000: hits are
 *           confirmed by its key log, and none is false
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bloom_filter.h"
#include "bloom_size.h"
#include "cleanup.h"
#include "clock.h"
#include "dedup.h"
#include "fingerprint.h"
#include "temporary.h"
#include "text.h"

enum { ID = 36, BATCH = 1000, DURABLE = 100, AHEAD = 16, DAY_MS = 86400000 };

struct run {
	const char *ids;
	int64_t count;
	double rate;
};

static void print(
    const struct run *run, const char *name, const int64_t us[3], double bits, int64_t false_hits)
{
	double each = 1000.0 / (double)run->count;
	printf(
	    "{\"name\": \"%s\", \"add\": %.1f, \"there\": %.1f, \"absent\": %.1f, \"bits\": %.2f, "
	    "\"false\": %lld}\n",
	    name, (double)us[0] * each, (double)us[1] * each, (double)us[2] * each, bits,
	    (long long)false_hits);
}

static _Noreturn void give_up(const char *why)
{
	fprintf(stderr, "ours: %s\n", why);
	exit(1);
}

/* --- the filter ----------------------------------------------------------------------------- */

static struct fingerprint hash_of(const struct run *run, int64_t number)
{
	return fingerprint_of(run->ids + number * ID, ID, 1);
}

/* The hash of an id is made once, and its line is asked for AHEAD of its use. */
static int64_t pass(const struct run *run, struct bloom_filter *filter, int64_t first, bool adds)
{
	const struct bloom_code *code = *bloom_codes();
	struct fingerprint next[AHEAD];
	int64_t found = 0;
	for (int64_t i = 0; i < run->count + AHEAD; i++) {
		struct fingerprint *place = &next[i % AHEAD];
		if (i >= AHEAD && adds)
			code->add(filter, *place);
		else if (i >= AHEAD)
			found += code->look(filter, 1, *place) != 0;
		if (i >= run->count)
			continue;
		*place = hash_of(run, first + i);
		__builtin_prefetch(bloom_line(filter, *place), 1);
	}
	return found;
}

static void run_filter(const struct run *run)
{
	uint64_t lines = (uint64_t)ceil((double)run->count / bloom_load(run->rate, BLOOM_PLACES));
	struct bloom_filter filter = {aligned_alloc(BLOOM_LINE, lines * BLOOM_LINE), lines};
	memset(filter.words, 0, lines * BLOOM_LINE);
	int64_t times[4] = {clock_us()}, found[3];
	for (int i = 0; i < 3; i++) {
		found[i] = pass(run, &filter, i == 2 ? run->count : 0, i == 0);
		times[i + 1] = clock_us();
	}
	if (found[1] != run->count)
		give_up("an id was forgotten");
	const int64_t us[3] = {times[1] - times[0], times[2] - times[1], times[3] - times[2]};
	print(run, "outbox-relay, filter", us,
	    (double)(lines * BLOOM_LINE * 8) / (double)run->count, found[2]);
	free(filter.words);
}

/* --- the store ------------------------------------------------------------------------------ */

static struct outbox_error error;

/* The records' times go through the window of a day, so that each slice has what it was planned
 * for. */
static void name_ids(const struct run *run, int64_t first, struct outbox_dedup_id *ids)
{
	int64_t begin_ms = clock_wall_us() / 1000 - DAY_MS;
	for (int64_t i = 0; i < BATCH; i++)
		ids[i] = (struct outbox_dedup_id){run->ids + (first + i) * ID, ID,
		    begin_ms + (first + i) % run->count * DAY_MS / run->count, first + i};
}

/* How many are new; they are done then, or given up. */
static int64_t pass_store(
    const struct run *run, struct outbox_dedup *dedup, int64_t first, bool adds)
{
	static struct outbox_dedup_id ids[BATCH];
	static enum outbox_dedup_state states[BATCH];
	int64_t fresh = 0;
	for (int64_t i = 0; i < run->count; i += BATCH) {
		size_t kept = 0;
		name_ids(run, first + i, ids);
		if (!outbox_dedup_check(dedup, ids, BATCH, states, &error))
			give_up(error.message);
		for (size_t k = 0; k < BATCH; k++)
			if (states[k] == OUTBOX_DEDUP_NEW)
				ids[kept++] = ids[k];
		if (!(adds ? outbox_dedup_done : outbox_dedup_release)(dedup, ids, kept, &error) ||
		    (adds && i / BATCH % DURABLE == DURABLE - 1 &&
			!outbox_dedup_checkpoint(dedup, i, &error)))
			give_up(error.message);
		fresh += (int64_t)kept;
	}
	return fresh;
}

static void run_store(const struct run *run)
{
	char folder[TEMPORARY];
	if (!temporary_make(folder))
		give_up("no folder can be made");
	owned_text char *line =
	    xformat("bloom ids=%lld rate=%g path=%s", (long long)run->count, run->rate, folder);
	struct outbox_dedup *dedup = outbox_dedup_open(line, &error);
	struct outbox_dedup_stats stats;
	if (!dedup)
		give_up(error.message);
	int64_t times[4] = {clock_us()}, fresh[3];
	for (int i = 0; i < 3; i++) {
		fresh[i] = pass_store(run, dedup, i == 2 ? run->count : 0, i == 0);
		times[i + 1] = clock_us();
	}
	if (fresh[1] != 0 || fresh[0] != run->count)
		give_up("an id was forgotten, or taken for another");
	outbox_dedup_stats(dedup, &stats);
	const int64_t us[3] = {times[1] - times[0], times[2] - times[1], times[3] - times[2]};
	print(run, "outbox-relay, store bloom", us,
	    (double)stats.memory_bytes * 8 / (double)run->count, run->count - fresh[2]);
	outbox_dedup_close(dedup);
	temporary_remove(folder);
}

int main(int count, char **words)
{
	if (count != 5)
		give_up("usage: ours filter|store FILE IDS RATE");
	struct run run = {.count = strtoll(words[3], NULL, 10), .rate = strtod(words[4], NULL)};
	size_t size = 2 * (size_t)run.count * ID;
	int fd = open(words[2], O_RDONLY | O_CLOEXEC);
	run.ids = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (fd < 0 || run.ids == MAP_FAILED)
		give_up("the file of ids cannot be read");
	(strcmp(words[1], "store") == 0 ? run_store : run_filter)(&run);
	return 0;
}
