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
    .summary = "Rolls back prepared messages: they are never published.",
    .description =
	"Discards the messages of these ids, as if the business had answered rollback. The first "
	"decision is final: a later commit is recorded as a conflict and publishes nothing, so "
	"ask the business first. An id that you name need not be overdue.\n" LOOKBACK_ORDER_HELP,
    .options = lookback_order_options,
    .example = "outbox-relay lookback rollback order 4711 --dry-run",
    .run = run_lookback_rollback,
};
