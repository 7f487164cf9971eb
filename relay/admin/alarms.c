/*
 * [the rules] are a table. Once a second, [the metrics are read] into a list of the series that a
 * rule names, and [the rules are judged] for each of them.
 */
#include "alarms.h"

#include <pthread.h>
#include <string.h>
#include "api_problem.h"
#include "cleanup.h"
#include "memory.h"
#include "metrics.h"
#include "moment.h"
#include "text.h"

#define SECOND_US ((int64_t)1000000)
enum { STUCK_SECONDS = 300 };

/* --- the rules ------------------------------------------------------------------------------- */

enum alarm_kind {
	ALARM_ABOVE,  /* the value is above the limit for so many seconds */
	ALARM_ZERO,   /* it is 0 for so many seconds */
	ALARM_RISES,  /* a counter has risen by more than the limit within so many seconds */
	ALARM_STUCK,  /* the value is above the limit, and `other` has not risen for 5 minutes */
	ALARM_BEHIND, /* the value is below that of `other` */
};

/* As in docs/examples/alerts.yml; a test compares them. */
static const struct alarm_rule {
	const char *name, *severity;
	enum alarm_kind kind;
	const char *metric, *label, *value; /* only the series with this value of the label */
	const char *words;          /* {publisher} is the label's value, {value} the metric's */
	const char *other, *unless; /* unless: not while this metric is above 0 */
	double limit;
	int64_t seconds;
} rules[] = {
    {"OutboxNothingPublished", "critical", ALARM_STUCK, "relay_unpublished_rows", .seconds = 120,
	.other = "relay_published_total",
	.words =
	    "{value} rows of publisher {publisher}, shard {shard}, wait, and none is published"},
    {"OutboxMessagesLate", "warning", ALARM_ABOVE, "relay_unpublished_age_seconds", .limit = 60,
	.seconds = 300,
	.words = "the oldest unpublished message of publisher {publisher} is {value} s old"},
    {"OutboxScheduledLate", "warning", ALARM_ABOVE, "relay_scheduled_late_seconds", .limit = 60,
	.seconds = 300,
	.words = "a scheduled message of publisher {publisher} was due {value} s ago"},
    {"OutboxMessagesDead", "critical", ALARM_ABOVE, "relay_parked_rows", .label = "state",
	.value = "dead", .seconds = 300,
	.words = "{value} parked messages of publisher {publisher} are dead"},
    {"OutboxPartitionStalled", "critical", ALARM_ABOVE, "relay_parked_rows", .label = "state",
	.value = "stalled", .seconds = 300,
	.words = "messages of publisher {publisher} wait for a Kafka partition or topic that "
		 "accepts nothing"},
    {"OutboxTopicMissing", "critical", ALARM_ABOVE, "relay_missing_topic", .seconds = 120,
	.words = "publisher {publisher} waits for a topic that does not exist"},
    {"OutboxTopicDenied", "critical", ALARM_ABOVE, "relay_denied_partitions", .seconds = 120,
	.words = "{value} Kafka partitions refuse every record of publisher {publisher}"},
    {"OutboxPublisherBlocked", "critical", ALARM_ABOVE, "relay_refused", .seconds = 60,
	.words = "publisher {publisher} is blocked by a record that Kafka refuses"},
    {"OutboxLeaseOver", "critical", ALARM_ABOVE, "relay_lease_over", .seconds = 60,
	.words = "the owner of shard {shard} of publisher {publisher} cannot renew its lease"},
    {"OutboxLeaseLost", "warning", ALARM_RISES, "relay_leases_lost_total", .seconds = 900,
	.words = "shard {shard} of publisher {publisher} was taken from its owner"},
    {"OutboxHistoryRewound", "critical", ALARM_RISES, "relay_history_rewound_total",
	.seconds = 3600,
	.words = "Kafka has records of publisher {publisher} that the database does not know"},
    {"OutboxCopiedFromAnotherCluster", "critical", ALARM_ABOVE, "relay_elsewhere", .seconds = 60,
	.words = "the rows of publisher {publisher} were copied from another database cluster"},
    {"OutboxDoorbellMissed", "warning", ALARM_RISES, "relay_bell_missed_total", .seconds = 3600,
	.words = "writers of the database {postgres} do not wake the relay"},
    {"OutboxUpkeepBehind", "warning", ALARM_BEHIND, "relay_partition_ahead_seconds", .seconds = 900,
	.other = "relay_partition_every_seconds",
	.words = "no partition of {table} is made ahead in the database {database}"},
    {"OutboxUpkeepFailing", "critical", ALARM_ABOVE, "relay_upkeep_failing", .seconds = 600,
	.words = "the upkeep of {part} fails in the database {database}"},
    {"OutboxUpkeepLockedOut", "warning", ALARM_ABOVE, "relay_upkeep_locked_out", .seconds = 600,
	.words = "a session keeps the upkeep of {part} from its lock in the database {database}"},
    {"OutboxDefaultPartition", "warning", ALARM_ABOVE, "relay_default_partition_rows",
	.seconds = 900,
	.words = "{value} rows of {table} are in the default partition of the database {database}"},
    {"OutboxPartitionHeld", "warning", ALARM_ABOVE, "relay_partition_held", .seconds = 21600,
	.words = "an old partition of {table} is kept because its rows are still needed"},
    {"OutboxArchiveWaits", "warning", ALARM_ABOVE, "relay_archive_waiting", .seconds = 21600,
	.words = "{value} detached partitions of the database {database} are not archived"},
    {"OutboxIdsUnordered", "warning", ALARM_ABOVE, "relay_id_sequence_unordered", .seconds = 300,
	.words = "the sequence of message.id in the database {database} gives no rising ids"},
    {"LookbackUndecided", "warning", ALARM_ABOVE, "relay_lookback_oldest_seconds", .limit = 900,
	.seconds = 300,
	.words = "a message of type {type} in section {section} is undecided for {value} s"},
    {"LookbackParked", "critical", ALARM_ABOVE, "relay_lookback_parked", .seconds = 300,
	.words =
	    "{value} messages of type {type} in section {section} wait for an operator's decision"},
    {"LookbackUnprepared", "warning", ALARM_ABOVE, "relay_lookback_unprepared", .seconds = 300,
	.words = "{value} decisions of type {type} in section {section} have no prepare"},
    {"LookbackBreakerOpen", "warning", ALARM_ABOVE, "relay_lookback_breaker", .seconds = 300,
	.words = "the relay pauses its calls to {host}, which fails too often"},
    {"LookbackNoAddress", "critical", ALARM_ZERO, "relay_lookback_addresses", .label = "state",
	.value = "working", .seconds = 300, .words = "no address of the service {service} works"},
    {"LookbackConflicts", "warning", ALARM_ABOVE, "relay_lookback_conflicts",
	.words = "{value} prepares, decisions or answers of type {type} in section {section} "
		 "contradict earlier ones"},
    {"LookbackDeadLetters", "warning", ALARM_RISES, "relay_lookback_records_total", .label = "kind",
	.value = "dead_letter", .seconds = 900, .words = "section {section} writes dead letters"},
    {"InboxStuck", "critical", ALARM_STUCK, "relay_deliver_oldest_seconds", .limit = 60,
	.seconds = 120, .other = "relay_deliver_handled_total", .unless = "relay_deliver_paused",
	.words = "section {section} delivers nothing, and its oldest message waits for {value} s"},
    {"InboxPartitionBlocked", "critical", ALARM_ABOVE, "relay_deliver_blocked_partitions",
	.seconds = 300, .words = "{value} partitions of section {section} are blocked"},
    {"InboxBreakerOpen", "warning", ALARM_ABOVE, "relay_deliver_breaker", .seconds = 300,
	.words = "the relay pauses its calls to the application of section {section}, which fails "
		 "too often"},
    {"InboxDeadLetters", "warning", ALARM_RISES, "relay_deliver_dead_letters_total", .seconds = 900,
	.words = "section {section} writes dead letters"},
    {"InboxClaimsLost", "warning", ALARM_RISES, "relay_deliver_claims_lost_total", .seconds = 900,
	.words = "section {section} lost claims while the application had their messages"},
    {"InboxUnreported", "warning", ALARM_STUCK, "relay_deliver_unreported", .seconds = 120,
	.other = "relay_deliver_reported_total",
	.words =
	    "{value} handled messages of section {section} are not reported to their database"},
    {"DedupFilterAlarm", "warning", ALARM_ABOVE, "relay_deliver_dedup_alarm", .seconds = 600,
	.words = "{value} dedup filters of section {section} have too many false positives, and no "
		 "repair helped"},
    {"DedupFilterRepaired", "info", ALARM_RISES, "relay_deliver_dedup_alarms_total",
	.seconds = 3600,
	.words = "a dedup filter of section {section} had too many false positives"},
    {"DedupMoreIdsThanPlanned", "warning", ALARM_ABOVE, "relay_deliver_dedup_sub_slices",
	.seconds = 21600, .words = "section {section} gets more ids than its dedup line plans for"},
    {"ApiWrongTokens", "warning", ALARM_RISES, "relay_api_wrong_tokens_total", .limit = 30,
	.seconds = 300,
	.words =
	    "{value} requests with an unknown token came to the HTTP interface in five minutes"},
};
enum { RULES = sizeof rules / sizeof *rules };

/* A series that a rule is about, or compares with. */
struct tracked {
	struct metric_view view;
	double value;
	int64_t rose_us; /* when the value was last seen to be greater than before */
};

/* The state of a rule for one series. */
struct alarm {
	const struct alarm_rule *rule;
	int tracked; /* place in the list */
	bool holds, fires;
	int64_t since_us; /* when it began to hold; 0: it does not */
	double base;      /* ALARM_RISES: the value at base_us */
	int64_t base_us, held_us;
};

struct alarms {
	pthread_mutex_t mutex;
	struct tracked *tracked;
	struct alarm *alarms;
	int tracked_count, count;
	int64_t now_us;
};

struct alarms *alarms_create(void)
{
	struct alarms *alarms = xcalloc(1, sizeof *alarms);

	pthread_mutex_init(&alarms->mutex, NULL);
	return alarms;
}

void alarms_destroy(struct alarms *alarms)
{
	if (!alarms)
		return;
	pthread_mutex_destroy(&alarms->mutex);
	free(alarms->tracked);
	free(alarms->alarms);
	free(alarms);
}

/* --- the metrics are read -------------------------------------------------------------------- */

static bool is_named_by_rule(const char *metric)
{
	for (int i = 0; i < RULES; i++)
		if (text_equal(rules[i].metric, metric) ||
		    (rules[i].other && text_equal(rules[i].other, metric)) ||
		    (rules[i].unless && text_equal(rules[i].unless, metric)))
			return true;
	return false;
}

static bool is_rule_about(const struct alarm_rule *rule, const struct metric_view *view)
{
	const char *value = rule->label ? metric_view_label(view, rule->label) : NULL;

	return text_equal(rule->metric, view->row->name) &&
	       (!rule->label || (value && text_equal(value, rule->value)));
}

/* The rule is about the series that track_series is about to add. */
static void add_alarm(struct alarms *alarms, const struct alarm_rule *rule)
{
	alarms->alarms =
	    xrealloc(alarms->alarms, (size_t)(alarms->count + 1) * sizeof *alarms->alarms);
	/* A counter begins at 0: it may have risen before it was seen. */
	alarms->alarms[alarms->count++] = (struct alarm){
	    .rule = rule, .tracked = alarms->tracked_count, .base_us = alarms->now_us};
}

static void track_series(struct alarms *alarms, const struct metric_view *view)
{
	alarms->tracked = xrealloc(
	    alarms->tracked, (size_t)(alarms->tracked_count + 1) * sizeof *alarms->tracked);

	alarms->tracked[alarms->tracked_count] = (struct tracked){
	    .view = *view, .value = metric_value(view->metric), .rose_us = alarms->now_us};
	for (int i = 0; i < RULES; i++)
		if (is_rule_about(&rules[i], view))
			add_alarm(alarms, &rules[i]);
	alarms->tracked_count++;
}

static void read_tracked(const struct metric_view *view, void *context)
{
	struct alarms *alarms = context;
	int i = 0;

	if (!is_named_by_rule(view->row->name))
		return;
	while (i < alarms->tracked_count && alarms->tracked[i].view.metric != view->metric)
		i++;
	if (i == alarms->tracked_count)
		return track_series(alarms, view);
	if (metric_value(view->metric) > alarms->tracked[i].value)
		alarms->tracked[i].rose_us = alarms->now_us;
	alarms->tracked[i].value = metric_value(view->metric);
}

/* --- the rules are judged -------------------------------------------------------------------- */

/* Has it the same value for each label that both have? */
static bool is_same_place(const struct metric_view *one, const struct metric_view *other)
{
	for (int i = 0; one->labels[i]; i++) {
		const char *value = metric_view_label(other, one->labels[i]);

		if (value && !text_equal(value, one->values[i]))
			return false;
	}
	return true;
}

/* NULL: no series of this name is for the same publisher, section or table. */
static const struct tracked *find_companion(
    const struct alarms *alarms, const struct tracked *of, const char *name)
{
	for (int i = 0; name && i < alarms->tracked_count; i++)
		if (text_equal(alarms->tracked[i].view.row->name, name) &&
		    is_same_place(&of->view, &alarms->tracked[i].view))
			return &alarms->tracked[i];
	return NULL;
}

static bool has_risen(const struct alarms *alarms, struct alarm *alarm, double value)
{
	int64_t window_us = alarm->rule->seconds * SECOND_US;

	if (value > alarm->base + alarm->rule->limit)
		alarm->held_us = alarms->now_us;
	if (alarms->now_us - alarm->base_us >= window_us ||
	    value > alarm->base + alarm->rule->limit) {
		alarm->base = value;
		alarm->base_us = alarms->now_us;
	}
	return alarm->held_us > 0 && alarms->now_us - alarm->held_us < window_us;
}

static bool does_rule_hold(const struct alarms *alarms, struct alarm *alarm)
{
	const struct alarm_rule *rule = alarm->rule;
	const struct tracked *tracked = &alarms->tracked[alarm->tracked];
	const struct tracked *other = find_companion(alarms, tracked, rule->other);
	const struct tracked *unless = find_companion(alarms, tracked, rule->unless);

	if (unless && unless->value > 0)
		return false;
	switch (rule->kind) {
	case ALARM_ABOVE:
		return tracked->value > rule->limit;
	case ALARM_ZERO:
		return tracked->value == 0;
	case ALARM_RISES:
		return has_risen(alarms, alarm, tracked->value);
	case ALARM_STUCK:
		return tracked->value > rule->limit && other &&
		       alarms->now_us - other->rose_us >= STUCK_SECONDS * SECOND_US;
	case ALARM_BEHIND:
		return other && tracked->value - other->value < 0;
	}
	return false;
}

/* "{publisher}" becomes the value of the label, "{value}" that of the metric. */
static char *fill_words(const char *words, const struct tracked *tracked)
{
	OWNED(text_finish) struct text filled = {0};

	for (const char *at = words; *at;) {
		size_t span = strcspn(at, "{");

		text_append(&filled, at, span);
		at += span;
		if (*at == '{') {
			size_t length = strcspn(at, "}");
			owned_text char *name = xformat("%.*s", (int)length - 1, at + 1);
			const char *label = metric_view_label(&tracked->view, name);

			if (text_equal(name, "value"))
				text_addf(&filled, "%.6g", tracked->value);
			else
				text_add(&filled, label ? label : "");
			at += length + 1;
		}
	}
	return xstrdup(text_string(&filled));
}

json_t *alarm_json(const char *name, const char *severity, int64_t since_us, json_t *labels,
    double value, const char *text)
{
	char since[MOMENT_SIZE];

	moment_format(since_us, since);
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:f, s:o}", "alert", name, "severity", severity,
	    "state", "firing", "since", since, "labels", labels, "value", value, "text",
	    api_text(text));
}

static json_t *tracked_labels(const struct tracked *tracked)
{
	json_t *labels = json_object();

	for (int i = 0; tracked->view.labels[i]; i++)
		json_object_set_new(
		    labels, tracked->view.labels[i], api_text(tracked->view.values[i]));
	return labels;
}

static json_t *alarm_as_json(
    const struct alarms *alarms, const struct alarm *alarm, const char *state)
{
	const struct tracked *tracked = &alarms->tracked[alarm->tracked];
	owned_text char *words = fill_words(alarm->rule->words, tracked);
	json_t *json = alarm_json(alarm->rule->name, alarm->rule->severity, alarm->since_us,
	    tracked_labels(tracked), tracked->value, words);

	json_object_set_new(json, "state", json_string(state));
	return json;
}

static void judge_alarm(
    const struct alarms *alarms, struct alarm *alarm, alarms_change *change, void *context)
{
	const struct metric_view *view = &alarms->tracked[alarm->tracked].view;
	/* A rule of a counter has a window instead of a delay. */
	int64_t delay_us = alarm->rule->kind == ALARM_RISES ? 0 : alarm->rule->seconds * SECOND_US;
	bool fired = alarm->fires;

	alarm->holds = does_rule_hold(alarms, alarm);
	if (alarm->holds && alarm->since_us == 0)
		alarm->since_us = alarms->now_us;
	alarm->fires = alarm->holds && alarms->now_us - alarm->since_us >= delay_us;
	if (change && alarm->fires != fired) {
		json_t *json = alarm_as_json(alarms, alarm, alarm->fires ? "firing" : "over");

		change(json, metric_view_label(view, "publisher"),
		    metric_view_label(view, "section"), context);
		json_decref(json);
	}
	if (!alarm->holds)
		alarm->since_us = 0;
}

void alarms_take(struct alarms *alarms, int64_t now_us, alarms_change *change, void *context)
{
	pthread_mutex_lock(&alarms->mutex);
	alarms->now_us = now_us;
	metrics_visit(read_tracked, alarms);
	for (int i = 0; i < alarms->count; i++)
		judge_alarm(alarms, &alarms->alarms[i], change, context);
	pthread_mutex_unlock(&alarms->mutex);
}

json_t *alarms_json(struct alarms *alarms, alarms_scope *is_in_scope, void *context)
{
	json_t *critical = json_array(), *others = json_array();

	pthread_mutex_lock(&alarms->mutex);
	for (int i = 0; i < alarms->count; i++) {
		const struct alarm *alarm = &alarms->alarms[i];
		const struct metric_view *view = &alarms->tracked[alarm->tracked].view;

		if (alarm->holds && is_in_scope(metric_view_label(view, "publisher"),
					metric_view_label(view, "section"), context))
			json_array_append_new(
			    text_equal(alarm->rule->severity, "critical") ? critical : others,
			    alarm_as_json(alarms, alarm, alarm->fires ? "firing" : "pending"));
	}
	pthread_mutex_unlock(&alarms->mutex);
	json_array_extend(critical, others);
	json_decref(others);
	return critical;
}
