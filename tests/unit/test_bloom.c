#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bloom_filter.h"
#include "bloom_size.h"
#include "fingerprint.h"
#include "text.h"

#ifdef __ARM_NEON
static const struct bloom_code *const model = NULL; /* the real one is among bloom_codes() */
#else
#include "neon_model.h"
#include "bloom_neon.h"
static const struct bloom_code neon_model = {"neon, modelled", neon_add, neon_look};
static const struct bloom_code *const model = &neon_model;
#endif

enum { MOST_CODES = 4 };

static int all_codes(const struct bloom_code *ret_codes[MOST_CODES])
{
	int count = 0;
	for (const struct bloom_code *const *code = bloom_codes(); *code; code++)
		ret_codes[count++] = *code;
	if (model)
		ret_codes[count++] = model;
	assert_true(count > 1 && count <= MOST_CODES);
	return count;
}

static struct bloom_filter filter_of(uint64_t lines)
{
	struct bloom_filter filter = {aligned_alloc(BLOOM_LINE, lines * BLOOM_LINE), lines};
	assert_non_null(filter.words);
	memset(filter.words, 0, lines * BLOOM_LINE);
	return filter;
}

static struct fingerprint hash_of(uint64_t number)
{
	return fingerprint_of(&number, sizeof number, 7);
}

static void every_code_sets_the_same_bits(void **state)
{
	(void)state;
	const struct bloom_code *codes[MOST_CODES];
	struct bloom_filter filters[MOST_CODES];
	int count = all_codes(codes);
	for (int i = 0; i < count; i++) {
		filters[i] = filter_of(997);
		for (uint64_t number = 0; number < 20000; number++)
			codes[i]->add(&filters[i], hash_of(number));
		assert_memory_equal(filters[0].words, filters[i].words, 997 * BLOOM_LINE);
	}
	for (int i = 0; i < count; i++)
		free(filters[i].words);
}

static void a_filter_of_one_code_is_read_by_every_other(void **state)
{
	(void)state;
	const struct bloom_code *codes[MOST_CODES];
	struct bloom_filter filters[3] = {filter_of(1), filter_of(301), filter_of(1000)};
	int count = all_codes(codes);
	for (uint64_t number = 0; number < 9000; number++)
		codes[number % (uint64_t)count]->add(&filters[number % 3], hash_of(number));
	for (uint64_t number = 0; number < 30000; number++) {
		uint64_t found = codes[0]->look(filters, 3, hash_of(number));
		assert_true(number >= 9000 || found >> number % 3 & 1);
		for (int i = 1; i < count; i++)
			assert_int_equal(codes[i]->look(filters, 3, hash_of(number)), found);
	}
	for (int i = 0; i < 3; i++)
		free(filters[i].words);
}

/* Written down in docs/reference/dedup.md: a change makes the files of those who have some
 * unreadable. */
static void the_bits_are_where_the_format_has_them(void **state)
{
	(void)state;
	struct bloom_filter filter = filter_of(10);
	/* bit 0 of word 0, 1 of word 1, … 7 of word 7; line 7 of 10: 0.75 * 10 */
	uint64_t low = 0;
	for (uint64_t word = 0; word < 8; word++)
		low |= word << (6 * word);
	bloom_codes()[0]->add(&filter, (struct fingerprint){low, UINT64_C(3) << 62});
	for (uint64_t word = 0; word < 80; word++)
		assert_int_equal(
		    filter.words[word], word / 8 == 7 ? UINT64_C(1) << word % 8 : UINT64_C(0));
	free(filter.words);
}

static void the_hash_is_that_of_the_format(void **state)
{
	(void)state;
	/* XXH3_128bits_withSeed of xxHash 0.8 */
	struct fingerprint hash = fingerprint_of("", 0, 0);
	assert_int_equal(hash.low, UINT64_C(0x6001c324468d497f));
	assert_int_equal(hash.high, UINT64_C(0x99aa06d3014798d8));
	struct fingerprint other = fingerprint_of("", 0, 1);
	assert_true(other.low != hash.low);
}

static void a_line_has_more_false_positives_than_the_classic_formula_says(void **state)
{
	(void)state;
	double load = bloom_load(0.001, BLOOM_PLACES), bits = 512 / load;
	assert_true(fabs(bloom_rate(load, BLOOM_PLACES) / 0.001 - 1) < 1e-6);
	/* 8 hash functions, anywhere */
	double classic = pow(1 - exp(-8 / bits), 8);
	assert_true(classic < 0.0009);
	assert_true(fabs(bloom_classic_bits(0.001) - 14.378) < 0.001);
	assert_int_equal(bloom_classic_hashes(0.001), 10);
}

static void a_plan_is_for_the_whole_window(void **state)
{
	(void)state;
	static const struct {
		double rate, most_bits;
	} wanted[] = {{0.01, 18}, {0.001, 27}, {0.0001, 40}};
	for (int i = 0; i < 3; i++)
		for (int slices = 5; slices <= 8; slices++) {
			struct bloom_plan plan =
			    bloom_plan(50000000, wanted[i].rate, slices, BLOOM_PLACES);
			double sum = 1 - pow(1 - plan.share, slices + 1);
			assert_true(fabs(sum / wanted[i].rate - 1) < 1e-6);
			assert_true(plan.rate <= plan.share * BLOOM_PLANNED);
			assert_true(plan.rate >= plan.share * BLOOM_PLANNED * 0.999);
			assert_true(plan.bits_an_id <= wanted[i].most_bits);
			assert_true(plan.ids * (uint64_t)slices >= 50000000);
		}
}

static void sub_slices_never_use_up_what_is_left(void **state)
{
	(void)state;
	struct bloom_plan plan = bloom_plan(1000000, 0.001, 5, BLOOM_PLACES);
	double used = plan.rate;
	for (int sub = 1; sub < 12; sub++) {
		uint64_t lines = bloom_sub_lines(&plan, sub, plan.ids);
		used += bloom_rate((double)plan.ids / (double)lines, BLOOM_PLACES);
		assert_true(used <= plan.share);
	}
}

static void the_smallest_plan_has_a_line(void **state)
{
	(void)state;
	struct bloom_plan plan = bloom_plan(1, 0.999, 1, BLOOM_PLACES);
	assert_int_equal(plan.lines, 1);
	plan = bloom_plan(1, 1e-9, 31, BLOOM_PLACES);
	assert_true(plan.lines >= 1 && plan.rate <= 1e-9);
}

enum { AHEAD = 16 };

/* Of the whole window, by turns: so the first and the last id of each slice are among them. */
static void walk_window(const struct bloom_plan *plan, struct bloom_filter *filters,
    void (*visit)(const struct bloom_filter *filter, struct fingerprint hash))
{
	uint64_t slices = (uint64_t)plan->slices + 1, ids = plan->ids * slices;
	for (uint64_t i = 0; i < ids + AHEAD; i++) {
		if (i < ids)
			__builtin_prefetch(bloom_line(&filters[i % slices], hash_of(i)), 1);
		if (i >= AHEAD)
			visit(&filters[(i - AHEAD) % slices], hash_of(i - AHEAD));
	}
}

static void add(const struct bloom_filter *filter, struct fingerprint hash)
{
	bloom_codes()[0]->add(filter, hash);
}

static void expect(const struct bloom_filter *filter, struct fingerprint hash)
{
	if (!bloom_codes()[0]->look(filter, 1, hash))
		fail_msg("an id was forgotten");
}

static uint64_t count_false(const struct bloom_filter *filters, int count, uint64_t looks)
{
	const uint64_t others = UINT64_C(1) << 40;
	uint64_t found = 0;
	for (uint64_t i = 0; i < looks; i++) {
		bloom_prefetch(filters, count, hash_of(others + i + AHEAD));
		found += bloom_codes()[0]->look(filters, count, hash_of(others + i)) != 0;
	}
	return found;
}

static bool is_full_run(void)
{
	const char *full = getenv("TEST_FULL");
	return full && full[0];
}

/* Within 2 %, or what chance does: with 30 M looks that is less from 0.16 % on. */
static void expect_rate(uint64_t ids, double rate)
{
	const uint64_t looks = is_full_run() ? 30000000 : 3000000;
	struct bloom_plan plan = bloom_plan(ids, rate, 5, BLOOM_PLACES);
	struct bloom_filter filters[6];
	for (int i = 0; i < 6; i++)
		filters[i] = filter_of(plan.lines);
	walk_window(&plan, filters, add);
	walk_window(&plan, filters, expect);
	uint64_t found = count_false(filters, 6, looks);
	double theory = (1 - pow(1 - plan.rate, 6)) * (double)looks;
	print_message("%llu ids, %g: %llu false positives of %llu, in theory %.0f\n",
	    (unsigned long long)ids, rate, (unsigned long long)found, (unsigned long long)looks,
	    theory);
	assert_true(fabs((double)found - theory) <= fmax(0.02 * theory, 4 * sqrt(theory)));
	for (int i = 0; i < 6; i++)
		free(filters[i].words);
}

/* ThreadSanitizer takes minutes for what has one thread. */
static int sizes_wanted(void)
{
#ifdef __SANITIZE_THREAD__
	return 1;
#else
	return is_full_run() ? 4 : 2;
#endif
}

static void the_rate_of_a_window_is_that_of_theory(void **state)
{
	(void)state;
	static const double rates[] = {0.01, 0.001, 0.0001};
	static const uint64_t sizes[] = {1000000, 10000000, 100000000, 500000000};
	for (int size = 0; size < sizes_wanted(); size++)
		for (int i = 0; i < 3; i++)
			expect_rate(sizes[size], rates[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_code_sets_the_same_bits),
	    cmocka_unit_test(a_filter_of_one_code_is_read_by_every_other),
	    cmocka_unit_test(the_bits_are_where_the_format_has_them),
	    cmocka_unit_test(the_hash_is_that_of_the_format),
	    cmocka_unit_test(a_line_has_more_false_positives_than_the_classic_formula_says),
	    cmocka_unit_test(a_plan_is_for_the_whole_window),
	    cmocka_unit_test(sub_slices_never_use_up_what_is_left),
	    cmocka_unit_test(the_smallest_plan_has_a_line),
	    cmocka_unit_test(the_rate_of_a_window_is_that_of_theory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
