#include "commands.h"
#include "parked_call.h"

static int run_parked_retry(const struct call *call)
{
	return parked_call_request(call, PARKED_RETRY);
}

const struct command command_parked_retry = {
    .name = "parked retry",
    .arguments = "[ID…|TERM…]",
    .most_arguments = CALL_ARGUMENTS,
    .summary = "Requests another attempt for parked messages.",
    .description =
	"The command records a request for rows that are waiting, dead or stalled. The owner of "
	"the shard "
	"tries each of them again soon, alone, with its attempts counted from 0, and publishes "
	"the rows behind it once Kafka accepts it. A row in the state behind cannot be retried "
	"alone: its ID is refused, and TERMs leave such rows out and report their number. The same "
	"holds for a row whose topic is paused (`publisher pause --topic`).\n"
	"A request covers all given IDs or none, and is refused while another request covers one "
	"of them. It does not cover rows that are parked later. Many rows are retried in "
	"batches: `parked list` shows the progress.\n" PARKED_TERMS_HELP
	"--wait reports how many rows were published. It exits with 65 and Kafka's error if "
	"Kafka refuses a row again, and with 69 after the timeout; the request remains.\n",
    .options = parked_request_options,
    .example = "outbox-relay parked retry topic=orders --dry-run",
    .run = run_parked_retry,
};
