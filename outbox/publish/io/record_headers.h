#pragma once
/*
 * The headers of one record at a time: the application's, then the relay's own. Each record reuses
 * the memory of the one before, so that a million records need no allocation.
 */
#include "hex.h"
#include "message.h"
#include "producer.h"
#include "text.h"

/* Embedded on purpose; {0} is empty. Put list and count into a producer_record. */
struct record_headers {
	struct producer_header *list;
	int count, capacity;
	struct text bytes; /* names and values of the application's headers that are not plain */
	char id[UUID_TEXT];
};

void record_headers_finish(struct record_headers *headers);

/*
 * Starts the next record with the application's headers. ERR_REJECT: the row's headers are
 * malformed. `message` must stay valid until the record was handed over.
 */
bool record_headers_begin(
    struct record_headers *headers, const struct message *message, struct err *err) MUST_CHECK;

/* Adds `outbox-id`. Keeps no pointer into `message`. */
void record_headers_add_id(struct record_headers *headers, const struct message *message);

/* Does not copy name and value: both must stay valid until the record was handed over. */
void record_headers_add(
    struct record_headers *headers, const char *name, const void *value, size_t length);
