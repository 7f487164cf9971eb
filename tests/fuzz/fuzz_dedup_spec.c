/* Any text is a line of dedup, of claims, of reports, and of a store of rules, or is refused with
 * what to write. */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "claims_store.h"
#include "dedup_stores.h"
#include "report_spec.h"
#include "rules_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec;
	OWNED(claims_spec_finish) struct claims_spec claims;
	OWNED(report_spec_finish) struct report_spec report;
	struct rules_store_spec rules;
	struct err err;
	char *line = malloc(size + 1);
	memcpy(line, data, size);
	line[size] = '\0';
	if (!dedup_spec_parse(line, &spec, &err) && (err.kind != ERR_CONFIG || !err.message[0]))
		abort();
	if (!claims_spec_parse(line, &claims, &err) && (err.kind != ERR_CONFIG || !err.message[0]))
		abort();
	if (!report_spec_parse(line, &report, &err) && (err.kind != ERR_CONFIG || !err.message[0]))
		abort();
	if (!rules_store_spec_parse(line, &rules, &err) &&
	    (err.kind != ERR_CONFIG || !err.message[0]))
		abort();
	rules_store_spec_finish(&rules);
	free(line);
	return 0;
}
