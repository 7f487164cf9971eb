#include "program.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include "call.h"
#include "cleanup.h"
#include "help.h"
#include "text.h"

static int print_help(const struct call *call)
{
	OWNED(text_finish) struct text out = {0};

	if (call->command)
		help_command(call->command, &out);
	else if (call->help)
		help_list(call->group, &out);
	else
		help_usage(&out);
	fputs(out.data, stdout);
	/* help that was asked for is a result; help instead of a command is an error */
	return call->help ? 0 : EXIT_USAGE;
}

static int usage_error(const struct call *call, const struct err *err)
{
	const char *name = call->command ? call->command->name : call->group;

	if (program_has_one_command())
		fprintf(
		    stderr, "%s: %s; see `%s --help`\n", program_name, err->message, program_name);
	else
		fprintf(stderr, "%s: %s; see `%s help%s%s`\n", program_name, err->message,
		    program_name, name ? " " : "", name ? name : "");
	return EXIT_USAGE;
}

/* If the result could not be written, the command has failed. */
static int close_output(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	fprintf(stderr, "%s: the output could not be written: %s\n", program_name, strerror(errno));
	return status ? status : EXIT_OUTPUT;
}

/*
 * Settings of jemalloc, which reads them before main. By default it has four arenas for each CPU,
 * so the memory of a drain would grow with the machine, and keeps freed memory for ten seconds.
 * MALLOC_CONF in the environment replaces single settings.
 */
extern const char *malloc_conf;
__attribute__((visibility("default"))) const char *malloc_conf =
    "narenas:4,dirty_decay_ms:1000,muzzy_decay_ms:0";

/*
 * librdkafka takes and frees some hundred kilobytes for every batch that it compresses. With
 * glibc's own limits each is given back to the kernel at once and faulted in again: a quarter of
 * its thread. jemalloc, which programs link by default, keeps freed memory for some seconds, and
 * these calls do not concern it.
 */
static void keep_freed_memory(void)
{
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	mallopt(M_TOP_PAD, 256 << 10);
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

int program_main(int argc, char **argv)
{
	struct call call;
	struct err err;

	keep_freed_memory();
	if (!call_parse(commands, argc, argv, &call, &err))
		return usage_error(&call, &err);

	/* a program with a single command runs it without any word */
	if (call.help || (argc == 1 && !program_has_one_command()))
		return close_output(print_help(&call));
	if (!call.command) {
		err_set(&err, ERR_REJECT, "name a command");
		return usage_error(&call, &err);
	}
	if ((call.server || call.token_file || call.server_ca) &&
	    !call_has_option(call.command, "server")) {
		err_set(&err, ERR_REJECT, "%s has no option '--%s': %s", call.command->name,
		    call.server       ? "server"
		    : call.token_file ? "token-file"
				      : "server-ca",
		    call.command->no_server ? call.command->no_server : "it works without a relay");
		return usage_error(&call, &err);
	}
	return close_output(call.command->run(&call));
}
