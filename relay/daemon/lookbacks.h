#pragma once
/*
 * The look-back of a process: for each [lookback] section a reader and a checker. Owned by the
 * daemon's main thread; lookbacks_ready and lookbacks_live may be called from any.
 */
#include "config.h"
#include "errors.h"
#include "text.h"

struct lookbacks;

/*
 * owner: the process's name in the database's tables. event_fd is written when a reader or a
 * checker has ended. All arguments must outlive the look-back.
 */
struct lookbacks *lookbacks_start(
    const struct config *config, const char *owner, int event_fd, struct err *err);
/* Returns at once; lookbacks_are_over tells when it is done. */
void lookbacks_stop(struct lookbacks *lookbacks);
bool lookbacks_are_over(const struct lookbacks *lookbacks);
/* Waits for the threads that have not ended. NULL is fine. */
void lookbacks_destroy(struct lookbacks *lookbacks);

/* One line a section; false: one of them is in trouble. */
bool lookbacks_ready(const struct lookbacks *lookbacks, struct text *report);
bool lookbacks_live(const struct lookbacks *lookbacks, int64_t now, struct text *report);
