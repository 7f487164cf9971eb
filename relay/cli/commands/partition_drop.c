#include <stdio.h>
#include <string.h>
#include <time.h>
#include "clock.h"
#include "commands.h"
#include "partitions.h"
#include "session.h"
#include "text.h"

enum { TRY_MS = 10000, PAUSE_MS = 50 };

typedef bool partition_call(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome *ret_outcome, struct err *err);

/* A lock that a writer holds for a moment is tried again, for a while. */
static bool try_partition_call(partition_call *call, struct pg *pg, const char *schema,
    const char *name, enum partition_outcome *ret_outcome, struct err *err)
{
	const struct timespec pause = {0, PAUSE_MS * 1000000L};
	int64_t until = clock_ms() + TRY_MS;

	do {
		if (!call(pg, schema, name, ret_outcome, err))
			return false;
		if (*ret_outcome != PARTITION_BUSY)
			return true;
		nanosleep(&pause, NULL);
	} while (clock_ms() < until);
	return true;
}

static bool judge_drop_outcome(struct pg *pg, const char *schema, const char *name,
    enum partition_outcome outcome, struct err *err)
{
	char holder[128] = "";

	switch (outcome) {
	case PARTITION_DROPPED:
	case PARTITION_DETACHED:
		return true;
	case PARTITION_BUSY:
		return err_set(err, ERR_RETRY,
		    "%s: a lock was not to be had without making writers wait; try again", name);
	case PARTITION_HELD:
		if (!partition_holder(pg, schema, name, holder, sizeof holder, err))
			return false;
		return err_set(err, ERR_REJECT,
		    text_starts(name, "lookback_")
			? "%s holds a prepare of section %s that is undecided"
		    : text_starts(name, "processed_")
			? "%s holds ids of consumer %s whose window has not passed"
			: "%s holds rows that %s has not published",
		    name, holder[0] ? holder : "somebody");
	case PARTITION_MISSING:
		return err_set(err, ERR_REJECT,
		    "%s is no partition; `outbox-relay partition list` shows them", name);
	default:
		return err_set(
		    err, ERR_RETRY, "%s stays: %s", name, partition_outcome_name(outcome));
	}
}

static bool drop_or_detach(struct session *session, struct err *err)
{
	const char *name = session->call->arguments[0], *schema = session->postgres->schema;
	bool detach = call_flag(session->call, "detach");
	enum partition_outcome outcome;

	if (!try_partition_call(detach ? partition_detach : partition_empty, session->pg, schema,
		name, &outcome, err))
		return false;
	if (!detach && outcome == PARTITION_EMPTIED &&
	    !try_partition_call(partition_drop, session->pg, schema, name, &outcome, err))
		return false;
	if (!judge_drop_outcome(session->pg, schema, name, outcome, err))
		return false;
	printf("%s %s\n", name, detach ? "detached" : "dropped");
	return true;
}

static int run_partition_drop(const struct call *call)
{
	return session_run(call, NULL, drop_or_detach);
}

static const struct command_option partition_drop_options[] = {
    {"detach", NULL, "Leave it as a table of its own, to be archived."},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_partition_drop = {
    .name = "partition drop",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Drops one partition of which no row is needed any more.",
    .description =
	"`run` does it by itself after `retain`. A partition with a message that some publisher "
	"has "
	"not published, with a prepare that is undecided, or with an id of a consumer whose "
	"window has not passed, is refused. No writer waits for it longer than 50 ms; when the "
	"lock is not to be had that way within 10 s, it ends with 69.\n",
    .options = partition_drop_options,
    .example = "outbox-relay partition drop message_p20260102 --detach",
    .run = run_partition_drop,
};
