#pragma once
/*
 * Memory for many small objects with one lifetime. No object is freed by itself; all stay where
 * they are until arena_finish. Owned by one thread.
 */
#include <stddef.h>

/* Embedded on purpose; {0} is an empty one. */
struct arena {
	struct arena_block *blocks;
	char *at;
	size_t room;
};

/* Aligned for any type; never NULL: ends the process without memory, as xmalloc does. */
void *arena_take(struct arena *arena, size_t size);
/* Copies the bytes and adds a NUL. */
char *arena_copy(struct arena *arena, const void *bytes, size_t length);
char *arena_text(struct arena *arena, const char *text);
/* Joins the parts; a NULL ends the arguments. */
char *arena_join(struct arena *arena, const char *first, ...) __attribute__((sentinel));
/* Frees everything. The arena is empty afterwards, and can be used again. */
void arena_finish(struct arena *arena);
