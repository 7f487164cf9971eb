#pragma once
/* Moments on the command line and in its output, always UTC. */
#include <stdint.h>
#include "errors.h"

enum { MOMENT_SIZE = 32 };

/* "2026-01-02", "2026-01-02T03:04" or "2026-01-02T03:04:05", a Z or none, into microseconds. */
bool moment_parse(const char *text, int64_t *ret_us, struct err *err) MUST_CHECK;
/* "2026-01-02T03:04:05Z" */
void moment_format(int64_t us, char text[MOMENT_SIZE]);
