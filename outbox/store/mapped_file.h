#pragma once
/*
 * A file that is mapped into memory: a page for the head, and behind it the data of a store.
 * Written data survives kill -9, because the kernel has it. Synced data survives a loss of power;
 * any part of later data may survive.
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
 *   full      8   the store's
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
	uint64_t checksum, failed, full;
};

/* The fault of the head of a file with this many bytes behind the head, whichever store it belongs
 * to; NULL: none. */
const char *mapped_head_fault(const struct mapped_head *head, uint64_t bytes);

/* Has the file only zeroes, because its process was killed while it created the file? */
bool mapped_file_is_blank(int fd, uint64_t length);

struct mapped_file {
	struct mapped_head *head;
	void *bytes; /* behind the head */
};

/*
 * Opens the file, or creates it with all of its room on the disk, and zeroes behind the head.
 * wanted: kind, bytes, seed and number; if `any_size`, the bytes of an existing file may differ.
 * ERR_CONFIG: the file has another content or is damaged; ERR_RETRY: no room. After a failed sync
 * the whole file is written again. On failure there is nothing to close.
 */
bool mapped_file_open(struct mapped_file *ret_file, int folder, const char *name,
    const struct mapped_head *wanted, bool any_size, struct err *err) MUST_CHECK;
void mapped_file_close(struct mapped_file *file); /* {0} is fine */

/* Makes all written data durable. ERR_FATAL: only opening the file again can do so. */
bool mapped_file_sync(const struct mapped_file *file, struct err *err) MUST_CHECK;
/* Writes the offset afterwards; it is valid for other files too. Never below the stored one. */
bool mapped_file_sync_offset(
    const struct mapped_file *file, int64_t offset, struct err *err) MUST_CHECK;
