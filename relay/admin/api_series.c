/* The last 15 minutes of the process, by the second. */
#include "api_arguments.h"
#include "api_watch.h"
#include "clock.h"
#include "moment.h"

static const char *const arguments[] = {"name", "from", "to", "step"};
enum { ARGUMENTS = sizeof arguments / sizeof *arguments };

static void answer_names(struct api_call *call, struct history *history)
{
	int64_t left_out;
	json_t *names = history_names(history, &left_out);

	api_answer(call, 200,
	    json_pack("{s:s, s:i, s:o, s:I}", "source", api_process(call->api), "seconds",
		HISTORY_SECONDS, "names", names, "left_out", (json_int_t)left_out));
}

/* *ret_second stays as it is if the argument is not there. */
static bool read_second(struct api_call *call, const char *name, int64_t *ret_second)
{
	const char *value = api_argument(call, name);
	struct err err;
	int64_t us;

	if (!value)
		return true;
	if (moment_parse(value, &us, &err)) {
		*ret_second = us / 1000000;
		return true;
	}
	api_refuse(call, 400, "bad_value", "%s: %s", name, err.message);
	return false;
}

/* Steps begin at whole multiples, so that a chart that is read again keeps its points. */
static bool read_series_range(struct api_call *call, struct history_range *range)
{
	int64_t now = clock_wall_us() / 1000000;

	range->step = 1;
	range->to = now;
	if (!api_argument_number(call, "step", 1, HISTORY_SECONDS, &range->step) ||
	    !read_second(call, "to", &range->to))
		return false;
	range->from = range->to - HISTORY_SECONDS;
	if (!read_second(call, "from", &range->from))
		return false;
	if (range->from >= range->to || range->to - range->from > HISTORY_SECONDS) {
		api_refuse(call, 409, "conflicting_arguments",
		    "from is to be before to, by %d seconds at most: older figures are in "
		    "Prometheus",
		    HISTORY_SECONDS);
		return false;
	}
	range->from -= range->from % range->step;
	return true;
}

void api_series_begin(struct api_call *call)
{
	struct history *history = api_watch_history(api_watch_of(call->api));
	const char *name = api_argument(call, "name");
	struct history_range range;
	json_t *answer;

	if (!api_arguments_check(call, arguments, ARGUMENTS))
		return;
	if (!name &&
	    (api_argument(call, "from") || api_argument(call, "to") || api_argument(call, "step")))
		return api_refuse(call, 409, "conflicting_arguments",
		    "from, to and step need a name; GET /v1/series without arguments lists the "
		    "names");
	if (!name)
		return answer_names(call, history);
	if (!history_has(name))
		return api_refuse(call, 404, "not_found",
		    "no series is kept of %.60s; GET /v1/series without a name lists them", name);
	if (!read_series_range(call, &range))
		return;
	answer = history_json(history, name, &range, api_may_see_labels, call);
	json_object_set_new(answer, "source", json_string(api_process(call->api)));
	api_answer(call, 200, answer);
}
