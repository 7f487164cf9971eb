#pragma once
/*
 * The schema's name is a setting, and all SQL is written with the name `outbox`. In a text of ours
 * the whole word outbox (no letter, digit, _ or - beside it) is the schema, and the words
 * outbox_writer, outbox_consumer, outbox_relay and outbox_reader are its roles, whose names begin
 * with the schema's.
 */
#include <stdbool.h>
#include "errors.h"

/*
 * Names are put in as they are, so that they serve in code, in quotes and in messages alike: a
 * schema's name is at most 40 of a-z, 0-9 and _, does not begin with a digit or pg_, and is no
 * reserved word of SQL or PL/pgSQL. The error says so and names `schema`.
 */
bool schema_text_check(const char *schema, struct err *err) MUST_CHECK;

/* The text with the schema's name in it, which must have passed the check; the caller frees. */
char *schema_text(const char *sql, const char *schema);
