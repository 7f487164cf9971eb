#pragma once
/*
 * The refusals of the HTTP interface, which are problem documents (RFC 9457). One table has the
 * codes that relay/admin and relay/lookback refuse requests and messages with;
 * tests/lint/test_problems.py compares it with their sources and with docs/reference/api.md.
 */
#include <jansson.h>

#define API_PROBLEM_MEDIA_TYPE "application/problem+json"

/* The HTTP status of a message that was refused with the code. */
unsigned api_problem_status(const char *code);

/*
 * {"type", "title", "status", "detail", "instance"}. detail says what to do; it may have been cut
 * within a character. request_id: NULL for a problem without an instance.
 */
json_t *api_problem(const char *code, unsigned status, const char *detail, const char *request_id);

/* Text that may have been cut within a character. */
json_t *api_text(const char *text);
