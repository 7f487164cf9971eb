/*
 * The findings of `doctor`. The checks open connections and may take seconds: one call at a time
 * makes them, and their result serves the calls of the next seconds.
 */
#include "api_arguments.h"
#include "api_worker.h"
#include "clock.h"
#include "moment.h"

enum { KEPT_MS = 10000 };

static json_t *preflight_answer(const struct api_preflight *preflight)
{
	json_t *answer = json_copy(preflight->report);
	char at[MOMENT_SIZE];

	moment_format(preflight->at_us, at);
	json_object_set_new(answer, "checked_at", json_string(at));
	json_object_set_new(answer, "took_ms", json_integer(preflight->took_ms));
	return answer;
}

/* Takes the report over, and answers with it. */
static void keep_preflight(struct api_call *call, json_t *report, int64_t begun_ms)
{
	struct api_preflight *preflight = api_preflight(call->api);
	json_t *answer;

	pthread_mutex_lock(&preflight->mutex);
	json_decref(preflight->report);
	preflight->report = report;
	preflight->until_ms = clock_ms() + KEPT_MS;
	preflight->at_us = clock_wall_us();
	preflight->took_ms = clock_ms() - begun_ms;
	preflight->runs = NULL;
	answer = preflight_answer(preflight);
	pthread_mutex_unlock(&preflight->mutex);
	api_answer(call, 200, answer);
}

static void run_preflight(struct api_call *call, struct api_worker *worker)
{
	int64_t begun_ms = clock_ms();
	json_t *report;

	/* each check has a limit of its own, and reports that a server does not answer */
	api_worker_interrupts(worker, false);
	report = api_preflight(call->api)->check(api_config(call->api));
	api_worker_interrupts(worker, true);
	keep_preflight(call, report, begun_ms);
}

/* The findings are about all sections. */
static bool may_see_preflight(struct api_call *call)
{
	if (!api_is_limited(call))
		return true;
	api_refuse_scope(call, "all of", "the checks");
	return false;
}

/* A call that no thread took makes no checks. */
void api_preflight_forget(struct api_call *call)
{
	struct api_preflight *preflight = call->work;

	pthread_mutex_lock(&preflight->mutex);
	if (preflight->runs == call)
		preflight->runs = NULL;
	pthread_mutex_unlock(&preflight->mutex);
}

void api_preflight_begin(struct api_call *call)
{
	struct api_preflight *preflight = api_preflight(call->api);
	json_t *answer = NULL;
	bool runs;

	if (!may_see_preflight(call) || !api_arguments_check(call, NULL, 0))
		return;
	pthread_mutex_lock(&preflight->mutex);
	runs = preflight->runs != NULL;
	call->work = preflight;
	/* while new checks run, the last ones are the best that is known */
	if (preflight->report && (runs || clock_ms() < preflight->until_ms))
		answer = preflight_answer(preflight);
	else if (!runs)
		preflight->runs = call;
	pthread_mutex_unlock(&preflight->mutex);

	if (answer)
		api_answer(call, 200, answer);
	else if (runs)
		api_refuse(call, 503, "busy", "another call makes the checks: try again");
	else
		api_worker_run(call, run_preflight);
}
