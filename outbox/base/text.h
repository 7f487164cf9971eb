#pragma once
/*
 * Text: a growing buffer, and the few checks and conversions that libc does unsafely.
 * Allocation failure ends the process (one line to stderr, then abort): a daemon whose memory is
 * bounded by configuration has nothing sensible to do without the first kilobyte.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory or death: never NULL. size may be 0. The caller frees with free(). */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *pointer, size_t size);
char *xstrdup(const char *text); /* NULL gives NULL */
char *xformat(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Embedded on purpose; {0} is an empty buffer. data is always NUL-terminated once non-NULL. */
struct text {
	char *data;
	size_t length, capacity;
};
void text_finish(struct text *text);
void text_clear(struct text *text);                /* length 0, keeps the memory */
void text_reserve(struct text *text, size_t more); /* so many bytes can come, and none moves */
void text_append(struct text *text, const char *bytes, size_t length);
void text_add(struct text *text, const char *string);
void text_addf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "" if nothing was ever added; valid until the next change. */
const char *text_string(const struct text *text);

/* Copies what fits in size - 1 bytes and ends it with NUL; from NULL is "". */
void text_copy(char *to, size_t size, const char *from);

bool text_equal(const char *a, const char *b); /* NULL equals NULL only */
bool text_starts(const char *string, const char *prefix);

/* Whole-string decimal; false when empty, when something follows, or out of [low, high]. */
bool text_to_int64(const char *string, int64_t low, int64_t high, int64_t *ret_value);

/* Writes value in decimal at `at` (room for 20 bytes), no NUL; returns the end. For hot paths. */
char *text_write_int64(char *at, int64_t value);

/*
 * The well-formed UTF-8 sequence (RFC 3629: shortest form, no surrogates) at the beginning of a
 * NUL-terminated string: its length in bytes and its code point; 0: there is none. NUL has
 * length 1.
 */
int text_utf8(const char *at, uint32_t *ret_code);
/* The bytes, which may hold NULs and need none behind them, are well-formed UTF-8. */
bool text_is_utf8(const void *bytes, size_t length);

/* A control character (C0, DEL, or C1 as UTF-8 has it) begins here. */
bool text_is_control(const char *at);
/* Adds text of others as one line: control characters, which could steer a terminal, are spaces. */
void text_add_line(struct text *text, const char *line);

/* Base64 (RFC 4648, padded). ret_bytes is malloc'ed, the caller frees. False: not base64. */
bool text_base64_decode(const char *string, size_t length, void **ret_bytes, size_t *ret_length);
