#include "preflight.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "logging.h"
#include "text.h"

const char *const preflight_severity_names[] = {"ok", "info", "warn", "unsafe", "fail"};

void preflight_finish(struct preflight *report)
{
	for (int i = 0; i < report->count; i++) {
		free(report->findings[i].place);
		free(report->findings[i].what);
		free(report->findings[i].cure);
		free(report->findings[i].cure_of_all);
		free(report->findings[i].item);
	}
	free(report->findings);
	*report = (struct preflight){0};
}

struct preflight_finding *preflight_add(struct preflight *report, enum preflight_severity severity,
    const char *place, const char *cure, const char *format, ...)
{
	struct preflight_finding *finding;
	char what[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	report->findings =
	    xrealloc(report->findings, (size_t)(report->count + 1) * sizeof *report->findings);
	finding = &report->findings[report->count++];
	*finding = (struct preflight_finding){severity, ERR_CONFIG, xstrdup(place), xstrdup(what),
	    xstrdup(cure ? cure : ""), xstrdup(""), xstrdup("")};
	return finding;
}

void preflight_set_item(
    struct preflight_finding *finding, const char *cure_of_all, const char *item)
{
	free(finding->cure_of_all);
	free(finding->item);
	finding->cure_of_all = xstrdup(cure_of_all);
	finding->item = xstrdup(item);
}

void preflight_log(const struct preflight *report)
{
	static const enum log_level levels[] = {[PREFLIGHT_OK] = LOG_LEVEL_DEBUG,
	    [PREFLIGHT_INFO] = LOG_LEVEL_DEBUG,
	    [PREFLIGHT_WARN] = LOG_LEVEL_WARN,
	    [PREFLIGHT_UNSAFE] = LOG_LEVEL_WARN,
	    [PREFLIGHT_FAIL] = LOG_LEVEL_ERROR};

	for (int i = 0; i < report->count; i++) {
		const struct preflight_finding *finding = &report->findings[i];

		log_event(levels[finding->severity], "preflight",
		    {"severity", LOG_TEXT(preflight_severity_names[finding->severity])},
		    {"place", LOG_TEXT(finding->place)}, {"finding", LOG_TEXT(finding->what)},
		    {"cure", LOG_TEXT(finding->cure)});
	}
}

bool preflight_is_fatal(enum preflight_severity severity, enum safety safety)
{
	return severity == PREFLIGHT_FAIL ||
	       (severity == PREFLIGHT_UNSAFE && safety == SAFETY_STRICT);
}
