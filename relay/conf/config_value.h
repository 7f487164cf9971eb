#pragma once
/* One value of the configuration: from text into its member, and back for messages and pages. */
#include "config_rows.h"

/*
 * Checks the text against the row and stores it in the struct of the section (not for
 * CONFIG_SECTION and CONFIG_FILE). The error says what is wrong and the cure; the caller puts the
 * place before it.
 */
bool config_value_set(
    void *item, const struct config_row *row, const char *text, struct err *err) MUST_CHECK;
void config_value_free(void *item, const struct config_row *row);
bool config_value_equal(const void *a, const void *b, const struct config_row *row);

/* "100ms to 1h"; the choices as "drop | detach"; any other rule for the value. */
void config_value_describe(struct text *out, const struct config_row *row);
