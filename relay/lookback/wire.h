#pragma once
/*
 * A request of an application about an id (a pair of biz_type and biz_id): prepare, commit or
 * rollback. It comes as a record of the look-back topic, in one of two forms, or as the body of an
 * HTTP request, which is the first one; docs/reference/lookback-message.schema.json describes it.
 *
 * JSON: the value is an object with "version": 1. Header form: the record has the header
 * lookback-version, the other fields are headers as well (lookback-biz-type for biz_type) and the
 * value is the payload as it is; headers of other names go with the message.
 *
 * The key of the record is biz_type:biz_id in both forms. So all requests about an id are in one
 * partition, in order.
 *
 * No I/O; any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "errors.h"
#include "hex.h"
#include "text.h"

enum lookback_op { LOOKBACK_PREPARE, LOOKBACK_COMMIT, LOOKBACK_ROLLBACK, LOOKBACK_OPS };
extern const char *const lookback_op_names[LOOKBACK_OPS];

/* Bytes that may hold NUL; bytes NULL: absent, or null. */
struct lookback_bytes {
	char *bytes;
	size_t length;
};
/* A copy, which ends with a NUL that is not counted; the caller frees its bytes. */
struct lookback_bytes lookback_bytes_copy(const char *bytes, size_t length);

enum { LOOKBACK_DIGEST = 16 };

/* {0} is an empty one. All strings are its own; NULL: not said. */
struct lookback_request {
	enum lookback_op op;
	char *biz_type; /* [A-Za-z0-9._-]{1,100} */
	char *biz_id;   /* UTF-8 without NUL, 1 to 500 bytes */
	/* of a prepare; a decision may repeat them, and nobody looks */
	char *topic; /* where the message goes when it is committed */
	struct lookback_bytes key, payload;
	char *headers; /* headers of the message, as outbox.message takes them */
	char *check_service, *check_url;
	int64_t check_after_ms, expires_after_ms; /* -1: not given */
	/*
	 * The message is published only if no other one of its topic has the key (outbox.publish).
	 * within_ms is -1 without a key, and otherwise always given.
	 */
	char *unique_key;    /* UTF-8 without NUL, 1 to 512 bytes */
	char *while_pending; /* "published" or "done" */
	int64_t within_ms;
	unsigned char digest[LOOKBACK_DIGEST]; /* of all of these: equal when they are */
};

struct lookback_header {
	const char *name;
	const char *value; /* NULL: null */
	size_t length;
};

struct lookback_input {
	const char *key; /* NULL: null; not looked at when is_body */
	size_t key_length;
	const char *value; /* NULL: null */
	size_t value_length;
	const struct lookback_header *headers;
	size_t header_count;
	bool is_body; /* of an HTTP request: JSON, without a key */
};

/*
 * False: refused, and of the request only biz_type may be there (NULL when even that could not be
 * read; it decides which section reports the refusal).
 */
bool lookback_wire_read(const struct lookback_input *input, struct lookback_request *ret_request,
    struct refusal *ret_refusal);
void lookback_request_finish(struct lookback_request *request);

/* biz_type:biz_id, the key of its record; the caller frees. */
char *lookback_wire_key(const struct lookback_request *request);

/*
 * The event id of the message that a commit of the id writes: a UUID of version 5 (RFC 4122, 4.3)
 * of biz_type:biz_id in the name space 4f9d35b8-3a1c-5e0e-9d55-2f6a7f3e0c11.
 */
void lookback_event_id(
    const char *biz_type, const char *biz_id, unsigned char ret_uuid[UUID_BYTES]);
