#pragma once
/* The line of the setting `report`: the database that hears which messages are handled. */
#include "errors.h"
#include "spec.h"

struct report_spec {
	char *dsn, *schema; /* NULL: not given */
	int64_t timeout_ms; /* for an answer of the server */
};

/*
 * Parses a line such as "postgres dsn=postgresql://billing@db/shop schema=outbox". No error repeats
 * a dsn, which may have a password. The caller finishes ret_spec in any case.
 */
bool report_spec_parse(const char *line, struct report_spec *ret_spec, struct err *err) MUST_CHECK;
void report_spec_finish(struct report_spec *spec);
