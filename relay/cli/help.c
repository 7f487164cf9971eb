/*
 * Prints the help of the commands from their rows: the short usage, the help of one command, all
 * commands, and the reference page (help_markdown).
 */
#include "help.h"

#include <string.h>
#include "cleanup.h"

enum { WIDTH = 80, NAME_WIDTH = 24 };

const struct command_exit command_exits[] = {
    {0, "Success. For `run`: SIGTERM or SIGINT, and a clean handover (`run --drain`: everything "
	"is published)."},
    {EXIT_FOUND, "A check found something: `doctor` a failure, `verify` a broken promise, `dedup "
		 "verify` a damaged file, `migrate status` a pending or changed migration."},
    {EXIT_USAGE, "The command line is wrong, or names no command."},
    {65, "Refused: the same call will be refused again. The message says what to change."},
    {69, "Postgres or Kafka does not answer in time, or a signal ended `run --drain`: the same "
	 "call may succeed later. Or --wait reached its timeout, and the request remains."},
    {70, "Internal error, with the message of the server or library."},
    {EXIT_OUTPUT, "The output could not be written (a full disk, a closed pipe)."},
    {75, "Another process holds what the command needs, such as a shard or a replay: the same "
	 "call may succeed later. For `run`: it ended before it had handed a shard over."},
    {77, "A password is wrong, or a privilege is missing."},
    {78, "The configuration is wrong, an address is occupied, or the schema does not fit this "
	 "program."},
    {0, NULL},
};

/* How wide a terminal shows the bytes: a character of UTF-8, such as …, has several. */
static int columns_of(const char *bytes, size_t length)
{
	int columns = 0;

	for (size_t i = 0; i < length; i++)
		columns += (bytes[i] & 0xC0) != 0x80; /* a character begins */
	return columns;
}

/*
 * Wraps the words of one paragraph, from the column `indent` on. The current line is at `column`.
 */
static void wrap_words(struct text *out, const char *words, size_t length, int indent, int column)
{
	while (length > 0) {
		size_t word = 0;

		while (word < length && words[word] != ' ')
			word++;

		int width = columns_of(words, word);
		/* a word that is longer than the line stays whole: a command must be copied as
		 * one */
		if (column > indent && column + 1 + width > WIDTH) {
			text_addf(out, "\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			text_add(out, " ");
			column++;
		}
		text_append(out, words, word);
		column += width;
		words += word;
		length -= word;
		if (length > 0) {
			words++;
			length--;
		}
	}
	text_add(out, "\n");
}

static void add_usage(const struct command *command, struct text *out)
{
	text_add(out, program_name);
	if (!program_has_one_command())
		text_addf(out, " %s", command->name);
	for (int i = 0; command->options && command->options[i].name; i++) {
		const struct command_option *option = &command->options[i];

		text_addf(
		    out, option->value ? " [--%s %s]" : " [--%s]", option->name, option->value);
	}
	if (command->arguments[0])
		text_addf(out, " %s", command->arguments);
}

void help_option_name(const struct command_option *option, struct text *out)
{
	text_addf(out, option->value ? "--%s %s" : "--%s", option->name, option->value);
}

static void help_option(const struct command_option *option, struct text *out)
{
	OWNED(text_finish) struct text name = {0};

	help_option_name(option, &name);

	int width = columns_of(text_string(&name), name.length);
	int padding = width < NAME_WIDTH ? NAME_WIDTH - width : 0;

	text_addf(out, "  %s%*s  ", text_string(&name), padding, "");
	/* a long name pushes the help to the right on its first line only */
	wrap_words(out, option->help, strlen(option->help), NAME_WIDTH + 4, width + padding + 4);
}

static void add_example(const char *example, struct text *out)
{
	text_addf(out, "\nExample:\n  %s\n", example);
}

const struct command_option help_config_option = {"config", "FILE",
    "Configuration file (default: OUTBOX_RELAY_CONFIG, else only the "
    "environment)."};

void help_command(const struct command *command, struct text *out)
{
	OWNED(text_finish) struct text line = {0};

	add_usage(command, &line);
	text_add(out, "Usage: ");
	wrap_words(out, line.data, line.length, 7, 7);
	text_addf(out, "\n%s\n", command->summary);
	for (const char *at = command->description; *at;) {
		size_t length = strcspn(at, "\n");

		text_add(out, "\n");
		wrap_words(out, at, length, 0, 0);
		at += length + (at[length] == '\n');
	}
	text_add(out, "\n");
	for (int i = 0; command->options && command->options[i].name; i++)
		help_option(&command->options[i], out);
	help_option(&help_config_option, out);
	add_example(command->example, out);
}

static bool is_in_group(const struct command *command, const char *group)
{
	size_t length = group ? strlen(group) : 0;

	return !group || (text_starts(command->name, group) &&
			     (command->name[length] == ' ' || command->name[length] == '\0'));
}

static void help_tail(struct text *out)
{
	text_add(out, "\nExit status:\n");
	for (const struct command_exit *row = command_exits; row->meaning; row++) {
		text_addf(out, "  %2d  ", row->status);
		wrap_words(out, row->meaning, strlen(row->meaning), 6, 6);
	}
}

#define SUMMARY "Publishes the rows of a message table in PostgreSQL to Kafka."
const char help_summary[] = SUMMARY;
static const char usage_head[] =
    "Usage: outbox-relay [--config FILE] COMMAND [OPTIONS]\n\n" SUMMARY "\n\n";
static const char usage_example[] = "outbox-relay migrate up -h";

static const struct command_heading *heading_above(const struct command *command)
{
	for (const struct command_heading *heading = command_headings; heading->text; heading++)
		if (heading->first == command)
			return heading;
	return NULL;
}

/* "run", "migrate up"; a later command of the same group adds "|status". */
static void add_short_name(const struct command *const *row, bool first, struct text *out)
{
	const char *name = row[0]->name;
	size_t length = strcspn(name, " ") + 1;

	if (!first && strncmp(row[-1]->name, name, length) == 0)
		text_addf(out, "|%s", name + length);
	else
		text_addf(out, "%s%s", first ? "" : ", ", name);
}

void help_usage(struct text *out)
{
	OWNED(text_finish) struct text names = {0};

	text_add(out, usage_head);
	for (const struct command *const *row = commands; *row; row++) {
		const struct command_heading *heading = heading_above(*row);

		if (heading)
			text_addf(out, "  %-11s", heading->text);
		add_short_name(row, heading, &names);
		/* names are collected up to the last command below a heading, and wrapped
		 * together */
		if (row[1] && !heading_above(row[1]))
			continue;
		wrap_words(out, names.data, names.length, 13, 13);
		text_clear(&names);
	}
	text_add(out, "\n`outbox-relay help` describes all commands, `outbox-relay COMMAND -h` "
		      "one.\n");
	add_example(usage_example, out);
}

bool help_list(const char *group, struct text *out)
{
	const char *example = NULL;

	if (group)
		text_addf(
		    out, "Usage: outbox-relay [--config FILE] %s COMMAND [OPTIONS]\n\n", group);
	else
		text_add(out, usage_head);
	for (const struct command *const *row = commands; *row; row++) {
		const struct command_heading *heading = group ? NULL : heading_above(*row);

		if (!is_in_group(*row, group))
			continue;
		if (heading)
			text_addf(out, "%s%s:\n", *row == commands[0] ? "" : "\n", heading->text);
		text_addf(out, "  %-19s", (*row)->name);
		wrap_words(out, (*row)->summary, strlen((*row)->summary), 21, 21);
		example = example ? example : (*row)->example;
	}
	if (!group)
		help_tail(out);
	text_add(out, "\n`outbox-relay COMMAND -h` describes one command.\n");
	add_example(group && example ? example : usage_example, out);
	return example;
}

void help_markdown_command(const struct command *command, struct text *out)
{
	if (!program_has_one_command())
		text_addf(out, "## %s\n\n", command->name);
	text_addf(out, "%s\n\n```\n", command->summary);
	add_usage(command, out);
	text_add(out, "\n```\n\n");
	for (const char *at = command->description; *at;) {
		size_t length = strcspn(at, "\n");

		text_append(out, at, length);
		text_add(out, "\n\n");
		at += length + (at[length] == '\n');
	}
	text_addf(out, "Example: `%s`\n\n", command->example);
	if (!command->options)
		return;
	text_add(out, "| option | |\n|---|---|\n");
	for (int i = 0; command->options[i].name; i++) {
		OWNED(text_finish) struct text name = {0};

		help_option_name(&command->options[i], &name);
		/* a bar would end the cell of the table, even within backquotes */
		for (size_t at = 0; at < name.length; at++)
			text_addf(out, "%s%s%c", at ? "" : "| `", name.data[at] == '|' ? "\\" : "",
			    name.data[at]);
		text_addf(out, "` | %s |\n", command->options[i].help);
	}
	text_add(out, "\n");
}

const char help_introduction[] =
    "One program, `outbox-relay [--config FILE] COMMAND`. Its configuration comes from "
    "the file that `--config` or `OUTBOX_RELAY_CONFIG` names, and from the environment "
    "([configuration](configuration.md)). Without a command the program prints a short "
    "usage and exits with 64. `-h`, `--help` and `help` print help, `-v`, `--version` "
    "and `version` print the version, and both exit with 0. Commands that have `--server URL` "
    "can send their request to the [HTTP interface](api.md#the-command-line) of a relay "
    "instead of the database.\n";

void help_markdown(struct text *out)
{
	text_addf(out,
	    "# Commands\n"
	    "\n"
	    "<!-- Written by `outbox-relay help --markdown`. -->\n"
	    "\n"
	    "%s\n"
	    "| command | |\n"
	    "|---|---|\n",
	    help_introduction);
	for (const struct command *const *row = commands; *row; row++)
		text_addf(out, "| `%s` | %s |\n", (*row)->name, (*row)->summary);
	text_add(out, "\n");

	for (const struct command *const *row = commands; *row; row++)
		help_markdown_command(*row, out);

	text_add(out, "## Exit status\n\n| status | |\n|---|---|\n");
	for (const struct command_exit *row = command_exits; row->meaning; row++)
		text_addf(out, "| %d | %s |\n", row->status, row->meaning);
}
