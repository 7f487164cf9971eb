#include "check_metrics.h"

#include <stdlib.h>
#include "logging.h"
#include "lookback_metrics.h"
#include "service_url.h"

/* Messages may name any number of hosts: only the first ones are shown. */
enum { HOSTS_SHOWN = 100 };

struct shown {
	char *host;
	struct metric *metric;
	enum breaker_state state;
	bool seen;
};

struct check_metrics {
	const struct config *config;
	const struct config_lookback *lookback;
	struct lookback_metrics series;
	struct metric *check_decisions;
	struct shown hosts[HOSTS_SHOWN];
	int host_count;
	int64_t seen_late;
};

struct check_metrics *check_metrics_create(
    const struct config *config, const struct config_lookback *lookback)
{
	struct check_metrics *metrics = xcalloc(1, sizeof *metrics);

	metrics->config = config;
	metrics->lookback = lookback;
	metrics->series = lookback_metrics(lookback->name);
	metrics->check_decisions = METRIC_LABELLED(metrics->series.decisions, "check");
	/* Series that exist from the start show 0 instead of nothing. */
	METRIC_LABELLED(metrics->series.decisions, "operator");
	for (int i = 0; i < config->check_count; i++) {
		METRIC_LABELLED(metrics->series.checks, config->checks[i].name, "commit");
		METRIC_LABELLED(metrics->series.check_seconds, config->checks[i].name);
		/* "working" comes with the first lookup: until then a 0 would be a false alarm. */
		if (service_url_is(config->checks[i].url))
			METRIC_LABELLED(
			    metrics->series.addresses, config->checks[i].name, "failing");
	}
	return metrics;
}

void check_metrics_destroy(struct check_metrics *metrics)
{
	for (int i = 0; metrics && i < metrics->host_count; i++) {
		metric_set(metrics->hosts[i].metric, BREAKER_CLOSED);
		free(metrics->hosts[i].host);
	}
	if (metrics)
		metric_set(metrics->series.in_flight, 0);
	free(metrics);
}

void check_metrics_answer(
    struct check_metrics *metrics, int service, const struct check_answer *answer, int id_count)
{
	static const char *const names[CHECK_WORDS] = {
	    [CHECK_UNKNOWN] = "unknown",
	    [CHECK_PENDING] = "pending",
	    [CHECK_COMMIT] = "commit",
	    [CHECK_ROLLBACK] = "rollback",
	};
	const char *name = metrics->config->checks[service].name;
	int counts[CHECK_WORDS] = {0};

	if (answer->sent)
		metric_observe(METRIC_LABELLED(metrics->series.check_seconds, name),
		    (double)answer->total_us / 1e6, 1);
	/* With a failure every word is unknown: its code says more. */
	if (answer->failure) {
		metric_add(
		    METRIC_LABELLED(metrics->series.checks, name, answer->failure), id_count);
		return;
	}
	for (int i = 0; i < id_count; i++)
		counts[answer->words ? answer->words[i] : CHECK_UNKNOWN]++;
	for (int i = 0; i < CHECK_WORDS; i++)
		if (counts[i] > 0)
			metric_add(
			    METRIC_LABELLED(metrics->series.checks, name, names[i]), counts[i]);
}

void check_metrics_addresses(
    struct check_metrics *metrics, int service, const struct transport_addresses *addresses)
{
	const char *name = metrics->config->checks[service].name;
	struct metric *family = metrics->series.addresses;

	metric_set(METRIC_LABELLED(family, name, "working"), addresses->working);
	metric_set(METRIC_LABELLED(family, name, "failing"), addresses->failing);
	metric_set(METRIC_LABELLED(family, name, "refused"), addresses->refused);
}

/* --- hosts ---------------------------------------------------------------------------------- */

static struct shown *find_shown(struct check_metrics *metrics, const char *host)
{
	struct shown *shown;

	for (int i = 0; i < metrics->host_count; i++)
		if (text_equal(metrics->hosts[i].host, host))
			return &metrics->hosts[i];
	/* Each host is a series of its own, and messages could make any number of them. */
	if (metrics->host_count == HOSTS_SHOWN)
		return NULL;
	shown = &metrics->hosts[metrics->host_count++];
	*shown = (struct shown){
	    .host = xstrdup(host), .metric = METRIC_LABELLED(metrics->series.breaker, host)};
	return shown;
}

static void log_change(
    const struct check_metrics *metrics, const struct schedule_host_figures *host)
{
	if (host->breaker == BREAKER_CLOSED)
		log_info("lookback_breaker_closed", {"section", LOG_TEXT(metrics->lookback->name)},
		    {"host", LOG_TEXT(host->name)},
		    {"consequence", LOG_TEXT("it answers, and the relay calls it again")});
	else
		log_warn("lookback_breaker_opened", {"section", LOG_TEXT(metrics->lookback->name)},
		    {"host", LOG_TEXT(host->name)}, {"error", LOG_TEXT(host->error)},
		    {"consequence",
			LOG_TEXT("it failed too often in a row: one request at a time finds "
				 "out when it answers again, and no other attempt is spent")});
}

/* Logs only changes from or to closed: for people, half-open is open. */
static void show_breaker(struct check_metrics *metrics, const struct schedule_host_figures *host)
{
	struct shown *shown = find_shown(metrics, host->name);

	if (!shown)
		return;
	shown->seen = true;
	if ((shown->state == BREAKER_CLOSED) != (host->breaker == BREAKER_CLOSED))
		log_change(metrics, host);
	shown->state = host->breaker;
	metric_set(shown->metric, (double)host->breaker);
}

/*
 * Shows hosts that the schedule has forgotten as closed: they are called like any other if they
 * come again.
 */
static void forget_unseen(struct check_metrics *metrics)
{
	for (int i = 0; i < metrics->host_count; i++) {
		if (!metrics->hosts[i].seen)
			metric_set(metrics->hosts[i].metric, BREAKER_CLOSED);
		if (!metrics->hosts[i].seen)
			metrics->hosts[i].state = BREAKER_CLOSED;
		metrics->hosts[i].seen = false;
	}
}

void check_metrics_host(struct check_metrics *metrics, const char *host)
{
	show_breaker(
	    metrics, &(struct schedule_host_figures){.name = host, .breaker = BREAKER_CLOSED});
}

int check_metrics_note(struct check_metrics *metrics, const struct schedule *schedule, int64_t now,
    struct schedule_host_figures *ret_failing)
{
	struct schedule_figures figures = schedule_figures(schedule);
	struct schedule_host_figures host;
	int tripped = 0;

	*ret_failing = (struct schedule_host_figures){0};
	for (int i = 0; schedule_host(schedule, i, now, &host); i++) {
		show_breaker(metrics, &host);
		if (host.breaker == BREAKER_CLOSED)
			continue;
		tripped++;
		*ret_failing = host;
	}
	forget_unseen(metrics);
	metric_set(metrics->series.in_flight, figures.in_flight);
	metric_add(metrics->series.late_answers, (double)(figures.late - metrics->seen_late));
	metrics->seen_late = figures.late;
	return tripped;
}

/* --- the database's figures ----------------------------------------------------------------- */

void check_metrics_type(struct check_metrics *metrics, const struct check_type_figures *figures)
{
	const char *name = metrics->lookback->types.items[figures->type];

	metric_set(METRIC_LABELLED(metrics->series.overdue, name), (double)figures->overdue);
	metric_set(METRIC_LABELLED(metrics->series.parked, name), (double)figures->parked);
	metric_set(
	    METRIC_LABELLED(metrics->series.oldest, name), (double)figures->oldest_ms / 1000);
	metric_set(METRIC_LABELLED(metrics->series.unprepared, name), (double)figures->unprepared);
	metric_set(METRIC_LABELLED(metrics->series.conflicts, name), (double)figures->conflicts);
}

void check_metrics_settled(
    struct check_metrics *metrics, const struct check_settled *settled, int64_t parked_rows)
{
	metric_add(metrics->check_decisions, (double)settled->won);
	metric_add(metrics->series.duplicates, (double)settled->duplicates);
	metric_add(metrics->series.lost_decisions, (double)settled->lost);
	metric_add(metrics->series.late_answers, (double)settled->strange);
	metric_add(metrics->series.parks, (double)parked_rows);
}
