#include <inttypes.h>
#include <stdio.h>
#include "archives.h"
#include "commands.h"
#include "session.h"
#include "text.h"
#include "units.h"

enum { KEEP_DAYS = 7 };
#define DAY_MS (24 * 3600 * INT64_C(1000))

static bool read_keep(const struct call *call, int64_t *ret_ms, struct err *err)
{
	const char *keep = call_text(call, "keep", NULL);

	*ret_ms = KEEP_DAYS * DAY_MS;
	if (!keep || (units_parse(keep, units_duration, ret_ms) == UNITS_READ && *ret_ms > 0 &&
			 *ret_ms <= 3650 * DAY_MS))
		return true;
	return err_set(err, ERR_REJECT,
	    "--keep %s is no duration up to 3650d; write for example 12h or 7d", keep);
}

static bool check_restore_call(const struct call *call, struct err *err)
{
	int64_t keep_ms;

	return read_keep(call, &keep_ms, err);
}

static bool restore_partition(struct session *session, struct err *err)
{
	const struct call *call = session->call;
	struct restore_request request = {.name = call->arguments[0],
	    .folder = call_text(call, "folder", NULL),
	    .archive_path = session->postgres->archive_path};
	struct restored restored = {.rows = 0};

	if (!read_keep(call, &request.keep_ms, err) ||
	    !archive_restore(session->pg, session->postgres->schema, &request, &restored, err))
		return false;
	printf("%s restored: %" PRId64 " row%s; `run` leaves it for %s\n", restored.partition,
	    restored.rows, text_plural(restored.rows), call_text(call, "keep", "7d"));
	return true;
}

static int run_partition_restore(const struct call *call)
{
	return session_run(call, check_restore_call, restore_partition);
}

static const struct command_option partition_restore_options[] = {
    {"folder", "FOLDER",
	"The folder of the file (default: the recorded one, or else archive_path)."},
    {"keep", "DURATION",
	"How long `run` leaves the restored partition, 7d by default. After that it drops it "
	"again; the file stays."},
    SESSION_POSTGRES_OPTION,
    {0},
};

const struct command command_partition_restore = {
    .name = "partition restore",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Brings back an archived partition from its file.",
    .description =
	"NAME is the partition's name, as `partition list` shows it, or the path of a file. The "
	"command checks the file by its checksum and its number of rows before it changes the "
	"database, and refuses a file that is cut or damaged. No publisher publishes the rows "
	"again; `replay` sends them to a topic. If the command is interrupted, call it again. No "
	"writer waits longer than 50 ms for it.\n",
    .options = partition_restore_options,
    .example = "outbox-relay partition restore message_p20260102 --keep 12h",
    .no_server = "it reads a file of this machine; call it on the host that has the archive",
    .run = run_partition_restore,
};
