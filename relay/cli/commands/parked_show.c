#include <inttypes.h>
#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "parked_call.h"
#include "parked_print.h"
#include "parked_server.h"
#include "parked_show.h"

static bool show_parked_id(const struct call *call, struct parked *parked, struct err *err)
{
	owned_text char *nothing = NULL;
	json_t *shown;
	int64_t id;

	if (!parked_id(call->arguments[0], &id, err) || !parked_show(parked, id, true, &shown, err))
		return false;
	if (!shown) {
		nothing = parked_show_nothing(parked->publisher->name, id);
		return err_set(err, ERR_REJECT, "%s", nothing);
	}
	parked_print_shown(call, shown);
	return true;
}

static int run_parked_show(const struct call *call)
{
	if (server_is_used(call))
		return parked_server_show(call);
	return parked_call_run(call, show_parked_id);
}

static const struct command_option parked_show_options[] = {
    {"json", NULL, "One JSON object; 64-bit numbers are strings."},
    PARKED_PUBLISHER_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_parked_show = {
    .name = "parked show",
    .arguments = "ID",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Shows everything about one parked message.",
    .description =
	"Shows the row, the message that it waits behind, the number of messages behind it, the "
	"requests of operators with their reasons, and the payload: as text if it is printable, "
	"else in hexadecimal. The role `outbox_reader` sees everything except the payload. Over "
	"--server, headers and payload are shown to a token with the role `payload`.\n",
    .options = parked_show_options,
    .example = "outbox-relay parked show 4711",
    .run = run_parked_show,
};
