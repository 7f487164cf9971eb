#pragma once
/*
 * Builds a one-dimensional array in Postgres' text form, as a parameter of a statement, element by
 * element. The statement casts it to the type of the array. {0} is an empty array.
 */
#include <stdint.h>
#include "text.h"

struct pg_array {
	struct text text;
	bool ended;
};

/* NULL text is SQL NULL. */
void pg_array_add_text(struct pg_array *array, const char *text);
void pg_array_add_int(struct pg_array *array, int64_t value);
/* "{…}", valid until pg_array_clear; nothing more may be added before that. */
const char *pg_array_end(struct pg_array *array);
void pg_array_clear(struct pg_array *array); /* keeps the memory */
void pg_array_finish(struct pg_array *array);
