#include "lookback_metrics.h"

#include "metrics.h"

static const struct metric_family decisions = {.name = "relay_lookback_decisions_total",
    .type = METRIC_COUNTER,
    .help = "Prepares that were decided, by what brought the decision: message, check, or operator "
	    "(over the HTTP interface of this process).",
    .labels = {"section", "source"}};

void lookback_count_decisions(const char *section, const char *source, int64_t count)
{
	const char *const labels[] = {section, source};

	metric_add(metric_series(&decisions, labels), (double)count);
}
