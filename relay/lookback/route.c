/*
 * Decides for a prepare: its section, the topic of its message, the service to call and its times,
 * or the reason of the refusal. Begin at route_judge.
 */
#include "route.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uthash.h>
#include "cleanup.h"
#include "http_guard.h"

struct owned_type {
	const char *name;
	const struct config_lookback *section;
	UT_hash_handle hh;
};

struct route {
	const struct config *config;
	struct owned_type *types;         /* by name */
	struct http_destinations *allows; /* as config->checks */
};

/* --- life ------------------------------------------------------------------------------------ */

/* No type has two sections: the configuration refuses that. */
static void add_types(struct route *route, const struct config_lookback *section)
{
	for (int i = 0; i < section->types.count; i++) {
		struct owned_type *type = xcalloc(1, sizeof *type);

		type->name = section->types.items[i];
		type->section = section;
		HASH_ADD_KEYPTR(hh, route->types, type->name, strlen(type->name), type);
	}
}

struct route *route_create(const struct config *config, struct err *err)
{
	struct route *route = xcalloc(1, sizeof *route);

	route->config = config;
	route->allows = xcalloc((size_t)config->check_count, sizeof *route->allows);
	for (int i = 0; i < config->lookback_count; i++)
		add_types(route, &config->lookbacks[i]);
	for (int i = 0; i < config->check_count; i++) {
		const struct config_check *check = &config->checks[i];

		if (http_destinations_parse(check->allow, &route->allows[i], err))
			continue;
		err_prefix(err, "%s: [check \"%s\"] allow", check->origin, check->name);
		route_destroy(route);
		return NULL;
	}
	return route;
}

void route_destroy(struct route *route)
{
	struct owned_type *type, *next;

	if (!route)
		return;
	HASH_ITER(hh, route->types, type, next)
	{
		HASH_DEL(route->types, type);
		free(type);
	}
	for (int i = 0; i < route->config->check_count; i++)
		http_destinations_finish(&route->allows[i]);
	free(route->allows);
	free(route);
}

/* --- whose it is ----------------------------------------------------------------------------- */

const struct config_lookback *route_section(const struct route *route, const char *biz_type)
{
	struct owned_type *type = NULL;

	if (biz_type)
		HASH_FIND_STR(route->types, biz_type, type);
	return type ? type->section : NULL;
}

static bool unknown_type(struct refusal *ret_refusal, const char *biz_type)
{
	return refusal_set(ret_refusal, "unknown_type",
	    "no [lookback] section has the business type %s",
	    biz_type ? biz_type : "of this record, which cannot be read");
}

static bool is_same_topic(const struct config_lookback *one, const struct config_lookback *other)
{
	return one->kafka == other->kafka && text_equal(one->topic, other->topic);
}

/* The default, or the only one. */
static bool takes_what_is_nobodys(const struct route *route, const struct config_lookback *section)
{
	for (int i = 0; i < route->config->lookback_count; i++) {
		const struct config_lookback *other = &route->config->lookbacks[i];

		if (other != section && is_same_topic(other, section))
			return section->is_default;
	}
	return true;
}

enum route_part route_part(const struct route *route, const struct config_lookback *section,
    const char *biz_type, struct refusal *ret_refusal)
{
	const struct config_lookback *owner = route_section(route, biz_type);

	if (owner == section)
		return ROUTE_OWN;
	/* Another reader of this topic processes or dead-letters it; two would do it twice. */
	if ((owner && is_same_topic(owner, section)) || !takes_what_is_nobodys(route, section))
		return ROUTE_OTHERS;
	if (owner)
		refusal_set(ret_refusal, "unknown_type",
		    "the business type %s belongs to [lookback \"%s\"], which reads another topic",
		    biz_type, owner->name);
	else
		unknown_type(ret_refusal, biz_type);
	return ROUTE_NOBODYS;
}

/* --- where its message may go ---------------------------------------------------------------- */

static bool judge_topic(const struct route *route, const struct config_lookback *section,
    const char *topic, struct refusal *ret_refusal)
{
	owned_text char *setting = config_internal_topic(route->config, topic);

	/* A message in such a topic would be taken for an application's, or for the relay's. */
	if (setting)
		return refusal_set(ret_refusal, "topic_not_allowed",
		    "%s is that of %s; name the topic of the business", topic, setting);
	if (config_list_matches(&section->topics, topic))
		return true;
	return refusal_set(ret_refusal, "topic_not_allowed",
	    "%s is none of the topics of [lookback \"%s\"]", topic, section->name);
}

/* --- whom to ask ----------------------------------------------------------------------------- */

static bool serves_type(const struct config_check *check, const char *biz_type)
{
	return check->types.count == 0 || config_list_has(&check->types, biz_type);
}

/* May this service be called at the URL of a message? */
static bool allows_check_url(const struct route *route, const struct config_check *check,
    const char *check_url, struct refusal *why)
{
	if (check->transport == CHECK_SQL) {
		*why = (struct refusal){"not_listed", "it asks a database, not a URL"};
		return false;
	}
	return http_guard_url(&route->allows[check - route->config->checks], check_url, why);
}

static bool refuse_url(struct refusal *ret_refusal, const char *biz_type, const char *check_service,
    const struct refusal *why)
{
	if (check_service)
		return refusal_set(ret_refusal, "url_not_allowed",
		    "[check \"%s\"] does not allow the check_url (%s): %s", check_service,
		    why->code, why->text);
	return refusal_set(ret_refusal, "url_not_allowed",
	    "no [check] section for %s allows the check_url (%s): %s", biz_type, why->code,
	    why->text);
}

/* By the URL alone: the section's own check comes first, then the order of the configuration. */
static const struct config_check *check_by_url(const struct route *route,
    const struct config_lookback *section, const char *biz_type, const char *check_url,
    struct refusal *ret_refusal)
{
	struct refusal why = {"not_listed", "none brings its own"};

	if (section->check && serves_type(section->check, biz_type) &&
	    allows_check_url(route, section->check, check_url, &why))
		return section->check;
	for (int i = 0; i < route->config->check_count; i++) {
		const struct config_check *check = &route->config->checks[i];

		/* A SQL section allows no URL, and would replace the others' reason. */
		if (check->transport != CHECK_SQL && serves_type(check, biz_type) &&
		    allows_check_url(route, check, check_url, &why))
			return check;
	}
	refuse_url(ret_refusal, biz_type, NULL, &why);
	return NULL;
}

static const struct config_check *check_by_name(const struct route *route, const char *biz_type,
    const char *check_service, struct refusal *ret_refusal)
{
	const struct config_check *check = config_find_check(route->config, check_service);

	if (!check)
		refusal_set(ret_refusal, "unknown_service",
		    "there is no [check \"%s\"]: correct check_service, or leave it out",
		    check_service);
	else if (!serves_type(check, biz_type))
		refusal_set(ret_refusal, "service_not_allowed",
		    "[check \"%s\"] is not for the business type %s", check_service, biz_type);
	else
		return check;
	return NULL;
}

static const struct config_check *check_of_section(
    const struct config_lookback *section, const char *biz_type, struct refusal *ret_refusal)
{
	if (!section->check)
		refusal_set(ret_refusal, "no_route",
		    "it names neither check_service nor check_url, and [lookback \"%s\"] has no "
		    "check: no service could be called about it",
		    section->name);
	else if (!serves_type(section->check, biz_type))
		refusal_set(ret_refusal, "no_route",
		    "it names neither check_service nor check_url, and [check \"%s\"] is not for "
		    "the business type %s: no service could be called about it",
		    section->check->name, biz_type);
	else
		return section->check;
	return NULL;
}

static bool judge_place(const struct route *route, const struct config_check *check,
    const char *biz_type, const char *check_url, struct refusal *ret_refusal)
{
	struct refusal why;

	if (check_url)
		return allows_check_url(route, check, check_url, &why) ||
		       refuse_url(ret_refusal, biz_type, check->name, &why);
	return check->transport == CHECK_SQL || check->url[0] ||
	       refusal_set(ret_refusal, "no_route",
		   "it brings no check_url, and [check \"%s\"] has no URL: no service could be "
		   "called about it",
		   check->name);
}

const struct config_check *route_check(const struct route *route,
    const struct config_lookback *section, const char *biz_type, const char *check_service,
    const char *check_url, struct refusal *ret_refusal)
{
	const struct config_check *check;

	if (check_url && !check_service)
		return check_by_url(route, section, biz_type, check_url, ret_refusal);
	check = check_service ? check_by_name(route, biz_type, check_service, ret_refusal)
			      : check_of_section(section, biz_type, ret_refusal);
	return check && judge_place(route, check, biz_type, check_url, ret_refusal) ? check : NULL;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* A prepare that is given up before any call could only wait for an operator. */
static bool judge_times(const struct lookback_request *request,
    const struct config_lookback *section, struct refusal *ret_refusal)
{
	int64_t check_ms =
	    request->check_after_ms >= 0 ? request->check_after_ms : section->check_after_ms;
	int64_t expire_ms =
	    request->expires_after_ms >= 0 ? request->expires_after_ms : section->expires_after_ms;

	if (expire_ms > check_ms)
		return true;
	return refusal_set(ret_refusal, "expired",
	    "it expires %" PRId64 " ms after it was prepared, and the business would be called "
	    "after %" PRId64 " ms",
	    expire_ms, check_ms);
}

bool route_judge(const struct route *route, const struct lookback_request *request,
    const struct config_lookback **ret_section, struct refusal *ret_refusal)
{
	const struct config_lookback *section = route_section(route, request->biz_type);

	*ret_section = section;
	if (!section)
		return unknown_type(ret_refusal, request->biz_type);
	return request->op != LOOKBACK_PREPARE ||
	       (judge_topic(route, section, request->topic, ret_refusal) &&
		   route_check(route, section, request->biz_type, request->check_service,
		       request->check_url, ret_refusal) &&
		   judge_times(request, section, ret_refusal));
}
