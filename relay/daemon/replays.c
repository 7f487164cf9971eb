#include "cleanup.h"
#include "job_worker.h"
#include "replay_run.h"
#include "sql_files.h"

static bool carry_out_replay(const struct job_place *place, const struct pg_result *due, int i)
{
	const struct config_publisher *publisher =
	    config_find_publisher(place->config, pg_value(due, i, 1));
	const struct progress_watch nobody = {0};
	struct job job = {.place = place,
	    .kind = "replay",
	    .of = pg_value(due, i, 1),
	    .row = {.id = pg_int(due, i, 0)}};
	struct replay replay;
	struct err err;
	bool done;

	/* a publisher that this process does not have is for another one */
	if (!publisher || publisher->settings.postgres != place->postgres)
		return true;

	replay_init(&replay, &publisher->settings);
	replay.id = job.row.id;
	replay.by_relay = true;
	done = replay_take(&replay, place->pg, place->config, &err);
	job.row.done = replay.done;
	if (done) {
		job_begins(&job);
		done = replay_run(&replay, place->pg,
		    place->topic_metadata[replay.publisher->kafka - place->config->kafka], &nobody,
		    place->stop_fd, &err);
		job.row.done = replay.done;
	}
	replay_finish(&replay);
	return job_ends(&job, done, &err);
}

const struct job_kind replay_jobs = {
    .name = "replays", .due = sql_replay_due, .carry_out = carry_out_replay};
