#pragma once
/* The header lines of an answer, as its server wrote them: any bytes. Pure. */
#include <stdint.h>
#include "text.h"

/*
 * Appends "name: value" to the lines as name NUL value NUL, without the blanks around the value.
 * Ignores a line without a name, a continuation line, and a line that contains a NUL.
 */
void http_lines_add(struct text *lines, const char *line, size_t length);
/* The value of the first header of this name, from the offset `from` on; NULL: there is none. */
const char *http_lines_find(const struct text *lines, size_t from, const char *name);

/* As http_response_retry_after_ms; text is the header's value, or NULL if there is none. */
int64_t http_lines_retry_after_ms(const char *text, int64_t wall_us);
