#pragma once
/* Completion of commands and options in a shell, from the rows of the commands. */
#include <stdbool.h>
#include "text.h"

/* shell: bash, zsh or fish. False: another one. */
bool completion_script(const char *shell, struct text *out);
