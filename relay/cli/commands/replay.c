/*
 * `replay`: plans, confirms, begins or resumes a replay, and lists replays. Begin at
 * list_or_replay; the sending itself is in relay/ops/replay_run.c.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include "clock.h"
#include "commands.h"
#include "field.h"
#include "confirm.h"
#include "job_list.h"
#include "producer.h"
#include "progress.h"
#include "replay_checks.h"
#include "replay_print.h"
#include "replay_run.h"
#include "replay_server.h"
#include "session.h"
#include "sql_files.h"

/* One call of the command. */
struct replaying {
	const struct call *call;
	const struct config *config;
	struct pg *pg;
	struct topic_metadata *metadata;
	struct replay replay;
	struct replay_plan plan;
};

/* --- the request ----------------------------------------------------------------------------- */

static bool read_wish(struct replaying *replaying, struct err *err)
{
	const struct call *call = replaying->call;
	const char *to = call_text(call, "to", NULL);

	if (to && !producer_topic_is_valid(to))
		return err_set(err, ERR_REJECT,
		    "--to %.60s is no topic's name: 1 to 249 of A-Z a-z 0-9 . _ -", to);
	replaying->replay.target = xstrdup(to);
	replaying->replay.rate = call_number(call, "rate", 0);
	for (int i = 0; i < call->argument_count; i++)
		if (!replay_filter_add(
			&replaying->replay.filter, call->arguments[i], clock_wall_us(), err))
			return false;
	return true;
}

static bool check_everything(const struct replaying *replaying, struct err *err)
{
	const struct call *call = replaying->call;
	bool everything = replay_filter_is_everything(&replaying->replay.filter);

	/* a replay of the whole table must be said: leaving out the terms is not enough */
	if (everything && !call_flag(call, "all"))
		return err_set(err, ERR_REJECT,
		    "nothing says which rows: name some (topic=orders, ids=10..20, …), or say "
		    "--all");
	if (!everything && call_flag(call, "all"))
		return err_set(err, ERR_REJECT, "--all does not go with %s: take one of them away",
		    call->arguments[0]);
	return !everything || confirm_check(call, err);
}

static void print_planned_topics(const struct replaying *replaying)
{
	const struct replay *replay = &replaying->replay;
	const struct replay_plan *plan = &replaying->plan;

	for (int i = 0; i < plan->count; i++)
		printf("%" PRId64 " row%s of topic %s would go to %s\n", plan->topics[i].rows,
		    text_plural(plan->topics[i].rows), plan->topics[i].name,
		    replay->target ? replay->target : plan->topics[i].name);
	printf("%" PRId64 " row%s, ids %" PRId64 " to %" PRId64 "\n", replay->total,
	    text_plural(replay->total), plan->low_id, replay->upto_id);
}

static bool confirm_replay(const struct replaying *replaying, struct err *err)
{
	int64_t rows = replaying->replay.total;
	owned_text char *question =
	    xformat("Publish %" PRId64 " row%s again?", rows, text_plural(rows));

	/* A script that selects rows needs no --yes: it has said which rows it wants. */
	if (!call_flag(replaying->call, "all") && !confirm_can_ask())
		return true;
	if (!call_flag(replaying->call, "yes"))
		print_planned_topics(replaying);
	return confirm_call(replaying->call, question, err);
}

/* Refuses options that only another of the three ways of use understands. */
static bool check_replay_way(const struct call *call, struct err *err)
{
	static const char *const fixed[] = {"to", "reason", "all", "yes", "dry-run"};
	const char *way = call_flag(call, "list") ? "list" : "resume";

	if (call_flag(call, "list") && call_flag(call, "resume"))
		return err_set(err, ERR_REJECT, "--list and --resume do not go together");
	if (call_flag(call, "json") && !call_flag(call, "list"))
		return err_set(err, ERR_REJECT, "--json goes with --list only");

	/* neither --list nor --resume: a new replay, which takes all the other options */
	if (!call_flag(call, way))
		return true;
	if (call->argument_count > 0)
		return err_set(err, ERR_REJECT,
		    "--%s does not go with '%.60s': a replay's rows are fixed when it is made", way,
		    call->arguments[0]);
	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		if (call_flag(call, fixed[i]))
			return err_set(
			    err, ERR_REJECT, "--%s does not go with --%s", way, fixed[i]);
	return true;
}

/* --- what is printed ------------------------------------------------------------------------- */

static void print_gone(const struct replaying *replaying)
{
	int64_t gone = replaying->plan.gone;

	if (gone > 0)
		printf("%" PRId64 " id%s of ids=%s without a row: a partition was dropped, or a "
		       "transaction rolled back\n",
		    gone, text_plural(gone), replaying->replay.filter.terms[REPLAY_IDS]);
}

static void print_replay_plan(const struct replaying *replaying)
{
	print_planned_topics(replaying);
	print_gone(replaying);
	puts("nothing was published: --dry-run");
}

/* Printed at once, so that somebody who kills this process knows the id to resume. */
static void print_begin(const struct replay *replay)
{
	printf("replay %" PRId64 ": %" PRId64 " of %" PRId64 " row%s published, up to id %" PRId64
	       " of %" PRId64 ", to %s\n",
	    replay->id, replay->done, replay->total, text_plural(replay->total), replay->last_id,
	    replay->upto_id, replay->target ? replay->target : "their own topics");
	fflush(stdout);
}

static void print_end(const struct replay *replay)
{
	printf("replay %" PRId64 ": finished, %" PRId64 " of %" PRId64 " row%s published\n",
	    replay->id, replay->done, replay->total, text_plural(replay->total));
	if (replay->done < replay->total)
		printf("%" PRId64 " row%s dropped with a partition meanwhile\n",
		    replay->total - replay->done, text_plural(replay->total - replay->done));
}

/* --- --list ---------------------------------------------------------------------------------- */

static bool print_replays(struct replaying *replaying, struct err *err)
{
	const char *publisher = call_text(replaying->call, "publisher", NULL);
	json_t *names = publisher ? json_pack("[s]", publisher) : NULL, *replays;
	owned_text char *publishers = names ? json_dumps(names, 0) : NULL;
	const struct job_list list = {
	    .most = INT64_MAX, .kind = "replay", .publishers = publishers};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    job_list_query(replaying->pg, replaying->replay.publisher->postgres, &list, err);

	json_decref(names);
	if (!rows)
		return false;
	replays = json_array();
	for (int i = 0; i < pg_rows(rows); i++)
		json_array_append_new(replays, job_list_row(rows, i));
	replay_print_list(replaying->call, replays);
	return true;
}

/* --- the ways of use ------------------------------------------------------------------------- */

static bool connect_kafka(struct replaying *replaying, struct err *err)
{
	replaying->metadata = topic_metadata_create(replaying->replay.publisher->kafka, err);
	return replaying->metadata != NULL;
}

/* From here on a signal is for the loop that sends; threads inherit it. */
static void block_signals(void)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
}

static bool send_replay(struct replaying *replaying, struct err *err)
{
	struct replay *replay = &replaying->replay;
	struct progress progress;
	struct progress_watch watch = progress_watch(&progress);

	print_begin(replay);
	if (!replay_run(replay, replaying->pg, replaying->metadata, &watch, -1, err))
		return false;
	print_end(replay);
	return true;
}

static bool begin_replay(struct replaying *replaying, struct err *err)
{
	const struct call *call = replaying->call;
	struct replay *replay = &replaying->replay;

	if (!read_wish(replaying, err) || !check_everything(replaying, err) ||
	    !replay_plan_make(replay, replaying->pg, &replaying->plan, err))
		return false;

	/* before signals are blocked: Ctrl-C still ends the question */
	if (!call_flag(call, "dry-run") && !confirm_replay(replaying, err))
		return false;
	block_signals();
	if (!connect_kafka(replaying, err) ||
	    !replay_check_topics(replay, &replaying->plan, replaying->metadata, err))
		return false;
	if (call_flag(call, "dry-run")) {
		print_replay_plan(replaying);
		return true;
	}
	/* written last: a replay that cannot begin leaves no row */
	if (!replay_create(replay, replaying->pg, replaying->plan.low_id,
		call_flag(call, "all") ? confirm_reason(call) : call_text(call, "reason", NULL),
		NULL, err))
		return false;
	print_gone(replaying);
	return send_replay(replaying, err);
}

static bool resume_replay(struct replaying *replaying, struct err *err)
{
	struct replay *replay = &replaying->replay;

	replay->id = call_number(replaying->call, "resume", 0);
	replay->rate = call_number(replaying->call, "rate", 0);
	block_signals();
	return replay_take(replay, replaying->pg, replaying->config, err) &&
	       connect_kafka(replaying, err) && send_replay(replaying, err);
}

static bool list_or_replay(struct replaying *replaying, struct err *err)
{
	if (call_flag(replaying->call, "list"))
		return print_replays(replaying, err);
	return call_flag(replaying->call, "resume") ? resume_replay(replaying, err)
						    : begin_replay(replaying, err);
}

static int run_replay(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return check_replay_way(call, &err) ? replay_server_run(call)
						    : session_failed(&err);

	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	const struct publisher_settings *publisher =
	    config ? session_publisher(call, config, &err) : NULL;
	OWNED(owned_pg_destroy) struct pg *pg = NULL;
	struct replaying replaying = {.call = call, .config = config};
	bool done;

	if (!publisher || !check_replay_way(call, &err))
		return session_failed(&err);
	pg = database_connect(publisher->postgres, &err);
	replaying.pg = pg;
	replay_init(&replaying.replay, publisher);
	done = pg && list_or_replay(&replaying, &err);
	topic_metadata_destroy(replaying.metadata);
	replay_plan_finish(&replaying.plan);
	replay_finish(&replaying.replay);
	return done ? 0 : session_failed(&err);
}

static const struct command_option replay_options[] = {
    {"to", "TOPIC", "Sends every record to this topic instead of its row's topic."},
    {"rate", "N", "Maximum number of records per second.", 1, 10000000},
    {"dry-run", NULL, "Counts and checks the rows without sending them."},
    {"all", NULL, "Selects every row of the table."},
    {"yes", NULL, "Does not ask. With --all, without a terminal, --yes and --reason are required."},
    {"reason", "TEXT", "The reason, stored with the replay for `--list`, and in outbox.audit."},
    {"resume", "ID",
	"Continues a replay that was stopped or killed, after the last id that it stored; 3 is "
	"replay-3 of `--list`.",
	1, INT64_MAX},
    {"list", NULL,
	"Shows all replays and their progress, the newest first; with --publisher, those of this "
	"publisher."},
    {"json", NULL,
	"With --list: prints a JSON array with a job of GET /v1/replays for each replay; 64-bit "
	"numbers are strings."},
    {"publisher", "NAME",
	"The publisher whose database, cluster and settings are used (default: the only one of "
	"the configuration, else \"main\")."},
    SERVER_OPTIONS,
    {0},
};

const struct command command_replay = {
    .name = "replay",
    .arguments = "[TERM…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Publishes rows of the table again.",
    .description =
	"TERMs select rows; each may be given once, and all must match. Without TERMs it needs "
	"--all.\n"
	"ids=10..20, ids=10.., ids=..20, ids=10: by id, with both ids.\n"
	"created=2026-01-02..2026-01-03T12:00: by created_at (UTC), without the second time "
	"itself; the range may be open at one end.\n"
	"topic=orders; key=42, or key=\\x00ff in hexadecimal; event-id=UUID, as in the header "
	"outbox-id.\n"
	"state=published: only rows that the publisher has published by now. Without it: all "
	"committed rows, also pending ones, which the relay publishes later all the same.\n"
	"A record has the application's headers, `outbox-id`, and `outbox-replay` with the "
	"number of the replay. It has no `outbox-position`, so consumers treat it as new and "
	"`verify` ignores it. In a topic with `headers = none` it has no `outbox-id` either. "
	"Each key keeps its order.\n"
	"On a terminal the command shows the number of rows of each topic and asks first. "
	"Without a terminal a replay of TERMs begins at once, since the TERMs say which rows.\n"
	"A replay sends the rows that were committed when it began. It stores its progress each "
	"second; after a crash at most "
	"`max_in_flight` records are sent twice.\n",
    .options = replay_options,
    .example = "outbox-relay replay topic=orders --to orders-again --dry-run",
    .run = run_replay,
};
