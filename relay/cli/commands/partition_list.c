#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "moment.h"
#include "partitions.h"
#include "session.h"

static bool print_listed_partition(struct pg *pg, const struct postgres_settings *postgres,
    const struct partition *partition, struct err *err)
{
	char from[MOMENT_SIZE] = "", to[MOMENT_SIZE] = "", holder[128] = "";

	if (partition->bounded) {
		moment_format(partition->from_us, from);
		moment_format(partition->to_us, to);
		if (!partition_holder(
			pg, postgres->schema, partition->name, holder, sizeof holder, err))
			return false;
	}
	printf("%-24s  %-20s  %-20s  %12" PRId64 "  %12" PRId64 "  %s\n", partition->name, from, to,
	    partition->bytes, partition->rows, holder);
	return true;
}

static bool print_table(
    struct pg *pg, const struct postgres_settings *postgres, const char *table, struct err *err)
{
	OWNED(partition_list_finish) struct partition_list partitions = {0};

	if (!partition_list(
		pg, postgres->schema, table, postgres->partition_every_ms, &partitions, err))
		return false;
	for (int i = 0; i < partitions.count; i++)
		if (!print_listed_partition(pg, postgres, &partitions.items[i], err))
			return false;
	return true;
}

static bool list_partitions(struct session *session, struct err *err)
{
	const char *table = session_table(session->call);

	printf("%-24s  %-20s  %-20s  %12s  %12s  %s\n", "partition", "from", "to", "bytes",
	    "rows ~", "held by");
	for (int i = 0; i < PARTITION_TABLES; i++)
		if ((!table || text_equal(table, partition_tables[i])) &&
		    !print_table(session->pg, session->postgres, partition_tables[i], err))
			return false;
	return true;
}

static int run_partition_list(const struct call *call)
{
	return session_run(call, session_check_table, list_partitions);
}

static const struct command_option partition_list_options[] = {
    SESSION_TABLE_OPTION,
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_partition_list = {
    .name = "partition list",
    .arguments = "",
    .summary = "Lists the partitions of the tables that are kept by time.",
    .description =
	"With the time each covers (UTC), its size, and who keeps it: of the message table "
	"the publisher and shard that has not published all of its rows, of the look-back's "
	"the section of a prepare that is undecided, of what was processed a consumer whose "
	"window has not passed.\n",
    .options = partition_list_options,
    .example = "outbox-relay partition list --table message",
    .run = run_partition_list,
};
