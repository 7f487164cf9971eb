#pragma once
/* The header lines of an answer, as its server wrote them: any bytes. Pure. */
#include <stdint.h>
#include "text.h"

/*
 * Appends "name: value" to the lines as name NUL value NUL, without the blanks around the value. A
 * line without a name, a continued one, and one with a NUL in it are left out.
 */
void http_lines_add(struct text *lines, const char *line, size_t length);
/* The value of the first such header in the lines from that place on; NULL: there is none. */
const char *http_lines_find(const struct text *lines, size_t from, const char *name);

/* As http_response_retry_after_ms; text NULL: the header is not there. */
int64_t http_lines_retry_after_ms(const char *text, int64_t wall_us);
