#include "lookback_metrics.h"

#include <math.h>

static const double seconds[] = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, INFINITY};

#define SERIES(member) METRIC_FIELD(struct lookback_metrics, member)
#define SERVICE "service", "the name of the `[check]` section"
#define TYPE "type", "the type of the message"

static const struct metric_row lookback_rows[] = {
    {"relay_lookback_records_total", METRIC_COUNTER, SERIES(records),
	"Records read from the look-back topic, by their kind.",
	.labels = {{"kind", "`prepare`, `duplicate`, `conflict`, `tombstone`, `decision`, "
			    "`dead_letter`, `foreign`, `late_decision`"}}},
    {"relay_lookback_batches_total", METRIC_COUNTER, SERIES(batches),
	"Transactions that store records of the topic, by their outcome.",
	.labels = {{"outcome", "`stored`, `failed`"}}},
    {"relay_lookback_partitions", METRIC_GAUGE, SERIES(partitions),
	"Partitions of the look-back topic that are assigned to this process."},
    {"relay_lookback_promoted_total", METRIC_COUNTER, SERIES(promoted),
	"Prepares whose delay ended without a decision."},
    {"relay_lookback_decisions_total", METRIC_COUNTER, SERIES(decisions),
	"Prepares that were decided, by the source of the decision. Decisions of an operator are "
	"counted by the process whose API received them.",
	.labels = {{"source", "`message`, `check`, `operator`"}}},
    {"relay_lookback_duplicates_total", METRIC_COUNTER, SERIES(duplicates),
	"Prepares that were committed and wrote no message, because another message has their "
	"unique "
	"key."},
    {"relay_lookback_checks_total", METRIC_COUNTER, SERIES(checks),
	"Ids sent to a business in a check, by the answer.",
	.labels = {{SERVICE},
	    {"result", "`unknown`, `pending`, `commit`, `rollback`, or the code of the error when "
		       "there was no answer"}}},
    {"relay_lookback_check_seconds", METRIC_HISTOGRAM, SERIES(check_seconds),
	"Duration of the checks that were sent.", .labels = {{SERVICE}}, .buckets = seconds},
    {"relay_lookback_in_flight", METRIC_GAUGE, SERIES(in_flight), "Checks without an answer yet."},
    {"relay_lookback_breaker", METRIC_GAUGE, SERIES(breaker),
	"Circuit breaker state: 0 closed, 1 half open, 2 open. The first 100 hosts are shown.",
	.labels = {{"host", "the host of the business"}},
	.alert = "2 for minutes: the business does not answer, or fails"},
    {"relay_lookback_addresses", METRIC_GAUGE, SERIES(addresses),
	"Addresses of a service that is [called by its name](../guide/service-names.md). failing: "
	"its "
	"circuit breaker is not closed. refused: it is not public, and `networks` does not list "
	"it.",
	.labels = {{SERVICE}, {"state", "`working`, `failing`, `refused`"}},
	.alert = "working at 0: no address of the service works"},
    {"relay_lookback_late_answers_total", METRIC_COUNTER, SERIES(late_answers),
	"Ids whose answer was ignored because the claim of the checker had expired."},
    {"relay_lookback_lost_decisions_total", METRIC_COUNTER, SERIES(lost_decisions),
	"Answers that arrived after another decision. Answers that contradict the decision are "
	"conflicts."},
    {"relay_lookback_parks_total", METRIC_COUNTER, SERIES(parks),
	"Ids that were parked: an operator has to decide."},
    {"relay_lookback_overdue", METRIC_GAUGE, SERIES(overdue),
	"Overdue prepares: the relay calls the business. At most 200,000 of a section are counted.",
	.labels = {{TYPE}}},
    {"relay_lookback_parked", METRIC_GAUGE, SERIES(parked),
	"Parked prepares. At most 200,000 of a section are counted.", .labels = {{TYPE}},
	.alert = "above 0: [decide the "
		 "ids](../guide/lookback-operate.md#undecided-ids-of-the-look-back)"},
    {"relay_lookback_oldest_seconds", METRIC_GAUGE, SERIES(oldest),
	"Age of the oldest overdue or parked prepare.", .labels = {{TYPE}}},
    {"relay_lookback_unprepared", METRIC_GAUGE, SERIES(unprepared),
	"Decisions stored for a minute or longer without their prepare, among the last 1,000 "
	"decisions that came before their prepare.",
	.labels = {{TYPE}},
	.alert = "above 0: [commits without a "
		 "prepare](../guide/lookback-operate.md#commits-without-a-prepare)"},
    {"relay_lookback_conflicts", METRIC_GAUGE, SERIES(conflicts),
	"Prepares, decisions and answers of the last hour that contradict an earlier one, among "
	"the newest 1,000 in outbox.lookback_conflict.",
	.labels = {{TYPE}}, .alert = "above 0: an application or a service contradicts itself"},
};

const struct metric_table lookback_metric_table = {
    .title = "Look-back",
    .about = "Overdue, parked and unprepared messages and conflicts are counted in the database, "
	     "so every "
	     "process shows the same numbers; all other metrics describe one process.",
    .labels = {{"section", "the name of the `[lookback]` section"}},
    METRIC_ROWS_OF(lookback_rows),
};

struct lookback_metrics lookback_metrics(const char *section)
{
	struct lookback_metrics metrics;

	metric_series_all(&lookback_metric_table, &section, &metrics, NULL);
	return metrics;
}
