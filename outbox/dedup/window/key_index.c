#include "key_index.h"

/* number: less than twice the number of buckets. A division would cost as much as the look itself.
 */
static struct key_bucket *bucket_at(const struct key_index *index, uint64_t number)
{
	return &index->buckets[number < index->count ? number : number - index->count];
}

uint64_t key_index_buckets(uint64_t ids)
{
	return ids / KEY_BUCKET_PLANNED + 1;
}

bool key_index_add(const struct key_index *index, struct fingerprint hash, uint32_t unit)
{
	uint64_t first = key_index_bucket(index, hash);
	for (uint64_t i = 0; i < index->count; i++) {
		struct key_bucket *bucket = bucket_at(index, first + i);
		uint8_t place = bucket->count;
		if (place >= KEY_BUCKET_UNITS)
			continue;

		bucket->units[place] = unit;
		bucket->tags[place] = key_index_tag(hash);
		__atomic_store_n(&bucket->count, (uint8_t)(place + 1), __ATOMIC_RELEASE);
		return true;
	}
	return false;
}

bool key_index_find(const struct key_index *index, struct fingerprint hash,
    bool (*is_it)(void *context, uint32_t unit), void *context)
{
	uint64_t first = key_index_bucket(index, hash);
	for (uint64_t i = 0; i < index->count; i++) {
		const struct key_bucket *bucket = bucket_at(index, first + i);
		for (int place = 0; place < bucket->count && place < KEY_BUCKET_UNITS; place++)
			if (bucket->tags[place] == key_index_tag(hash) &&
			    is_it(context, bucket->units[place]))
				return true;
		if (bucket->count < KEY_BUCKET_UNITS)
			return false;
	}
	return false;
}

void key_index_prefetch(const struct key_index *index, struct fingerprint hash)
{
	__builtin_prefetch(bucket_at(index, key_index_bucket(index, hash)));
}
