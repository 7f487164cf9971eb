/*
 * metrics_page: prints docs/reference/metrics.md from the tables of all parts.
 */
#include <stdio.h>
#include "api.h"
#include "daemon.h"
#include "deliver_metrics.h"
#include "doorbell.h"
#include "gate.h"
#include "lookback_metrics.h"
#include "publish_metrics.h"
#include "upkeep_metrics.h"
#include "upkeep_worker.h"

static const struct metric_table *const tables[] = {
    &process_metric_table,
    &publish_metric_table,
    &doorbell_metric_table,
    &backlog_metric_table,
    &kafka_metric_table,
    &upkeep_metric_table,
    &lookback_metric_table,
    &deliver_metric_table,
    &api_metric_table,
    &gate_metric_table,
};

static const char head[] =
    "# Metrics\n\n"
    "<!-- Written by tests/unit/metrics_page. -->\n\n"
    "`GET /metrics` of the [admin endpoint](configuration.md#admin) shows the metrics in the text "
    "format of Prometheus. Times are in seconds, sizes in bytes. Keys and ids of messages are "
    "never "
    "labels. A metric is absent until its part of the program has started, or until its first "
    "event: an alarm must allow for that. The column *alarm* says when an alarm is useful; "
    "[alerts](../guide/alerts.md) has a rule and a runbook for each. The "
    "[glossary](../explain/glossary.md) explains the words.\n";

static void print_labels(const struct metric_label *labels, const char *separator)
{
	for (int i = 0; i < METRIC_LABELS && labels[i].name; i++)
		printf("%s`%s`: %s", i ? separator : "", labels[i].name, labels[i].values);
}

static bool has_labels(const struct metric_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->rows[i].labels[0].name)
			return true;
	return false;
}

static bool has_alarms(const struct metric_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->rows[i].alert)
			return true;
	return false;
}

static void print_row(const struct metric_row *row, bool labels, bool alarms)
{
	printf("| `%s` | %s | %s |", row->name, metric_type_name(row->type), row->help);
	if (labels) {
		printf(row->labels[0].name ? " " : "");
		print_labels(row->labels, "; ");
		printf(" |");
	}
	if (alarms)
		printf("%s%s |", row->alert ? " " : "", row->alert ? row->alert : "");
	printf("\n");
}

static void print_table(const struct metric_table *table)
{
	bool labels = has_labels(table), alarms = has_alarms(table);

	printf("\n## %s\n\n%s", table->title, table->about);
	if (table->labels[0].name) {
		printf(" Labels: ");
		print_labels(table->labels, ", ");
		printf(".");
	}
	printf("\n\n| name | type | meaning |%s%s\n|---|---|---|%s%s\n", labels ? " labels |" : "",
	    alarms ? " alarm |" : "", labels ? "---|" : "", alarms ? "---|" : "");
	for (size_t i = 0; i < table->count; i++)
		print_row(&table->rows[i], labels, alarms);
}

int main(void)
{
	fputs(head, stdout);
	for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
		print_table(tables[i]);
	return 0;
}
