#pragma once
/*
 * Time zones of the system (tzdata), several at a time: libc has only one for each process. Reads
 * TZif files, RFC 8536, of version 1 to 4.
 *
 * Why our own code: GLib's GTimeZone is the only C library in Debian 12 for this, and it would be
 * the largest dependency of an application with liboutbox, while our code has two files. ICU is
 * larger still, cctz is C++.
 */
#include <stddef.h>
#include "errors.h"
#include "posix_zone.h"

struct time_zone;

/*
 * Opens a zone by its name, for example Europe/Berlin; UTC needs no file. TZDIR names the folder of
 * the files, as for libc. ERR_CONFIG: there is no zone of this name, or its file cannot be used.
 */
struct time_zone *time_zone_open(const char *name, struct err *err);
/* NULL: the bytes are not a TZif file, are damaged, or count leap seconds. */
struct time_zone *time_zone_read(const void *bytes, size_t length);
void time_zone_destroy(struct time_zone *zone);

/* The span of time around this second, which is at most 10^16 from 1970, and its offset. */
struct zone_span time_zone_span(const struct time_zone *zone, int64_t second);

/* The date that the zone's clock shows, as days since 1970-01-01. */
int64_t time_zone_day(const struct time_zone *zone, int64_t second);
/* The first second with this date. It is not 00:00 where the clock leaves that out; if the zone
 * leaves out the whole day, the next day begins then. */
int64_t time_zone_day_begin(const struct time_zone *zone, int64_t day);
