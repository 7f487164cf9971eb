#include "commands.h"
#include "lookback_selection.h"
#include "lookback_selection_request.h"

static int run_lookback_retry(const struct call *call)
{
	return lookback_selection_request_run(call, SELECTION_RETRY);
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
	"nothing.\n" LOOKBACK_SELECTION_REQUEST_HELP,
    .options = lookback_selection_request_options,
    .run = run_lookback_retry,
};
