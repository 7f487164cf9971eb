#pragma once
/*
 * Cleanup attributes for locals that own something:  owned_text char *name = NULL;
 * A module with its own destructor adds an attribute for it with DEFINE_OWNED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OWNED(release) __attribute__((cleanup(release)))

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}
static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
static inline void cleanup_fclose(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define owned_text OWNED(cleanup_free)
#define owned_fd OWNED(cleanup_close)
#define owned_file OWNED(cleanup_fclose)

/* DEFINE_OWNED(struct pg, pg_destroy) makes `owned_pg_destroy(struct pg **)` for OWNED(...). */
#define DEFINE_OWNED(type, destroy)                                                                \
	static inline void owned_##destroy(type **pointer)                                         \
	{                                                                                          \
		destroy(*pointer);                                                                 \
	}
