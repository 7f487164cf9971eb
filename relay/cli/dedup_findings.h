#pragma once
/* Findings on a folder that both `dedup stat` and `dedup verify` print. */
#include <jansson.h>
#include "dedup_inspect.h"

/* "damaged: 3.0.log at byte 96: …" */
void dedup_finding_print(const struct dedup_finding *finding);
json_t *dedup_finding_json(const struct dedup_finding *finding);

/* The counters of the store `counting`, added up over its files. */
struct dedup_counters {
	uint64_t all, full;
};
void dedup_counters_add(struct dedup_counters *counters, const struct dedup_part *part);
/* "saturated 8 of 4000 counters: …"; nothing for a folder without counters */
void dedup_counters_print(const struct dedup_counters *counters);

/* "by process 17: …", or "by nobody" */
void dedup_holder_print(const struct state_folder_view *folder);
