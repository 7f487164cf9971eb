#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include "clock.h"

enum { TERMINAL_MS = 200, LINES_MS = 10000 };

void progress_begin(struct progress *progress, const char *what)
{
	int64_t now = clock_ms();

	*progress = (struct progress){
	    .what = what, .began_ms = now, .shown_ms = now, .terminal = isatty(STDERR_FILENO)};
}

void progress_step(struct progress *progress, int64_t count)
{
	int64_t now = clock_ms(), spent = now - progress->began_ms;

	/* a terminal redraws one line; elsewhere each report is a line of a log, so they are
	 * rare */
	if (now - progress->shown_ms < (progress->terminal ? TERMINAL_MS : LINES_MS))
		return;
	progress->shown_ms = now;
	progress->drawn = progress->terminal;
	fprintf(stderr, "%s%s: %" PRId64 ", %" PRId64 "/s%s", progress->terminal ? "\r" : "",
	    progress->what, count, spent > 0 ? count * 1000 / spent : 0,
	    progress->terminal ? "\033[K" : "\n");
}

void progress_end(struct progress *progress)
{
	/* clears the line, so that the result does not begin behind it */
	if (progress->drawn)
		fputs("\r\033[K", stderr);
	progress->drawn = false;
}

static void show_watched_step(void *context, const char *what, int64_t count)
{
	struct progress *progress = context;

	if (!progress->what)
		progress_begin(progress, what);
	progress_step(progress, count);
}

static void show_watched_end(void *context)
{
	struct progress *progress = context;

	progress_end(progress);
	progress->what = NULL;
}

struct progress_watch progress_watch(struct progress *progress)
{
	*progress = (struct progress){0};
	return (struct progress_watch){
	    .step = show_watched_step, .end = show_watched_end, .context = progress};
}
