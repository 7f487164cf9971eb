#pragma once
/* Findings on a folder that both `dedup stat` and `dedup verify` print. */
#include <jansson.h>
#include "dedup_inspect.h"

/* "damaged: 3.0.log at byte 96: …" */
void dedup_finding_print(const struct dedup_finding *finding);
json_t *dedup_finding_json(const struct dedup_finding *finding);

/* "by process 17: …", or "by nobody" */
void dedup_holder_print(const struct state_folder_view *folder);
