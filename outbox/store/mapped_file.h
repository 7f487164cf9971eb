#pragma once
/*
 * A file that is memory: a page of head, and behind it what a store keeps. What is written into it
 * is there after kill -9, since the kernel has it; after a loss of power what was synced is there,
 * and of what came later any part.
 *
 * The head, little-endian, zeroes behind it:
 *
 *   magic     8   "obmapped"
 *   version   4   1
 *   kind      4   what is in it: the store's
 *   bytes     8   behind the head
 *   seed      8
 *   number    8   the store's, fixed
 *   count     8   the store's
 *   offset    8   the largest that a sync made durable; -1: none
 *   checksum  8   XXH3, 64 bits, of the 40 bytes before count
 *   failed    8   1: a sync failed, and the kernel may call clean what is on no disk
 *
 * Owned by one thread.
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"

enum { MAPPED_HEAD = 4096 };

struct mapped_head {
	char magic[8];
	uint32_t version, kind;
	uint64_t bytes, seed;
	int64_t number;
	uint64_t count;
	int64_t offset;
	uint64_t checksum, failed;
};

/* What is wrong with the head of a file of so many bytes behind it, whoever's it is; NULL: nothing.
 */
const char *mapped_head_fault(const struct mapped_head *head, uint64_t bytes);

/* Is there nothing in it but zeroes: was it being made when its process was killed? */
bool mapped_file_is_blank(int fd, uint64_t length);

struct mapped_file {
	struct mapped_head *head;
	void *bytes; /* behind the head */
};

/*
 * Opens it, or makes it with room on the disk for all of it, and zeroes behind the head. wanted:
 * kind, bytes, seed and number; of a file that is there bytes may differ if `any_size`. ERR_CONFIG:
 * a file of something else, or damaged; ERR_RETRY: no room. After a sync
 * that failed all of it is written again. On failure there is nothing to close.
 */
bool mapped_file_open(struct mapped_file *ret_file, int folder, const char *name,
    const struct mapped_head *wanted, bool any_size, struct err *err) MUST_CHECK;
void mapped_file_close(struct mapped_file *file); /* takes {0} as well */

/* All that was written is durable. ERR_FATAL: only who opens it again can make it so. */
bool mapped_file_sync(const struct mapped_file *file, struct err *err) MUST_CHECK;
/* Then the offset, which speaks for more files than this one. Not below the one that is there. */
bool mapped_file_sync_offset(
    const struct mapped_file *file, int64_t offset, struct err *err) MUST_CHECK;
