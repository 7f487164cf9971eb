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
    .summary = "Commits prepared messages: they are published.",
    .description = "Writes the messages of these ids to the outbox, as if the business had "
		   "answered commit. The first decision is final: a different later answer of "
		   "the business is recorded as a conflict, so ask the business first. An id "
		   "that you name need not be overdue.\n" LOOKBACK_ORDER_HELP,
    .options = lookback_order_options,
    .example = "outbox-relay lookback commit order 4711 --dry-run",
    .run = run_lookback_commit,
};
