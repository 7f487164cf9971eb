#pragma once
/*
 * The progress of a long task: on a terminal one line that is redrawn; elsewhere a line every ten
 * seconds.
 */
#include <stdbool.h>
#include <stdint.h>
#include "progress_watch.h"

struct progress {
	const char *what; /* "rows read"; not copied */
	int64_t began_ms, shown_ms;
	bool terminal, drawn;
};

void progress_begin(struct progress *progress, const char *what);
/* May be called for every piece of work: it looks at the clock, and seldom writes to stderr. */
void progress_step(struct progress *progress, int64_t count);
/* Clears the line. */
void progress_end(struct progress *progress);

/* Shows what relay/ops reports; progress must outlive it. */
struct progress_watch progress_watch(struct progress *progress);
