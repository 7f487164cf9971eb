/*
 * Manual pages: outbox-relay(1), and one page for each command, outbox-relay-publisher-create(1).
 * `meson install` and the packages take them from `outbox-relay help --man FOLDER`.
 */
#include "manual.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "cleanup.h"
#include "help.h"
#include "mdoc.h"

void manual_command_name(const struct command *command, struct text *out)
{
	text_add(out, program_name);
	if (program_has_one_command())
		return;
	text_add(out, "-");
	for (const char *at = command->name; *at; at++)
		text_addf(out, "%c", *at == ' ' ? '-' : *at);
}

static void add_synopsis(const struct command *command, struct text *out)
{
	mdoc_section(out, "synopsis");
	text_addf(out, ".Nm %s\n", program_name);
	if (!program_has_one_command())
		text_addf(out, ".Cm %s\n", command->name);
	for (int i = 0; command->options && command->options[i].name; i++) {
		const struct command_option *option = &command->options[i];

		text_addf(out, ".Op Fl \\-%s%s%s\n", option->name, option->value ? " Ar " : "",
		    option->value ? option->value : "");
	}
	if (command->arguments[0])
		text_addf(out, ".Ar \"%s\"\n", command->arguments);
}

static void add_manual_option(const struct command_option *option, struct text *out)
{
	OWNED(text_finish) struct text name = {0};

	help_option_name(option, &name);
	mdoc_list_term(out, text_string(&name));
	mdoc_sentences(out, option->help, strlen(option->help));
}

static void add_exits(struct text *out)
{
	mdoc_section(out, "exit status");
	mdoc_list_begin(out);
	for (const struct command_exit *row = command_exits; row->meaning; row++) {
		char status[16];

		snprintf(status, sizeof status, "%d", row->status);
		mdoc_list_term(out, status);
		mdoc_sentences(out, row->meaning, strlen(row->meaning));
	}
	mdoc_list_end(out);
}

void manual_command(const struct command *command, struct text *out)
{
	OWNED(text_finish) struct text name = {0};

	manual_command_name(command, &name);
	mdoc_begin(out, text_string(&name), 1, command->summary);
	add_synopsis(command, out);
	mdoc_section(out, "description");
	mdoc_sentences(out, command->summary, strlen(command->summary));
	if (command->description[0])
		text_add(out, ".Pp\n");
	mdoc_markdown(out, command->description);

	mdoc_section(out, "options");
	mdoc_list_begin(out);
	for (int i = 0; command->options && command->options[i].name; i++)
		add_manual_option(&command->options[i], out);
	add_manual_option(&help_config_option, out);
	mdoc_list_end(out);
	add_exits(out);
	mdoc_section(out, "examples");
	mdoc_line_to_type(out, command->example);
	mdoc_section(out, "see also");
	if (!program_has_one_command())
		mdoc_reference(out, "outbox-relay", 1);
	mdoc_reference(out, "outbox-relay.ini", 5);
}

void manual_program(struct text *out)
{
	mdoc_begin(out, program_name, 1, help_summary);
	mdoc_section(out, "synopsis");
	text_addf(
	    out, ".Nm %s\n.Op Fl \\-config Ar FILE\n.Ar COMMAND\n.Op Ar OPTIONS\n", program_name);
	mdoc_section(out, "description");
	mdoc_markdown(out, help_introduction);
	mdoc_section(out, "commands");
	mdoc_list_begin(out);
	for (const struct command *const *row = commands; *row; row++) {
		OWNED(text_finish) struct text name = {0};

		manual_command_name(*row, &name);
		mdoc_list_term(out, (*row)->name);
		mdoc_sentences(out, (*row)->summary, strlen((*row)->summary));
		text_add(out, "See\n");
		mdoc_reference(out, text_string(&name), 1);
	}
	mdoc_list_end(out);
	add_exits(out);
	mdoc_section(out, "see also");
	mdoc_reference(out, "outbox-relay.ini", 5);
}

/* False: errno says why. */
static bool write_page(const char *folder, const char *name, const struct text *page)
{
	owned_text char *path = xformat("%s/%s.1", folder, name);
	FILE *file = fopen(path, "w");
	bool written;

	if (!file)
		return false;
	written = fwrite(page->data, 1, page->length, file) == page->length;
	return fclose(file) == 0 && written;
}

bool manual_write(const char *folder, char **ret_error)
{
	OWNED(text_finish) struct text page = {0};
	bool written = mkdir(folder, 0755) == 0 || errno == EEXIST;

	if (written && !program_has_one_command()) {
		manual_program(&page);
		written = write_page(folder, program_name, &page);
	}
	for (const struct command *const *row = commands; *row && written; row++) {
		OWNED(text_finish) struct text name = {0};

		text_clear(&page);
		manual_command(*row, &page);
		manual_command_name(*row, &name);
		written = write_page(folder, text_string(&name), &page);
	}
	*ret_error = written ? NULL : xformat("cannot write to %s: %s", folder, strerror(errno));
	return written;
}
