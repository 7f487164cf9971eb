#pragma once
/*
 * Memory for many small things that go together. Nothing in it is freed by itself; all of it stays
 * where it is until the arena is finished. Of one thread.
 */
#include <stddef.h>

/* Embedded on purpose; {0} is an empty one. */
struct arena {
	struct arena_block *blocks;
	char *at;
	size_t room;
};

/* Aligned for any type; memory or death, as xmalloc. */
void *arena_take(struct arena *arena, size_t size);
/* With a NUL behind it. */
char *arena_copy(struct arena *arena, const void *bytes, size_t length);
char *arena_text(struct arena *arena, const char *text);
/* The parts behind each other, the last one followed by NULL. */
char *arena_join(struct arena *arena, const char *first, ...) __attribute__((sentinel));
/* It is empty, and can be used again. */
void arena_finish(struct arena *arena);
