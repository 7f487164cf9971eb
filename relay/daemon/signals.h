#pragma once
/* Signals as events of a file descriptor. */
#include "errors.h"

enum signals_event { SIGNALS_NONE, SIGNALS_END, SIGNALS_RELOAD };

/*
 * Blocks SIGTERM, SIGINT and SIGHUP for the calling thread, and so for those that it makes
 * afterwards; ignores SIGPIPE. The caller closes the fd. -1: failed.
 */
int signals_open(struct err *err);
/* The next one that came; NONE: there is none. */
enum signals_event signals_read(int fd);
