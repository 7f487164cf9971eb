#pragma once
/* Manual pages of section 1, from the rows of the commands. */
#include "command.h"
#include "text.h"

/*
 * The name of a command's page: "outbox-relay-publisher-create", or the program's own if it has one
 * command.
 */
void manual_command_name(const struct command *command, struct text *out);
void manual_command(const struct command *command, struct text *out);
/* The page of a program with several commands. */
void manual_program(struct text *out);

/* Writes all pages into a folder, which it creates. False: *ret_error says why; the caller frees.
 */
bool manual_write(const char *folder, char **ret_error);
