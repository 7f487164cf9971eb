/*
 * The dedup stores of the [deliver] sections: their planned figures, and those that this process
 * observes. The server of a shared store is not queried.
 */
#include <math.h>
#include "api_arguments.h"
#include "cleanup.h"
#include "dedup_spec.h"
#include "dedup_stores.h"
#include "metrics.h"
#include "status_json.h"

/* Figures of a section, from the metrics of its inbox. */
static const struct observed_row {
	const char *member, *metric;
	bool is_rate;
} observed_rows[] = {
    {"observed_rate", "relay_deliver_false_positive_rate", true},
    {"alarms", "relay_deliver_dedup_alarm", false},
    {"sub_slices", "relay_deliver_dedup_sub_slices", false},
    {"memory_bytes", "relay_deliver_dedup_memory_bytes", false},
    {"disk_bytes", "relay_deliver_dedup_disk_bytes", false},
    {"duplicates", "relay_deliver_duplicates_total", false},
};
enum { OBSERVED = sizeof observed_rows / sizeof *observed_rows };

struct observed {
	const char *section;
	double values[OBSERVED]; /* summed over the labels; NAN: no series */
};

static void observe_metric(const struct metric_view *view, void *context)
{
	struct observed *observed = context;
	const char *section = metric_view_label(view, "section");

	for (int i = 0; i < OBSERVED; i++) {
		double *value = &observed->values[i];

		if (!section || !text_equal(section, observed->section) ||
		    !text_equal(view->row->name, observed_rows[i].metric))
			continue;
		*value = isnan(*value) ? metric_value(view->metric)
				       : *value + metric_value(view->metric);
	}
}

/* Null for a section that does not run in this process. */
static void add_observed(json_t *object, const char *section, bool runs)
{
	struct observed observed = {.section = section};

	for (int i = 0; i < OBSERVED; i++)
		observed.values[i] = NAN;
	if (runs)
		metrics_visit(observe_metric, &observed);
	for (int i = 0; i < OBSERVED; i++) {
		double value = observed.values[i];
		json_t *json = isnan(value)               ? json_null()
			       : observed_rows[i].is_rate ? json_real(value)
							  : status_int64_json((int64_t)value);

		json_object_set_new(object, observed_rows[i].member, json);
	}
}

/* The line may hold a password, so only its parts are shown. */
static json_t *planned_json(const char *line)
{
	OWNED(dedup_spec_finish) struct dedup_spec spec = {0};
	struct err ignored;
	bool is_filter;

	/* it was checked with the configuration */
	if (!dedup_spec_parse(line, &spec, &ignored))
		return json_null();
	is_filter = spec.rate > 0;
	return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "store",
	    spec.type->promise.store, "lossy", spec.lossy, "ids", status_int64_json(spec.ids),
	    "target_rate", is_filter ? json_real(spec.rate) : json_null(), "alarm_rate",
	    is_filter && spec.alarm > 0 ? json_real(spec.alarm) : json_null(), "window_ms",
	    status_int64_json(spec.window_ms), "slices", json_integer(spec.slices), "planned_bytes",
	    status_int64_json((int64_t)spec.planned_bytes));
}

static json_t *dedup_json(const struct config_deliver *section, bool runs)
{
	json_t *object = json_object();

	json_object_set_new(object, "section", json_string(section->name));
	json_object_set_new(object, "runs", json_boolean(runs));
	json_object_set_new(
	    object, "planned", section->dedup[0] ? planned_json(section->dedup) : json_null());
	add_observed(object, section->name, runs);
	return object;
}

void api_dedup_begin(struct api_call *call)
{
	const struct config *config = api_config(call->api);
	json_t *sections;

	if (!api_arguments_check(call, NULL, 0))
		return;
	sections = json_array();
	for (int i = 0; i < config->deliver_count; i++)
		if (config_token_has_section(&call->caller->token, config->delivers[i].name))
			json_array_append_new(
			    sections, dedup_json(&config->delivers[i], api_deliver(call->api, i)));
	api_answer(call, 200,
	    json_pack("{s:s, s:o}", "source", api_process(call->api), "sections", sections));
}
