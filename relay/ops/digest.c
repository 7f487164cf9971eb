#include "digest.h"

#include <string.h>

/* Multiply and fold, as wyhash does. */
static uint64_t mix_word(uint64_t state, uint64_t word)
{
	unsigned __int128 product = (unsigned __int128)(state ^ UINT64_C(0xa0761d6478bd642f)) *
				    (word ^ UINT64_C(0xe7037ed1a0b428db));

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t digest_add(uint64_t state, const void *bytes, size_t length)
{
	const char *at = bytes;
	size_t left = bytes ? length : 0;
	uint64_t word;

	for (; left >= sizeof word; at += sizeof word, left -= sizeof word) {
		memcpy(&word, at, sizeof word);
		state = mix_word(state, word);
	}
	word = 0;
	if (left > 0)
		memcpy(&word, at, left);

	/* the length marks the end of a field, and tells NULL from an empty field */
	return mix_word(mix_word(state, word), bytes ? length + 1 : 0);
}
