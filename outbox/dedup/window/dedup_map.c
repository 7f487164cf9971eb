#include "dedup_map.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "bloom_filter.h"
#include "cleanup.h"
#include "key_index.h"
#include "key_log.h"

static uint64_t body_of(uint64_t lines, uint64_t buckets)
{
	return lines * BLOOM_LINE + buckets * KEY_BUCKET;
}

uint64_t dedup_map_bytes(uint64_t lines, uint64_t buckets)
{
	uint64_t body = body_of(lines, buckets);
	return DEDUP_MAP_HEAD + body + map_pieces_count(body) * sizeof(uint64_t);
}

struct map_pieces dedup_map_pieces(void *map, uint64_t seed)
{
	const struct dedup_map_head *head = map;
	char *body = (char *)map + DEDUP_MAP_HEAD;
	uint64_t bytes = body_of(head->lines, head->buckets);
	return (struct map_pieces){
	    .body = body, .bytes = bytes, .seed = seed, .sums = (void *)(body + bytes)};
}

/* --- what is known -------------------------------------------------------------------------- */

static uint64_t sum_of_known(const struct dedup_map_known *known, uint64_t seed)
{
	return XXH3_64bits_withSeed(known, offsetof(struct dedup_map_known, checksum), seed);
}

static bool known_is_whole(const struct dedup_map_known *known, uint64_t seed)
{
	return known->units >= KEY_FIRST_UNIT && known->checksum == sum_of_known(known, seed) &&
	       known->ids <= known->units - KEY_FIRST_UNIT;
}

const struct dedup_map_known *dedup_map_known(const struct dedup_map_head *head, uint64_t seed)
{
	const struct dedup_map_known *newest = NULL;
	for (int i = 0; i < 2; i++)
		if (known_is_whole(&head->known[i], seed) &&
		    (!newest || head->known[i].units > newest->units))
			newest = &head->known[i];
	return newest;
}

/* If the process is killed meanwhile, the newer one remains. */
void dedup_map_note(struct dedup_map_head *head, struct dedup_map_known known, uint64_t seed)
{
	const struct dedup_map_known *newest = dedup_map_known(head, seed);
	known.checksum = sum_of_known(&known, seed);
	head->known[newest == &head->known[0]] = known;
}

const char *dedup_map_fault(const struct dedup_map_head *head, uint64_t seed)
{
	if (memcmp(head->magic, DEDUP_MAP_MAGIC, sizeof head->magic) != 0)
		return "is no map";
	if (head->version != DEDUP_MAP_VERSION)
		return "is of another version of the format than this program's";
	return dedup_map_known(head, seed) ? NULL : "has a damaged head";
}

bool dedup_map_sizes(
    int folder, const char *name, uint64_t seed, uint64_t *ret_lines, uint64_t *ret_buckets)
{
	struct stat state;
	struct dedup_map_head head;
	owned_fd int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &state) ||
	    pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
	    dedup_map_fault(&head, seed))
		return false;

	/* compared one by one first: the sizes of a damaged head could overflow their sum */
	uint64_t bytes = (uint64_t)state.st_size, most = bytes / BLOOM_LINE;
	*ret_lines = head.lines;
	*ret_buckets = head.buckets;
	return head.lines <= most && head.buckets <= most &&
	       dedup_map_bytes(head.lines, head.buckets) == bytes;
}

bool dedup_map_is_empty(int folder, const char *name, uint64_t seed)
{
	struct dedup_map_head head;
	owned_fd int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
	       !dedup_map_fault(&head, seed) &&
	       dedup_map_known(&head, seed)->units == KEY_FIRST_UNIT;
}

uint64_t dedup_map_sum(const struct dedup_map_head *head, const struct map_pieces *pieces)
{
	uint64_t sizes = XXH3_64bits_withSeed(
	    &head->lines, sizeof head->lines + sizeof head->buckets, pieces->seed);
	return XXH3_64bits_withSeed(
	    pieces->sums, map_pieces_count(pieces->bytes) * sizeof *pieces->sums, sizes);
}

/* --- starts of the machine ------------------------------------------------------------------ */

bool dedup_map_boot(uint8_t ret_boot[DEDUP_MAP_BOOT])
{
	char text[37] = "";
	owned_file FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	bool good = file && fread(text, 1, 36, file) == 36;
	int place = 0;

	for (char *at = text; good && *at && place < DEDUP_MAP_BOOT; at++)
		if (*at != '-') {
			unsigned value;
			good = sscanf(at, "%2x", &value) == 1;
			ret_boot[place++] = (uint8_t)value;
			at++;
		}

	return good && place == DEDUP_MAP_BOOT;
}

bool dedup_map_is_of_this_boot(const struct dedup_map_head *head)
{
	uint8_t boot[DEDUP_MAP_BOOT];
	return dedup_map_boot(boot) && memcmp(boot, head->boot, DEDUP_MAP_BOOT) == 0;
}
