#include "fleet.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include "clock.h"
#include "logging.h"
#include "publisher.h"

enum {
	MOST_SHARDS = 64, /* as the database allows */
	STALLED_MS = 10000,
	AGAIN_MS = 1000, /* before a slot that ended for no visible reason is started again */
};

enum slot_state {
	SLOT_IDLE,    /* not started, dropped, or refused: started when the database has it */
	SLOT_RUNNING, /* publishers run, or some of them have drained */
	SLOT_ENDING,  /* one found the slot gone or changed: all of them end */
	SLOT_LOOKING, /* all have ended: what does the database say? */
	SLOT_DONE,    /* stopped or drained */
};
static const char *const state_names[] = {"idle", "running", "ending", "looking", "done"};

struct fleet_slot {
	const struct config_slot *config;
	struct keeper *keeper;
	struct catalog *catalog;
	struct topic_checks *topic_checks;
	enum slot_state state;
	struct publisher *publishers[MOST_SHARDS];
	int shards;         /* as many publishers */
	int refused_shards; /* a number of shards that the configuration refuses, logged; 0: none */
	int64_t looks;      /* the keeper's when the slot was found gone */
	int shards_before;  /* and how many publishers ended then */
	int64_t start_at;
};

struct fleet {
	struct fleet_options options;
	struct spread *spread;
	careful_turn turn;
	const struct config *fresh; /* reloaded; NULL: never */
	pthread_mutex_t mutex;      /* guards slots against the readers of other threads */
	struct fleet_slot *slots;
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
	fleet->slots = xcalloc((size_t)config->slot_count, sizeof *fleet->slots);
	for (int i = 0; i < config->slot_count; i++) {
		const struct config_slot *slot = &config->slots[i];

		fleet->slots[i] = (struct fleet_slot){.config = slot,
		    .keeper = options->keepers[slot->postgres - config->postgres],
		    .catalog = options->catalogs[place_of_kafka(config, slot->kafka)],
		    .topic_checks = options->topic_checks[place_of_kafka(config, slot->kafka)]};
	}
	return fleet;
}

void fleet_destroy(struct fleet *fleet)
{
	if (!fleet)
		return;
	for (int i = 0; i < fleet->options.config->slot_count; i++)
		for (int j = 0; j < fleet->slots[i].shards; j++)
			publisher_join(fleet->slots[i].publishers[j]);
	spread_destroy(fleet->spread);
	pthread_mutex_destroy(&fleet->mutex);
	free(fleet->slots);
	free(fleet);
}

/* --- one slot ------------------------------------------------------------------------------- */

static void move(struct fleet *fleet, struct fleet_slot *slot, enum slot_state state)
{
	pthread_mutex_lock(&fleet->mutex);
	log_debug("slot_state", {"slot", LOG_TEXT(slot->config->name)},
	    {"from", LOG_TEXT(state_names[slot->state])}, {"to", LOG_TEXT(state_names[state])});
	slot->state = state;
	pthread_mutex_unlock(&fleet->mutex);
}

static void add_publisher(struct fleet *fleet, struct fleet_slot *slot, struct publisher *publisher)
{
	const struct config_slot *fresh =
	    fleet->fresh ? config_find_slot(fleet->fresh, slot->config->name) : NULL;

	pthread_mutex_lock(&fleet->mutex);
	slot->publishers[slot->shards++] = publisher;
	pthread_mutex_unlock(&fleet->mutex);
	if (fresh)
		publisher_retune(publisher, fresh);
}

static bool start_slot(struct fleet *fleet, struct fleet_slot *slot, int shards, struct err *err)
{
	struct publisher_options options = {.slot = slot->config,
	    .shards = shards,
	    .catalog = slot->catalog,
	    .topic_checks = slot->topic_checks,
	    .spread = fleet->spread,
	    .turn = &fleet->turn,
	    .owner = fleet->options.owner,
	    .drain = fleet->options.drain};

	assert(shards <= MOST_SHARDS && slot->shards == 0);
	move(fleet, slot, SLOT_RUNNING);
	for (options.shard = 0; options.shard < shards; options.shard++) {
		struct publisher *publisher = publisher_start(&options, err);

		if (!publisher)
			return err_prefix(err, "slot %s", slot->config->name);
		add_publisher(fleet, slot, publisher);
	}
	log_info(
	    "slot_started", {"slot", LOG_TEXT(slot->config->name)}, {"shards", LOG_INT(shards)});
	return true;
}

static void stop_publishers(const struct fleet_slot *slot)
{
	for (int i = 0; i < slot->shards; i++)
		publisher_stop(slot->publishers[i]);
}

/* A snapshot of how its publishers end. */
static void count_ends(const struct fleet_slot *slot, int counts[static PUBLISHER_GONE + 1])
{
	for (int i = 0; i <= PUBLISHER_GONE; i++)
		counts[i] = 0;
	for (int i = 0; i < slot->shards; i++)
		counts[publisher_status(slot->publishers[i]).end]++;
}

/* Frees publishers that have all ended; the readers of other threads do not see them any more. */
static void clear(struct fleet *fleet, struct fleet_slot *slot)
{
	int count = slot->shards;

	pthread_mutex_lock(&fleet->mutex);
	slot->shards = 0;
	pthread_mutex_unlock(&fleet->mutex);
	for (int i = 0; i < count; i++)
		publisher_join(slot->publishers[i]);
}

static void step_running(struct fleet *fleet, struct fleet_slot *slot)
{
	int ends[PUBLISHER_GONE + 1];

	count_ends(slot, ends);
	if (ends[PUBLISHER_GONE] > 0 && !fleet->stopping) {
		log_info("slot_changed", {"slot", LOG_TEXT(slot->config->name)},
		    {"consequence", LOG_TEXT("it was dropped or split: its shards are let go")});
		stop_publishers(slot);
		move(fleet, slot, SLOT_ENDING);
	} else if (ends[PUBLISHER_RUNNING] == 0) {
		move(fleet, slot, SLOT_DONE);
	}
}

static void step_ending(struct fleet *fleet, struct fleet_slot *slot)
{
	int ends[PUBLISHER_GONE + 1];

	count_ends(slot, ends);
	if (ends[PUBLISHER_RUNNING] > 0)
		return;
	slot->shards_before = slot->shards;
	clear(fleet, slot);
	slot->looks = keeper_looks(slot->keeper);
	keeper_look(slot->keeper);
	move(fleet, slot, SLOT_LOOKING);
}

static void step_looking(struct fleet *fleet, struct fleet_slot *slot, int64_t now)
{
	int shards = keeper_shards(slot->keeper, slot->config);

	if (keeper_looks(slot->keeper) == slot->looks)
		return;
	if (shards == 0)
		log_warn("slot_dropped", {"slot", LOG_TEXT(slot->config->name)},
		    {"consequence", LOG_TEXT("it is not published any more")});
	slot->start_at = shards == slot->shards_before ? now + AGAIN_MS : now;
	move(fleet, slot, SLOT_IDLE);
}

static void refuse_shards(struct fleet_slot *slot, int shards)
{
	if (slot->refused_shards == shards)
		return;
	slot->refused_shards = shards;
	log_error("slot_refused", {"slot", LOG_TEXT(slot->config->name)},
	    {"shards", LOG_INT(shards)}, {"configured", LOG_INT(slot->config->shards)},
	    {"consequence",
		LOG_TEXT("it is not published until the configuration agrees with the database")});
}

/* Nothing is left of a slot that is gone: drained. */
static void step_idle(struct fleet *fleet, struct fleet_slot *slot, int64_t now)
{
	int shards = keeper_shards(slot->keeper, slot->config);
	struct err err;

	if (now < slot->start_at)
		return;
	if (fleet->options.drain && shards == 0) {
		move(fleet, slot, SLOT_DONE);
		return;
	}
	if (shards <= 0)
		return;
	if (slot->config->shards > 0 && slot->config->shards != shards) {
		refuse_shards(slot, shards);
		return;
	}
	slot->refused_shards = 0;
	if (start_slot(fleet, slot, shards, &err))
		return;
	log_error("slot_not_started", {"slot", LOG_TEXT(slot->config->name)},
	    {"error", LOG_TEXT(err.message)});
	stop_publishers(slot);
	move(fleet, slot, SLOT_ENDING);
}

static void step_slot(struct fleet *fleet, struct fleet_slot *slot, int64_t now)
{
	switch (slot->state) {
	case SLOT_IDLE:
		if (!fleet->stopping)
			step_idle(fleet, slot, now);
		break;
	case SLOT_RUNNING:
		step_running(fleet, slot);
		break;
	case SLOT_ENDING:
		step_ending(fleet, slot);
		break;
	case SLOT_LOOKING:
		step_looking(fleet, slot, now);
		break;
	case SLOT_DONE:
		break;
	}
}

static void step_until_settled(struct fleet *fleet, struct fleet_slot *slot, int64_t now)
{
	enum slot_state before;

	do {
		before = slot->state;
		step_slot(fleet, slot, now);
	} while (slot->state != before);
}

/* --- all of them ---------------------------------------------------------------------------- */

bool fleet_start(struct fleet *fleet, const int *shards, struct err *err)
{
	for (int i = 0; i < fleet->options.config->slot_count; i++)
		if (!start_slot(fleet, &fleet->slots[i], shards[i], err))
			return false;
	return true;
}

void fleet_step(struct fleet *fleet, int64_t now)
{
	for (int i = 0; i < fleet->options.config->slot_count; i++) {
		const struct fleet_slot *slot = &fleet->slots[i];
		eventfd_t told;

		for (int j = 0; j < slot->shards; j++)
			(void)eventfd_read(publisher_event_fd(slot->publishers[j]), &told);
		step_until_settled(fleet, &fleet->slots[i], now);
	}
}

int fleet_fds(const struct fleet *fleet, struct pollfd *fds, int max)
{
	int count = 0;

	for (int i = 0; i < fleet->options.config->slot_count; i++)
		for (int j = 0; j < fleet->slots[i].shards && count < max; j++)
			fds[count++] =
			    (struct pollfd){.fd = publisher_event_fd(fleet->slots[i].publishers[j]),
				.events = POLLIN};
	return count;
}

void fleet_stop(struct fleet *fleet)
{
	fleet->stopping = true;
	for (int i = 0; i < fleet->options.config->slot_count; i++)
		stop_publishers(&fleet->slots[i]);
}

bool fleet_is_over(const struct fleet *fleet)
{
	for (int i = 0; i < fleet->options.config->slot_count; i++) {
		enum slot_state state = fleet->slots[i].state;

		/* With nothing running, what the database says does not matter any more. */
		if (state == SLOT_DONE ||
		    (fleet->stopping && (state == SLOT_IDLE || state == SLOT_LOOKING)))
			continue;
		return false;
	}
	return true;
}

bool fleet_is_refused(const struct fleet *fleet, struct err *err)
{
	for (int i = 0; i < fleet->options.config->slot_count; i++)
		for (int j = 0; j < fleet->slots[i].shards; j++) {
			struct publisher_status status =
			    publisher_status(fleet->slots[i].publishers[j]);

			if (status.end != PUBLISHER_REFUSED)
				continue;
			if (status.elsewhere)
				return !err_set(err, ERR_REJECT,
				    "slot %s: its rows were carried here from another database "
				    "cluster; run `outbox-relay slot rebase --all` and drain again",
				    status.slot);
			err_set(err, ERR_REJECT,
			    "slot %s: Kafka refuses row %" PRId64 " of topic %s: %s; mend the "
			    "topic or the row and drain again",
			    status.slot, status.refused_id, status.refused_topic,
			    status.refused_error);
			return true;
		}
	return false;
}

bool fleet_is_abandoned(const struct fleet *fleet, struct err *err)
{
	for (int i = 0; i < fleet->options.config->slot_count; i++)
		for (int j = 0; j < fleet->slots[i].shards; j++) {
			struct publisher_status status =
			    publisher_status(fleet->slots[i].publishers[j]);

			if (status.end != PUBLISHER_ABANDONED)
				continue;
			err_set(err, ERR_FENCED,
			    "slot %s: shard %d was not handed over: %s; it is free when its lease "
			    "is over",
			    status.slot, status.shard,
			    status.postgres_error[0] ? status.postgres_error
						     : "its log cannot be written");
			return true;
		}
	return false;
}

void fleet_retune(struct fleet *fleet, const struct config *fresh)
{
	fleet->fresh = fresh;
	for (int i = 0; i < fleet->options.config->slot_count; i++) {
		const struct fleet_slot *slot = &fleet->slots[i];
		const struct config_slot *settings = config_find_slot(fresh, slot->config->name);

		for (int j = 0; settings && j < slot->shards; j++)
			publisher_retune(slot->publishers[j], settings);
	}
}

/* --- health --------------------------------------------------------------------------------- */

static bool is_owner(const struct publisher_status *status)
{
	return status->state == STREAM_OWNER || status->state == STREAM_UNSURE;
}

/* An owner that cannot write its progress sends nothing, whatever keeps it from writing. */
static bool is_out_of_lease(const struct publisher_status *status)
{
	return is_owner(status) && status->lease_over;
}

/* Rows of other topics go on only as far as progress may lag behind what is sent. */
static bool stands_still(const struct publisher_status *status)
{
	return is_owner(status) && status->missing_topic[0] && status->full;
}

static void describe_away(const struct publisher_status *status, struct text *report)
{
	if (status->postgres_error[0])
		text_addf(report, ", Postgres is away: %s", status->postgres_error);
	else if (is_owner(status) && status->kafka_error[0])
		text_addf(report, ", Kafka is away: %s", status->kafka_error);
}

static void describe(const struct publisher_status *status, struct text *report)
{
	text_addf(report, "slot %s/%d: %s", status->slot, status->shard,
	    stream_state_names[status->state]);
	if (status->refused)
		text_addf(report, ", stopped: Kafka refuses row %" PRId64 " of topic %s: %s",
		    status->refused_id, status->refused_topic, status->refused_error);
	if (status->elsewhere)
		text_add(report, ", its rows were carried here from another database cluster: run "
				 "`outbox-relay slot rebase --all`");
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
static bool shard_ready(const struct publisher_status *status, struct text *report)
{
	bool away = status->postgres_error[0] || (is_owner(status) && status->kafka_error[0]);
	bool ready = !away && !status->refused && !status->elsewhere && !is_out_of_lease(status) &&
		     !stands_still(status);

	text_addf(report, "[%s] ", ready ? "+" : "-");
	describe(status, report);
	return ready;
}

static bool slot_ready(const struct fleet_slot *slot, struct text *report)
{
	bool ready = true;

	if (slot->shards == 0) {
		text_addf(report, "[-] slot %s: %s\n", slot->config->name,
		    slot->refused_shards       ? "the configuration names another number of shards"
		    : slot->state == SLOT_IDLE ? "not in the database"
					       : "being looked at");
		return false;
	}
	for (int i = 0; i < slot->shards; i++) {
		struct publisher_status status = publisher_status(slot->publishers[i]);

		ready &= shard_ready(&status, report);
	}
	return ready;
}

bool fleet_ready(struct fleet *fleet, struct text *report)
{
	bool ready = true;

	pthread_mutex_lock(&fleet->mutex);
	for (int i = 0; i < fleet->options.config->slot_count; i++)
		ready &= slot_ready(&fleet->slots[i], report);
	pthread_mutex_unlock(&fleet->mutex);
	return ready;
}

static bool shard_live(struct publisher *publisher, int64_t now, struct text *report)
{
	struct publisher_status status = publisher_status(publisher);
	int64_t age = now - status.loop_ms;
	bool live = status.end != PUBLISHER_RUNNING || age < STALLED_MS;

	text_addf(report, "[%s] slot %s/%d: last turn %" PRId64 " ms ago\n", live ? "+" : "-",
	    status.slot, status.shard, age);
	return live;
}

bool fleet_live(struct fleet *fleet, int64_t now, struct text *report)
{
	bool live = true;

	pthread_mutex_lock(&fleet->mutex);
	for (int i = 0; i < fleet->options.config->slot_count; i++)
		for (int j = 0; j < fleet->slots[i].shards; j++)
			live &= shard_live(fleet->slots[i].publishers[j], now, report);
	pthread_mutex_unlock(&fleet->mutex);
	return live;
}
