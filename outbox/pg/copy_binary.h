#pragma once
/*
 * PostgreSQL's COPY BINARY (the "Binary Format" section of its COPY page), parsed in place: a field
 * is a pointer into the row's buffer. Input is not trusted: the parser turns any bytes into fields
 * or an error.
 */
#include <endian.h>
#include <stdint.h>
#include <string.h>
#include "errors.h"

struct copy_field {
	const char *data; /* points into the row; NULL: SQL NULL */
	int32_t length;   /* bytes; 0 when NULL */
};

enum copy_kind { COPY_ROW, COPY_TRAILER };

/*
 * Parses one CopyData message. `first`: the message is the first of the stream and begins with the
 * file header (signature, flags, extension; skipped). A message holds the header and a row, a row,
 * or the trailer (header and trailer when there are no rows). A row must have exactly `count`
 * fields. On false (ERR_FATAL) the fields are not valid.
 */
bool copy_parse(const char *message, int length, bool first, struct copy_field *fields, int count,
    enum copy_kind *ret_kind, struct err *err) MUST_CHECK;

/*
 * Read a big-endian integer from a binary value, which must have at least that many bytes. Inline:
 * they are called several times for every row.
 */
static inline int16_t copy_int16(const char *data)
{
	uint16_t value;
	memcpy(&value, data, sizeof value);
	return (int16_t)be16toh(value);
}
static inline int32_t copy_int32(const char *data)
{
	uint32_t value;
	memcpy(&value, data, sizeof value);
	return (int32_t)be32toh(value);
}
static inline int64_t copy_int64(const char *data)
{
	uint64_t value;
	memcpy(&value, data, sizeof value);
	return (int64_t)be64toh(value);
}
