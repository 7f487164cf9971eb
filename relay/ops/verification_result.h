#pragma once
/* The result of `verify` as JSON: the command prints it, and a job stores it. */
#include <jansson.h>
#include "moment.h"
#include "verification.h"

struct verification_facts {
	const char *place;                       /* of the database */
	char from[MOMENT_SIZE], to[MOMENT_SIZE]; /* of the range; "": open */
	double seconds;
	bool no_duplicates; /* a duplicate is a finding */
};

/* "clean" says whether nothing was found. The caller owns it. */
json_t *verification_result(
    const struct verification *verification, const struct verification_facts *facts);
