#pragma once
/* Moments as operators write and read them, always UTC. */
#include <stdint.h>
#include "errors.h"

enum { MOMENT_SIZE = 32 };

/*
 * RFC 3339 as "2026-01-02T03:04:05.25+01:00", into microseconds. The zone may be missing (UTC), the
 * fraction, the seconds, and the time of day with all of these ("2026-01-02").
 */
bool moment_parse(const char *text, int64_t *ret_us, struct err *err) MUST_CHECK;
/* "2026-01-02T03:04:05Z" */
void moment_format(int64_t us, char text[MOMENT_SIZE]);
/* "2026-01-02T03:04:05.25Z": the same moment again when it is parsed. */
void moment_format_exact(int64_t us, char text[MOMENT_SIZE]);
