#pragma once
/*
 * Commands are rows. The help, docs/reference/commands.md and the parsing of the command line come
 * from them; each has a file of its own in relay/cli/commands. CONTRIBUTING.md says how to add one.
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"

struct call;

struct command_option {
	const char *name;  /* "shards", given as --shards N or --shards=N */
	const char *value; /* placeholder of its value: "N"; NULL: a switch */
	const char *help;
	int64_t low, high; /* of a number; high 0: it is text */
};

struct command {
	const char *name;      /* "publisher create" */
	const char *arguments; /* "NAME"; "" for none */
	int least_arguments, most_arguments;
	const char *summary;                  /* one line */
	const char *description;              /* paragraphs, each one line ended by \n */
	const char *example;                  /* one command line that works */
	const struct command_option *options; /* ended by a row without a name; NULL: none */
	const char *no_server; /* the reason why --server is refused, and the cure; NULL: it needs
				  no relay */
	/*
	 * Returns the exit status. Results go to stdout, one line to stderr says why it failed.
	 */
	int (*run)(const struct call *call);
};

/*
 * Each program defines these. A program with a single command has no word for it: in
 * "outbox-relay-bench drain" the word is an argument.
 */
extern const char program_name[];
extern const struct command *const commands[]; /* ended by NULL, in the order of the help */
static inline bool program_has_one_command(void)
{
	return !commands[1];
}

/*
 * Headings of the list of commands, each above the command that it names; in the order of the
 * commands, ended by a row without a text. None in a program with one command.
 */
struct command_heading {
	const char *text;
	const struct command *first;
};
extern const struct command_heading command_headings[];

/* The exit statuses of every command, as they are documented. */
enum {
	EXIT_FOUND = 1,  /* a check found something */
	EXIT_USAGE = 64, /* the command line is wrong */
	EXIT_OUTPUT = 74 /* the output could not be written */
};
struct command_exit {
	int status;
	const char *meaning;
};
extern const struct command_exit command_exits[]; /* ended by a row without a meaning */
