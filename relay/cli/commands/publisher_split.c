/* Shows the progress of a split, and cancels it at a signal (publisher_split.c does the rest). */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "clock.h"
#include "commands.h"
#include "publisher_call.h"
#include "publisher_split.h"
#include "server.h"
#include "session.h"
#include "text.h"

enum { TIMEOUT_S = 300, OWNERS_MS = 10000 };

static void show_split_progress(int64_t behind, int64_t since)
{
	static int64_t shown_at;
	int64_t now = clock_ms();
	bool terminal = isatty(STDOUT_FILENO);

	/* a terminal redraws one line; elsewhere each report is a line of a log */
	if (shown_at && now - shown_at < (terminal ? 200 : 5000))
		return;
	shown_at = now;
	printf("%s%" PRId64 " shard%s not at the common end yet, %" PRId64 " s%s",
	    terminal ? "\r\033[K" : "", behind, behind == 1 ? "" : "s", (now - since) / 1000,
	    terminal ? "" : "\n");
	fflush(stdout);
}

/* True: a signal came instead. */
static bool pause_or_signal(void *context, int64_t behind, int64_t since, int ms)
{
	const struct timespec pause = {0, ms * 1000000L};

	show_split_progress(behind, since);
	return sigtimedwait(context, NULL, &pause) > 0;
}

static bool split_publisher(struct publisher_split *split, struct err *err)
{
	sigset_t ends;
	bool done;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	/* a signal between begin and end would leave the split open: it is read while waiting */
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	split->wait = pause_or_signal;
	split->context = &ends;
	done = publisher_split_run(split, err);
	if (isatty(STDOUT_FILENO))
		printf("\r\033[K");
	return done;
}

static void print_split(const struct call *call)
{
	int shards = (int)call_number(call, "shards", 0);

	printf("publisher %s has %d shard%s now; running relays go on with them\n",
	    call->arguments[0], shards, text_plural(shards));
}

static void print_cancelled_split(const struct call *call, bool changed)
{
	printf(changed ? "publisher %s: its split is cancelled, and it goes on as before\n"
		       : "publisher %s: no split was under way, and nothing was changed\n",
	    call->arguments[0]);
}

static bool split_or_cancel(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	struct publisher_split split = {.postgres = session->postgres,
	    .pg = session->pg,
	    .publisher = call->arguments[0],
	    .shards = (int)call_number(call, "shards", 0),
	    .owners_ms = OWNERS_MS,
	    .timeout_ms = call_number(call, "timeout", TIMEOUT_S) * 1000};
	bool done, changed;

	if (call_flag(call, "cancel")) {
		done = publisher_split_cancel(&split, &changed, err);
		if (done)
			print_cancelled_split(call, changed);
		return done;
	}
	done = split_publisher(&split, err);
	session->pg = split.pg;
	if (done)
		print_split(call);
	return done;
}

/* The relay waits for some seconds, and cancels the split if it has not ended by then. */
static int split_over_server(const struct call *call)
{
	json_t *body = json_object(), *answer = NULL;
	bool cancels = call_flag(call, "cancel");
	struct err err;

	if (call_flag(call, "timeout")) {
		json_decref(body);
		err_set(&err, ERR_REJECT,
		    "--timeout does not go with --server: a request ends after some seconds. Leave "
		    "it out, or split on the database if the publisher has a backlog");
		return session_failed(&err);
	}
	if (cancels)
		json_object_set_new(body, "cancel", json_true());
	else
		json_object_set_new(body, "shards", json_integer(call_number(call, "shards", 0)));
	if (!publisher_call_send(call, call->arguments[0], "split", body, &answer, &err))
		return session_failed(&err);
	if (cancels)
		print_cancelled_split(call, json_is_true(json_object_get(answer, "changed")));
	else
		print_split(call);
	json_decref(answer);
	return 0;
}

static bool check_split_way(const struct call *call, struct err *err)
{
	bool cancels = call_flag(call, "cancel"), splits = call_flag(call, "shards");

	if (cancels && splits)
		return err_set(
		    err, ERR_REJECT, "--cancel does not go with --shards: take one of them away");
	return cancels || splits || err_set(err, ERR_REJECT, "say into how many: --shards N");
}

static int run_publisher_split(const struct call *call)
{
	struct err err;

	if (!server_is_used(call))
		return session_run(call, check_split_way, split_or_cancel);
	return check_split_way(call, &err) ? split_over_server(call) : session_failed(&err);
}

static const struct command_option publisher_split_options[] = {
    {"shards", "N", "The new number of shards.", 1, 64},
    {"timeout", "SECONDS", "Cancels the split after this time (default 300).", 1, 86400},
    {"cancel", NULL,
	"Cancels a split whose command was killed: the publisher continues as before."},
    {"reason", "TEXT", "With --server: the reason, stored in outbox.audit."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_publisher_split = {
    .name = "publisher split",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Changes a publisher's number of shards while relays run.",
    .description =
	"All shards publish up to one common snapshot and stop there; then the new shards begin. "
	"Each key keeps its order. Rows that commit meanwhile wait until the old shards are "
	"done: seconds, if the publisher has no backlog.\n"
	"Ctrl-C and the timeout cancel the split, and the publisher continues as before. A "
	"process whose configuration names another number of shards is refused at its next "
	"start.\n",
    .options = publisher_split_options,
    .example = "outbox-relay publisher split billing --shards 8",
    .run = run_publisher_split,
};
