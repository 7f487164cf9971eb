#pragma once
/*
 * What a store is opened with, from one line of a configuration:
 *
 *   bloom ids=50M rate=0.1% window=24h path=/var/lib/billing/dedup
 *
 * first the store, then settings in any order. A value has no blanks. Each refusal names the
 * setting and the cure (ERR_CONFIG).
 */
#include <stdint.h>
#include "errors.h"

enum dedup_store { DEDUP_BLOOM, DEDUP_STORES };
extern const char *const dedup_store_names[DEDUP_STORES + 1];

struct dedup_spec {
	enum dedup_store store;
	int64_t ids;       /* at most that many different ones in a window, as planned */
	double rate;       /* of false positives, of the whole window */
	int64_t window_ms; /* so long an id is remembered */
	int64_t slices;    /* the window is cut into so many */
	char *path;        /* the folder of its state; NULL: not given */
};

/* The defaults; what has none is 0 or NULL. */
void dedup_spec_init(struct dedup_spec *spec);
void dedup_spec_finish(struct dedup_spec *spec);

/* One setting. The name need not be one. */
bool dedup_spec_set(
    struct dedup_spec *spec, const char *name, const char *value, struct err *err) MUST_CHECK;
/* Is everything there that the store needs, and does it fit together? */
bool dedup_spec_check(const struct dedup_spec *spec, struct err *err) MUST_CHECK;
/* The line; all of the above. ret_spec is to be finished in any case. */
bool dedup_spec_parse(const char *line, struct dedup_spec *ret_spec, struct err *err) MUST_CHECK;
