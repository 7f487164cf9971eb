/* Reads values of an answer. A server may be hostile, or of another version: all are checked. */
#include <string.h>
#include "copy_binary.h"
#include "logging.h"
#include "pg.h"
#include "text.h"

static void note_unreadable(int row, int column, const char *wanted)
{
	log_warn("postgres_value_unreadable", {"row", LOG_INT(row)}, {"column", LOG_INT(column)},
	    {"wanted", LOG_TEXT(wanted)}, {"consequence", LOG_TEXT("the value is not used")});
}

int64_t pg_int(const struct pg_result *result, int row, int column)
{
	int64_t value = 0;

	if (pg_is_null(result, row, column))
		return 0;
	if (text_to_int64(pg_value(result, row, column), INT64_MIN, INT64_MAX, &value))
		return value;
	note_unreadable(row, column, "a number");
	return 0;
}

static bool has_bytes(const struct pg_result *result, int row, int column, size_t size)
{
	if (pg_is_null(result, row, column))
		return false;
	if ((size_t)pg_length(result, row, column) == size)
		return true;
	note_unreadable(row, column, size == sizeof(int32_t) ? "an int" : "a bigint");
	return false;
}

int32_t pg_int4(const struct pg_result *result, int row, int column)
{
	return has_bytes(result, row, column, sizeof(int32_t))
		   ? copy_int32(pg_value(result, row, column))
		   : 0;
}

int64_t pg_int8(const struct pg_result *result, int row, int column)
{
	return has_bytes(result, row, column, sizeof(int64_t))
		   ? copy_int64(pg_value(result, row, column))
		   : 0;
}

/* NULL: the value has the type that the shape's character means. Else the expected type's name. */
static const char *wanted_instead(const char *value, size_t length, char type)
{
	switch (type) {
	case 'l':
		return length == sizeof(int64_t) ? NULL : "a bigint";
	case 'i':
		return length == sizeof(int32_t) ? NULL : "an int";
	case 'b':
		return length == 1 ? NULL : "a boolean";
	case 't':
		return memchr(value, '\0', length) ? "text without NUL" : NULL;
	default:
		return NULL;
	}
}

bool pg_has_shape(const struct pg_result *result, const char *shape, struct err *err)
{
	int columns = (int)strlen(shape);

	if (pg_columns(result) != columns)
		return err_set(err, ERR_FATAL,
		    "the server answers with %d columns instead of %d; is the schema the one that "
		    "`outbox-relay migrate up` made?",
		    pg_columns(result), columns);

	/* Every row, since a hostile server may send anything in any row. */
	for (int row = 0; row < pg_rows(result); row++) {
		for (int column = 0; column < columns; column++) {
			const char *wanted = wanted_instead(pg_value(result, row, column),
			    (size_t)pg_length(result, row, column), shape[column]);

			if (wanted && !pg_is_null(result, row, column))
				return err_set(err, ERR_FATAL,
				    "column %d of the server's answer is not %s", column + 1,
				    wanted);
		}
	}
	return true;
}
