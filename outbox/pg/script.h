#pragma once
/*
 * Scripts with values in them: COPY takes no parameters, so its text carries them as literals.
 */
#include <stdbool.h>

struct script_place {
	const char *name; /* of a-z and _ */
	const char
	    *value; /* holds no quote: numbers, names of publishers, snapshots, arrays of such */
	bool bare;  /* a number, put in without quotes */
};

/*
 * The text with the values in the places of :name; places end with a NULL name. A cast (::) and a
 * :name that is not among them stay. The caller frees.
 */
char *script_fill(const char *sql, const struct script_place *places);
