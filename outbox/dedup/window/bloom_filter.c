#include "bloom_filter.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the filter's words are little-endian on disk; this machine needs code that turns them"
#endif

static inline uint64_t bit_in_word(uint64_t low, int word)
{
	return UINT64_C(1) << (low >> (6 * word) & 63);
}

static void portable_add(const struct bloom_filter *filter, struct fingerprint hash)
{
	uint64_t *line = bloom_line(filter, hash);
	for (int i = 0; i < BLOOM_BITS; i++)
		line[i] |= bit_in_word(hash.low, i);
}

static uint64_t portable_look(
    const struct bloom_filter *filters, int count, struct fingerprint hash)
{
	uint64_t bits[BLOOM_BITS], found = 0;
	for (int i = 0; i < BLOOM_BITS; i++)
		bits[i] = bit_in_word(hash.low, i);
	for (int i = 0; i < count; i++) {
		const uint64_t *line = bloom_line(&filters[i], hash);
		uint64_t missing = 0;
		for (int word = 0; word < BLOOM_BITS; word++)
			missing |= bits[word] & ~line[word];
		found |= (uint64_t)!missing << i;
	}
	return found;
}

static const struct bloom_code portable = {"portable", portable_add, portable_look};

#ifdef __x86_64__
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))

AVX2 static inline void avx2_bits(uint64_t low, __m256i *ret_first, __m256i *ret_second)
{
	const __m256i all = _mm256_set1_epi64x((long long)low), one = _mm256_set1_epi64x(1);
	const __m256i mask = _mm256_set1_epi64x(63);
	__m256i first = _mm256_srlv_epi64(all, _mm256_setr_epi64x(0, 6, 12, 18));
	__m256i second = _mm256_srlv_epi64(all, _mm256_setr_epi64x(24, 30, 36, 42));
	*ret_first = _mm256_sllv_epi64(one, _mm256_and_si256(first, mask));
	*ret_second = _mm256_sllv_epi64(one, _mm256_and_si256(second, mask));
}

AVX2 static void avx2_add(const struct bloom_filter *filter, struct fingerprint hash)
{
	__m256i *line = (__m256i *)bloom_line(filter, hash), first, second;
	avx2_bits(hash.low, &first, &second);
	_mm256_store_si256(line, _mm256_or_si256(_mm256_load_si256(line), first));
	_mm256_store_si256(line + 1, _mm256_or_si256(_mm256_load_si256(line + 1), second));
}

AVX2 static uint64_t avx2_look(
    const struct bloom_filter *filters, int count, struct fingerprint hash)
{
	__m256i first, second;
	uint64_t found = 0;
	avx2_bits(hash.low, &first, &second);
	for (int i = 0; i < count; i++) {
		const __m256i *line = (const __m256i *)bloom_line(&filters[i], hash);
		int all = _mm256_testc_si256(_mm256_load_si256(line), first) &
			  _mm256_testc_si256(_mm256_load_si256(line + 1), second);
		found |= (uint64_t)all << i;
	}
	return found;
}

static const struct bloom_code avx2 = {"avx2", avx2_add, avx2_look};
static const struct bloom_code *const with_avx2[] = {&avx2, &portable, NULL};
#endif

#ifdef __ARM_NEON
#include <arm_neon.h>
#include "bloom_neon.h"
static const struct bloom_code neon = {"neon", neon_add, neon_look};
#endif

static const struct bloom_code *const others[] = {
#ifdef __ARM_NEON
    &neon,
#endif
    &portable, NULL};

double bloom_measured_rate(const struct bloom_filter *filter)
{
	double sum = 0;
	for (uint64_t line = 0; line < filter->lines; line++) {
		const uint64_t *words = filter->words + line * BLOOM_BITS;
		double share = 1; /* the rate of this line */
		for (int i = 0; i < BLOOM_BITS; i++)
			share *= (double)__builtin_popcountll(words[i]) / 64;
		sum += share;
	}
	return sum / (double)filter->lines;
}

const struct bloom_code *const *bloom_codes(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return with_avx2;
#endif
	return others;
}
