/*
 * The filter in memory, compared with bare reads of the same memory in the same run. A look-up
 * reads one line of each slice that is alive, so it is compared with that many reads.
 */
#include "bench_dedup.h"

#include <stdlib.h>
#include <sys/mman.h>
#include "bloom_filter.h"
#include "bloom_size.h"
#include "clock.h"
#include "text.h"

enum { AHEAD = 12, ID = 36, FILL_AHEAD = 16 };
static const int64_t looks = 4000000, reads = 8000000;

/* Full filters of a window, in one piece of memory. */
struct filled {
	uint64_t ids;
	void *memory;
	size_t bytes;
	int count;
	struct bloom_filter filters[BLOOM_FILTERS];
};

static void fill_filters(const struct filled *filled, const struct bloom_code *code)
{
	for (uint64_t i = 0; i < filled->ids + FILL_AHEAD; i++) {
		if (i < filled->ids)
			__builtin_prefetch(bloom_line(&filled->filters[i % (uint64_t)filled->count],
					       bench_dedup_hash(i)),
			    1);
		if (i >= FILL_AHEAD)
			code->add(&filled->filters[(i - FILL_AHEAD) % (uint64_t)filled->count],
			    bench_dedup_hash(i - FILL_AHEAD));
	}
}

/* slices 0: one filter for all ids, sized by the rate. */
static void make_filters(struct filled *filled, uint64_t ids, int slices)
{
	const struct bloom_plan plan = bloom_plan(ids, 0.001, slices ? slices : 1, BLOOM_PLACES);
	filled->count = slices ? slices + 1 : 1;
	filled->ids = plan.ids * (uint64_t)filled->count;
	filled->bytes = plan.lines * BLOOM_LINE * (size_t)filled->count;
	filled->memory = bench_dedup_memory(filled->bytes);
	for (int i = 0; i < filled->count; i++)
		filled->filters[i] = (struct bloom_filter){
		    (void *)((char *)filled->memory + plan.lines * BLOOM_LINE * (size_t)i),
		    plan.lines};
	fill_filters(filled, *bloom_codes());
}

/* Looks up missing ids; returns nanoseconds per look-up. */
static double time_looks(const struct filled *filled, bool batched)
{
	const struct bloom_code *code = *bloom_codes();
	uint64_t first = filled->ids, found = 0;
	int64_t begin = clock_us();

	for (uint64_t i = 0; i < (uint64_t)looks; i++) {
		if (batched)
			bloom_prefetch(
			    filled->filters, filled->count, bench_dedup_hash(first + i + AHEAD));
		found +=
		    code->look(filled->filters, filled->count, bench_dedup_hash(first + i)) != 0;
	}
	double each = (double)(clock_us() - begin) * 1000 / (double)looks;
	/* more false positives than planned: the filter is not the one that the figure names */
	if (found > (uint64_t)looks / 100)
		bench_say("the filter is too full: %llu of %lld", (unsigned long long)found,
		    (long long)looks);
	return each;
}

/* Compares each run with as many bare reads as it has slices. */
static void measure_filter(
    struct bench *bench, const char *name, uint64_t ids, int slices, bool batched, double bound)
{
	double values[BENCH_MOST_RUNS], references[BENCH_MOST_RUNS];
	struct filled filled;

	make_filters(&filled, ids, slices);
	for (int run = 0; run < (int)bench->options.runs && !bench_interrupted(); run++) {
		values[run] = time_looks(&filled, batched);
		references[run] =
		    filled.count * bench_dedup_bare(filled.memory, filled.bytes, reads);
	}
	/* an interrupted measurement has too few runs for a median */
	if (!bench_interrupted())
		bench_judge_pairs(
		    bench, name, "ns", values, references, (int)bench->options.runs, '<', bound);
	munmap(filled.memory, filled.bytes);
}

static void tell_hash(struct bench *bench)
{
	char id[ID + 1] = "0f8fad5b-d9cb-469f-a165-70867728950e";
	uint64_t sum = 0;
	int64_t begin = clock_us();
	for (int64_t i = 0; i < reads; i++) {
		id[i & 7] = (char)i;
		sum += fingerprint_of(id, ID, sum & 1).low; /* depends on the one before */
	}
	bench_tell(bench, sum ? "hash of an id of 36 bytes" : "", "ns",
	    (double)(clock_us() - begin) * 1000 / (double)reads);
}

static void tell_bare(struct bench *bench, uint64_t ids)
{
	const struct bloom_plan plan = bloom_plan(ids, 0.001, 5, BLOOM_PLACES);
	void *memory = bench_dedup_memory(plan.filter_bytes);
	bench_tell_beside(bench, "bare reads of that memory: batched, one by one", "ns",
	    bench_dedup_bare_batched(memory, plan.filter_bytes, reads),
	    bench_dedup_bare(memory, plan.filter_bytes, reads));
	munmap(memory, plan.filter_bytes);
}

static void judge_size(struct bench *bench, const char *name, double rate, double most)
{
	bench_judge(
	    bench, name, "bits", bloom_plan(50000000, rate, 5, BLOOM_PLACES).bits_an_id, '<', most);
}

bool bench_dedup_filter(struct bench *bench, struct err *err)
{
	const int64_t most = 100000000, ids = bench->options.ids;
	const uint64_t many = (uint64_t)(ids > most / 10 ? most : ids * 10);
	char name[80];

	bench_say("the code is %s", (*bloom_codes())->name);
	judge_size(bench, "filter at 1 %, an id", 0.01, 18);
	judge_size(bench, "filter at 0.1 %, an id", 0.001, 27);
	tell_hash(bench);
	measure_filter(bench, "one slice, 1 M ids, beside a read", 1000000, 0, false, 2);
	measure_filter(
	    bench, "window, 2 M ids in 6 slices, beside 6 reads", 2000000, 5, false, 1.3);
	measure_filter(
	    bench, "window, 2 M ids in 9 slices, beside 9 reads", 2000000, 8, false, 1.3);
	snprintf(name, sizeof name, "window, %llu M ids in 6 slices, beside 6 reads",
	    (unsigned long long)many / 1000000);
	measure_filter(bench, name, many, 5, false, 1.3);
	measure_filter(bench, "the same in batches, beside 6 reads", many, 5, true, 0.5);
	tell_bare(bench, many);
	return bench_goes_on(err);
}
