#include "destination.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "text.h"

/* "host:port" of a checked URL, with the scheme's port where the URL names none. */
static void name_host(const struct config_check *check, const char *url, char *host, size_t size)
{
	const char *at = strstr(url, "://");
	const char *begin = at ? at + 3 : url;
	int length = (int)strcspn(begin, "/?#");
	const char *colon = memrchr(begin, ':', (size_t)length);
	bool has_port = colon && !memchr(colon, ']', (size_t)(begin + length - colon));

	/* It has no URL, and its dsn may hold a password: the section names the host. */
	if (check->transport == CHECK_SQL)
		snprintf(host, size, "sql %s", check->name);
	/* The service as a whole; each of its addresses has a breaker of its own (balancer.h). */
	else if (strncasecmp(url, "grpc", 4) == 0)
		snprintf(host, size, "grpc %s", check->name);
	else
		snprintf(host, size, "%.*s%s", length, begin,
		    has_port                            ? ""
		    : strncasecmp(url, "http:", 5) == 0 ? ":80"
							: ":443");
	/* One spelling of a host, so that it has one breaker and one limit. */
	for (char *c = host; *c; c++)
		*c = (char)tolower((unsigned char)*c);
}

struct destination destination_find(const struct route *route, const struct config *config,
    const struct config_lookback *section, const char *biz_type, const char *service,
    const char *url)
{
	struct destination found = {.service = -1};
	const struct config_check *check =
	    route_check(route, section, biz_type, service, url, &found.refusal);

	if (!check)
		return found;
	found.service = (int)(check - config->checks);
	name_host(check, url ? url : check->url, found.host, sizeof found.host);
	return found;
}
