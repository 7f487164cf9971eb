#include "commands.h"
#include "lookback_call.h"

static int run_lookback_commit(const struct call *call)
{
	return lookback_call_order(call, LOOKBACK_COMMIT);
}

const struct command command_lookback_commit = {
    .name = "lookback commit",
    .arguments = "[TYPE ID…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Decides that prepared messages are published.",
    .description = "Writes the messages of these ids to the outbox, as if the business had said "
		   "commit. The first "
		   "decision stands: what the business says afterwards is noted as a conflict, so "
		   "ask it first. An "
		   "id that is named need not be overdue.\n" LOOKBACK_ORDER_HELP,
    .options = lookback_order_options,
    .example = "outbox-relay lookback commit order 4711 --dry-run",
    .run = run_lookback_commit,
};
