#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "moment.h"
#include "partitions.h"
#include "session.h"

static bool print_partition(struct pg *pg, const struct config_postgres *postgres,
    const struct partition *partition, struct err *err)
{
	char from[MOMENT_SIZE] = "", to[MOMENT_SIZE] = "", holder[64] = "";

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

static int list(struct pg *pg, const struct config_postgres *postgres)
{
	OWNED(partition_list_finish) struct partition_list partitions = {0};
	struct err err;

	if (!partition_list(pg, postgres->schema, postgres->partition_every_ms, &partitions, &err))
		return session_failed(&err);
	printf("%-24s  %-20s  %-20s  %12s  %12s  %s\n", "partition", "from", "to", "bytes",
	    "rows ~", "held by");
	for (int i = 0; i < partitions.count; i++)
		if (!print_partition(pg, postgres, &partitions.items[i], &err))
			return session_failed(&err);
	return 0;
}

static int run(const struct call *call)
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	const struct config_postgres *postgres =
	    config ? session_postgres(call, config, &err) : NULL;
	OWNED(owned_pg_destroy) struct pg *pg = postgres ? session_connect(postgres, &err) : NULL;

	return pg ? list(pg, postgres) : session_failed(&err);
}

static const struct command_option options[] = {
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_partition_list = {
    .name = "partition list",
    .arguments = "",
    .summary = "Lists the partitions of the message table.",
    .description = "With the time each covers (UTC), its size, and the slot and shard that has not "
		   "published all of its rows: as long as one has not, the partition stays.\n",
    .options = options,
    .run = run,
};
