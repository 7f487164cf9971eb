#include "commands.h"
#include "lookback_call.h"

static int run_lookback_retry(const struct call *call)
{
	return lookback_call_order(call, LOOKBACK_RETRY);
}

const struct command command_lookback_retry = {
    .name = "lookback retry",
    .arguments = "[TYPE ID…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Calls the business again at once.",
    .description =
	"Moves overdue and parked ids to the front, counts their attempts from 0, and gives them "
	"the full time again until they are parked. It decides nothing.\n" LOOKBACK_ORDER_HELP,
    .options = lookback_order_options,
    .example = "outbox-relay lookback retry --all --type order --state parked --dry-run",
    .run = run_lookback_retry,
};
