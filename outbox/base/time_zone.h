#pragma once
/*
 * Time zones of the system (tzdata), several at a time: libc has one a process. Read from TZif
 * files, RFC 8536, of version 1 to 4.
 *
 * Why own code: of the libraries that Debian 12 has, GLib's GTimeZone is the only one in C; it
 * would be the largest thing that an application gets with liboutbox, for what is two files here.
 * ICU is larger still, cctz is C++.
 */
#include <stddef.h>
#include "errors.h"
#include "posix_zone.h"

struct time_zone;

/*
 * As Europe/Berlin; UTC needs no file. TZDIR says where they are, as for libc. ERR_CONFIG: there is
 * none of this name, or its file is not to be used.
 */
struct time_zone *time_zone_open(const char *name, struct err *err);
/* NULL: it is no TZif file, or damaged, or counts leap seconds. */
struct time_zone *time_zone_read(const void *bytes, size_t length);
void time_zone_destroy(struct time_zone *zone);

/* What the clock shows around this second, which is not beyond 10^16. */
struct zone_span time_zone_span(const struct time_zone *zone, int64_t second);
