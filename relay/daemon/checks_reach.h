#pragma once
/* Whether the services of [deliver] and [check] sections can be reached. Blocking. */
#include "config.h"
#include "preflight.h"
#include "text.h"

/*
 * False: the URL holds an address that `networks` does not allow, and *ret_what names the missing
 * line. No name is resolved.
 */
bool checks_reach_literal(const char *url, const char *networks, struct text *ret_what) MUST_CHECK;

/* networks is the key of the section, as it is written. */
void checks_reach(
    struct preflight *report, const char *place, const char *url, const char *networks);
/* The same for a URL that service_url_is accepts. */
void checks_reach_service(struct preflight *report, const char *place, const char *url,
    const char *name_servers, const char *networks);
/* Reads the credentials of a section, and requests a token. kind: "deliver", "check". */
void checks_credentials(struct preflight *report, const char *place, const char *kind,
    const char *name, const struct config_credentials *keys, const char *networks);
