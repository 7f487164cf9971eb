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
	"Asks the process at [api] listen, with the first of operate_tokens. What it has in memory "
	"is delivered, its partitions stay its own, and nothing new is taken until `deliver "
	"resume`, or until the process ends. Other processes that run the section go on with "
	"their partitions.\n",
    .options = deliver_operate_options,
    .example = "outbox-relay deliver pause orders --reason maintenance",
    .run = run_deliver_pause,
};
