#pragma once
/*
 * Scripts with values: COPY takes no parameters, so its text carries the values as literals.
 */
#include <stdbool.h>

struct script_place {
	const char *name; /* of a-z and _ */
	const char
	    *value; /* holds no quote: numbers, names of publishers, snapshots, arrays of these */
	bool bare;  /* a number, inserted without quotes */
};

/*
 * Returns sql with each :name replaced by its value; places end with a NULL name. A cast (::) and a
 * :name without a place stay. The caller frees it.
 */
char *script_fill(const char *sql, const struct script_place *places);
