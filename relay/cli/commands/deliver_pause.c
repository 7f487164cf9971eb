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
	"section. If that process has a [postgres] section, the pause is stored in the database of "
	"the first one: every process with the same first database heeds it within a second, also "
	"after a restart, until `deliver resume`. The process that takes the order need not run "
	"the "
	"section. Without a [postgres] section only that process pauses, until it ends.\n"
	"A paused section delivers the messages that it has in memory and keeps its partitions, "
	"but "
	"takes no new messages.\n",
    .options = deliver_operate_options,
    .example = "outbox-relay deliver pause orders --reason maintenance",
    .run = run_deliver_pause,
};
