#pragma once
/*
 * One row of outbox.message in memory, in binary form: either a row of a COPY, whose buffer it
 * takes over, or a copy of a row of a result. All pointers point into `block`, except `topic`,
 * which may point to a text of the caller (usual_topic).
 */
#include <stdint.h>
#include "copy_binary.h"
#include "errors.h"

struct pg_result;
struct text;

/*
 * id created_at event_id topic key payload headers partition deliver_at key_bytes payload_bytes.
 * Key and payload are text in UTF-8, or bytes: the binary forms are the same. In each pair (key,
 * key_bytes; payload, payload_bytes) at least one field is null.
 */
enum { MESSAGE_FIELDS = 11 };

struct message {
	char *block; /* owned; message_release frees it */
	int64_t id;
	int64_t created_us;   /* since 1970, UTC */
	const char *event_id; /* 16 bytes */
	const char *topic;    /* not NUL-terminated */
	const char *key;      /* NULL: null key */
	const char *payload;  /* NULL: tombstone */
	const char *headers;  /* JSON text; NULL: none */
	int32_t topic_length, key_length, payload_length, headers_length;
	int32_t partition; /* -1: by key */
	int32_t bytes;     /* of the block */
	bool scheduled;    /* has a deliver_at */
	int64_t due_us;    /* deliver_at if it is later than created_us, otherwise created_us */
};

/*
 * Takes over `row` (from pg_copy_next), even if it fails. usual_topic: the topic of rows whose
 * topic is null in this COPY, with a NUL at its end; NULL: there is none. The message points into
 * it.
 */
bool message_from_copy(char *row, int length, bool first, const char *usual_topic,
    struct message *ret_message, enum copy_kind *ret_kind, struct err *err) MUST_CHECK;

/* Copies row `row` of a binary result whose message columns begin at `column`. */
bool message_from_result(const struct pg_result *result, int row, int column,
    struct message *ret_message, struct err *err) MUST_CHECK;

void message_release(struct message *message);

/* name has no NUL at its end; value NULL is a null value. */
typedef void message_header_see(
    void *context, const char *name, size_t name_length, const void *value, size_t length);

/*
 * Calls `see` for each application header in order. Names and values point into the message or into
 * `scratch`, whose earlier content is gone: they are valid as long as both. The database checked
 * the form when the row was inserted (constraint headers…); ERR_REJECT if it is wrong nevertheless.
 */
bool message_headers(const struct message *message, struct text *scratch, message_header_see *see,
    void *context, struct err *err) MUST_CHECK;
