#include "counting_filter.h"

enum { MOST = 15 };

static int shift_of(struct fingerprint hash, int word)
{
	return (int)(hash.low >> (4 * word) & 15) * 4;
}

void counting_add(const struct bloom_filter *filter, struct fingerprint hash)
{
	uint64_t *line = bloom_line(filter, hash);
	for (int word = 0; word < BLOOM_BITS; word++) {
		int shift = shift_of(hash, word);
		if ((line[word] >> shift & MOST) < MOST)
			line[word] += UINT64_C(1) << shift;
	}
}

bool counting_has(const struct bloom_filter *filter, struct fingerprint hash)
{
	const uint64_t *line = bloom_line(filter, hash);
	for (int word = 0; word < BLOOM_BITS; word++)
		if ((line[word] >> shift_of(hash, word) & MOST) == 0)
			return false;
	return true;
}

bool counting_remove(const struct bloom_filter *filter, struct fingerprint hash)
{
	uint64_t *line = bloom_line(filter, hash);
	if (!counting_has(filter, hash))
		return false;
	for (int word = 0; word < BLOOM_BITS; word++) {
		int shift = shift_of(hash, word);
		if ((line[word] >> shift & MOST) < MOST)
			line[word] -= UINT64_C(1) << shift;
	}
	return true;
}
