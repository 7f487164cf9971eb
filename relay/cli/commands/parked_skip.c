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
    .summary = "Asks for parked messages never to be published.",
    .description =
	"Notes a request for rows in any state: the relay takes them out of outbox.parked at its "
	"next "
	"look, and those behind them follow. Consumers never see them; `replay` can still send "
	"them "
	"while their partition stays. "
	"IDs are noted all or none, and not while another request means one of them. Rows parked "
	"after the request are not meant. Many rows are skipped in batches, and no parked row of "
	"the shard is retried until they are: `parked list` shows how far it "
	"is.\n" PARKED_TERMS_HELP
	"--wait tells when they are gone; a time that passes is an error (69), and the request "
	"stays "
	"noted.\n",
    .options = parked_request_options,
    .example = "outbox-relay parked skip 4711 --dry-run",
    .run = run_parked_skip,
};
