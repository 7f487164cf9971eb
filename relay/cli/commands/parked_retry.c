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
    .summary = "Asks for parked messages to be tried once more.",
    .description =
	"Notes a request for rows that are waiting or dead: the relay tries each again at its next "
	"look, alone, with its attempts counted from 0, and lets those behind it follow once Kafka "
	"takes it. A row behind another is not retried by itself: as an ID it is refused, by TERMs "
	"it "
	"is left out and counted.\n"
	"IDs are noted all or none, and not while another request means one of them. Rows parked "
	"after the request are not meant. Many rows are retried in batches: `parked list` shows "
	"how "
	"far it is.\n" PARKED_TERMS_HELP
	"--wait tells how many were published; a row that Kafka refused again is an error (65) "
	"with "
	"what Kafka said, a time that passes another (69), and the request stays noted.\n",
    .options = parked_request_options,
    .example = "outbox-relay parked retry topic=orders --dry-run",
    .run = run_parked_retry,
};
