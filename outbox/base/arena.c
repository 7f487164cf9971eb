#include "arena.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "text.h"

enum { BLOCK = 2048 };

struct arena_block {
	struct arena_block *before;
	max_align_t memory[];
};

static void add_block(struct arena *arena, size_t size)
{
	struct arena_block *block = xmalloc(sizeof *block + size);

	block->before = arena->blocks;
	arena->blocks = block;
	arena->at = (char *)block->memory;
	arena->room = size;
}

void *arena_take(struct arena *arena, size_t size)
{
	size_t rest = size % sizeof(max_align_t);
	char *taken;

	size += rest ? sizeof(max_align_t) - rest : 0;
	if (size > arena->room)
		add_block(arena, size > BLOCK ? size : BLOCK);
	taken = arena->at;
	arena->at += size;
	arena->room -= size;
	return taken;
}

char *arena_copy(struct arena *arena, const void *bytes, size_t length)
{
	char *copy = arena_take(arena, length + 1);

	memcpy(copy, bytes, length);
	copy[length] = '\0';
	return copy;
}

char *arena_text(struct arena *arena, const char *text)
{
	return arena_copy(arena, text, strlen(text));
}

char *arena_join(struct arena *arena, const char *first, ...)
{
	size_t length = 0;
	va_list parts;
	char *whole, *at;

	va_start(parts, first);
	for (const char *part = first; part; part = va_arg(parts, const char *))
		length += strlen(part);
	va_end(parts);

	whole = at = arena_take(arena, length + 1);
	*at = '\0';
	va_start(parts, first);
	for (const char *part = first; part; part = va_arg(parts, const char *))
		at = stpcpy(at, part);
	va_end(parts);
	return whole;
}

void arena_finish(struct arena *arena)
{
	while (arena->blocks) {
		struct arena_block *block = arena->blocks;

		arena->blocks = block->before;
		free(block);
	}
	*arena = (struct arena){0};
}
