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
    .summary = "Resumes a paused publisher, or a paused topic.",
    .description =
	"Ends `publisher pause`: the owners of the shards continue within a second, where "
	"they stopped. With --topic, the parked messages of that topic are published first, in the "
	"order of each key. A publisher that is paused as a whole still has its paused topics "
	"after "
	"its resume.\n",
    .options = publisher_pause_options,
    .example = "outbox-relay publisher resume billing --reason repaired",
    .run = run_publisher_resume,
};
