#include "commands.h"
#include "publisher_call.h"

static int run_publisher_resume(const struct call *call)
{
	return publisher_call_pause(call, false);
}

const struct command command_publisher_resume = {
    .name = "publisher resume",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Resumes a paused publisher.",
    .description =
	"Ends `publisher pause`: the owners of the shards continue within a second, where "
	"they stopped.\n",
    .options = publisher_pause_options,
    .example = "outbox-relay publisher resume billing --reason repaired",
    .run = run_publisher_resume,
};
