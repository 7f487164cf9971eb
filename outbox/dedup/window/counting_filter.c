#include "counting_filter.h"

/* WORDS: in a line. They are constants, because a look that multiplies by a variable is slower. */
enum { MOST_4 = 15, MOST_8 = 255, WORDS_4 = 8, WORDS_8 = 16 };

static inline uint64_t line_number(const struct counting_filter *filter, struct fingerprint hash)
{
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)(((wide)hash.high * filter->lines) >> 64);
}

static inline uint64_t *line_of_4_bits(
    const struct counting_filter *filter, struct fingerprint hash)
{
	return filter->words + line_number(filter, hash) * WORDS_4;
}

static inline uint8_t *line_of_8_bits(const struct counting_filter *filter, struct fingerprint hash)
{
	return (uint8_t *)(filter->words + line_number(filter, hash) * WORDS_8);
}

static int place_in_group(struct fingerprint hash, int group)
{
	return (int)(hash.low >> (4 * group) & 15);
}

/* --- 4 bits: a group is a word -------------------------------------------------------------- */

static int add_4_bits(uint64_t *line, struct fingerprint hash)
{
	int full = 0;
	for (int group = 0; group < BLOOM_BITS; group++) {
		int shift = place_in_group(hash, group) * 4;
		uint64_t value = line[group] >> shift & MOST_4;
		if (value == MOST_4)
			continue;
		line[group] += UINT64_C(1) << shift;
		full += value == MOST_4 - 1;
	}
	return full;
}

static bool has_4_bits(const uint64_t *line, struct fingerprint hash)
{
	for (int group = 0; group < BLOOM_BITS; group++)
		if ((line[group] >> (place_in_group(hash, group) * 4) & MOST_4) == 0)
			return false;
	return true;
}

static void remove_4_bits(uint64_t *line, struct fingerprint hash)
{
	for (int group = 0; group < BLOOM_BITS; group++) {
		int shift = place_in_group(hash, group) * 4;
		if ((line[group] >> shift & MOST_4) < MOST_4)
			line[group] -= UINT64_C(1) << shift;
	}
}

/* --- 8 bits: a group is 16 bytes ------------------------------------------------------------ */

static int add_8_bits(uint8_t *line, struct fingerprint hash)
{
	int full = 0;
	for (int group = 0; group < BLOOM_BITS; group++) {
		uint8_t *counter = &line[group * COUNTING_PLACES + place_in_group(hash, group)];
		full += *counter == MOST_8 - 1;
		*counter += *counter < MOST_8;
	}
	return full;
}

static bool has_8_bits(const uint8_t *line, struct fingerprint hash)
{
	for (int group = 0; group < BLOOM_BITS; group++)
		if (line[group * COUNTING_PLACES + place_in_group(hash, group)] == 0)
			return false;
	return true;
}

static void remove_8_bits(uint8_t *line, struct fingerprint hash)
{
	for (int group = 0; group < BLOOM_BITS; group++) {
		uint8_t *counter = &line[group * COUNTING_PLACES + place_in_group(hash, group)];
		*counter -= *counter < MOST_8;
	}
}

/* --- both ----------------------------------------------------------------------------------- */

int counting_add(const struct counting_filter *filter, struct fingerprint hash)
{
	return filter->bits == 4 ? add_4_bits(line_of_4_bits(filter, hash), hash)
				 : add_8_bits(line_of_8_bits(filter, hash), hash);
}

bool counting_has(const struct counting_filter *filter, struct fingerprint hash)
{
	return filter->bits == 4 ? has_4_bits(line_of_4_bits(filter, hash), hash)
				 : has_8_bits(line_of_8_bits(filter, hash), hash);
}

bool counting_remove(const struct counting_filter *filter, struct fingerprint hash)
{
	/* A counter of 0 would wrap to the maximum, and would then be full for ever. */
	if (!counting_has(filter, hash))
		return false;
	if (filter->bits == 4)
		remove_4_bits(line_of_4_bits(filter, hash), hash);
	else
		remove_8_bits(line_of_8_bits(filter, hash), hash);
	return true;
}

void counting_prefetch(const struct counting_filter *filters, int count, struct fingerprint hash)
{
	for (int i = 0; i < count; i++) {
		if (filters[i].bits == 4) {
			__builtin_prefetch(line_of_4_bits(&filters[i], hash));
			continue;
		}
		const uint8_t *line = line_of_8_bits(&filters[i], hash);
		__builtin_prefetch(line);
		__builtin_prefetch(line + BLOOM_LINE);
	}
}

struct counting_sum counting_sum_up(const uint64_t *words, size_t count, int bits)
{
	struct counting_sum sum = {0};
	const uint64_t most = (uint64_t)counting_most(bits);

	for (size_t i = 0; i < count; i++)
		for (int shift = 0; shift < 64; shift += bits) {
			uint64_t value = words[i] >> shift & most;
			sum.values += value;
			sum.full += value == most;
		}
	return sum;
}
