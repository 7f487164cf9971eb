#pragma once
/*
 * The last 15 minutes of chosen metrics, a point for each second. One call of history_take a second
 * reads them; any thread may read the points. The memory is fixed: HISTORY_ROWS rows of
 * HISTORY_SECONDS points, about 1 MiB. Series that come when all rows are taken are not kept.
 * Internal to relay/admin.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { HISTORY_SECONDS = 900, HISTORY_ROWS = 288 };

struct history;

struct history *history_create(void);
void history_destroy(struct history *history); /* NULL is fine */

/*
 * Reads the metrics as of `second`, whole seconds since 1970. A counter becomes its growth per
 * second since the previous call, and a histogram the median and the 99th percentile of the
 * observations since then. Seconds that were left out get the same points, up to 3 of them; more
 * stay unknown. A second that is not later than that of the previous call is ignored.
 */
void history_take(struct history *history, int64_t second);

/* [{"name", "kind", "unit", "about", "series"}], and how many series found no row. */
json_t *history_names(struct history *history, int64_t *ret_left_out);
bool history_has(const char *name);

struct history_range {
	int64_t from, to; /* seconds since 1970; `to` is the first that is not shown */
	int64_t step;     /* seconds of a point */
};
/* May the caller see the series with this label? NULL: it has no such label. */
typedef bool history_scope(const char *publisher, const char *section, void *context);
/*
 * {"name", "kind", "unit", "from", "step", "series": [{"labels", "points"}]} of a metric of the
 * list. A point of several seconds is the mean of a rate, and the highest of the others; null where
 * nothing is known, such as the latency when nothing was published.
 */
json_t *history_json(struct history *history, const char *name, const struct history_range *range,
    history_scope *is_in_scope, void *context);
/* The newest point of all series with this name and publisher (NULL: any) in sum; NAN: unknown. */
double history_newest(struct history *history, const char *name, const char *publisher);
