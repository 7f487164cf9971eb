#pragma once
/*
 * Builds a column of many rows as a parameter: a one-dimensional array in Postgres' binary form,
 * which costs the server a fraction of the work of the text form (pg_array). The statement must
 * cast it to exactly its type.
 */
#include <stdint.h>
#include "pg.h"
#include "text.h"

/* The numbers are those of pg_type, which are fixed. */
enum pg_column_type {
	PG_COLUMN_BYTEA = 17,
	PG_COLUMN_BIGINT = 20,
	PG_COLUMN_INT = 23,
	PG_COLUMN_TEXT = 25,
	PG_COLUMN_TIMESTAMPTZ = 1184,
	PG_COLUMN_UUID = 2950,
};

/* {.type = …} is an empty column. */
struct pg_column {
	enum pg_column_type type;
	struct text bytes;
	int32_t count;
	bool has_null;
};

void pg_column_add_null(struct pg_column *column);
/* For PG_COLUMN_TEXT; NULL text is SQL NULL. */
void pg_column_add_text(struct pg_column *column, const char *text);
/* For PG_COLUMN_BIGINT, and for PG_COLUMN_INT if the value fits: it is not checked. */
void pg_column_add_int(struct pg_column *column, int64_t value);
/* For PG_COLUMN_TIMESTAMPTZ: microseconds since 1970. */
void pg_column_add_time(struct pg_column *column, int64_t unix_us);
/* For PG_COLUMN_BYTEA, or for PG_COLUMN_UUID with 16 bytes; NULL bytes are SQL NULL. */
void pg_column_add_bytes(struct pg_column *column, const void *bytes, size_t length);
/* Valid until the next change. */
struct pg_param pg_column_param(struct pg_column *column);
void pg_column_clear(struct pg_column *column); /* keeps the memory */
void pg_column_finish(struct pg_column *column);
