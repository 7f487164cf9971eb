#include "moment.h"

#include <string.h>
#include <time.h>

bool moment_parse(const char *text, int64_t *ret_us, struct err *err)
{
	static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};

	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		struct tm fields = {0}, given;
		const char *end = strptime(text, forms[i], &fields);

		if (!end || !(end[0] == '\0' || (end[0] == 'Z' && end[1] == '\0')))
			continue;
		given = fields;
		*ret_us = (int64_t)timegm(&fields) * 1000000;
		/* timegm makes 2 March of 30 February */
		if (fields.tm_mday == given.tm_mday && fields.tm_sec == given.tm_sec)
			return true;
	}
	return err_set(err, ERR_REJECT,
	    "'%.40s' is no moment; write 2026-01-02, or 2026-01-02T03:04:05 (UTC)", text);
}

void moment_format(int64_t us, char text[MOMENT_SIZE])
{
	time_t seconds = (time_t)(us / 1000000 - (us % 1000000 < 0));
	struct tm fields;

	gmtime_r(&seconds, &fields);
	strftime(text, MOMENT_SIZE, "%Y-%m-%dT%H:%M:%SZ", &fields);
}
