#include "deliver_check.h"

#include <libgen.h>
#include <string.h>
#include <unistd.h>
#include "claims_store.h"
#include "cleanup.h"
#include "dedup_stores.h"
#include "deliver_inbox.h"
#include "deliver_text.h"
#include "http_sender.h"
#include "pg.h"
#include "report_spec.h"
#include "rule_key.h"
#include "rules_article.h"
#include "rules_check.h"
#include "text.h"

static bool refuse_deliver_key(
    const struct config_deliver *section, struct err *err, const char *key, const char *why)
{
	owned_text char *copy = xstrdup(why); /* `why` may point into *err */

	return err_set(err, ERR_CONFIG, "%s: [deliver \"%s\"] %s: %s", section->origin,
	    section->name, key, copy);
}

static bool check_id(const struct config_deliver *section, struct err *err)
{
	struct err why;
	struct rule_key *key = rule_key_parse(section->id, &why);

	rule_key_destroy(key);
	return key || refuse_deliver_key(section, err, "id", why.message);
}

/* ret_local: its state needs the folder of the section. */
static bool check_deliver_dedup(
    const struct config_deliver *section, bool *ret_local, struct err *err)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec = {0};
	struct err why;

	*ret_local = false;
	if (!section->dedup[0])
		return true;
	if (strstr(section->dedup, "path="))
		return refuse_deliver_key(section, err, "dedup",
		    "leave path= out: each partition has a folder of its own below the key path");
	if (!dedup_spec_parse(section->dedup, &spec, &why))
		return refuse_deliver_key(section, err, "dedup", why.message);
	*ret_local = spec.type->local;
	return true;
}

static bool check_deliver_claims(const struct config_deliver *section, struct err *err)
{
	OWNED(claims_spec_finish) struct claims_spec spec = {0};
	struct err why;

	return !section->claims[0] ||
	       (claims_spec_parse(section->claims, &spec, &why) &&
		   (!spec.dsn || pg_dsn_check(spec.dsn, &why))) ||
	       refuse_deliver_key(section, err, "claims", why.message);
}

static bool dedup_is_exposed(const struct config_deliver *section)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec = {0};
	struct err why;

	return section->dedup[0] && dedup_spec_parse(section->dedup, &spec, &why) && spec.dsn &&
	       pg_dsn_is_exposed(spec.dsn);
}

static bool check_deliver_report(const struct config_deliver *section, struct err *err)
{
	OWNED(report_spec_finish) struct report_spec spec = {0};
	struct err why;

	return !section->report[0] || report_spec_parse(section->report, &spec, &why) ||
	       refuse_deliver_key(section, err, "report", why.message);
}

static bool report_is_exposed(const struct config_deliver *section)
{
	OWNED(report_spec_finish) struct report_spec spec = {0};
	struct err why;

	return section->report[0] && report_spec_parse(section->report, &spec, &why) &&
	       pg_dsn_is_exposed(spec.dsn ? spec.dsn : "");
}

bool deliver_dsn_is_exposed(const struct config_deliver *section)
{
	OWNED(claims_spec_finish) struct claims_spec spec = {0};
	struct err why;

	return dedup_is_exposed(section) || report_is_exposed(section) ||
	       (section->claims[0] && claims_spec_parse(section->claims, &spec, &why) && spec.dsn &&
		   pg_dsn_is_exposed(spec.dsn));
}

static bool check_dedup_dsn(const struct config_deliver *section, struct err *err)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec = {0};
	struct err why;

	return !section->dedup[0] || !dedup_spec_parse(section->dedup, &spec, &why) || !spec.dsn ||
	       pg_dsn_check(spec.dsn, &why) ||
	       refuse_deliver_key(section, err, "dedup", why.message);
}

/* Names the line of a file of rules. An error in JSON names its line itself. */
static bool refuse_rules(const struct config_deliver *section, const struct config_list *rules,
    const char *rules_file, int wrong, struct err *err)
{
	owned_text char *why = xstrdup(err->message);
	owned_text char *place = NULL;

	if (!rules_file || wrong < 0)
		return refuse_deliver_key(section, err, "rules", why);
	place = rules_article_is(rules->items[wrong])
		    ? xstrdup(rules_file)
		    : xformat("%s:%d", rules_file, rules->lines[wrong]);
	/* a file that is checked alone is of no section */
	if (!section->name[0])
		return err_set(err, ERR_CONFIG, "%s: %s", place, why);
	return err_set(
	    err, ERR_CONFIG, "%s: [deliver \"%s\"] rules_file: %s", place, section->name, why);
}

static const char *text_of(const char *text)
{
	return text[0] ? text : NULL;
}

bool deliver_check_rules(const struct config_deliver *section, const struct config_list *rules,
    const char *rules_file, struct err *err)
{
	const struct rules_wanted wanted = {.store = text_of(section->rules_store),
	    .lines = (const char *const *)rules->items,
	    .count = (size_t)rules->count,
	    .places = {text_of(section->user), text_of(section->content), text_of(section->channel),
		text_of(section->zone)}};
	int wrong;

	if (!rules_wanted_check(&wanted, &wrong, err))
		return refuse_rules(section, rules, rules_file, wrong, err);
	return rules->count == 0 || section->path[0] || wanted.store ||
	       refuse_deliver_key(section, err, "path",
		   "it is empty; say in which folder the records of the rules are kept, or set "
		   "rules_store");
}

char *deliver_missing_folder(const struct config_deliver *section)
{
	owned_text char *copy = xstrdup(section->path);
	const char *parent = dirname(copy);

	return section->path[0] && access(parent, F_OK) != 0 ? xstrdup(parent) : NULL;
}

static bool check_deliver_path(
    const struct config_deliver *section, bool dedup_is_local, struct err *err)
{
	owned_text char *parent = deliver_missing_folder(section);
	owned_text char *missing =
	    parent ? xformat("%s does not exist; make it: mkdir -p %s", parent, parent) : NULL;

	if (missing)
		return refuse_deliver_key(section, err, "path", missing);
	return section->path[0] || !dedup_is_local ||
	       refuse_deliver_key(section, err, "path",
		   "it is empty; say in which folder the state of dedup and rules is kept");
}

static bool check_event_source(const struct config_deliver *section, struct err *err)
{
	return deliver_text_is_uri_reference(section->event_source) ||
	       refuse_deliver_key(section, err, "event_source",
		   "it is no URI reference (RFC 3986): a blank is written as %20, a percent "
		   "sign as %25, and other characters than ASCII as the %XX of their UTF-8");
}

bool deliver_check(const struct config_deliver *section, struct err *err)
{
	bool dedup_is_local;

	return http_sender_check(section, err) && check_id(section, err) &&
	       check_event_source(section, err) &&
	       check_deliver_dedup(section, &dedup_is_local, err) &&
	       check_deliver_claims(section, err) && check_deliver_report(section, err) &&
	       deliver_check_rules(section, &section->rules, section->rules_file, err) &&
	       check_deliver_path(section, dedup_is_local, err) && check_dedup_dsn(section, err) &&
	       deliver_inbox_check(section, err);
}
