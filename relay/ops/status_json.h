#pragma once
/* Parts of the status report as JSON, for commands and the API. */
#include "status_report.h"

/* As text: many JSON readers lose digits of a number beyond 2^53. */
json_t *status_int64_json(int64_t number);
/* Numbers below 0 are unknown, and become null. */
json_t *status_known_json(int64_t number);
json_t *status_lines_json(const char *lines); /* an array of texts */

json_t *status_shard_json(const struct status_shard *shard);
json_t *status_parked_json(const struct status_parked *parked);
json_t *status_scheduled_json(const struct status_scheduled *scheduled);
json_t *status_lookback_json(const struct status_lookback *lookback);
