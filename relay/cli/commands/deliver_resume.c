#include "commands.h"
#include "deliver_call.h"

static int run_deliver_resume(const struct call *call)
{
	return deliver_call_operate(call, "resume");
}

const struct command command_deliver_resume = {
    .name = "deliver resume",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Resumes a [deliver] section, and its blocked partitions.",
    .description =
	"Calls the process at [api] listen, with the first token that has the role operate for the "
	"section, and reaches the same processes as `deliver pause`. Partitions that are blocked "
	"try their message once more, also if the section is not paused.\n",
    .options = deliver_operate_options,
    .example = "outbox-relay deliver resume orders --reason repaired",
    .run = run_deliver_resume,
};
