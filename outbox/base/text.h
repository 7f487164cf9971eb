#pragma once
/*
 * Text: a growing buffer, and the few checks and conversions that libc does unsafely.
 * Allocation failure ends the process (one line to stderr, then abort): the configuration limits
 * the daemon's memory, and without it the daemon could do nothing sensible.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Never NULL: the process ends if there is no memory. size may be 0. Free with free(). */
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
void text_reserve(struct text *text, size_t more); /* the next `more` bytes will not move data */
void text_append(struct text *text, const char *bytes, size_t length);
void text_add(struct text *text, const char *string);
void text_addf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "" if nothing was ever added; valid until the next change. */
const char *text_string(const struct text *text);

/* Copies at most size - 1 bytes and a NUL; from NULL is "". */
void text_copy(char *to, size_t size, const char *from);

bool text_equal(const char *a, const char *b); /* NULL equals NULL only */
const char *text_plural(int64_t count);        /* "" after 1, else "s": "1 row", "2 rows" */
bool text_starts(const char *string, const char *prefix);
bool text_is_blank(const char *string); /* empty, or spaces, tabs and line ends only */
/* Cuts line ends off the end: editors and `echo` add one, which is no part of a password. */
void text_cut_line_end(char *string);

/* The whole string as a decimal; false: empty, not only digits, or out of [low, high]. */
bool text_to_int64(const char *string, int64_t low, int64_t high, int64_t *ret_value);

/* Writes value in decimal at `at` (room for 20 bytes), no NUL; returns the end. For hot paths. */
char *text_write_int64(char *at, int64_t value);

/*
 * Reads the UTF-8 sequence at the beginning of a NUL-terminated string: returns its length in bytes
 * (NUL has length 1) and its code point; 0: it is not well-formed (RFC 3629: shortest form, no
 * surrogates).
 */
int text_utf8(const char *at, uint32_t *ret_code);
/* Are the bytes well-formed UTF-8? They may contain NULs and need not end with one. */
bool text_is_utf8(const void *bytes, size_t length);

/* Does a control character begin here: C0, DEL, or C1 in UTF-8? */
bool text_is_control(const char *at);
/* Adds untrusted text as one line: control characters, which could act on a terminal, become
 * spaces.
 */
void text_add_line(struct text *text, const char *line);

/* Decodes base64 (RFC 4648, padded). The caller frees *ret_bytes. False: not base64. */
bool text_base64_decode(const char *string, size_t length, void **ret_bytes, size_t *ret_length);
