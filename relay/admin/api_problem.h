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
 * {"type", "title", "status", "detail", "instance"}. detail says what to do; as api_text takes
 * it. request_id: NULL for a problem without an instance.
 */
json_t *api_problem(const char *code, unsigned status, const char *detail, const char *request_id);

enum { API_REQUEST_ID = 17 };
/* A new X-Request-Id, of a request that has none or is not read to its end. */
void api_request_id(char id[API_REQUEST_ID]);

/*
 * Text that may have been cut within a character, also before its end. A byte that is not UTF-8
 * becomes U+FFFD.
 */
json_t *api_text(const char *text);
