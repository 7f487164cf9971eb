#include "checks_reach.h"

#include <string.h>
#include "cleanup.h"
#include "config_credentials.h"
#include "http_reach.h"

enum { REACH_MS = 3000 };

static char *missing_line(const char *networks, struct text *refused)
{
	return xformat("add to the section: networks = %s%s%s", networks, *networks ? ", " : "",
	    text_string(refused));
}

/* One line for all URLs of a host. */
static char *start_line(const char *url)
{
	const char *scheme = strstr(url, "://");
	const char *host = scheme ? scheme + 3 : url;
	size_t length = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");

	return xformat("start the service on %.*s, or correct url", (int)length, host);
}

void checks_reach(
    struct preflight *report, const char *place, const char *url, const char *networks)
{
	struct http_networks allowed = {0};
	OWNED(text_finish) struct text what = {0}, refused = {0};
	owned_text char *cure = NULL;
	struct err err;

	/* a list that is wrong is a finding of its own */
	if (!http_networks_parse(networks, &allowed, &err))
		return;
	if (!http_reach(url, &allowed, REACH_MS, &what, &refused)) {
		cure = refused.length ? missing_line(networks, &refused) : start_line(url);
		preflight_add(report, refused.length ? PREFLIGHT_FAIL : PREFLIGHT_WARN, place, cure,
		    "url: %s", text_string(&what));
	}
	http_networks_finish(&allowed);
}

void checks_reach_service(struct preflight *report, const char *place, const char *url,
    const char *name_servers, const char *networks)
{
	struct http_networks allowed = {0};
	OWNED(text_finish) struct text what = {0}, refused = {0};
	owned_text char *cure = NULL;
	const char *other_cure;
	struct err err;

	/* a list that is wrong is a finding of its own */
	if (!http_networks_parse(networks, &allowed, &err))
		return;
	if (!http_reach_service(
		url, name_servers, &allowed, REACH_MS, &what, &refused, &other_cure)) {
		cure = refused.length ? missing_line(networks, &refused) : xstrdup(other_cure);
		preflight_add(report, refused.length ? PREFLIGHT_FAIL : PREFLIGHT_WARN, place, cure,
		    "url: %s", text_string(&what));
	}
	http_networks_finish(&allowed);
}

bool checks_reach_literal(const char *url, const char *networks, struct text *ret_what)
{
	struct http_networks allowed = {0};
	OWNED(text_finish) struct text refused = {0};
	owned_text char *cure = NULL;
	struct err err;
	bool reached;

	/* a list that is wrong is refused by itself */
	if (!*url || !http_networks_parse(networks, &allowed, &err))
		return true;
	reached = http_reach_literal(url, &allowed, ret_what, &refused);
	http_networks_finish(&allowed);
	if (reached)
		return true;
	cure = missing_line(networks, &refused);
	text_addf(ret_what, "; %s", cure);
	return false;
}

void checks_credentials(struct preflight *report, const char *place, const char *kind,
    const char *name, const struct config_credentials *keys, const char *networks)
{
	struct http_networks allowed = {0};
	const char *key;
	struct err err;
	struct http_credentials *credentials =
	    config_credentials_open(keys, kind, name, &key, &err);

	if (!credentials) {
		preflight_add(report, PREFLIGHT_FAIL, place, NULL, "%s: %s", key, err.message);
		return;
	}
	/* a list that is wrong is a finding of its own */
	if (http_networks_parse(networks, &allowed, &err) &&
	    !http_credentials_try(credentials, &allowed, &err))
		preflight_add(report, PREFLIGHT_FAIL, place, NULL, "no token: %s", err.message);
	http_networks_finish(&allowed);
	http_credentials_close(credentials);
}
