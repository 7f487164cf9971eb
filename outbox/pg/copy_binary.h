#pragma once
/*
 * PostgreSQL's COPY BINARY (the "Binary Format" section of its COPY page), parsed in place: a field
 * is a pointer into the row's buffer. Input is not trusted: any bytes give fields or an error.
 */
#include <stdint.h>
#include "errors.h"

struct copy_field {
	const char *data; /* into the row; NULL: SQL NULL */
	int32_t length;
};

enum copy_kind { COPY_ROW, COPY_TRAILER };

/*
 * Parses one CopyData message. `first` tells that it is the first of the stream, which begins with the
 * file header (signature, flags, extension; skipped). A message may hold the header and a row, a row,
 * or the trailer (header and trailer when there are no rows). Exactly `count` fields are expected.
 */
bool copy_parse(const char *message, int length, bool first, struct copy_field *fields, int count,
    enum copy_kind *ret_kind, struct err *err) MUST_CHECK;

/* Big-endian integers of a binary value. */
int16_t copy_int16(const char *data);
int32_t copy_int32(const char *data);
int64_t copy_int64(const char *data);
