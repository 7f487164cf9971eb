#pragma once
/* Numbers with a unit behind them, as people write them: 90s, 24MiB, 50M. */
#include <stdint.h>

struct unit {
	const char *word; /* NULL: the end of a table */
	int64_t factor;   /* rising */
};
extern const struct unit units_duration[]; /* ms s m h d, in milliseconds */
extern const struct unit units_bytes[];    /* B kB KiB MB MiB GB GiB */
extern const struct unit units_count[];    /* none, k M G */
extern const struct unit units_none[];

enum units_result {
	UNITS_READ,
	UNITS_MALFORMED, /* no whole number, or no unit of the table behind it */
	UNITS_MISSING,   /* no unit, where the table has none for that; the number is told */
	UNITS_TOO_LARGE, /* for 64 bits */
};
/* 0 needs no unit. */
enum units_result units_parse(const char *text, const struct unit *units, int64_t *ret_number);

/* The largest unit of which the number is a multiple. */
const struct unit *units_best(int64_t number, const struct unit *units);
