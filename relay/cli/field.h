#pragma once
/* Values of a result as people and programs read them. */
#include "field_json.h"
#include "text.h"

/* "-" for null. */
const char *field_or_dash(const struct pg_result *rows, int i, int column);

/* The text of a member; "-": it is null, or not there. */
const char *field_member(const json_t *object, const char *name);
/* A number, or a text that holds one; 0: there is none. */
int64_t field_number(const json_t *object, const char *name);

/* Prints JSON between two texts, and gives up the object. flags: of json_dumps. */
void field_print_json(const char *before, json_t *object, size_t flags, const char *after);

/* Prints each member on a line of its own, those of a member below it. Null prints nothing. */
void field_print_object(const json_t *object);
/* Prints a line "  name         value". A null column prints no line, except for bytes. */
void field_print(const char *name, const char *value);
void field_print_column(const char *name, const struct pg_result *rows, int i, int column);
void field_print_bytes(const char *name, const struct pg_result *rows, int i, int column);

void field_payload_print(const struct field_payload *payload);

/* Rows as field_json_audit makes them. */
void field_print_audit(const json_t *audit);
