#pragma once
/* Numbers followed by a unit, as people write them: 90s, 24MiB, 50M. */
#include <stdint.h>

struct unit {
	const char *word; /* NULL: the end of a table */
	int64_t factor;   /* in ascending order within a table */
};
extern const struct unit units_duration[]; /* ms s m h d, in milliseconds */
extern const struct unit units_bytes[];    /* B kB KiB MB MiB GB GiB */
extern const struct unit units_count[];    /* none, k M G */
extern const struct unit units_none[];

enum units_result {
	UNITS_READ,
	UNITS_MALFORMED, /* not a whole number, or followed by a unit that is not in the table */
	UNITS_MISSING,   /* no unit, which the table does not allow; the number is returned */
	UNITS_TOO_LARGE, /* for 64 bits */
};
/* 0 needs no unit. */
enum units_result units_parse(const char *text, const struct unit *units, int64_t *ret_number);

/* The largest unit that divides the number. */
const struct unit *units_best(int64_t number, const struct unit *units);
