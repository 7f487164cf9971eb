#pragma once
/* A folder for files of a test, below TMPDIR. */
#include <stdbool.h>
#include <sys/types.h>

enum { TEMPORARY = 256 };

bool temporary_make(char ret_path[TEMPORARY]);
/* Of all that is in it. */
void temporary_empty(const char *path);
/* And what is in it. */
void temporary_remove(const char *path);
/* Changes a bit of the byte at that place of a file. A byte that is overwritten instead may be the
 * same as before. */
void temporary_flip(const char *file, off_t at);
