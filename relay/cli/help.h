#pragma once
/* Help from the rows of the commands. */
#include "command.h"
#include "text.h"

/* A description of the program in one sentence, and of its command line. */
extern const char help_summary[];
extern const char help_introduction[];
/* An option of every command. */
extern const struct command_option help_config_option;
/* "--shards N", or "--json" of a switch. */
void help_option_name(const struct command_option *option, struct text *out);

/* One command's, on a terminal of 80 columns. */
void help_command(const struct command *command, struct text *out);
/* How the program is called, and the names of its commands under their headings. */
void help_usage(struct text *out);
/* All commands, or those of a group ("publisher"); NULL: all. False: no command has that name. */
bool help_list(const char *group, struct text *out);
/* One command's, as a part of a page of documentation. */
void help_markdown_command(const struct command *command, struct text *out);
/* docs/reference/commands.md */
void help_markdown(struct text *out);
