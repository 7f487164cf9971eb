#include <stdio.h>
#include "commands.h"
#include "moment.h"
#include "partitions.h"
#include "session.h"

static void print_made_partition(void *context, int64_t from_us)
{
	const char *table = context;
	char from[MOMENT_SIZE];

	moment_format(from_us, from);
	printf("%s: made the partition from %s\n", table, from);
}

static bool make_missing_ahead(struct pg *pg, const struct postgres_settings *postgres,
    const char *table, enum partition_outcome *ret_outcome, struct err *err)
{
	OWNED(partition_list_finish) struct partition_list partitions = {0};

	return partition_list(
		   pg, postgres->schema, table, postgres->partition_every_ms, &partitions, err) &&
	       partition_make_ahead(pg, postgres, table, &partitions, print_made_partition,
		   (void *)table, ret_outcome, err);
}

static bool make_one(struct pg *pg, const struct postgres_settings *postgres, const char *table,
    const char *from, enum partition_outcome *ret_outcome, struct err *err)
{
	int64_t from_us;

	if (!moment_parse(from, &from_us, err) ||
	    !partition_make(pg, postgres->schema, table, from_us,
		from_us + postgres->partition_every_ms * 1000, ret_outcome, err))
		return false;

	/* an existing one is reported by judge_make_outcome, as no error */
	if (*ret_outcome == PARTITION_MADE)
		print_made_partition((void *)table, from_us);
	return true;
}

static bool judge_make_outcome(const char *table, enum partition_outcome outcome, struct err *err)
{
	switch (outcome) {
	case PARTITION_MADE:
		return true;
	case PARTITION_EXISTS:
		printf("%s: nothing to do, it is there\n", table);
		return true;
	case PARTITION_BUSY:
		return err_set(err, ERR_RETRY,
		    "%s: a lock was not to be had without making writers wait; try again", table);
	case PARTITION_DEFAULT_NOT_EMPTY:
		return err_set(err, ERR_RETRY,
		    "%s_default holds rows, which `outbox-relay run` moves first", table);
	default:
		return err_set(err, ERR_REJECT, "%s: no partition was made: %s", table,
		    partition_outcome_name(outcome));
	}
}

/* Without --from: makes the partitions that are missing ahead. */
static bool make_partitions(struct session *session, struct err *err)
{
	const char *from = call_text(session->call, "from", NULL);
	const char *table = session_table(session->call);

	for (int i = 0; i < PARTITION_TABLES; i++) {
		const char *name = partition_tables[i];
		enum partition_outcome outcome;

		if (table && !text_equal(table, name))
			continue;
		if (!(from ? make_one(session->pg, session->postgres, name, from, &outcome, err)
			   : make_missing_ahead(
				 session->pg, session->postgres, name, &outcome, err)) ||
		    !judge_make_outcome(name, outcome, err))
			return false;
	}
	return true;
}

static int run_partition_make(const struct call *call)
{
	return session_run(call, session_check_table, make_partitions);
}

static const struct command_option partition_make_options[] = {
    {"from", "MOMENT",
	"Creates one partition that begins at this time and is as wide as partition_every: "
	"2026-01-02 or 2026-01-02T03:00:00, UTC."},
    SESSION_TABLE_OPTION,
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_partition_make = {
    .name = "partition make",
    .arguments = "",
    .summary = "Creates the missing partitions, or a given one.",
    .description =
	"Without --from it creates the partitions from now to `partitions_ahead` periods ahead, "
	"as `run` does by itself.\n",
    .options = partition_make_options,
    .example = "outbox-relay partition make --table message",
    .run = run_partition_make,
};
