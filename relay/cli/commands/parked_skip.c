#include "commands.h"
#include "parked_call.h"

static int run_parked_skip(const struct call *call)
{
	return parked_call_request(call, PARKED_SKIP);
}

const struct command command_parked_skip = {
    .name = "parked skip",
    .arguments = "[ID…|TERM…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Requests that parked messages are never published.",
    .description =
	"The command records a request for rows in any state. The owner of the shard soon "
	"removes them from outbox.parked, and publishes the rows behind them. Consumers never "
	"see the skipped rows; `replay` can still send them while their partition exists. A "
	"request covers all given IDs or none, and is refused while another request covers one "
	"of them. It does not cover rows that are parked later. Many rows are skipped in "
	"batches, and meanwhile no parked row of the shard is retried: `parked list` shows the "
	"progress.\n" PARKED_TERMS_HELP
	"--wait returns when the rows are gone. It exits with 69 after the timeout; the request "
	"remains.\n",
    .options = parked_request_options,
    .example = "outbox-relay parked skip 4711 --dry-run",
    .run = run_parked_skip,
};
