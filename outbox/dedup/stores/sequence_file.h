#pragma once
/*
 * The file `positions` of the store `sequence`. It has three lines: the marks, as outbox_dedup_mark
 * returns them; the offset of the checkpoint, -1: none; XXH3, 64 bits, in hex, of the two lines
 * before. Each write replaces the whole file.
 */
#include <stdbool.h>
#include <stdint.h>

/* Reads the marks; the caller frees them. NULL: errno is ENOENT if there is no file, EBADMSG if the
 * file is damaged. */
char *sequence_file_read(int folder, int64_t *ret_offset);
/* Replaces the file; its name is durable when the folder is synced. On failure errno has the
 * reason. */
bool sequence_file_write(int folder, const char *marks, int64_t offset);
