#pragma once
/*
 * The head of an HTTP request, read strictly (RFC 9112): whatever two readers could understand in
 * two ways is refused, because a proxy in front of us may be the other reader. No I/O. Internal to
 * relay/admin.
 *
 * Refused are: a bare LF or CR, NUL and other control characters, a blank before the colon, a
 * folded line, two Host fields or none, two Content-Length fields, Content-Length with
 * Transfer-Encoding, a transfer coding other than "chunked" and any in HTTP/1.0, a malformed
 * %-sequence of the path or the arguments, %00, and a target that does not begin with a slash.
 */
#include <stddef.h>
#include <sys/types.h>
#include "errors.h"
#include "text.h"

enum { REQUEST_FIELDS = 64, REQUEST_ARGUMENTS = 16 };

struct request_pair {
	const char *name, *value;
};

/* Texts point into the bytes that were parsed. */
struct request_head {
	const char *method;
	const char *path; /* decoded */
	const char *host; /* without the port; an IPv6 address without brackets */
	struct request_pair fields[REQUEST_FIELDS];
	int field_count;
	struct request_pair arguments[REQUEST_ARGUMENTS]; /* of the query, decoded */
	int argument_count;
	int64_t length; /* of the body; 0: none, or chunked */
	bool has_length, is_chunked;
	bool keeps_alive;
	bool expects_continue;
};

/*
 * Looks for the end of the head. *scanned: bytes that earlier calls looked at, 0 at first; it
 * grows. Positive: the length of the head with its blank line; 0: more bytes are needed; -1: a
 * character that no head has, and *ret_why says which.
 */
ssize_t request_head_span(
    const char *bytes, size_t length, size_t *scanned, const char **ret_why) MUST_CHECK;

/* The bytes are a whole head and are changed. False: *ret_why says what is wrong. */
bool request_head_parse(
    char *bytes, size_t length, struct request_head *head, const char **ret_why) MUST_CHECK;

/* The first field of this name (in any case), or argument of it; NULL: there is none. */
const char *request_head_field(const struct request_head *head, const char *name);
const char *request_head_argument(const struct request_head *head, const char *name);

/*
 * A body in chunks. Chunk extensions are passed over, trailer fields are refused.
 * {0} is the beginning.
 */
struct request_chunks {
	int state;
	int64_t left; /* of the chunk, or its length as far as it was read */
	int digits;   /* of its length; then: bytes of its extension */
};
/*
 * Takes up to `length` bytes; *ret_taken of them were used. A part of the body begins at *ret_data
 * and has *ret_length bytes (0: none came of them). 1: the body has ended; 0: it has not; -1: this
 * is no chunked body.
 */
int request_chunks_read(struct request_chunks *chunks, const char *bytes, size_t length,
    size_t *ret_taken, const char **ret_data, size_t *ret_length) MUST_CHECK;
