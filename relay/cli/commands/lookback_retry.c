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
    .summary = "Has the business asked anew, at once.",
    .description =
	"Puts overdue and parked ids to the front with their attempts counted from 0, and gives "
	"them as "
	"much time as they had until they are parked. It decides "
	"nothing.\n" LOOKBACK_ORDER_HELP,
    .options = lookback_order_options,
    .example = "outbox-relay lookback retry --all --type order --state parked --dry-run",
    .run = run_lookback_retry,
};
