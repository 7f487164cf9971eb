#include "pg_column.h"
#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <string.h>

/*
 * An array as array_send writes it: the header, then each element after its length (-1: NULL). An
 * array without elements has no dimension.
 */
struct header {
	uint32_t dimensions, has_null, type, count, first;
};

/* 2000-01-01, in microseconds since 1970. */
static const int64_t POSTGRES_EPOCH_US = INT64_C(946684800000000);

static void reserve_header(struct pg_column *column)
{
	static const struct header nothing;

	if (column->bytes.length == 0)
		text_append(&column->bytes, (const char *)&nothing, sizeof nothing);
}

static void begin_column_value(struct pg_column *column)
{
	reserve_header(column);
	column->count++;
}

static void add_column_value(struct pg_column *column, const void *bytes, size_t length)
{
	uint32_t size = htonl((uint32_t)length);

	begin_column_value(column);
	text_append(&column->bytes, (const char *)&size, sizeof size);
	text_append(&column->bytes, bytes, length);
}

void pg_column_add_null(struct pg_column *column)
{
	static const uint32_t null = UINT32_MAX;

	begin_column_value(column);
	text_append(&column->bytes, (const char *)&null, sizeof null);
	column->has_null = true;
}

void pg_column_add_text(struct pg_column *column, const char *text)
{
	assert(column->type == PG_COLUMN_TEXT);
	if (text)
		add_column_value(column, text, strlen(text));
	else
		pg_column_add_null(column);
}

void pg_column_add_int(struct pg_column *column, int64_t value)
{
	assert(column->type == PG_COLUMN_INT || column->type == PG_COLUMN_BIGINT);
	if (column->type == PG_COLUMN_INT)
		add_column_value(column, &(uint32_t){htonl((uint32_t)value)}, sizeof(uint32_t));
	else
		add_column_value(column, &(uint64_t){htobe64((uint64_t)value)}, sizeof(uint64_t));
}

void pg_column_add_time(struct pg_column *column, int64_t unix_us)
{
	assert(column->type == PG_COLUMN_TIMESTAMPTZ);
	add_column_value(
	    column, &(uint64_t){htobe64((uint64_t)(unix_us - POSTGRES_EPOCH_US))}, sizeof(int64_t));
}

void pg_column_add_bytes(struct pg_column *column, const void *bytes, size_t length)
{
	assert(column->type == PG_COLUMN_BYTEA || column->type == PG_COLUMN_UUID);
	if (bytes)
		add_column_value(column, bytes, length);
	else
		pg_column_add_null(column);
}

struct pg_param pg_column_param(struct pg_column *column)
{
	const struct header header = {.dimensions = htonl(column->count > 0),
	    .has_null = htonl(column->has_null),
	    .type = htonl(column->type),
	    .count = htonl((uint32_t)column->count),
	    .first = htonl(1)};

	reserve_header(column);
	memcpy(column->bytes.data, &header, sizeof header);
	return (struct pg_param){.text = column->bytes.data,
	    .length = column->count ? column->bytes.length : offsetof(struct header, count)};
}

void pg_column_clear(struct pg_column *column)
{
	text_clear(&column->bytes);
	column->count = 0;
	column->has_null = false;
}

void pg_column_finish(struct pg_column *column)
{
	pg_column_clear(column);
	text_finish(&column->bytes);
}
