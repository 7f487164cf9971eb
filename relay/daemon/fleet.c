#include "fleet.h"

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
	PUBLISHER_RUNNING, /* publishers run, or some of them have drained */
	PUBLISHER_ENDING,  /* one found the publisher gone or changed: all of them end */
	PUBLISHER_LOOKING, /* all have ended: what does the database say? */
	PUBLISHER_DONE,    /* stopped or drained */
};
static const char *const state_names[] = {"idle", "running", "ending", "looking", "done"};

struct fleet_publisher {
	const struct config_publisher *config;
	struct upkeep_worker *upkeep_worker;
	struct topic_metadata *metadata;
	struct topic_checks *topic_checks;
	enum publisher_state state;
	struct shard_worker *publishers[MOST_SHARDS];
	int shards;         /* as many publishers */
	int refused_shards; /* a number of shards that the configuration refuses, logged; 0: none */
	int64_t looks;      /* upkeep_worker_looks when the publisher was found gone */
	int shards_before;  /* and how many publishers ended then */
	int64_t start_at;
};

struct fleet {
	struct fleet_options options;
	struct spread *spread;
	careful_turn turn;
	const struct config *fresh; /* reloaded; NULL: never */
	pthread_mutex_t mutex;      /* guards publishers against the readers of other threads */
	struct fleet_publisher *publishers;
	bool stopping;
};

static int place_of_kafka(const struct config *config, const struct config_kafka *kafka)
{
	return (int)(kafka - config->kafka);
}

struct fleet *fleet_create(const struct fleet_options *options)
{
	const struct config *config = options->config;
	struct fleet *fleet = xcalloc(1, sizeof *fleet);

	fleet->options = *options;
	fleet->spread = spread_create(options->drain);
	pthread_mutex_init(&fleet->mutex, NULL);
	fleet->publishers = xcalloc((size_t)config->publisher_count, sizeof *fleet->publishers);
	for (int i = 0; i < config->publisher_count; i++) {
		const struct config_publisher *publisher = &config->publishers[i];

		fleet->publishers[i] = (struct fleet_publisher){.config = publisher,
		    .upkeep_worker =
			options->upkeep_workers[publisher->postgres - config->postgres],
		    .metadata = options->topic_metadata[place_of_kafka(config, publisher->kafka)],
		    .topic_checks =
			options->topic_checks[place_of_kafka(config, publisher->kafka)]};
	}
	return fleet;
}

void fleet_destroy(struct fleet *fleet)
{
	if (!fleet)
		return;
	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		for (int j = 0; j < fleet->publishers[i].shards; j++)
			shard_worker_join(fleet->publishers[i].publishers[j]);
	spread_destroy(fleet->spread);
	pthread_mutex_destroy(&fleet->mutex);
	free(fleet->publishers);
	free(fleet);
}

/* --- one publisher -------------------------------------------------------------------------------
 */

static void move(struct fleet *fleet, struct fleet_publisher *publisher, enum publisher_state state)
{
	pthread_mutex_lock(&fleet->mutex);
	log_debug("publisher_state", {"publisher", LOG_TEXT(publisher->config->name)},
	    {"from", LOG_TEXT(state_names[publisher->state])},
	    {"to", LOG_TEXT(state_names[state])});
	publisher->state = state;
	pthread_mutex_unlock(&fleet->mutex);
}

static void add_publisher(
    struct fleet *fleet, struct fleet_publisher *publisher, struct shard_worker *shard_worker)
{
	const struct config_publisher *fresh =
	    fleet->fresh ? config_find_publisher(fleet->fresh, publisher->config->name) : NULL;

	pthread_mutex_lock(&fleet->mutex);
	publisher->publishers[publisher->shards++] = shard_worker;
	pthread_mutex_unlock(&fleet->mutex);
	if (fresh)
		shard_worker_retune(shard_worker, fresh);
}

static bool start_publisher(
    struct fleet *fleet, struct fleet_publisher *publisher, int shards, struct err *err)
{
	struct shard_worker_options options = {.publisher = publisher->config,
	    .shards = shards,
	    .metadata = publisher->metadata,
	    .topic_checks = publisher->topic_checks,
	    .spread = fleet->spread,
	    .turn = &fleet->turn,
	    .owner = fleet->options.owner,
	    .drain = fleet->options.drain};

	assert(shards <= MOST_SHARDS && publisher->shards == 0);
	move(fleet, publisher, PUBLISHER_RUNNING);
	for (options.shard = 0; options.shard < shards; options.shard++) {
		struct shard_worker *shard_worker = shard_worker_start(&options, err);

		if (!shard_worker)
			return err_prefix(err, "publisher %s", publisher->config->name);
		add_publisher(fleet, publisher, shard_worker);
	}
	log_info("publisher_started", {"publisher", LOG_TEXT(publisher->config->name)},
	    {"shards", LOG_INT(shards)});
	return true;
}

static void stop_publishers(const struct fleet_publisher *publisher)
{
	for (int i = 0; i < publisher->shards; i++)
		shard_worker_stop(publisher->publishers[i]);
}

/* A snapshot of how its publishers end. */
static void count_ends(
    const struct fleet_publisher *publisher, int counts[static SHARD_WORKER_GONE + 1])
{
	for (int i = 0; i <= SHARD_WORKER_GONE; i++)
		counts[i] = 0;
	for (int i = 0; i < publisher->shards; i++)
		counts[shard_worker_status(publisher->publishers[i]).end]++;
}

/* Frees publishers that have all ended; the readers of other threads do not see them any more. */
static void clear(struct fleet *fleet, struct fleet_publisher *publisher)
{
	int count = publisher->shards;

	pthread_mutex_lock(&fleet->mutex);
	publisher->shards = 0;
	pthread_mutex_unlock(&fleet->mutex);
	for (int i = 0; i < count; i++)
		shard_worker_join(publisher->publishers[i]);
}

static void step_running(struct fleet *fleet, struct fleet_publisher *publisher)
{
	int ends[SHARD_WORKER_GONE + 1];

	count_ends(publisher, ends);
	if (ends[SHARD_WORKER_GONE] > 0 && !fleet->stopping) {
		log_info("publisher_changed", {"publisher", LOG_TEXT(publisher->config->name)},
		    {"consequence", LOG_TEXT("it was dropped or split: its shards are let go")});
		stop_publishers(publisher);
		move(fleet, publisher, PUBLISHER_ENDING);
	} else if (ends[SHARD_WORKER_RUNNING] == 0) {
		move(fleet, publisher, PUBLISHER_DONE);
	}
}

static void step_ending(struct fleet *fleet, struct fleet_publisher *publisher)
{
	int ends[SHARD_WORKER_GONE + 1];

	count_ends(publisher, ends);
	if (ends[SHARD_WORKER_RUNNING] > 0)
		return;
	publisher->shards_before = publisher->shards;
	clear(fleet, publisher);
	publisher->looks = upkeep_worker_looks(publisher->upkeep_worker);
	upkeep_worker_look(publisher->upkeep_worker);
	move(fleet, publisher, PUBLISHER_LOOKING);
}

static void step_looking(struct fleet *fleet, struct fleet_publisher *publisher, int64_t now)
{
	int shards = upkeep_worker_shards(publisher->upkeep_worker, publisher->config);

	if (upkeep_worker_looks(publisher->upkeep_worker) == publisher->looks)
		return;
	if (shards == 0)
		log_warn("publisher_dropped", {"publisher", LOG_TEXT(publisher->config->name)},
		    {"consequence", LOG_TEXT("it is not published any more")});
	publisher->start_at = shards == publisher->shards_before ? now + AGAIN_MS : now;
	move(fleet, publisher, PUBLISHER_IDLE);
}

static void refuse_shards(struct fleet_publisher *publisher, int shards)
{
	if (publisher->refused_shards == shards)
		return;
	publisher->refused_shards = shards;
	log_error("publisher_refused", {"publisher", LOG_TEXT(publisher->config->name)},
	    {"shards", LOG_INT(shards)}, {"configured", LOG_INT(publisher->config->shards)},
	    {"consequence",
		LOG_TEXT("it is not published until the configuration agrees with the database")});
}

/* Nothing is left of a publisher that is gone: drained. */
static void step_idle(struct fleet *fleet, struct fleet_publisher *publisher, int64_t now)
{
	int shards = upkeep_worker_shards(publisher->upkeep_worker, publisher->config);
	struct err err;

	if (now < publisher->start_at)
		return;
	if (fleet->options.drain && shards == 0) {
		move(fleet, publisher, PUBLISHER_DONE);
		return;
	}
	if (shards <= 0)
		return;
	if (publisher->config->shards > 0 && publisher->config->shards != shards) {
		refuse_shards(publisher, shards);
		return;
	}
	publisher->refused_shards = 0;
	if (start_publisher(fleet, publisher, shards, &err))
		return;
	log_error("publisher_not_started", {"publisher", LOG_TEXT(publisher->config->name)},
	    {"error", LOG_TEXT(err.message)});
	stop_publishers(publisher);
	move(fleet, publisher, PUBLISHER_ENDING);
}

static void step_publisher(struct fleet *fleet, struct fleet_publisher *publisher, int64_t now)
{
	switch (publisher->state) {
	case PUBLISHER_IDLE:
		if (!fleet->stopping)
			step_idle(fleet, publisher, now);
		break;
	case PUBLISHER_RUNNING:
		step_running(fleet, publisher);
		break;
	case PUBLISHER_ENDING:
		step_ending(fleet, publisher);
		break;
	case PUBLISHER_LOOKING:
		step_looking(fleet, publisher, now);
		break;
	case PUBLISHER_DONE:
		break;
	}
}

static void step_until_settled(struct fleet *fleet, struct fleet_publisher *publisher, int64_t now)
{
	enum publisher_state before;

	do {
		before = publisher->state;
		step_publisher(fleet, publisher, now);
	} while (publisher->state != before);
}

/* --- all of them ---------------------------------------------------------------------------- */

bool fleet_start(struct fleet *fleet, const int *shards, struct err *err)
{
	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		if (!start_publisher(fleet, &fleet->publishers[i], shards[i], err))
			return false;
	return true;
}

void fleet_step(struct fleet *fleet, int64_t now)
{
	for (int i = 0; i < fleet->options.config->publisher_count; i++) {
		const struct fleet_publisher *publisher = &fleet->publishers[i];
		eventfd_t told;

		for (int j = 0; j < publisher->shards; j++)
			(void)eventfd_read(shard_worker_event_fd(publisher->publishers[j]), &told);
		step_until_settled(fleet, &fleet->publishers[i], now);
	}
}

int fleet_fds(const struct fleet *fleet, struct pollfd *fds, int max)
{
	int count = 0;

	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		for (int j = 0; j < fleet->publishers[i].shards && count < max; j++)
			fds[count++] = (struct pollfd){
			    .fd = shard_worker_event_fd(fleet->publishers[i].publishers[j]),
			    .events = POLLIN};
	return count;
}

void fleet_stop(struct fleet *fleet)
{
	fleet->stopping = true;
	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		stop_publishers(&fleet->publishers[i]);
}

bool fleet_is_over(const struct fleet *fleet)
{
	for (int i = 0; i < fleet->options.config->publisher_count; i++) {
		enum publisher_state state = fleet->publishers[i].state;

		/* With nothing running, what the database says does not matter any more. */
		if (state == PUBLISHER_DONE ||
		    (fleet->stopping && (state == PUBLISHER_IDLE || state == PUBLISHER_LOOKING)))
			continue;
		return false;
	}
	return true;
}

bool fleet_is_refused(const struct fleet *fleet, struct err *err)
{
	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		for (int j = 0; j < fleet->publishers[i].shards; j++) {
			struct shard_worker_status status =
			    shard_worker_status(fleet->publishers[i].publishers[j]);

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

bool fleet_is_abandoned(const struct fleet *fleet, struct err *err)
{
	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		for (int j = 0; j < fleet->publishers[i].shards; j++) {
			struct shard_worker_status status =
			    shard_worker_status(fleet->publishers[i].publishers[j]);

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

void fleet_retune(struct fleet *fleet, const struct config *fresh)
{
	fleet->fresh = fresh;
	for (int i = 0; i < fleet->options.config->publisher_count; i++) {
		const struct fleet_publisher *publisher = &fleet->publishers[i];
		const struct config_publisher *settings =
		    config_find_publisher(fresh, publisher->config->name);

		for (int j = 0; settings && j < publisher->shards; j++)
			shard_worker_retune(publisher->publishers[j], settings);
	}
}

/* --- health --------------------------------------------------------------------------------- */

static bool is_owner(const struct shard_worker_status *status)
{
	return status->state == STREAM_OWNER || status->state == STREAM_UNSURE;
}

/* An owner that cannot write its progress sends nothing, whatever keeps it from writing. */
static bool is_out_of_lease(const struct shard_worker_status *status)
{
	return is_owner(status) && status->lease_over;
}

/* Rows of other topics go on only as far as progress may lag behind what is sent. */
static bool stands_still(const struct shard_worker_status *status)
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

static void describe(const struct shard_worker_status *status, struct text *report)
{
	text_addf(report, "publisher %s/%d: %s", status->publisher, status->shard,
	    stream_state_names[status->state]);
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
	if (stands_still(status))
		text_add(report, " and stands still: nothing more may be sent before it is there");
	if (!is_owner(status) && status->holder[0])
		text_addf(report, " behind %s", status->holder);
	text_add(report, "\n");
}

/* A standby is ready; an owner must reach both sides, and nothing may stop it. */
static bool shard_ready(const struct shard_worker_status *status, struct text *report)
{
	bool away = status->postgres_error[0] || (is_owner(status) && status->kafka_error[0]);
	bool ready = !away && !status->refused && !status->elsewhere && !is_out_of_lease(status) &&
		     !stands_still(status);

	text_addf(report, "[%s] ", ready ? "+" : "-");
	describe(status, report);
	return ready;
}

static bool publisher_ready(const struct fleet_publisher *publisher, struct text *report)
{
	bool ready = true;

	if (publisher->shards == 0) {
		text_addf(report, "[-] publisher %s: %s\n", publisher->config->name,
		    publisher->refused_shards ? "the configuration names another number of shards"
		    : publisher->state == PUBLISHER_IDLE ? "not in the database"
							 : "being looked at");
		return false;
	}
	for (int i = 0; i < publisher->shards; i++) {
		struct shard_worker_status status = shard_worker_status(publisher->publishers[i]);

		ready &= shard_ready(&status, report);
	}
	return ready;
}

bool fleet_ready(struct fleet *fleet, struct text *report)
{
	bool ready = true;

	pthread_mutex_lock(&fleet->mutex);
	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		ready &= publisher_ready(&fleet->publishers[i], report);
	pthread_mutex_unlock(&fleet->mutex);
	return ready;
}

static bool shard_live(struct shard_worker *shard_worker, int64_t now, struct text *report)
{
	struct shard_worker_status status = shard_worker_status(shard_worker);
	int64_t age = now - status.loop_ms;
	bool live = status.end != SHARD_WORKER_RUNNING || age < STALLED_MS;

	text_addf(report, "[%s] publisher %s/%d: last turn %" PRId64 " ms ago\n", live ? "+" : "-",
	    status.publisher, status.shard, age);
	return live;
}

bool fleet_live(struct fleet *fleet, int64_t now, struct text *report)
{
	bool live = true;

	pthread_mutex_lock(&fleet->mutex);
	for (int i = 0; i < fleet->options.config->publisher_count; i++)
		for (int j = 0; j < fleet->publishers[i].shards; j++)
			live &= shard_live(fleet->publishers[i].publishers[j], now, report);
	pthread_mutex_unlock(&fleet->mutex);
	return live;
}
