#include "copy_binary.h"

/* The NUL that ends the literal is the last byte of the signature. */
static const char signature[] = "PGCOPY\n\377\r\n";

/* Flag bits that a reader must know. Only bit 16 (OIDs) ever had a meaning, until PostgreSQL 11. */
static const uint32_t critical_flags = 0xffff0000u;

static bool refuse_damaged_copy(struct err *err, const char *what, int offset, int length)
{
	return err_set(err, ERR_FATAL, "COPY binary: %s at byte %d of a message of %d bytes", what,
	    offset, length);
}

/* Returns the offset behind the file header, or -1. */
static int skip_header(const char *message, int length, struct err *err)
{
	const int fixed = (int)sizeof signature + 8;

	if (length < fixed) {
		refuse_damaged_copy(err, "short file header", 0, length);
		return -1;
	}
	if (memcmp(message, signature, sizeof signature) != 0) {
		refuse_damaged_copy(err, "no PGCOPY signature", 0, length);
		return -1;
	}
	if ((uint32_t)copy_int32(message + sizeof signature) & critical_flags) {
		refuse_damaged_copy(err, "unknown critical flag", (int)sizeof signature, length);
		return -1;
	}
	int32_t extension = copy_int32(message + sizeof signature + 4);
	if (extension < 0 || extension > length - fixed) {
		refuse_damaged_copy(err, "bad length of the header extension", fixed - 4, length);
		return -1;
	}
	return fixed + extension;
}

bool copy_parse(const char *message, int length, bool first, struct copy_field *fields, int count,
    enum copy_kind *ret_kind, struct err *err)
{
	int at = first ? skip_header(message, length, err) : 0;
	if (at < 0)
		return false;
	if (length - at < 2)
		return refuse_damaged_copy(err, "no field count", at, length);

	int16_t found = copy_int16(message + at);
	at += 2;
	/* The trailer is the only message with the field count -1. */
	if (found == -1) {
		if (at != length)
			return refuse_damaged_copy(err, "bytes behind the trailer", at, length);
		*ret_kind = COPY_TRAILER;
		return true;
	}
	if (found != count)
		return err_set(
		    err, ERR_FATAL, "COPY binary: a row of %d fields, expected %d", found, count);

	for (int i = 0; i < count; i++) {
		if (length - at < 4)
			return refuse_damaged_copy(err, "no field length", at, length);
		int32_t size = copy_int32(message + at);
		at += 4;
		if (size == -1) {
			fields[i] = (struct copy_field){NULL, 0};
			continue;
		}
		/* Compared with the rest of the message: `at + size` could overflow. */
		if (size < 0 || size > length - at)
			return refuse_damaged_copy(err, "bad field length", at - 4, length);
		fields[i] = (struct copy_field){message + at, size};
		at += size;
	}

	if (at != length)
		return refuse_damaged_copy(err, "bytes behind the last field", at, length);
	*ret_kind = COPY_ROW;
	return true;
}
