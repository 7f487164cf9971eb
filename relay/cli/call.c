/*
 * call_parse takes a command line apart, word by word: parse_global takes what is allowed anywhere,
 * parse_command the name, parse_option and add_argument the rest.
 */
#include "call.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

const struct command *call_find(const struct command *const *rows, const char *name)
{
	for (; *rows; rows++)
		if (text_equal((*rows)->name, name))
			return *rows;
	return NULL;
}

/* Does a command begin with this word and go on with another? */
static bool is_group(const struct command *const *rows, const char *word)
{
	size_t length = strlen(word);

	for (; *rows; rows++)
		if (text_starts((*rows)->name, word) && (*rows)->name[length] == ' ')
			return true;
	return false;
}

struct suggestion call_suggest(const struct command *const *rows, const char *name)
{
	const char *second = strchr(name, ' ');
	size_t length = second ? (size_t)(second - name) + 1 : 0;
	struct suggestion nearest = suggestion_begin(name + length);

	for (; *rows; rows++) {
		char group[64];

		if (strncmp((*rows)->name, name, length) == 0)
			suggestion_offer(&nearest, (*rows)->name + length, (*rows)->name);
		snprintf(
		    group, sizeof group, "%.*s", (int)strcspn((*rows)->name, " "), (*rows)->name);
		/* with a second word the group is right already, so only its commands are
		 * offered */
		if (length == 0)
			suggestion_offer(&nearest, group, group);
	}
	return nearest;
}

static int option_place(const struct command *command, const char *name, size_t length)
{
	for (int i = 0; command->options && command->options[i].name; i++)
		if (strlen(command->options[i].name) == length &&
		    strncmp(command->options[i].name, name, length) == 0)
			return i;
	return -1;
}

static bool check_value(const struct command_option *option, const char *value, struct err *err)
{
	int64_t number;

	if (option->high > 0 && !text_to_int64(value, option->low, option->high, &number))
		return err_set(err, ERR_REJECT,
		    "--%s wants a number from %lld to %lld, not '%.80s'", option->name,
		    (long long)option->low, (long long)option->high, value);
	return true;
}

static void offer_option(struct suggestion *nearest, const struct command_option *option)
{
	owned_text char *shown = xformat("--%s", option->name);

	suggestion_offer(nearest, option->name, shown);
}

/* command NULL: the command line names none yet. */
static bool refuse_option(const struct command *command, const char *option, struct err *err)
{
	static const struct command_option everywhere[] = {{.name = "config"}, {.name = "help"}};
	owned_text char *word = xformat("%.*s", (int)strcspn(option, "="), option);
	struct suggestion nearest = suggestion_begin(word + strspn(word, "-"));

	for (size_t i = 0; i < sizeof everywhere / sizeof *everywhere; i++)
		offer_option(&nearest, &everywhere[i]);
	for (int i = 0; command && command->options && command->options[i].name; i++)
		offer_option(&nearest, &command->options[i]);
	if (!command)
		return err_set(
		    err, ERR_REJECT, "there is no option '%.80s'%s", option, nearest.note);
	return err_set(
	    err, ERR_REJECT, "%s has no option '%.80s'%s", command->name, option, nearest.note);
}

/* argv[*at] is an option after a command's name; moves *at to the last word that it took. */
static bool parse_option(struct call *call, int argc, char *const *argv, int *at, struct err *err)
{
	const char *name = text_equal(argv[*at], "-v") ? "version" : argv[*at] + 2;
	size_t length = strcspn(name, "=");
	const char *value = name[length] == '=' ? name + length + 1 : NULL;
	int place = option_place(call->command, name, length);
	const struct command_option *option;

	/* "-x" is no short form of "--x"; -v alone has one */
	if (place < 0 || (argv[*at][1] != '-' && !text_equal(argv[*at], "-v")))
		return refuse_option(call->command, argv[*at], err);
	option = &call->command->options[place];
	/* "" marks a switch that was given; NULL is the absent one */
	if (!option->value) {
		call->options[place] = "";
		return !value || err_set(err, ERR_REJECT, "--%s takes no value", option->name);
	}
	if (!value && *at + 1 >= argc)
		return err_set(
		    err, ERR_REJECT, "--%s wants a value: %s", option->name, option->value);
	call->options[place] = value ? value : argv[++*at];
	/* checked here, so that call_number cannot fail later */
	return check_value(option, call->options[place], err);
}

static const struct {
	const char *name, *value;
	size_t offset;
} globals[] = {
    {"--config", "FILE", offsetof(struct call, config)},
    {"--server", "URL", offsetof(struct call, server)},
    {"--token-file", "FILE", offsetof(struct call, token_file)},
    {"--server-ca", "FILE", offsetof(struct call, server_ca)},
};

/* The globals and --help, which are allowed anywhere. *ret_taken false: the word is something else.
 */
static bool parse_global(
    struct call *call, int argc, char *const *argv, int *at, bool *ret_taken, struct err *err)
{
	const char *word = argv[*at];

	*ret_taken = true;
	if (text_equal(word, "--help") || text_equal(word, "-h")) {
		call->help = true;
		return true;
	}
	for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
		const char **value = (const char **)((char *)call + globals[i].offset);
		size_t length = strlen(globals[i].name);

		if (!text_starts(word, globals[i].name) || (word[length] && word[length] != '='))
			continue;
		if (!word[length] && *at + 1 >= argc)
			return err_set(err, ERR_REJECT, "%s wants a value: %s", globals[i].name,
			    globals[i].value);
		*value = word[length] ? word + length + 1 : argv[++*at];
		return true;
	}
	*ret_taken = false;
	return true;
}

/* The first word, or the first two when they name a command of a group. */
static bool parse_command(
    struct call *call, const struct command *const *rows, const char *argument, struct err *err)
{
	bool version = text_equal(argument, "--version") || text_equal(argument, "-v");
	const char *word = version ? "version" : argument;
	char name[64];

	if (word[0] == '-')
		return refuse_option(NULL, word, err);

	/* the next word names the command of this group */
	if (!call->group && is_group(rows, word)) {
		call->group = word;
		return true;
	}
	if (call->group)
		snprintf(name, sizeof name, "%s %s", call->group, word);
	else
		snprintf(name, sizeof name, "%s", word);
	call->command = call_find(rows, name);
	return call->command || err_set(err, ERR_REJECT, "there is no command '%.60s'%s", name,
				    call_suggest(rows, name).note);
}

static bool add_argument(struct call *call, const char *word, struct err *err)
{
	int most = call->command->most_arguments;

	assert(most <= CALL_ARGUMENTS);
	/* CALL_ARGUMENTS as a maximum means any number, so the message says to call again */
	if (call->argument_count >= CALL_ARGUMENTS)
		return err_set(err, ERR_REJECT,
		    "%s takes %d arguments at most: go on in a second call", call->command->name,
		    CALL_ARGUMENTS);
	if (call->argument_count >= most)
		return err_set(
		    err, ERR_REJECT, "%s does not expect '%.80s'", call->command->name, word);
	call->arguments[call->argument_count++] = word;
	return true;
}

bool call_parse(const struct command *const *rows, int argc, char *const *argv,
    struct call *ret_call, struct err *err)
{
	struct call *call = ret_call;
	bool only_arguments = false, taken;

	*call = (struct call){.command = rows[1] ? NULL : rows[0]};
	for (int at = 1; at < argc; at++) {
		/* before a command "--" is a word like any other, and no command has that name */
		if (call->command && !only_arguments && text_equal(argv[at], "--")) {
			only_arguments = true;
			continue;
		}
		taken = false;
		if (!only_arguments && !parse_global(call, argc, argv, &at, &taken, err))
			return false;
		if (taken)
			continue;
		if (!call->command) {
			if (!parse_command(call, rows, argv[at], err))
				return false;
		} else if (!only_arguments && argv[at][0] == '-' && argv[at][1]) {
			if (!parse_option(call, argc, argv, &at, err))
				return false;
		} else if (!add_argument(call, argv[at], err)) {
			return false;
		}
	}

	/* with --help the group itself is described */
	if (call->group && !call->command && !call->help)
		return err_set(err, ERR_REJECT, "%s wants a second word", call->group);
	if (call->command && !call->help && call->argument_count < call->command->least_arguments)
		return err_set(
		    err, ERR_REJECT, "%s wants %s", call->command->name, call->command->arguments);
	return true;
}

const char *call_text(const struct call *call, const char *option, const char *otherwise)
{
	int place = option_place(call->command, option, strlen(option));

	assert(place >= 0);
	return call->options[place] ? call->options[place] : otherwise;
}

int64_t call_number(const struct call *call, const char *option, int64_t otherwise)
{
	const char *value = call_text(call, option, NULL);
	int64_t number = otherwise;

	if (value && !text_to_int64(value, INT64_MIN, INT64_MAX, &number))
		assert(!"the range was checked when the command line was parsed");
	return number;
}

bool call_has_option(const struct command *command, const char *option)
{
	return option_place(command, option, strlen(option)) >= 0;
}

bool call_flag(const struct call *call, const char *option)
{
	return call_text(call, option, NULL) != NULL;
}
