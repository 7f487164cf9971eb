#include "counting_filter.h"

enum { MOST_4 = 15, MOST_8 = 255 };

static inline void *counting_line(const struct counting_filter *filter, struct fingerprint hash)
{
	__extension__ typedef unsigned __int128 wide;
	uint64_t line = (uint64_t)(((wide)hash.high * filter->lines) >> 64);
	return (char *)filter->words + line * counting_line_bytes(filter->bits);
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
		line[group] += (uint64_t)(value < MOST_4) << shift;
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
		uint64_t value = line[group] >> shift & MOST_4;
		line[group] -= (uint64_t)(value < MOST_4) << shift;
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
	void *line = counting_line(filter, hash);
	return filter->bits == 8 ? add_8_bits(line, hash) : add_4_bits(line, hash);
}

bool counting_has(const struct counting_filter *filter, struct fingerprint hash)
{
	const void *line = counting_line(filter, hash);
	return filter->bits == 8 ? has_8_bits(line, hash) : has_4_bits(line, hash);
}

bool counting_remove(const struct counting_filter *filter, struct fingerprint hash)
{
	/* A counter of 0 would wrap to the maximum, and would then be full for ever. */
	if (!counting_has(filter, hash))
		return false;
	if (filter->bits == 8)
		remove_8_bits(counting_line(filter, hash), hash);
	else
		remove_4_bits(counting_line(filter, hash), hash);
	return true;
}

void counting_prefetch(const struct counting_filter *filters, int count, struct fingerprint hash)
{
	for (int i = 0; i < count; i++) {
		const char *line = counting_line(&filters[i], hash);
		__builtin_prefetch(line);
		if (filters[i].bits == 8)
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
