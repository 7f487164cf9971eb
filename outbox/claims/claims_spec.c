#include <stdlib.h>
#include "claims_store.h"
#include "cleanup.h"
#include "text.h"

enum { DEFAULT_LEASE = 30000, DEFAULT_TIMEOUT = 2000 };

const struct spec_setting claims_settings[CLAIMS_SETTINGS + 1] = {
    [CLAIMS_DSN] = SPEC_DSN(struct claims_spec),
    [CLAIMS_SCHEMA] = SPEC_SCHEMA(struct claims_spec),
    [CLAIMS_URL] = SPEC_URL(struct claims_spec),
    [CLAIMS_PASSWORD_FILE] = SPEC_PASSWORD_FILE(struct claims_spec),
    [CLAIMS_TLS_CA] = SPEC_TLS_CA(struct claims_spec),
    [CLAIMS_TLS_CERTIFICATE] = SPEC_TLS_CERTIFICATE(struct claims_spec),
    [CLAIMS_TLS_KEY] = SPEC_TLS_KEY(struct claims_spec),
    [CLAIMS_SENTINEL_PASSWORD_FILE] = SPEC_SENTINEL_PASSWORD_FILE(struct claims_spec),
    [CLAIMS_NAME] = SPEC_NAME(struct claims_spec),
    [CLAIMS_LEASE] = SPEC_LEASE(struct claims_spec),
    [CLAIMS_TIMEOUT] = SPEC_TIMEOUT(struct claims_spec),
};
static const struct spec_type *const types[] = {&redis_claims.spec, &postgres_claims.spec, NULL};

bool claims_spec_parse(const char *line, struct claims_spec *ret_spec, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *rest = copy;
	const struct spec_type *type = spec_parse_type(&rest, types, "store of claims", err);

	*ret_spec = (struct claims_spec){.type = (const struct claims_store_type *)type,
	    .lease_ms = DEFAULT_LEASE,
	    .timeout_ms = DEFAULT_TIMEOUT};
	if (!type || !spec_parse_settings(rest, type, ret_spec, err) ||
	    !spec_check_needs(type, ret_spec, err))
		return false;

	/* A renewal that fails must be tried again while the lease lasts. */
	if (ret_spec->timeout_ms > ret_spec->lease_ms / 3)
		ret_spec->timeout_ms = ret_spec->lease_ms / 3;
	return true;
}

void claims_spec_finish(struct claims_spec *spec)
{
	free(spec->name);
	redis_access_finish(&spec->server);
	free(spec->dsn);
	free(spec->schema);
	*spec = (struct claims_spec){0};
}
