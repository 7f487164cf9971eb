#pragma once
/* A folder for files of a test, below TMPDIR. */
#include <stdbool.h>

enum { TEMPORARY = 256 };

bool temporary_make(char ret_path[TEMPORARY]);
/* Of all that is in it. */
void temporary_empty(const char *path);
/* And what is in it. */
void temporary_remove(const char *path);
