#include <inttypes.h>
#include <stdio.h>
#include "archives.h"
#include "commands.h"
#include "field.h"
#include "moment.h"
#include "partitions.h"
#include "session.h"

/* json NULL: prints a line. */
static bool add_listed_partition(
    struct session *session, const struct partition *partition, json_t *json, struct err *err)
{
	char from[MOMENT_SIZE] = "", to[MOMENT_SIZE] = "", holder[128] = "", rows[24] = "unknown";
	bool bounded = partition->bounded, counted = partition->rows >= 0;

	if (bounded) {
		moment_format(partition->from_us, from);
		moment_format(partition->to_us, to);
		if (!partition_holder(session->pg, session->postgres->schema, partition->name,
			holder, sizeof holder, err))
			return false;
	}
	if (counted)
		snprintf(rows, sizeof rows, "%" PRId64, partition->rows);
	if (json)
		json_array_append_new(
		    json, json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:o, s:s?}", "partition",
			      partition->name, "state",
			      partition->kept_until_us ? "restored" : "attached", "from",
			      bounded ? from : NULL, "to", bounded ? to : NULL, "bytes",
			      (json_int_t)partition->bytes, "rows_estimated",
			      counted ? json_integer(partition->rows) : json_null(), "held_by",
			      holder[0] ? holder : NULL));
	else
		printf("%-24s  %-20s  %-20s  %12" PRId64 "  %12s  %s\n", partition->name, from, to,
		    partition->bytes, rows, holder);
	return true;
}

/* An archive whose rows are in no partition now. */
static void add_listed_archive(const struct archive *archive, json_t *json)
{
	char from[MOMENT_SIZE], to[MOMENT_SIZE], rows[24] = "unknown";
	owned_text char *place = archive_is_waiting(archive) ? xformat("table %s", archive->leaf)
							     : archive_place(archive);

	moment_format(archive->from_us, from);
	moment_format(archive->to_us, to);
	if (archive->has_totals)
		snprintf(rows, sizeof rows, "%" PRId64, archive->totals.rows);
	if (json)
		json_array_append_new(json,
		    json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:s}", "partition", archive->name,
			"state", archive->state, "from", from, "to", to, "bytes",
			(json_int_t)archive->totals.file_bytes, "rows",
			archive->has_totals ? json_integer(archive->totals.rows) : json_null(),
			"place", place));
	else
		printf("%-24s  %-20s  %-20s  %12" PRId64 "  %12s  %s: %s\n", archive->name, from,
		    to, archive->totals.file_bytes, rows, archive->state, place);
}

static bool add_archives(struct session *session, const char *table, json_t *json, struct err *err)
{
	OWNED(archive_list_finish) struct archive_list list = {0};

	if (!archive_list(session->pg, session->postgres->schema, table, &list, err))
		return false;
	for (int i = 0; i < list.count; i++)
		if (!text_equal(list.items[i].state, "restored"))
			add_listed_archive(&list.items[i], json);
	return true;
}

static bool add_table(struct session *session, const char *table, json_t *json, struct err *err)
{
	const struct postgres_settings *postgres = session->postgres;
	OWNED(partition_list_finish) struct partition_list partitions = {0};

	if (!partition_list(session->pg, postgres->schema, table, postgres->partition_every_ms,
		&partitions, err))
		return false;
	if (!add_archives(session, table, json, err))
		return false;
	for (int i = 0; i < partitions.count; i++)
		if (!add_listed_partition(session, &partitions.items[i], json, err))
			return false;
	return true;
}

static bool list_partitions(struct session *session, struct err *err)
{
	const char *table = session_table(session->call);
	json_t *json = call_flag(session->call, "json") ? json_array() : NULL;
	bool done = true;

	if (!json)
		printf("%-24s  %-20s  %-20s  %12s  %12s  %s\n", "partition", "from", "to", "bytes",
		    "rows ~", "held by");
	for (int i = 0; done && i < PARTITION_TABLES; i++)
		if (!table || text_equal(table, partition_tables[i]))
			done = add_table(session, partition_tables[i], json, err);
	if (done && json)
		field_print_json("", json_incref(json), JSON_INDENT(1), "\n");
	json_decref(json);
	return done;
}

static int run_partition_list(const struct call *call)
{
	return session_run(call, session_check_table, list_partitions);
}

static const struct command_option partition_list_options[] = {
    {"json", NULL, "Prints a JSON array with an object for each partition and each archive."},
    SESSION_TABLE_OPTION,
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_partition_list = {
    .name = "partition list",
    .arguments = "",
    .summary = "Lists the partitions of the tables that are partitioned by time.",
    .description =
	"Shows the time that each partition covers (UTC), its size, and the reason why it is "
	"kept: in the message table a publisher and shard with unpublished rows, in the "
	"look-back's tables a section with an undecided prepare, in the table of processed ids a "
	"consumer whose window has not passed. For an archived partition it shows the size and "
	"the place of its file.\n",
    .options = partition_list_options,
    .example = "outbox-relay partition list --table message",
    .run = run_partition_list,
};
