#include "checks_config.h"

#include "checks_reach.h"
#include "cleanup.h"
#include "deliver_check.h"
#include "http_guard.h"
#include "kafka_conf.h"
#include "pg.h"
#include "tls_front.h"
#include "transport.h"

static bool check_clusters(const struct config *config, struct err *err)
{
	for (int i = 0; i < config->kafka_count; i++) {
		const struct kafka_settings *kafka = &config->kafka[i];

		if (!kafka_conf_check(kafka, config_has_transactions(config, kafka), err))
			return false;
	}
	return true;
}

static bool check_dsns(const struct config *config, struct err *err)
{
	for (int i = 0; i < config->postgres_count; i++)
		if (!pg_dsn_check(config->postgres[i].dsn, err))
			return err_prefix(err, "postgres %s", config->postgres[i].name);
	return true;
}

/* An address without a line in `networks` is refused at each request. */
static bool check_section_url(const char *section, const char *origin, const char *name,
    const char *key, const char *url, const char *networks, struct err *err)
{
	OWNED(text_finish) struct text what = {0};

	return checks_reach_literal(url, networks, &what) ||
	       err_set(err, ERR_CONFIG, "%s: [%s \"%s\"] %s: %s", origin, section, name, key,
		   text_string(&what));
}

/* Hosts "*.example.com" are no addresses. */
static bool check_allowed_urls(const struct config_check *check, struct err *err)
{
	struct http_destinations allowed = {0};
	bool good = http_destinations_parse(check->allow, &allowed, err);

	for (size_t i = 0; good && i < allowed.count; i++) {
		owned_text char *url =
		    xformat("%s://%s/", allowed.rows[i].scheme, allowed.rows[i].host);

		good = check_section_url(
		    "check", check->origin, check->name, "allow", url, check->networks, err);
	}
	http_destinations_finish(&allowed);
	return good;
}

static bool check_services(const struct config *config, struct err *err)
{
	for (int i = 0; i < config->check_count; i++) {
		const struct config_check *check = &config->checks[i];

		if (!transport_kind_of(check->transport)->check(check, err))
			return false;
		if (check->transport != CHECK_SQL &&
		    (!check_section_url("check", check->origin, check->name, "url", check->url,
			 check->networks, err) ||
			!check_section_url("check", check->origin, check->name, "token_url",
			    check->credentials.token_url, check->networks, err) ||
			!check_allowed_urls(check, err)))
			return false;
	}
	return true;
}

static bool check_delivers(const struct config *config, struct err *err)
{
	for (int i = 0; i < config->deliver_count; i++) {
		const struct config_deliver *deliver = &config->delivers[i];

		if (!deliver_check(deliver, err) ||
		    !check_section_url("deliver", deliver->origin, deliver->name, "url",
			deliver->url, deliver->networks, err) ||
		    !check_section_url("deliver", deliver->origin, deliver->name, "token_url",
			deliver->credentials.token_url, deliver->networks, err))
			return false;
	}
	return true;
}

static bool check_listener_tls(
    const char *section, const struct config_server_tls *tls, struct err *err)
{
	return !tls->certificate[0] ||
	       tls_front_check(
		   &(struct tls_front_settings){
		       .section = section, .certificate = tls->certificate, .key = tls->key},
		   err);
}

bool checks_config(const struct config *config, struct err *err)
{
	return check_listener_tls("api", &config->api.tls, err) &&
	       check_listener_tls("admin", &config->admin_tls, err) &&
	       check_clusters(config, err) && check_dsns(config, err) &&
	       check_services(config, err) && check_delivers(config, err);
}
