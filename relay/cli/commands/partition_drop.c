/*
 * `partition drop`: plans which reasons keep the partition, asks, and drops or detaches it in steps
 * that block no writer. Begin at ask_and_drop.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include "clock.h"
#include "commands.h"
#include "confirm.h"
#include "moment.h"
#include "partitions.h"
#include "session.h"
#include "text.h"

enum { TRY_MS = 10000, PAUSE_MS = 50 };

/* --force names contradictions with the configuration by these words. */
static const char *const force_words[] = {
    "retain", "retention", "unpublished", "undecided", "window", NULL};

/* One call of the command. */
struct dropping {
	struct session *session;
	struct partition_request request;
	char holder[128];         /* who needs a row; "": nobody */
	struct text plan;         /* what would be done */
	struct text refused;      /* what contradicts the configuration */
	struct text refused_with; /* the words for it */
};

static bool take_step(
    struct dropping *dropping, bool retires, enum partition_outcome *ret_outcome, struct err *err)
{
	struct pg *pg = dropping->session->pg;
	const char *schema = dropping->session->postgres->schema;

	return retires ? partition_retire(pg, schema, &dropping->request, ret_outcome, err)
		       : partition_drop(pg, schema, dropping->request.name, ret_outcome, err);
}

/* A lock that a writer holds for a moment is tried again, for a while. */
static bool try_step(
    struct dropping *dropping, bool retires, enum partition_outcome *ret_outcome, struct err *err)
{
	const struct timespec pause = {0, PAUSE_MS * 1000000L};
	int64_t until = clock_ms() + TRY_MS;

	do {
		if (!take_step(dropping, retires, ret_outcome, err))
			return false;
		if (*ret_outcome != PARTITION_BUSY)
			return true;
		nanosleep(&pause, NULL);
	} while (clock_ms() < until);
	return true;
}

static bool judge_drop_outcome(
    const struct dropping *dropping, enum partition_outcome outcome, struct err *err)
{
	const char *name = dropping->request.name;

	switch (outcome) {
	case PARTITION_DROPPED:
	case PARTITION_DETACHED:
		return true;
	case PARTITION_BUSY:
		return err_set(err, ERR_RETRY,
		    "%s: a lock was not to be had without making writers wait; try again", name);
	case PARTITION_HELD:
		return err_set(err, ERR_RETRY,
		    "%s: a row came that somebody needs, and nothing was done; look again", name);
	case PARTITION_MISSING:
		return err_set(err, ERR_REJECT,
		    "%s is no partition; `outbox-relay partition list` shows them", name);
	default:
		return err_set(
		    err, ERR_RETRY, "%s stays: %s", name, partition_outcome_name(outcome));
	}
}

/* --- the plan -------------------------------------------------------------------------------- */

static void add_contradiction(struct dropping *dropping, const char *word, const char *what)
{
	/* the operator has named exactly this contradiction; others still refuse the call */
	if (confirm_is_forced(dropping->session->call, word))
		return;
	text_addf(&dropping->refused, "%s%s", dropping->refused.length ? "; " : "", what);
	text_addf(&dropping->refused_with, "%s%s", dropping->refused_with.length ? "," : "", word);
}

/* Is there somebody who needs a row? */
static void find_need(struct dropping *dropping, const char *table)
{
	OWNED(text_finish) struct text what = {0};
	bool is_message = text_equal(table, "message"), is_lookback = text_equal(table, "lookback");
	bool is_unique = text_equal(table, "unique_ledger");
	const char *word = is_message ? "unpublished" : is_lookback ? "undecided" : "window";

	/* the database looks again when it drops: a need may come after this plan */
	dropping->request.held_too = confirm_is_forced(dropping->session->call, word);
	if (!dropping->holder[0])
		return;
	text_addf(&what,
	    is_message    ? "it holds rows that %s has not published"
	    : is_lookback ? "it holds a prepare of section %s that is undecided"
	    : is_unique   ? "it holds unique keys of topic %s that are in use"
			  : "it holds ids of consumer %s whose window has not passed",
	    dropping->holder);
	add_contradiction(dropping, word, text_string(&what));
}

static void find_contradictions(
    struct dropping *dropping, const char *table, const struct partition *partition, int64_t now_us)
{
	const struct postgres_settings *postgres = dropping->session->postgres;
	int64_t until_us = partition->to_us + postgres->retain_ms * 1000;
	char until[MOMENT_SIZE];
	owned_text char *what = NULL;

	moment_format(until_us, until);
	what = xformat("`retain` of [postgres \"%s\"] keeps it until %s", postgres->name, until);
	if (until_us > now_us)
		add_contradiction(dropping, "retain", what);
	if (postgres->retention == RETENTION_DETACH && !dropping->request.detach)
		add_contradiction(dropping, "retention",
		    "`retention = detach` keeps its rows in a table of its own (--detach)");
	/* the rows of a restored one are in a file already */
	if (postgres->retention == RETENTION_ARCHIVE && partition_is_archived(table) &&
	    !dropping->request.detach && !partition->kept_until_us)
		add_contradiction(
		    dropping, "retention", "`retention = archive` keeps its rows in a file");
}

static bool plan_partition(struct dropping *dropping, const char *table,
    const struct partition *partition, struct err *err)
{
	struct pg *pg = dropping->session->pg;
	const char *schema = dropping->session->postgres->schema;
	char from[MOMENT_SIZE], to[MOMENT_SIZE];
	int64_t rows;

	if (!partition_count_rows(pg, schema, table, partition, &rows, err) ||
	    !partition_holder(
		pg, schema, partition->name, dropping->holder, sizeof dropping->holder, err))
		return false;
	moment_format(partition->from_us, from);
	moment_format(partition->to_us, to);
	text_addf(&dropping->plan,
	    "%s of %s: %s%" PRId64 " row%s from %s to %s, %" PRId64 " bytes\n",
	    dropping->request.detach ? "detach" : "drop", partition->name,
	    rows == COUNTED_ROWS ? "at least " : "", rows, text_plural(rows), from, to,
	    partition->bytes);
	return true;
}

/* *found stays false when the table has no such partition. */
static bool look_in_table(
    struct dropping *dropping, const char *table, bool *found, struct err *err)
{
	const struct postgres_settings *postgres = dropping->session->postgres;
	OWNED(partition_list_finish) struct partition_list list = {0};

	if (!partition_list(dropping->session->pg, postgres->schema, table,
		postgres->partition_every_ms, &list, err))
		return false;
	for (int i = 0; i < list.count; i++) {
		/* the default partition cannot be dropped: rows without a partition go there */
		if (!list.items[i].bounded ||
		    !text_equal(list.items[i].name, dropping->request.name))
			continue;
		*found = true;
		if (!plan_partition(dropping, table, &list.items[i], err))
			return false;
		find_contradictions(dropping, table, &list.items[i], list.now_us);
		find_need(dropping, table);
	}
	return true;
}

static bool check_partition(struct dropping *dropping, struct err *err)
{
	bool found = false;

	for (int i = 0; i < PARTITION_TABLES; i++)
		if (!look_in_table(dropping, partition_tables[i], &found, err))
			return false;
	if (!found)
		return judge_drop_outcome(dropping, PARTITION_MISSING, err);

	/* all contradictions at once, so that one --force can name them together */
	return !dropping->refused.length ||
	       err_set(err, ERR_REJECT, "%s is not dropped: %s; --force %s does it all the same",
		   dropping->request.name, text_string(&dropping->refused),
		   text_string(&dropping->refused_with));
}

/* --- the command ----------------------------------------------------------------------------- */

static bool drop_or_detach(struct dropping *dropping, struct err *err)
{
	const char *name = dropping->request.name;
	bool detach = dropping->request.detach;
	enum partition_outcome outcome;

	/* an emptied partition is removed by a second step; a detached one needs none */
	if (!try_step(dropping, true, &outcome, err) ||
	    (outcome == PARTITION_EMPTIED && !try_step(dropping, false, &outcome, err)) ||
	    !judge_drop_outcome(dropping, outcome, err))
		return false;
	printf("%s %s\n", name, detach ? "detached" : "dropped");
	return true;
}

static bool confirm_drop(struct dropping *dropping, struct err *err)
{
	const struct call *call = dropping->session->call;
	owned_text char *question =
	    xformat("%s %s?", dropping->request.detach ? "Detach" : "Drop", dropping->request.name);

	/* contradictions are reported before a missing --yes or --reason */
	if (!check_partition(dropping, err) || !confirm_check(call, err))
		return false;
	fputs(text_string(&dropping->plan), stdout);
	if (call_flag(call, "dry-run")) {
		puts("nothing was changed: --dry-run");
		return true;
	}
	return confirm_call(call, question, err) && drop_or_detach(dropping, err);
}

static bool ask_and_drop(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	struct dropping dropping = {.session = session,
	    .request = {.name = call->arguments[0],
		.detach = call_flag(call, "detach"),
		.force = call_text(call, "force", ""),
		.reason = confirm_reason(call)}};
	bool done = confirm_drop(&dropping, err);

	text_finish(&dropping.plan);
	text_finish(&dropping.refused);
	text_finish(&dropping.refused_with);
	return done;
}

static bool check_drop_force(const struct call *call, struct err *err)
{
	return confirm_check_force(call, force_words, err);
}

static int run_partition_drop(const struct call *call)
{
	return session_run(call, check_drop_force, ask_and_drop);
}

static const struct command_option partition_drop_options[] = {
    {"detach", NULL, "Keeps the partition as a table of its own, to be archived."},
    CONFIRM_OPTIONS,
    {"force", "WORD,…",
	"Drops the partition despite: retain (it is younger than `retain`), retention "
	"(`retention = detach` or `archive`), unpublished (a publisher has not published its "
	"rows), undecided "
	"(an undecided prepare), window (a consumer's window has not passed)."},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_partition_drop = {
    .name = "partition drop",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Drops a partition whose rows are no longer needed.",
    .description =
	"`run` drops partitions by itself after `retain`. The command shows the partition's rows "
	"and asks. It refuses a partition that is younger than `retain`, that has a message "
	"which some publisher has not published, an undecided prepare, or an id of a consumer "
	"whose window has not passed, unless --force names that reason. Unpublished rows of a "
	"dropped partition are never published. No writer waits longer than 50 ms for the "
	"command; if it cannot get the lock that way within 10 s, it exits with 69. outbox.audit "
	"stores the operator and the reason.\n",
    .options = partition_drop_options,
    .example = "outbox-relay partition drop message_p20260102 --detach",
    .run = run_partition_drop,
};
