/*
 * All publishers of the process, each with a thread for each shard
 * (outbox/publish/io/shard_worker.h). A publisher is a small state machine, step_publisher_*;
 * [health] describes it for probes.
 */
#include "publishers.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include "clock.h"
#include "logging.h"
#include "shard_worker.h"

enum {
	MOST_SHARDS = 64, /* as the database allows */
	STALLED_MS = 10000,
	AGAIN_MS = 1000, /* before a publisher that ended for no visible reason is started again */
};

enum publisher_state {
	PUBLISHER_IDLE,    /* not started, dropped, or refused: started when the database has it */
	PUBLISHER_RUNNING, /* its shard workers run, or some of them have drained */
	PUBLISHER_ENDING,  /* a shard worker found the publisher gone or changed: all shard workers
			      end */
	PUBLISHER_LOOKING, /* all shard workers have ended; waits for a look at the database */
	PUBLISHER_DONE,    /* stopped or drained */
};
static const char *const state_names[] = {"idle", "running", "ending", "looking", "done"};

struct publisher {
	const struct config_publisher *config;
	struct upkeep_worker *upkeep_worker;
	struct doorbell *doorbell;
	struct topic_metadata *metadata;
	struct topic_checks *topic_checks;
	enum publisher_state state;
	struct shard_worker *shard_workers[MOST_SHARDS];
	int shards;         /* as many shard workers */
	int refused_shards; /* a number of shards that the configuration refuses, logged; 0: none */
	int64_t look;       /* number of the request for a look, since it was found gone */
	int shards_before;  /* and how many shard workers ended at that time */
	int64_t start_at;
};

struct publishers {
	struct publishers_options options;
	struct take_limiter *take_limiter;
	poison_guard_turn turn;
	const struct config *fresh; /* reloaded; NULL: never */
	pthread_mutex_t mutex;      /* guards list against the readers of other threads */
	struct publisher *list;     /* as config->publishers */
	bool stopping;
};

static int place_of_kafka(const struct config *config, const struct kafka_settings *kafka)
{
	return (int)(kafka - config->kafka);
}

static int place_of_postgres(const struct config *config, const struct config_publisher *publisher)
{
	return (int)(publisher->settings.postgres - config->postgres);
}

struct publishers *publishers_create(const struct publishers_options *options)
{
	const struct config *config = options->config;
	struct publishers *publishers = xcalloc(1, sizeof *publishers);

	publishers->options = *options;
	publishers->take_limiter = take_limiter_create(options->drain);
	pthread_mutex_init(&publishers->mutex, NULL);
	publishers->list = xcalloc((size_t)config->publisher_count, sizeof *publishers->list);
	for (int i = 0; i < config->publisher_count; i++) {
		const struct config_publisher *publisher = &config->publishers[i];

		publishers->list[i] = (struct publisher){.config = publisher,
		    .upkeep_worker = options->upkeep_workers[place_of_postgres(config, publisher)],
		    .doorbell = options->doorbells[place_of_postgres(config, publisher)],
		    .metadata =
			options->topic_metadata[place_of_kafka(config, publisher->settings.kafka)],
		    .topic_checks =
			options->topic_checks[place_of_kafka(config, publisher->settings.kafka)]};
	}
	return publishers;
}

void publishers_destroy(struct publishers *publishers)
{
	if (!publishers)
		return;
	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		for (int j = 0; j < publishers->list[i].shards; j++)
			shard_worker_join(publishers->list[i].shard_workers[j]);
	take_limiter_destroy(publishers->take_limiter);
	pthread_mutex_destroy(&publishers->mutex);
	free(publishers->list);
	free(publishers);
}

/* --- one publisher -------------------------------------------------------------------------------
 */

static void move_publisher(
    struct publishers *publishers, struct publisher *publisher, enum publisher_state state)
{
	pthread_mutex_lock(&publishers->mutex);
	log_debug("publisher_state", {"publisher", LOG_TEXT(publisher->config->settings.name)},
	    {"from", LOG_TEXT(state_names[publisher->state])},
	    {"to", LOG_TEXT(state_names[state])});
	publisher->state = state;
	pthread_mutex_unlock(&publishers->mutex);
}

static void add_shard_worker(
    struct publishers *publishers, struct publisher *publisher, struct shard_worker *shard_worker)
{
	const struct config_publisher *fresh =
	    publishers->fresh
		? config_find_publisher(publishers->fresh, publisher->config->settings.name)
		: NULL;

	pthread_mutex_lock(&publishers->mutex);
	publisher->shard_workers[publisher->shards++] = shard_worker;
	pthread_mutex_unlock(&publishers->mutex);
	/* A worker that starts after a reload has the old settings of its section. */
	if (fresh)
		shard_worker_retune(shard_worker, &fresh->settings);
}

static bool start_publisher(
    struct publishers *publishers, struct publisher *publisher, int shards, struct err *err)
{
	struct shard_worker_options options = {.publisher = &publisher->config->settings,
	    .shards = shards,
	    .metadata = publisher->metadata,
	    .topic_checks = publisher->topic_checks,
	    .take_limiter = publishers->take_limiter,
	    .doorbell = publisher->doorbell,
	    .turn = &publishers->turn,
	    .owner = publishers->options.owner,
	    .drain = publishers->options.drain};

	assert(shards <= MOST_SHARDS && publisher->shards == 0);
	/* Before the workers: if one fails, the others are found running and are ended. */
	move_publisher(publishers, publisher, PUBLISHER_RUNNING);
	for (options.shard = 0; options.shard < shards; options.shard++) {
		struct shard_worker *shard_worker = shard_worker_start(&options, err);

		if (!shard_worker)
			return err_prefix(err, "publisher %s", publisher->config->settings.name);
		add_shard_worker(publishers, publisher, shard_worker);
	}
	log_info("publisher_started", {"publisher", LOG_TEXT(publisher->config->settings.name)},
	    {"shards", LOG_INT(shards)});
	return true;
}

static void stop_shard_workers(const struct publisher *publisher)
{
	for (int i = 0; i < publisher->shards; i++)
		shard_worker_stop(publisher->shard_workers[i]);
}

/* A snapshot of how its shard workers end. */
static void count_ends(const struct publisher *publisher, int counts[static SHARD_WORKER_GONE + 1])
{
	for (int i = 0; i <= SHARD_WORKER_GONE; i++)
		counts[i] = 0;
	for (int i = 0; i < publisher->shards; i++)
		counts[shard_worker_status(publisher->shard_workers[i]).end]++;
}

/* Frees shard workers that have all ended; the readers of other threads no longer see them. */
static void free_shard_workers(struct publishers *publishers, struct publisher *publisher)
{
	int count = publisher->shards;

	pthread_mutex_lock(&publishers->mutex);
	publisher->shards = 0;
	pthread_mutex_unlock(&publishers->mutex);
	for (int i = 0; i < count; i++)
		shard_worker_join(publisher->shard_workers[i]);
}

static void step_publisher_running(struct publishers *publishers, struct publisher *publisher)
{
	int ends[SHARD_WORKER_GONE + 1];

	count_ends(publisher, ends);
	/* The other workers would find the same: all end, and begin anew with the new shards. */
	if (ends[SHARD_WORKER_GONE] > 0 && !publishers->stopping) {
		log_info("publisher_changed",
		    {"publisher", LOG_TEXT(publisher->config->settings.name)},
		    {"consequence", LOG_TEXT("it was dropped or split: its shards are let go")});
		stop_shard_workers(publisher);
		move_publisher(publishers, publisher, PUBLISHER_ENDING);
	} else if (ends[SHARD_WORKER_RUNNING] == 0) {
		move_publisher(publishers, publisher, PUBLISHER_DONE);
	}
}

static void step_publisher_ending(struct publishers *publishers, struct publisher *publisher)
{
	int ends[SHARD_WORKER_GONE + 1];

	count_ends(publisher, ends);
	if (ends[SHARD_WORKER_RUNNING] > 0)
		return;
	publisher->shards_before = publisher->shards;
	free_shard_workers(publishers, publisher);
	publisher->look = upkeep_worker_look(publisher->upkeep_worker);
	move_publisher(publishers, publisher, PUBLISHER_LOOKING);
}

static void step_publisher_looking(
    struct publishers *publishers, struct publisher *publisher, int64_t now)
{
	int shards;

	if (!upkeep_worker_is_answered(publisher->upkeep_worker, publisher->look))
		return;
	/* Read after the answer: a number from before it may be that of the publisher found gone.
	 */
	shards = upkeep_worker_shards(publisher->upkeep_worker, publisher->config);
	if (shards == 0)
		log_warn("publisher_dropped",
		    {"publisher", LOG_TEXT(publisher->config->settings.name)},
		    {"consequence", LOG_TEXT("it is no longer published")});
	/* Nothing has changed, so the workers would probably end again at once. */
	publisher->start_at = shards == publisher->shards_before ? now + AGAIN_MS : now;
	move_publisher(publishers, publisher, PUBLISHER_IDLE);
}

static void refuse_shards(struct publisher *publisher, int shards)
{
	/* Each turn comes here: one line in the log for each number. */
	if (publisher->refused_shards == shards)
		return;
	publisher->refused_shards = shards;
	log_error("publisher_refused", {"publisher", LOG_TEXT(publisher->config->settings.name)},
	    {"shards", LOG_INT(shards)}, {"configured", LOG_INT(publisher->config->shards)},
	    {"consequence",
		LOG_TEXT("it is not published until the configuration agrees with the database")});
}

/* With `drain`, a publisher that the database no longer has is drained. */
static void step_publisher_idle(
    struct publishers *publishers, struct publisher *publisher, int64_t now)
{
	int shards = upkeep_worker_shards(publisher->upkeep_worker, publisher->config);
	struct err err;

	if (now < publisher->start_at)
		return;
	if (publishers->options.drain && shards == 0) {
		move_publisher(publishers, publisher, PUBLISHER_DONE);
		return;
	}

	/* Not created, or not seen yet: the next look tells. */
	if (shards <= 0)
		return;
	if (publisher->config->shards > 0 && publisher->config->shards != shards) {
		refuse_shards(publisher, shards);
		return;
	}

	publisher->refused_shards = 0;
	if (start_publisher(publishers, publisher, shards, &err))
		return;
	log_error("publisher_not_started",
	    {"publisher", LOG_TEXT(publisher->config->settings.name)},
	    {"error", LOG_TEXT(err.message)},
	    {"consequence", LOG_TEXT("nothing is published by it until the next attempt")});
	stop_shard_workers(publisher);
	move_publisher(publishers, publisher, PUBLISHER_ENDING);
}

static void step_publisher(struct publishers *publishers, struct publisher *publisher, int64_t now)
{
	switch (publisher->state) {
	case PUBLISHER_IDLE:
		if (!publishers->stopping)
			step_publisher_idle(publishers, publisher, now);
		break;
	case PUBLISHER_RUNNING:
		step_publisher_running(publishers, publisher);
		break;
	case PUBLISHER_ENDING:
		step_publisher_ending(publishers, publisher);
		break;
	case PUBLISHER_LOOKING:
		step_publisher_looking(publishers, publisher, now);
		break;
	case PUBLISHER_DONE:
		break;
	}
}

static void step_until_settled(
    struct publishers *publishers, struct publisher *publisher, int64_t now)
{
	enum publisher_state before;

	do {
		before = publisher->state;
		step_publisher(publishers, publisher, now);
	} while (publisher->state != before);
}

/* --- all of them ---------------------------------------------------------------------------- */

bool publishers_start(struct publishers *publishers, const int *shards, struct err *err)
{
	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		if (!start_publisher(publishers, &publishers->list[i], shards[i], err))
			return false;
	return true;
}

void publishers_step(struct publishers *publishers, int64_t now)
{
	for (int i = 0; i < publishers->options.config->publisher_count; i++) {
		const struct publisher *publisher = &publishers->list[i];
		eventfd_t told;

		for (int j = 0; j < publisher->shards; j++)
			(void)eventfd_read(
			    shard_worker_event_fd(publisher->shard_workers[j]), &told);
		step_until_settled(publishers, &publishers->list[i], now);
	}
}

int publishers_fds(const struct publishers *publishers, struct pollfd *fds, int max)
{
	int count = 0;

	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		for (int j = 0; j < publishers->list[i].shards && count < max; j++)
			fds[count++] = (struct pollfd){
			    .fd = shard_worker_event_fd(publishers->list[i].shard_workers[j]),
			    .events = POLLIN};
	return count;
}

void publishers_stop(struct publishers *publishers)
{
	publishers->stopping = true;
	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		stop_shard_workers(&publishers->list[i]);
}

bool publishers_is_over(const struct publishers *publishers)
{
	for (int i = 0; i < publishers->options.config->publisher_count; i++) {
		enum publisher_state state = publishers->list[i].state;

		/* No shard worker runs, so the state in the database no longer matters. */
		if (state == PUBLISHER_DONE ||
		    (publishers->stopping &&
			(state == PUBLISHER_IDLE || state == PUBLISHER_LOOKING)))
			continue;
		return false;
	}
	return true;
}

bool publishers_is_refused(const struct publishers *publishers, struct err *err)
{
	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		for (int j = 0; j < publishers->list[i].shards; j++) {
			struct shard_worker_status status =
			    shard_worker_status(publishers->list[i].shard_workers[j]);

			if (status.end != SHARD_WORKER_REFUSED)
				continue;
			if (status.elsewhere)
				return !err_set(err, ERR_REJECT,
				    "publisher %s: its rows were carried here from another "
				    "database "
				    "cluster; run `outbox-relay publisher rebase --all` and drain "
				    "again",
				    status.publisher);
			err_set(err, ERR_REJECT,
			    "publisher %s: Kafka refuses row %" PRId64 " of topic %s: %s; mend the "
			    "topic or the row and drain again",
			    status.publisher, status.refused_id, status.refused_topic,
			    status.refused_error);
			return true;
		}
	return false;
}

bool publishers_is_abandoned(const struct publishers *publishers, struct err *err)
{
	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		for (int j = 0; j < publishers->list[i].shards; j++) {
			struct shard_worker_status status =
			    shard_worker_status(publishers->list[i].shard_workers[j]);

			if (status.end != SHARD_WORKER_ABANDONED)
				continue;
			err_set(err, ERR_FENCED,
			    "publisher %s: shard %d was not handed over: %s; it is free when its "
			    "lease "
			    "is over",
			    status.publisher, status.shard,
			    status.postgres_error[0] ? status.postgres_error
						     : "its log cannot be written");
			return true;
		}
	return false;
}

void publishers_retune(struct publishers *publishers, const struct config *fresh)
{
	publishers->fresh = fresh;
	for (int i = 0; i < publishers->options.config->publisher_count; i++) {
		const struct publisher *publisher = &publishers->list[i];
		const struct config_publisher *section =
		    config_find_publisher(fresh, publisher->config->settings.name);

		for (int j = 0; section && j < publisher->shards; j++)
			shard_worker_retune(publisher->shard_workers[j], &section->settings);
	}
}

/* --- health --------------------------------------------------------------------------------- */

static bool is_owner(const struct shard_worker_status *status)
{
	return status->state == STREAM_OWNER || status->state == STREAM_UNSURE;
}

/* An owner that cannot write its progress sends nothing, for whatever reason. */
static bool is_out_of_lease(const struct shard_worker_status *status)
{
	return is_owner(status) && status->lease_over;
}

/* Rows of other topics are sent only until progress lags too far behind the sent rows. */
static bool is_blocked_by_topic(const struct shard_worker_status *status)
{
	return is_owner(status) && status->missing_topic[0] && status->full;
}

static void describe_away(const struct shard_worker_status *status, struct text *report)
{
	if (status->postgres_error[0])
		text_addf(report, ", Postgres is away: %s", status->postgres_error);
	else if (is_owner(status) && status->kafka_error[0])
		text_addf(report, ", Kafka is away: %s", status->kafka_error);
}

static void describe_shard(const struct shard_worker_status *status, struct text *report)
{
	text_addf(report, "publisher %s/%d: %s", status->publisher, status->shard,
	    stream_states.rows[status->state].name);

	if (status->refused)
		text_addf(report, ", stopped: Kafka refuses row %" PRId64 " of topic %s: %s",
		    status->refused_id, status->refused_topic, status->refused_error);
	if (status->elsewhere)
		text_add(report, ", its rows were carried here from another database cluster: run "
				 "`outbox-relay publisher rebase --all`");
	describe_away(status, report);

	if (is_out_of_lease(status))
		text_add(report, ", its lease is over: the log cannot be written");
	if (status->missing_topic[0])
		text_addf(report, ", waits for topic %s", status->missing_topic);
	if (is_blocked_by_topic(status))
		text_add(report, " and is blocked: it sends nothing before the topic exists");
	if (!is_owner(status) && status->holder[0])
		text_addf(report, " behind %s", status->holder);

	text_add(report, "\n");
}

/* A standby is ready. An owner must reach Postgres and Kafka, and nothing may block it. */
static bool shard_ready(const struct shard_worker_status *status, struct text *report)
{
	bool away = status->postgres_error[0] || (is_owner(status) && status->kafka_error[0]);
	bool ready = !away && !status->refused && !status->elsewhere && !is_out_of_lease(status) &&
		     !is_blocked_by_topic(status);

	text_addf(report, "[%s] ", ready ? "+" : "-");
	describe_shard(status, report);
	return ready;
}

static bool publisher_ready(const struct publisher *publisher, struct text *report)
{
	bool ready = true;

	if (publisher->shards == 0) {
		text_addf(report, "[-] publisher %s: %s\n", publisher->config->settings.name,
		    publisher->refused_shards ? "the configuration names another number of shards"
		    : publisher->state == PUBLISHER_IDLE ? "not in the database"
							 : "being looked at");
		return false;
	}
	for (int i = 0; i < publisher->shards; i++) {
		struct shard_worker_status status =
		    shard_worker_status(publisher->shard_workers[i]);

		ready &= shard_ready(&status, report);
	}
	return ready;
}

bool publishers_ready(struct publishers *publishers, struct text *report)
{
	bool ready = true;

	pthread_mutex_lock(&publishers->mutex);
	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		ready &= publisher_ready(&publishers->list[i], report);
	pthread_mutex_unlock(&publishers->mutex);
	return ready;
}

static bool shard_live(struct shard_worker *shard_worker, int64_t now, struct text *report)
{
	struct shard_worker_status status = shard_worker_status(shard_worker);
	int64_t age = now - status.loop_ms;
	/* A worker that has ended turns no more, and is not stalled. */
	bool live = status.end != SHARD_WORKER_RUNNING || age < STALLED_MS;

	text_addf(report, "[%s] publisher %s/%d: last turn %" PRId64 " ms ago\n", live ? "+" : "-",
	    status.publisher, status.shard, age);
	return live;
}

bool publishers_live(struct publishers *publishers, int64_t now, struct text *report)
{
	bool live = true;

	pthread_mutex_lock(&publishers->mutex);
	for (int i = 0; i < publishers->options.config->publisher_count; i++)
		for (int j = 0; j < publishers->list[i].shards; j++)
			live &= shard_live(publishers->list[i].shard_workers[j], now, report);
	pthread_mutex_unlock(&publishers->mutex);
	return live;
}
