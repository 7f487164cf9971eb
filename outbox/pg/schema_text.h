#pragma once
/*
 * The schema's name is a setting, and our SQL is written with the name `outbox`. In such a text the
 * whole word outbox (without a letter, digit, _ or - next to it) is the schema, and the words
 * outbox_writer, outbox_consumer, outbox_relay and outbox_reader are its roles, whose names begin
 * with the schema's name.
 */
#include <stdbool.h>
#include "errors.h"

/*
 * A name is inserted as it is, in code, in quotes and in messages. So a schema's name is at most 40
 * of a-z, 0-9 and _, does not begin with a digit or pg_, and is no reserved word of SQL or
 * PL/pgSQL. The error says so and names `schema`.
 */
bool schema_text_check(const char *schema, struct err *err) MUST_CHECK;

/* Returns sql with the schema's name, which must have passed the check; the caller frees it. */
char *schema_text(const char *sql, const char *schema);
