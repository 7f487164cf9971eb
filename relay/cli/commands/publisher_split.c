/*
 * A split drains all shards of a publisher to one snapshot and then gives it another number of
 * shards. The three calls are transactions of their own (sql/migrations/0005_publishers.sql);
 * whatever ends the waiting early cancels the split, so that the publisher goes on as before.
 */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "clock.h"
#include "commands.h"
#include "session.h"
#include "sql_files.h"
#include "text.h"

enum { LOOK_MS = 200, TIMEOUT_S = 300, OWNERS_MS = 10000, OWNERS_LOOK_MS = 100 };

struct split {
	struct session *session;
	const char *publisher, *shards;
};

static bool call_sql(
    struct split *split, const char *sql, int params, int64_t *ret_value, struct err *err)
{
	const struct pg_param values[] = {{split->publisher}, {split->shards}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *result =
	    database_query(split->session->pg, split->session->postgres, sql, values, params, err);

	if (result && ret_value)
		*ret_value = pg_int(result, 0, 0);
	return result != NULL;
}

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
static bool pause_or_signal(const sigset_t *ends)
{
	const struct timespec pause = {0, LOOK_MS * 1000000L};

	return sigtimedwait(ends, NULL, &pause) > 0;
}

/*
 * An owner that renews its lease while the first rows of the new shards are written takes the same
 * number (23505), and somebody else may hold a lock of the log (55P03). Either way nothing was
 * changed, and *behind is as before: the next look may find the way clear.
 */
static bool try_to_finish(struct split *split, int64_t *behind, struct err *err)
{
	if (call_sql(split, sql_publisher_split_finish, 1, behind, err))
		return true;
	return err->kind == ERR_FENCED || text_equal(pg_sqlstate(split->session->pg), "55P03");
}

static bool wait_for_common_end(
    struct split *split, int64_t timeout_s, const sigset_t *ends, struct err *err)
{
	int64_t since = clock_ms(), behind = 1;

	while (try_to_finish(split, &behind, err)) {
		/* the call that found none behind has also begun the new shards */
		if (behind == 0)
			return true;
		show_split_progress(behind, since);
		if (pause_or_signal(ends))
			return err_set(err, ERR_RETRY, "interrupted");
		if (clock_ms() - since >= timeout_s * 1000)
			return err_set(err, ERR_RETRY,
			    "%" PRId64 " shard%s did not come to the common end within %" PRId64
			    " s; every shard needs a running relay",
			    behind, behind == 1 ? "" : "s", timeout_s);
	}
	return false;
}

/* Uses a new connection if the old one failed. */
static bool cancel_split(struct split *split, struct err *err)
{
	struct err failed;

	if (call_sql(split, sql_publisher_split_cancel, 1, NULL, &failed))
		return err_prefix(
		    err, "split of publisher %s cancelled, it goes on as before", split->publisher);

	/* the connection may be the reason of the failure; an open split would stop the
	 * publisher */
	pg_destroy(split->session->pg);
	split->session->pg = database_connect(split->session->postgres, &failed);
	if (split->session->pg && call_sql(split, sql_publisher_split_cancel, 1, NULL, &failed))
		return err_prefix(
		    err, "split of publisher %s cancelled, it goes on as before", split->publisher);
	return err_prefix(err,
	    "publisher %s opens no new window until `outbox-relay publisher split %s --cancel` is "
	    "run",
	    split->publisher, split->publisher);
}

/*
 * Columns of status.sql: publisher, shard, shards, split_to, n, epoch, owner, lease_left_ms.
 * *ret_unowned: a shard that nobody owns; -1: none.
 */
static bool find_unowned(struct split *split, int64_t *ret_unowned, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(split->session->pg, split->session->postgres, sql_status, NULL, 0, err);

	*ret_unowned = -1;
	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (text_equal(pg_value(rows, i, 0), split->publisher) && pg_int(rows, i, 7) == 0)
			*ret_unowned = pg_int(rows, i, 1);
	return rows != NULL;
}

/* Relays that have just started, or split the publisher before, take their shards one after the
 * other.
 */
static bool check_owned(struct split *split, struct err *err)
{
	int64_t until = clock_ms() + OWNERS_MS;
	int64_t unowned;

	do {
		if (!find_unowned(split, &unowned, err))
			return false;
		if (unowned < 0)
			return true;
		poll(NULL, 0, OWNERS_LOOK_MS);
	} while (clock_ms() < until);
	return err_set(err, ERR_RETRY,
	    "nobody owns shard %lld of publisher %s: a split needs running relays, which bring all "
	    "shards to one end",
	    (long long)unowned, split->publisher);
}

static bool split_publisher(struct split *split, int64_t timeout_s, struct err *err)
{
	sigset_t ends;
	bool done;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	/* a signal between begin and end would leave the split open: it is read while waiting */
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	/* without owners no shard could reach the common end, and the split would only time out */
	if (!check_owned(split, err) || !call_sql(split, sql_publisher_split_begin, 2, NULL, err))
		return false;
	done = call_sql(split, sql_publisher_split_bound, 1, NULL, err) &&
	       wait_for_common_end(split, timeout_s, &ends, err);
	if (isatty(STDOUT_FILENO))
		printf("\r\033[K");

	/* from the begin on every failure cancels, or the publisher would open no new window */
	return done || cancel_split(split, err);
}

static bool split_or_cancel(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	struct split split = {session, call->arguments[0], call_text(call, "shards", NULL)};

	if (call_flag(call, "cancel")) {
		if (!call_sql(&split, sql_publisher_split_cancel, 1, NULL, err))
			return false;
		printf("publisher %s: its split has ended\n", split.publisher);
		return true;
	}
	if (!split.shards)
		return err_set(err, ERR_REJECT, "say into how many: --shards N");
	if (!split_publisher(&split, call_number(call, "timeout", TIMEOUT_S), err))
		return false;
	printf("publisher %s has %s shard%s now; running relays go on with them\n", split.publisher,
	    split.shards, text_equal(split.shards, "1") ? "" : "s");
	return true;
}

static int run_publisher_split(const struct call *call)
{
	return session_run(call, NULL, split_or_cancel);
}

static const struct command_option publisher_split_options[] = {
    {"shards", "N", "The new number of shards.", 1, 64},
    {"timeout", "SECONDS", "Cancels the split after this time (default 300).", 1, 86400},
    {"cancel", NULL,
	"Cancels a split whose command was killed: the publisher continues as before."},
    SESSION_POSTGRES_OPTION,
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
