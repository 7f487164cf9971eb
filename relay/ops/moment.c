#include "moment.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SECOND_US = 1000000 };
/* 0001-01-01T00:00:00Z: PostgreSQL knows no year 0 */
static const int64_t first_us = INT64_C(-62135596800) * SECOND_US;

/* ".25" behind seconds; digits beyond microseconds do not count. Moves *at behind the fraction. */
static bool read_fraction(const char **at, int64_t *ret_us)
{
	int64_t unit = SECOND_US / 10;

	*ret_us = 0;
	if (**at != '.')
		return true;
	if (!isdigit((unsigned char)*++*at))
		return false;
	for (; isdigit((unsigned char)**at); unit /= 10)
		*ret_us += unit * (*(*at)++ - '0');
	return true;
}

/* "Z", "+01:00", or nothing, which means UTC; to the end of the text. */
static bool read_zone_offset(const char *at, int64_t *ret_us)
{
	int hours, minutes, length = 0;

	*ret_us = 0;
	if (*at == '\0' || ((at[0] == 'Z' || at[0] == 'z') && at[1] == '\0'))
		return true;

	/* sscanf alone would take "+1:2" and "+ 1: 2": the digits and the colon have fixed
	 * places */
	if ((*at != '+' && *at != '-') || strspn(at + 1, "0123456789:") != 5 || at[3] != ':' ||
	    sscanf(at + 1, "%2d:%2d%n", &hours, &minutes, &length) != 2 || at[1 + length] ||
	    length != 5 || hours > 23 || minutes > 59)
		return false;
	*ret_us = (int64_t)(hours * 60 + minutes) * 60 * SECOND_US * (*at == '-' ? -1 : 1);
	return true;
}

/* timegm makes 2 March of 30 February. */
static bool is_in_calendar(struct tm fields, int64_t *ret_us)
{
	struct tm given = fields;

	*ret_us = (int64_t)timegm(&fields) * SECOND_US;
	/* timegm also moves second 60 into the next minute */
	return fields.tm_mday == given.tm_mday && fields.tm_sec == given.tm_sec;
}

bool moment_parse(const char *text, int64_t *ret_us, struct err *err)
{
	static const struct {
		const char *form;
		ptrdiff_t length;
	} forms[] = {{"%Y-%m-%dT%H:%M:%S", 19}, {"%Y-%m-%dT%H:%M", 16}, {"%Y-%m-%d", 10}};
	/* strptime alone would take "2026- 1- 2" and "26-1-2": every digit has a fixed place */
	bool blank = strpbrk(text, " \t\n\v\f\r");

	for (size_t i = 0; !blank && i < sizeof forms / sizeof *forms; i++) {
		struct tm fields = {0};
		const char *end = strptime(text, forms[i].form, &fields);
		int64_t us, fraction = 0, zone;

		/* a shorter form leaves a rest, which is no zone: then no form matches */
		if (!end || end - text != forms[i].length ||
		    (i == 0 && !read_fraction(&end, &fraction)) || !read_zone_offset(end, &zone) ||
		    !is_in_calendar(fields, &us) || us + fraction - zone < first_us)
			continue;
		*ret_us = us + fraction - zone;
		return true;
	}
	return err_set(err, ERR_REJECT,
	    "'%.40s' is no moment; write 2026-01-02, 2026-01-02T03:04:05 (UTC) or "
	    "2026-01-02T03:04:05+01:00",
	    text);
}

static int64_t fraction_of(int64_t us)
{
	return (us % SECOND_US + SECOND_US) % SECOND_US;
}

static size_t format_seconds(int64_t us, char text[MOMENT_SIZE])
{
	time_t seconds = (time_t)((us - fraction_of(us)) / SECOND_US);
	struct tm fields;

	gmtime_r(&seconds, &fields);
	/* four digits: PostgreSQL takes the year 1 for 2001, and %Y writes no zeros in front */
	int length = snprintf(text, MOMENT_SIZE, "%04d", fields.tm_year + 1900);

	return (size_t)length +
	       strftime(text + length, MOMENT_SIZE - (size_t)length, "-%m-%dT%H:%M:%S", &fields);
}

void moment_format(int64_t us, char text[MOMENT_SIZE])
{
	size_t length = format_seconds(us, text);

	snprintf(text + length, MOMENT_SIZE - length, "Z");
}

void moment_format_exact(int64_t us, char text[MOMENT_SIZE])
{
	size_t length = format_seconds(us, text);

	if (fraction_of(us))
		length += (size_t)snprintf(
		    text + length, MOMENT_SIZE - length, ".%06" PRId64, fraction_of(us));
	while (fraction_of(us) && text[length - 1] == '0')
		length--;
	snprintf(text + length, MOMENT_SIZE - length, "Z");
}
