#pragma once
/*
 * Checks a request against the configuration: may it be taken, and by which section? The check is
 * the same over HTTP, where the sender receives the code, and from Kafka, where the record is
 * dead-lettered. No I/O. A created route is read-only; any thread may use it.
 *
 * The codes, which stay the same between releases (wire.h has more):
 *
 *   unknown_type         no [lookback] section has the business type
 *   topic_not_allowed    the message's topic is none of the section's, or an internal one
 *   unknown_service      there is no [check] section of that name
 *   service_not_allowed  there is, and it is not for this type
 *   url_not_allowed      no [check] section for this type allows the URL
 *   no_route             neither check_service nor check_url, nor a check of the section
 *   expired              it would be given up before any call
 *
 * A decision is judged by its type alone.
 */
#include "config.h"
#include "errors.h"
#include "wire.h"

struct route;

/* Borrows the configuration. NULL (ERR_CONFIG): a list of destinations that cannot be read. */
struct route *route_create(const struct config *config, struct err *err);
void route_destroy(struct route *route); /* NULL is fine */

/* The section that has the type; NULL: none has, or it is NULL. */
const struct config_lookback *route_section(const struct route *route, const char *biz_type);

/*
 * May it be taken? *ret_section: the section of its type, also when it is refused; NULL: there is
 * none.
 */
bool route_judge(const struct route *route, const struct lookback_request *request,
    const struct config_lookback **ret_section, struct refusal *ret_refusal) MUST_CHECK;

/*
 * The service to ask about ids of this type that were prepared with this check_service and
 * check_url (NULL: not given), by the current configuration. The question goes to the URL when
 * there is one, else to the section's own. A service that is named has to allow the URL itself; if
 * none is named, it is the section's `check` that does, or the first [check] section that does.
 * NULL: refused.
 */
const struct config_check *route_check(const struct route *route,
    const struct config_lookback *section, const char *biz_type, const char *check_service,
    const char *check_url, struct refusal *ret_refusal);

/*
 * Which section is responsible for a record with this biz_type (NULL: it could not be read) on the
 * topic of the section: each section reads all records, and exactly one of them is responsible for
 * each record.
 */
enum route_part {
	ROUTE_OWN,     /* its own: judge it */
	ROUTE_NOBODYS, /* no section on this topic has the type; this section dead-letters it */
	ROUTE_OTHERS,  /* another section's: nothing to do */
};
enum route_part route_part(const struct route *route, const struct config_lookback *section,
    const char *biz_type, struct refusal *ret_refusal /* when nobody's */);
