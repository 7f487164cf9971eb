#pragma once
/* Everything that `doctor` checks, for the command and the HTTP interface. */
#include <jansson.h>
#include "checks.h"

/*
 * Makes all checks; blocks for some seconds, and longer if servers do not answer. Returns 0, or the
 * exit status of the first check that could not be made.
 */
int doctor_check(struct checks *checks);
/* Is one of the findings a failure? A finding that can lose data is one if a publisher is strict.
 */
bool doctor_is_failed(const struct checks *checks);
/* A list of {severity, place, finding, cure}. */
json_t *doctor_findings_json(const struct checks *checks);

/* All of it: {"failed", "complete", "findings"}; complete false: a check could not be made. */
json_t *doctor_report_json(const struct config *config);
