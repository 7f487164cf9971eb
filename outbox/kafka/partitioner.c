#include "partitioner.h"

/* Four bytes as a little-endian number, whatever the machine. */
static uint32_t word_at(const unsigned char *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

/* org.apache.kafka.common.utils.Utils.murmur2 */
static uint32_t murmur2_hash(const unsigned char *key, size_t length)
{
	const uint32_t multiplier = 0x5bd1e995;
	uint32_t hash = 0x9747b28c ^ (uint32_t)length;

	for (; length >= 4; key += 4, length -= 4) {
		uint32_t word = word_at(key) * multiplier;

		word ^= word >> 24;
		hash = hash * multiplier ^ word * multiplier;
	}

	/* The last bytes, as Java's switch falls through from 3 to 1. */
	if (length >= 3)
		hash ^= (uint32_t)key[2] << 16;
	if (length >= 2)
		hash ^= (uint32_t)key[1] << 8;
	if (length >= 1)
		hash = (hash ^ key[0]) * multiplier;
	hash ^= hash >> 13;
	hash *= multiplier;
	return hash ^ hash >> 15;
}

int32_t partitioner_of_key(const void *key, size_t length, int32_t count)
{
	return (int32_t)(murmur2_hash(key, length) & 0x7fffffff) % count;
}
