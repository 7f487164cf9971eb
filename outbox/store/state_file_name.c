#include "state_file_name.h"

#include <stdio.h>
#include "text.h"

enum { NAME = 64 };

bool state_file_name_parse(const char *name, const char *end, long long *ret_number, int *ret_sub)
{
	char written[NAME];

	if (sscanf(name, "%lld.%d.", ret_number, ret_sub) != 2 || *ret_sub < 0)
		return false;
	snprintf(written, sizeof written, "%lld.%d.%s", *ret_number, *ret_sub, end);

	/* sscanf also takes signs, blanks and leading zeroes. */
	return text_equal(name, written);
}
