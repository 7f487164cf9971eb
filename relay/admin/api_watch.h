#pragma once
/*
 * The figures of this process: the series of the last 15 minutes, the alarms, and the events for
 * GET /v1/events. A thread of its own looks at the process once a second. Internal
 * to relay/admin.
 */
#include "alarms.h"
#include "api.h"
#include "events.h"
#include "history.h"

struct api_watch;

/* parts: of api_start. NULL: no thread (ERR_FATAL). */
struct api_watch *api_watch_start(const struct api_parts *parts, struct err *err);
void api_watch_stop(struct api_watch *watch); /* no stream is left; NULL is fine */

struct history *api_watch_history(const struct api_watch *watch);
struct alarms *api_watch_alarms(const struct api_watch *watch);
struct events *api_watch_events(const struct api_watch *watch);
