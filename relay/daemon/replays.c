#include "cleanup.h"
#include "job_worker.h"
#include "logging.h"
#include "pg.h"
#include "replay_run.h"
#include "sql_files.h"

static void log_replay_end(const struct replay *replay, bool done, const struct err *err)
{
	if (done)
		log_info("replay_finished", {"replay", LOG_INT(replay->id)},
		    {"rows", LOG_INT(replay->done)});
	else if (err->kind == ERR_FENCED)
		log_info("replay_left", {"replay", LOG_INT(replay->id)},
		    {"reason", LOG_TEXT(err->message)});
	else if (err->kind == ERR_REJECT)
		log_warn("replay_failed", {"replay", LOG_INT(replay->id)},
		    {"error", LOG_TEXT(err->message)},
		    {"cure", LOG_TEXT("remove the cause, and resume the replay")});
	else
		log_warn("replay_interrupted", {"replay", LOG_INT(replay->id)},
		    {"error", LOG_TEXT(err->message)},
		    {"consequence", LOG_TEXT("a relay goes on with it")});
}

static bool carry_out_replay(const struct job_place *place, const struct pg_result *due, int i)
{
	const struct config_publisher *publisher =
	    config_find_publisher(place->config, pg_value(due, i, 1));
	const struct progress_watch nobody = {0};
	struct replay replay;
	struct err err;
	bool done;

	/* a publisher that this process does not have is for another one */
	if (!publisher || publisher->settings.postgres != place->postgres)
		return true;

	replay_init(&replay, &publisher->settings);
	replay.id = pg_int(due, i, 0);
	replay.by_relay = true;
	done = replay_take(&replay, place->pg, place->config, &err);
	if (done) {
		log_info("replay_begun", {"replay", LOG_INT(replay.id)},
		    {"done", LOG_INT(replay.done)}, {"rows", LOG_INT(replay.total)});
		done = replay_run(&replay, place->pg,
		    place->topic_metadata[replay.publisher->kafka - place->config->kafka], &nobody,
		    place->stop_fd, &err);
	}
	log_replay_end(&replay, done, &err);
	replay_finish(&replay);
	return done || err.kind == ERR_FENCED || err.kind == ERR_REJECT;
}

const struct job_kind replay_jobs = {
    .name = "replays", .due = sql_replay_due, .carry_out = carry_out_replay};
