#include "api_watch.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include "api_private.h"
#include "cleanup.h"
#include "clock.h"
#include "metrics.h"

/* A shard of this process, as the event of it was last posted. */
struct watched_shard {
	const struct metric *metric;
	bool owned;
};

struct api_watch {
	struct api_parts parts;
	struct history *history;
	struct alarms *alarms;
	struct events *events;
	struct watched_shard *shards;
	int shard_count;
	char **delivers; /* as config->delivers: the event that was last posted, as JSON */
	pthread_t thread;
	bool runs;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool ends;
};

static void post_alarm(json_t *alarm, const char *publisher, const char *section, void *context)
{
	const struct api_watch *watch = context;

	events_post(watch->events, "alert", alarm, publisher, section);
}

static bool note_shard(struct api_watch *watch, const struct metric *metric, bool owned)
{
	int i = 0;

	while (i < watch->shard_count && watch->shards[i].metric != metric)
		i++;
	if (i == watch->shard_count) {
		watch->shards = xrealloc(watch->shards, (size_t)(i + 1) * sizeof *watch->shards);
		watch->shards[watch->shard_count++] = (struct watched_shard){metric, false};
	}
	if (watch->shards[i].owned == owned)
		return false;
	watch->shards[i].owned = owned;
	return true;
}

static void watch_shard(const struct metric_view *view, void *context)
{
	struct api_watch *watch = context;
	bool owned;
	json_t *value;

	if (!text_equal(view->row->name, "relay_owner"))
		return;
	owned = metric_value(view->metric) > 0;
	if (!note_shard(watch, view->metric, owned))
		return;
	value = json_pack("{s:s, s:s, s:b, s:s}", "publisher", metric_view_label(view, "publisher"),
	    "shard", metric_view_label(view, "shard"), "owned", owned, "process",
	    watch->parts.process);
	events_post(watch->events, "shard", value, metric_view_label(view, "publisher"), NULL);
	json_decref(value);
}

/* Counts change with each message: only what an operator would act on is an event. */
static void watch_deliver(struct api_watch *watch, int place)
{
	const struct config_deliver *section = &watch->parts.config->delivers[place];
	const struct deliver_status status = deliver_status(watch->parts.delivers[place]);
	json_t *value = json_pack("{s:s, s:b, s:b, s:s, s:i, s:s}", "section", section->name,
	    "works", status.works, "paused", status.paused, "breaker",
	    breaker_states[status.sends.breaker], "blocked", status.blocked, "process",
	    watch->parts.process);
	char *text = json_dumps(value, JSON_COMPACT);

	if (!watch->delivers[place] || !text_equal(watch->delivers[place], text))
		events_post(watch->events, "deliver", value, NULL, section->name);
	free(watch->delivers[place]);
	watch->delivers[place] = text;
	json_decref(value);
}

static void look_around(struct api_watch *watch)
{
	int64_t now_us = clock_wall_us();

	history_take(watch->history, now_us / 1000000);
	alarms_take(watch->alarms, now_us, post_alarm, watch);
	metrics_visit(watch_shard, watch);
	for (int i = 0; watch->parts.delivers && i < watch->parts.config->deliver_count; i++)
		if (watch->parts.delivers[i])
			watch_deliver(watch, i);
	events_turn(watch->events);
}

/* Until the next whole second, so that each has one point. */
static int64_t ms_to_next_second(void)
{
	return 1000 - clock_wall_us() / 1000 % 1000;
}

static void *run_watch(void *context)
{
	struct api_watch *watch = context;
	bool ends = false;

	while (!ends) {
		struct timespec until = clock_until(ms_to_next_second());

		look_around(watch);
		pthread_mutex_lock(&watch->mutex);
		while (!watch->ends &&
		       pthread_cond_timedwait(&watch->changed, &watch->mutex, &until) == 0)
			;
		ends = watch->ends;
		pthread_mutex_unlock(&watch->mutex);
	}
	return NULL;
}

struct api_watch *api_watch_start(const struct api_parts *parts, struct err *err)
{
	struct api_watch *watch = xcalloc(1, sizeof *watch);
	sigset_t all, before;

	watch->parts = *parts;
	watch->history = history_create();
	watch->alarms = alarms_create();
	watch->events = events_create(parts->process);
	watch->delivers = xcalloc((size_t)parts->config->deliver_count, sizeof *watch->delivers);
	pthread_mutex_init(&watch->mutex, NULL);
	clock_cond_init(&watch->changed);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	watch->runs = pthread_create(&watch->thread, NULL, run_watch, watch) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (watch->runs)
		return watch;
	err_set(err, ERR_FATAL, "[api]: no thread for the watch of the process");
	api_watch_stop(watch);
	return NULL;
}

void api_watch_stop(struct api_watch *watch)
{
	if (!watch)
		return;
	pthread_mutex_lock(&watch->mutex);
	watch->ends = true;
	pthread_cond_signal(&watch->changed);
	pthread_mutex_unlock(&watch->mutex);
	if (watch->runs)
		pthread_join(watch->thread, NULL);

	for (int i = 0; i < watch->parts.config->deliver_count; i++)
		free(watch->delivers[i]);
	free(watch->delivers);
	free(watch->shards);
	history_destroy(watch->history);
	alarms_destroy(watch->alarms);
	events_destroy(watch->events);
	pthread_cond_destroy(&watch->changed);
	pthread_mutex_destroy(&watch->mutex);
	free(watch);
}

struct history *api_watch_history(const struct api_watch *watch)
{
	return watch->history;
}

struct alarms *api_watch_alarms(const struct api_watch *watch)
{
	return watch->alarms;
}

struct events *api_watch_events(const struct api_watch *watch)
{
	return watch->events;
}
