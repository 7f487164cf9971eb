#include "check_metrics.h"

#include <math.h>
#include <stdlib.h>
#include "logging.h"
#include "lookback_metrics.h"
#include "metrics.h"

/* Hosts come with messages: of so many the state is shown. */
enum { HOSTS_SHOWN = 100 };

static const double seconds[] = {
    .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, INFINITY};

static const struct metric_family checks = {.name = "relay_lookback_checks_total",
    .type = METRIC_COUNTER,
    .help = "Ids that a business was asked about, by the word that it answered or a code that "
	    "says why there was none.",
    .labels = {"section", "service", "result"}};
static const struct metric_family latency = {.name = "relay_lookback_check_seconds",
    .type = METRIC_HISTOGRAM,
    .help = "How long requests that were sent took.",
    .labels = {"section", "service"},
    .buckets = seconds};
static const struct metric_family in_flight = {.name = "relay_lookback_in_flight",
    .type = METRIC_GAUGE,
    .help = "Requests that are under way.",
    .labels = {"section"}};
static const struct metric_family breaker = {.name = "relay_lookback_breaker",
    .type = METRIC_GAUGE,
    .help = "Is the host asked? 0: yes, 1: one request finds it out, 2: no, it failed too often. "
	    "Of the first 100 hosts.",
    .labels = {"section", "host"}};
static const struct metric_family late = {.name = "relay_lookback_late_answers_total",
    .type = METRIC_COUNTER,
    .help = "Ids whose answer was ignored, as it came after the claim's end.",
    .labels = {"section"}};
static const struct metric_family lost_decisions = {.name = "relay_lookback_lost_decisions_total",
    .type = METRIC_COUNTER,
    .help = "Answers that came after a decision from elsewhere; those that differ are conflicts.",
    .labels = {"section"}};
static const struct metric_family parks = {.name = "relay_lookback_parks_total",
    .type = METRIC_COUNTER,
    .help = "Ids that were parked: an operator has to decide.",
    .labels = {"section"}};
static const struct metric_family overdue = {.name = "relay_lookback_overdue",
    .type = METRIC_GAUGE,
    .help = "Prepares that are being looked back; the first 200,000 of a section are counted.",
    .labels = {"section", "type"}};
static const struct metric_family parked = {.name = "relay_lookback_parked",
    .type = METRIC_GAUGE,
    .help = "Prepares that wait for an operator; the first 200,000 of a section are counted.",
    .labels = {"section", "type"}};
static const struct metric_family oldest = {.name = "relay_lookback_oldest_seconds",
    .type = METRIC_GAUGE,
    .help = "Age of the oldest of both. What is not due yet is younger than its check_after.",
    .labels = {"section", "type"}};
static const struct metric_family unprepared = {.name = "relay_lookback_unprepared",
    .type = METRIC_GAUGE,
    .help = "Decisions that have been there for a minute or longer without their prepare; of the "
	    "last 1,000 that came before it.",
    .labels = {"section", "type"}};

struct shown {
	char *host;
	struct metric *metric;
	enum breaker_state state;
	bool seen;
};

struct check_metrics {
	const struct config *config;
	const struct config_lookback *lookback;
	struct metric *in_flight, *late, *lost, *parks;
	struct shown hosts[HOSTS_SHOWN];
	int host_count;
	int64_t seen_late;
};

static struct metric *section_series(
    const struct check_metrics *metrics, const struct metric_family *family, const char *label)
{
	const char *const labels[] = {metrics->lookback->name, label};

	return metric_series(family, labels);
}

static void count_results(
    struct check_metrics *metrics, const char *service, const char *result, int count)
{
	const char *const labels[] = {metrics->lookback->name, service, result};

	metric_add(metric_series(&checks, labels), count);
}

struct check_metrics *check_metrics_create(
    const struct config *config, const struct config_lookback *lookback)
{
	struct check_metrics *metrics = xcalloc(1, sizeof *metrics);

	metrics->config = config;
	metrics->lookback = lookback;
	metrics->in_flight = section_series(metrics, &in_flight, NULL);
	metrics->late = section_series(metrics, &late, NULL);
	metrics->lost = section_series(metrics, &lost_decisions, NULL);
	metrics->parks = section_series(metrics, &parks, NULL);
	lookback_count_decisions(lookback->name, "check", 0);
	lookback_count_decisions(lookback->name, "operator", 0);
	for (int i = 0; i < config->check_count; i++) {
		count_results(metrics, config->checks[i].name, "commit", 0);
		metric_observe(section_series(metrics, &latency, config->checks[i].name), 0, 0);
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
		metric_set(metrics->in_flight, 0);
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
		metric_observe(
		    section_series(metrics, &latency, name), (double)answer->total_us / 1e6, 1);
	if (answer->failure) {
		count_results(metrics, name, answer->failure, id_count);
		return;
	}
	for (int i = 0; i < id_count; i++)
		counts[answer->words ? answer->words[i] : CHECK_UNKNOWN]++;
	for (int i = 0; i < CHECK_WORDS; i++)
		if (counts[i] > 0)
			count_results(metrics, name, names[i], counts[i]);
}

/* --- hosts ---------------------------------------------------------------------------------- */

static struct shown *find_shown(struct check_metrics *metrics, const char *host)
{
	struct shown *shown;

	for (int i = 0; i < metrics->host_count; i++)
		if (text_equal(metrics->hosts[i].host, host))
			return &metrics->hosts[i];
	if (metrics->host_count == HOSTS_SHOWN)
		return NULL;
	shown = &metrics->hosts[metrics->host_count++];
	*shown = (struct shown){
	    .host = xstrdup(host), .metric = section_series(metrics, &breaker, host)};
	return shown;
}

static void log_change(
    const struct check_metrics *metrics, const char *host, enum breaker_state state)
{
	if (state == BREAKER_CLOSED)
		log_info("lookback_breaker_closed", {"section", LOG_TEXT(metrics->lookback->name)},
		    {"host", LOG_TEXT(host)},
		    {"consequence", LOG_TEXT("it answers, and is asked again")});
	else
		log_warn("lookback_breaker_opened", {"section", LOG_TEXT(metrics->lookback->name)},
		    {"host", LOG_TEXT(host)},
		    {"consequence",
			LOG_TEXT("it failed too often in a row: one request at a time finds "
				 "out when it answers again, and no other attempt is spent")});
}

/* Half-open is open as far as people are concerned. */
static void show_breaker(struct check_metrics *metrics, const char *host, enum breaker_state state)
{
	struct shown *shown = find_shown(metrics, host);

	if (!shown)
		return;
	shown->seen = true;
	if ((shown->state == BREAKER_CLOSED) != (state == BREAKER_CLOSED))
		log_change(metrics, host, state);
	shown->state = state;
	metric_set(shown->metric, (double)state);
}

/* Hosts that are forgotten are asked like any other, should they come again. */
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
	show_breaker(metrics, host, BREAKER_CLOSED);
}

int check_metrics_note(struct check_metrics *metrics, const struct schedule *schedule, int64_t now)
{
	struct schedule_figures figures = schedule_figures(schedule);
	enum breaker_state state;
	const char *host;
	int ignored, tripped = 0;

	for (int i = 0; (host = schedule_host(schedule, i, now, &state, &ignored)); i++) {
		tripped += state != BREAKER_CLOSED;
		show_breaker(metrics, host, state);
	}
	forget_unseen(metrics);
	metric_set(metrics->in_flight, figures.in_flight);
	metric_add(metrics->late, (double)(figures.late - metrics->seen_late));
	metrics->seen_late = figures.late;
	return tripped;
}

/* --- the database's figures ----------------------------------------------------------------- */

void check_metrics_type(struct check_metrics *metrics, const struct check_type_figures *figures)
{
	const char *name = metrics->lookback->types.items[figures->type];

	metric_set(section_series(metrics, &overdue, name), (double)figures->overdue);
	metric_set(section_series(metrics, &parked, name), (double)figures->parked);
	metric_set(section_series(metrics, &oldest, name), (double)figures->oldest_ms / 1000);
	metric_set(section_series(metrics, &unprepared, name), (double)figures->unprepared);
}

void check_metrics_settled(
    struct check_metrics *metrics, int64_t won, int64_t lost, int64_t strange, int64_t parked_rows)
{
	lookback_count_decisions(metrics->lookback->name, "check", won);
	metric_add(metrics->lost, (double)lost);
	metric_add(metrics->late, (double)strange);
	metric_add(metrics->parks, (double)parked_rows);
}
