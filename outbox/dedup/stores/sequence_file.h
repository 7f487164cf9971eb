#pragma once
/*
 * The file `positions` of the store `sequence`, three lines: the marks, as outbox_dedup_mark gives
 * them; the offset of the checkpoint, -1: none; XXH3, 64 bits, in hex, of the two lines. It is
 * replaced as a whole.
 */
#include <stdbool.h>
#include <stdint.h>

/* The marks, malloc'ed. NULL and errno: ENOENT when there is none, EBADMSG when it is damaged. */
char *sequence_file_read(int folder, int64_t *ret_offset);
/* False and errno. Its name is durable when the folder is synced. */
bool sequence_file_write(int folder, const char *marks, int64_t offset);
