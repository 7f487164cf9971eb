#include "memory.h"

#include <malloc.h>
#include <stddef.h>

/* jemalloc's name for all of its arenas (MALLCTL_ARENAS_ALL) is 4096. */
#define PURGE_ALL "arena.4096.purge"

/* Of jemalloc. Weak: NULL where the process has no jemalloc. */
extern __attribute__((weak, visibility("default"))) int mallctl(
    const char *name, void *old, size_t *old_length, void *new, size_t new_length);

void memory_give_back(void)
{
	if (mallctl)
		mallctl(PURGE_ALL, NULL, NULL, NULL, 0);
	else
		malloc_trim(0);
}
