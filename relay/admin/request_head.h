#pragma once
/*
 * Checks the head of an HTTP request strictly (RFC 9112): a head that two readers could understand
 * in two ways is refused, because a proxy in front of the relay may be the other reader. No I/O.
 * Internal to relay/admin.
 *
 * Refused are: a bare LF or CR, NUL and other control characters, a blank before the colon, a
 * folded line, no Host field or two, two Content-Length fields, Content-Length with
 * Transfer-Encoding, a transfer coding other than "chunked" and any in HTTP/1.0, a malformed
 * %-sequence or %00 in the target, and a target that does not begin with a slash.
 */
#include <stddef.h>
#include <sys/types.h>
#include "errors.h"
#include "text.h"

enum { REQUEST_FIELDS = 64 };

struct request_head {
	const char *host; /* without the port; an IPv6 address without brackets */
	bool has_body;    /* chunked, or with a length above 0 */
};

/*
 * Looks for the end of the head. *scanned: bytes that earlier calls looked at, 0 at first; it
 * grows. Positive: the length of the head with its blank line; 0: more bytes are needed; -1: a
 * character that no head has, and *ret_why says which.
 */
ssize_t request_head_span(
    const char *bytes, size_t length, size_t *scanned, const char **ret_why) MUST_CHECK;

/*
 * The bytes are a whole head, by request_head_span, and are changed; *head points into them. False:
 * *ret_why says what is wrong, in a text of its own without quotes.
 */
bool request_head_parse(
    char *bytes, size_t length, struct request_head *head, const char **ret_why) MUST_CHECK;
