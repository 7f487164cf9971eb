#include "report_spec.h"

#include <stdlib.h>
#include "cleanup.h"
#include "pg.h"
#include "schema_text.h"
#include "text.h"

enum { DEFAULT_TIMEOUT = 5000 };

enum report_setting { REPORT_DSN, REPORT_SCHEMA, REPORT_TIMEOUT, REPORT_SETTINGS };
static const struct spec_setting report_settings[REPORT_SETTINGS + 1] = {
    [REPORT_DSN] = SPEC_DSN(struct report_spec),
    [REPORT_SCHEMA] = SPEC_SCHEMA(struct report_spec),
    [REPORT_TIMEOUT] = SPEC_TIMEOUT(struct report_spec),
};
static const struct spec_type report_postgres = {
    .name = "postgres", .shared = report_settings, .takes = (1U << REPORT_SETTINGS) - 1};
static const struct spec_type *const report_types[] = {&report_postgres, NULL};

bool report_spec_parse(const char *line, struct report_spec *ret_spec, struct err *err)
{
	owned_text char *copy = xstrdup(line);
	char *rest = copy;

	*ret_spec = (struct report_spec){.timeout_ms = DEFAULT_TIMEOUT};
	const struct spec_type *type = spec_parse_type(&rest, report_types, "database", err);
	return type && spec_parse_settings(rest, type, ret_spec, err) &&
	       (!ret_spec->schema || schema_text_check(ret_spec->schema, err)) &&
	       (!ret_spec->dsn || pg_dsn_check(ret_spec->dsn, err));
}

void report_spec_finish(struct report_spec *spec)
{
	free(spec->dsn);
	free(spec->schema);
	*spec = (struct report_spec){0};
}
