/*
 * The addresses of a service, and the choice of one for each request. http_service_step runs the
 * lookups: take_addresses and take_lookup_failure decide what the list becomes and when the next
 * lookup begins. http_service_begin and http_service_end surround each request to an address.
 */
#include "http_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "logging.h"
#include "resolver.h"

enum {
	TTL_MIN_MS = 1000,
	TTL_MAX_MS = 300000,
	EARLY_PARTS = 5,     /* a lookup begins with the last fifth of the time to live */
	EARLY_MIN_MS = 300,  /* a fifth of a short time would not leave enough for a lookup */
	AGAIN_MIN_MS = 1000, /* after a failed lookup, doubled each time */
	AGAIN_MAX_MS = 30000,
	REFUSED_BYTES = 400,
	LOGGED_BYTES = 16384,
};

struct http_service {
	struct service_url url;
	char *section;
	const struct http_networks *networks;
	const struct resolver_kind *kind;
	struct resolver *resolver;
	struct resolver_result result; /* of the last lookup */
	struct balancer balancer;
	bool looking;
	int64_t next_at; /* of the next lookup */
	int64_t again_ms;
	const char *failure; /* NULL: there are addresses */
	char error[512];
	bool troubled;       /* the last lookup failed, and that was logged */
	struct text refused; /* the refused addresses, "10.0.0.1:7 (private)" each */
	int refused_count;
	struct text logged; /* refused addresses that were logged, a line each */
};

/* --- the list ------------------------------------------------------------------------------ */

/* Logs each address once. DNS may name any number of them, so the list is limited. */
static void log_refused_address(struct http_service *service, const char *text, const char *why)
{
	owned_text char *line = xformat("%s\n", text);
	owned_text char *target = xformat("%s at %s", service->url.shown, text);

	if (service->logged.length > LOGGED_BYTES || strstr(text_string(&service->logged), line))
		return;
	text_add(&service->logged, line);
	log_event(LOG_LEVEL_WARN, "address_refused", {"section", LOG_TEXT(service->section)},
	    {"target", LOG_TEXT(target)}, {"address", LOG_TEXT(why)},
	    {"cure", LOG_TEXT("add its address to networks of the section, if it belongs to you")});
}

/* Moves the allowed addresses to the front; returns how many. */
static int keep_allowed(struct http_service *service)
{
	struct resolver_result *result = &service->result;
	int kept = 0;

	text_clear(&service->refused);
	service->refused_count = 0;
	for (int i = 0; i < result->count; i++) {
		char text[SERVICE_ADDRESS_TEXT];
		const char *why = http_guard_address(&result->rows[i].at.any, service->networks);

		if (!why) {
			result->rows[kept++] = result->rows[i];
			continue;
		}
		service->refused_count++;
		service_address_print(&result->rows[i], text);
		log_refused_address(service, text, why);
		if (service->refused.length < REFUSED_BYTES)
			text_addf(&service->refused, "%s%s (%s)",
			    service->refused.length ? ", " : "", text, why);
	}
	return kept;
}

static void fail_service(
    struct http_service *service, const char *failure, const char *error, const char *cure)
{
	service->failure = failure;
	snprintf(service->error, sizeof service->error, "%.100s: %.300s; %s", service->url.shown,
	    error, cure);
}

const struct resolver_kind *resolver_kind_of(const struct service_url *url)
{
	return url->name ? &resolver_dns : &resolver_list;
}

const char *resolver_cure(const struct service_url *url, enum err_kind kind)
{
	if (kind == ERR_RETRY)
		return "check the name servers, or set name_servers of the section";
	return url->port ? "create the record, or correct url"
			 : "create the record, or write the port: grpc://NAME:PORT";
}

static void log_trouble(struct http_service *service, const char *error, const char *cure)
{
	if (service->troubled)
		return;
	service->troubled = true;
	log_event(LOG_LEVEL_WARN, "service_unresolved", {"section", LOG_TEXT(service->section)},
	    {"service", LOG_TEXT(service->url.shown)}, {"error", LOG_TEXT(error)},
	    {"consequence",
		LOG_TEXT(service->failure ? "no request is sent, and no attempt is used"
					  : "requests go to the addresses that were found last")},
	    {"cure", LOG_TEXT(cure)});
}

/* --- lookups ------------------------------------------------------------------------------- */

static void take_addresses(struct http_service *service, int64_t now)
{
	int64_t ttl_ms = service->result.ttl_ms, early_ms;
	int allowed = keep_allowed(service);

	/* New addresses are to be used within the time to live of the old ones, so a bit earlier.
	 */
	if (ttl_ms < TTL_MIN_MS)
		ttl_ms = TTL_MIN_MS;
	if (ttl_ms > TTL_MAX_MS)
		ttl_ms = TTL_MAX_MS;
	early_ms = ttl_ms / EARLY_PARTS > EARLY_MIN_MS ? ttl_ms / EARLY_PARTS : EARLY_MIN_MS;
	service->next_at =
	    service->result.ttl_ms == INT64_MAX ? INT64_MAX : now + ttl_ms - early_ms;
	service->again_ms = 0;
	balancer_update(&service->balancer, service->result.rows, allowed);

	if (!allowed) {
		owned_text char *error =
		    xformat("all its addresses are refused: %s", text_string(&service->refused));
		fail_service(service, "address_refused", error,
		    "add them to networks of the section, if they belong to you");
		return;
	}
	service->failure = NULL;
	if (service->troubled)
		log_event(LOG_LEVEL_INFO, "service_resolved",
		    {"section", LOG_TEXT(service->section)},
		    {"service", LOG_TEXT(service->url.shown)}, {"addresses", LOG_INT(allowed)});
	service->troubled = false;
}

static void take_lookup_failure(struct http_service *service, int64_t now, const struct err *err)
{
	const char *cure = resolver_cure(&service->url, err->kind);

	service->again_ms = service->again_ms ? service->again_ms * 2 : AGAIN_MIN_MS;
	if (service->again_ms > AGAIN_MAX_MS)
		service->again_ms = AGAIN_MAX_MS;
	service->next_at = now + service->again_ms;

	/* DNS knows that there is none: an old address may belong to somebody else by now. */
	if (err->kind == ERR_REJECT) {
		balancer_update(&service->balancer, NULL, 0);
		service->refused_count = 0;
	}
	if (!balancer_size(&service->balancer))
		fail_service(service, "resolve", err->message, cure);
	log_trouble(service, err->message, cure);
}

void http_service_step(struct http_service *service, int64_t now)
{
	struct err err;

	if (!service->looking && now >= service->next_at) {
		service->looking = true;
		service->kind->begin(service->resolver);
	}
	if (!service->looking)
		return;

	enum resolver_progress progress =
	    service->kind->step(service->resolver, &service->result, &err);
	if (progress == RESOLVER_RUNS)
		return;
	service->looking = false;
	/* The last list is better than a part of the new one. */
	if (progress == RESOLVER_FOUND &&
	    !(service->result.is_partial && balancer_size(&service->balancer)))
		take_addresses(service, now);
	else
		take_lookup_failure(service, now, &err);
}

int http_service_fd(const struct http_service *service)
{
	return service->kind->fd(service->resolver);
}

int64_t http_service_deadline(const struct http_service *service)
{
	return service->looking ? service->kind->deadline(service->resolver) : service->next_at;
}

const char *http_service_failure(const struct http_service *service, const char **ret_error)
{
	*ret_error = service->error;
	return service->failure;
}

/* --- requests ------------------------------------------------------------------------------ */

bool http_service_begin(struct http_service *service, int64_t now, struct http_service_call *call,
    struct text *ret_url, struct text *ret_connect_to)
{
	if (call->tried_count == HTTP_SERVICE_TRIES)
		return false;
	call->at =
	    balancer_begin(&service->balancer, now, call->tried, call->tried_count, &call->probe);
	if (!call->at)
		return false;
	call->tried[call->tried_count++] = call->at->number;
	service_address_print(&call->at->address, call->address);
	service_url_locate(&service->url, &call->at->address, ret_url, ret_connect_to);
	return true;
}

static bool has_working_address(const struct http_service *service)
{
	const struct balancer_address *address;

	for (int i = 0; (address = http_service_address(service, i)); i++)
		if (!address->breaker.tripped)
			return true;
	return false;
}

void http_service_end(struct http_service *service, int64_t now, struct http_service_call *call,
    enum breaker_outcome outcome, const char *error)
{
	if (!call->at)
		return;
	bool changed = balancer_end(&service->balancer, now, call->at, call->probe, outcome);

	call->at = NULL;
	if (changed && outcome == BREAKER_SUCCESS)
		log_event(LOG_LEVEL_INFO, "service_address_works",
		    {"section", LOG_TEXT(service->section)},
		    {"service", LOG_TEXT(service->url.shown)},
		    {"address", LOG_TEXT(call->address)});
	else if (changed)
		log_event(LOG_LEVEL_WARN, "service_address_fails",
		    {"section", LOG_TEXT(service->section)},
		    {"service", LOG_TEXT(service->url.shown)}, {"address", LOG_TEXT(call->address)},
		    {"error", LOG_TEXT(error ? error : "")},
		    {"consequence",
			LOG_TEXT(
			    has_working_address(service)
				? "requests go to its other addresses"
				: "no address of the service works: each is tried now and then")});
}

bool http_service_answered_since(const struct http_service *service, int64_t then)
{
	return service->balancer.answered_at >= then;
}

/* --- figures ------------------------------------------------------------------------------- */

const struct balancer_address *http_service_address(const struct http_service *service, int index)
{
	for (int i = 0; i < service->balancer.count; i++)
		if (!service->balancer.rows[i]->gone && index-- == 0)
			return service->balancer.rows[i];
	return NULL;
}

int http_service_refused(const struct http_service *service)
{
	return service->refused_count;
}

/* --- life ---------------------------------------------------------------------------------- */

static bool set_up_service(struct http_service *service,
    const struct http_service_settings *settings, const char **ret_key, struct err *err)
{
	*ret_key = "url";
	if (!service_url_parse(settings->url, &service->url, err))
		return false;
	service->kind = resolver_kind_of(&service->url);
	*ret_key = "name_servers";
	service->resolver = service->kind->open(&service->url, settings->name_servers, err);
	return service->resolver;
}

struct http_service *http_service_open(
    const struct http_service_settings *settings, const char **ret_key, struct err *err)
{
	struct http_service *service = xcalloc(1, sizeof *service);

	service->section = xstrdup(settings->section);
	service->networks = settings->networks;
	balancer_init(&service->balancer, settings->breaker_failures, settings->breaker_pause_ms,
	    (uint64_t)clock_random());
	if (!set_up_service(service, settings, ret_key, err)) {
		http_service_close(service);
		return NULL;
	}
	service->failure = "resolve_timeout";
	snprintf(service->error, sizeof service->error,
	    "%.100s: its name servers did not answer in time", service->url.shown);
	return service;
}

void http_service_close(struct http_service *service)
{
	if (!service)
		return;
	if (service->resolver)
		service->kind->close(service->resolver);
	balancer_finish(&service->balancer);
	text_finish(&service->refused);
	text_finish(&service->logged);
	service_url_finish(&service->url);
	free(service->section);
	free(service);
}
