#include "units.h"

#include <stdio.h>
#include <string.h>
#include "text.h"

const struct unit units_duration[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL}};
const struct unit units_bytes[] = {{"B", 1}, {"kB", 1000}, {"KiB", 1 << 10}, {"MB", 1000000},
    {"MiB", 1 << 20}, {"GB", 1000000000}, {"GiB", 1 << 30}, {NULL}};
const struct unit units_count[] = {{"", 1}, {"k", 1000}, {"M", 1000000}, {"G", 1000000000}, {NULL}};
const struct unit units_none[] = {{"", 1}, {NULL}};

enum units_result units_parse(const char *text, const struct unit *units, int64_t *ret_number)
{
	size_t digits = strspn(text, "0123456789"), zeros = strspn(text, "0");
	char figures[20];

	if (digits == 0)
		return UNITS_MALFORMED;
	/* a zero in front, so that a number of zeros alone has a digit */
	snprintf(figures, sizeof figures, "0%.*s", (int)(digits - zeros), text + zeros);
	if (digits - zeros > 18 || !text_to_int64(figures, 0, INT64_MAX, ret_number))
		return UNITS_TOO_LARGE;
	while (units->word && strcmp(units->word, text + digits) != 0)
		units++;
	if (!units->word && text[digits])
		return UNITS_MALFORMED;
	/* A bare 0 needs no unit. */
	if (!units->word)
		return *ret_number ? UNITS_MISSING : UNITS_READ;
	return __builtin_mul_overflow(*ret_number, units->factor, ret_number) ? UNITS_TOO_LARGE
									      : UNITS_READ;
}

const struct unit *units_best(int64_t number, const struct unit *units)
{
	const struct unit *best = units;
	for (; units->word; units++)
		if (number % units->factor == 0)
			best = units;
	return best;
}
