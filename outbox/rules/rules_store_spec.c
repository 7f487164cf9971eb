#include <stdlib.h>
#include "cleanup.h"
#include "rules_store.h"
#include "text.h"

enum { DEFAULT_KEEP = 3600 * 1000, DEFAULT_TIMEOUT = 2000 };

const struct spec_setting rules_store_settings[RULES_STORE_SETTINGS + 1] = {
    [RULES_DSN] = SPEC_DSN(struct rules_store_spec),
    [RULES_SCHEMA] = SPEC_SCHEMA(struct rules_store_spec),
    [RULES_URL] = SPEC_URL(struct rules_store_spec),
    [RULES_PASSWORD_FILE] = SPEC_PASSWORD_FILE(struct rules_store_spec),
    [RULES_TLS_CA] = SPEC_TLS_CA(struct rules_store_spec),
    [RULES_TLS_CERTIFICATE] = SPEC_TLS_CERTIFICATE(struct rules_store_spec),
    [RULES_TLS_KEY] = SPEC_TLS_KEY(struct rules_store_spec),
    [RULES_SENTINEL_PASSWORD_FILE] = SPEC_SENTINEL_PASSWORD_FILE(struct rules_store_spec),
    [RULES_NAME] = SPEC_NAME(struct rules_store_spec),
    [RULES_KEEP] = {"keep", "a time from 0 to 365d, as keep=1h", spec_set_number,
	offsetof(struct rules_store_spec, keep_ms), units_duration, 0, INT64_C(365) * 86400 * 1000},
    [RULES_TIMEOUT] = SPEC_TIMEOUT(struct rules_store_spec),
};
static const struct spec_type *const types[] = {&redis_rules.spec, &postgres_rules.spec, NULL};

bool rules_store_spec_parse(const char *line, struct rules_store_spec *ret_spec, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *rest = copy;
	const struct spec_type *type = spec_parse_type(&rest, types, "store of rules", err);

	*ret_spec = (struct rules_store_spec){.type = (const struct rules_store_type *)type,
	    .keep_ms = DEFAULT_KEEP,
	    .timeout_ms = DEFAULT_TIMEOUT};
	return type && spec_parse_settings(rest, type, ret_spec, err) &&
	       spec_check_needs(type, ret_spec, err);
}

void rules_store_spec_finish(struct rules_store_spec *spec)
{
	free(spec->name);
	redis_access_finish(&spec->server);
	free(spec->dsn);
	free(spec->schema);
	*spec = (struct rules_store_spec){0};
}
