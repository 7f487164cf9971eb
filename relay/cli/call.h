#pragma once
/*
 * One command line, taken apart by the rows of the commands. Strings belong to argv.
 *
 *   outbox-relay [--config FILE] [--server URL] command [arguments and options in any order]
 */
#include "command.h"
#include "suggestion.h"

enum { CALL_OPTIONS = 32, CALL_ARGUMENTS = 10000 };

struct call {
	const struct command *command; /* NULL: none was named */
	const char *group;  /* "publisher", of "publisher create"; NULL: a command of one word */
	const char *config; /* --config; NULL: not given, as the next three */
	const char *server, *token_file, *server_ca;
	bool help; /* --help or -h */
	const char *arguments[CALL_ARGUMENTS];
	int argument_count;
	const char *options[CALL_OPTIONS]; /* values, by the option's place in the row; "" switch */
};

/* rows ends with NULL. No word names the command of a single row. ERR_REJECT: the command line is
 * wrong. */
bool call_parse(const struct command *const *rows, int argc, char *const *argv,
    struct call *ret_call, struct err *err) MUST_CHECK;

/* The row of "publisher create"; a name in one or two words. NULL: none. */
const struct command *call_find(const struct command *const *rows, const char *name);

/* The command or group that is nearest to a name that call_find does not find. */
struct suggestion call_suggest(const struct command *const *rows, const char *name);

/* Has the command an option of this name in its row? */
bool call_has_option(const struct command *command, const char *option);
/* The option must be in the command's row. */
const char *call_text(const struct call *call, const char *option, const char *otherwise);
int64_t call_number(const struct call *call, const char *option, int64_t otherwise);
bool call_flag(const struct call *call, const char *option);
