#include "commands.h"
#include "lookback_call.h"

static int run_lookback_rollback(const struct call *call)
{
	return lookback_call_order(call, LOOKBACK_ROLLBACK);
}

const struct command command_lookback_rollback = {
    .name = "lookback rollback",
    .arguments = "[TYPE ID…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Decides that prepared messages are never published.",
    .description =
	"Drops the messages of these ids, as if the business had said rollback. The first decision "
	"stands: a commit that comes afterwards is noted as a conflict and nothing is published, "
	"so ask "
	"the business first. An id that is named need not be "
	"overdue.\n" LOOKBACK_ORDER_HELP,
    .options = lookback_order_options,
    .example = "outbox-relay lookback rollback order 4711 --dry-run",
    .run = run_lookback_rollback,
};
