#include "completion.h"

#include <stdio.h>
#include "cleanup.h"
#include "commands.h"

static int run_completion(const struct call *call)
{
	OWNED(text_finish) struct text script = {0};

	if (!completion_script(call->arguments[0], &script)) {
		fprintf(stderr,
		    "outbox-relay: no completion for the shell '%s'; there is one for bash, zsh "
		    "and fish\n",
		    call->arguments[0]);
		return EXIT_USAGE;
	}
	fputs(script.data, stdout);
	return 0;
}

const struct command command_completion = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Prints a script that completes commands and options in a shell.",
    .description =
	"The Debian package installs these scripts. To try one in the shell that you type in: "
	"`source <(outbox-relay completion bash)`, `source <(outbox-relay completion zsh)`, or "
	"`outbox-relay completion fish | source`.\n",
    .example = "outbox-relay completion bash",
    .run = run_completion,
};
