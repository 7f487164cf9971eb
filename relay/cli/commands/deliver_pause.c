#include "commands.h"
#include "deliver_call.h"

static int run_deliver_pause(const struct call *call)
{
	return deliver_call_operate(call, "pause");
}

const struct command command_deliver_pause = {
    .name = "deliver pause",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Stops a [deliver] section from taking new messages.",
    .description =
	"Calls the process at [api] listen, with the first token that has the role operate for the "
	"section. The process "
	"delivers the messages that it has in memory and keeps its partitions, but takes no new "
	"messages until `deliver resume` or its own end. Other processes that run the section "
	"continue with their partitions.\n",
    .options = deliver_operate_options,
    .example = "outbox-relay deliver pause orders --reason maintenance",
    .run = run_deliver_pause,
};
