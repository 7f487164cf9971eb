#include "field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"

/* --- values ---------------------------------------------------------------------------------- */

const char *field_or_dash(const struct pg_result *rows, int i, int column)
{
	return pg_is_null(rows, i, column) ? "-" : pg_value(rows, i, column);
}

const char *field_member(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value ? value : "-";
}

void field_print_json(const char *before, json_t *object, size_t flags, const char *after)
{
	fputs(before, stdout);
	json_dumpf(object, stdout, flags);
	fputs(after, stdout);
	json_decref(object);
}

int64_t field_number(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);
	const char *text = json_string_value(value);

	return text ? strtoll(text, NULL, 10) : json_integer_value(value);
}

static void print_member(const char *name, const json_t *value, int depth);

static void print_members(const json_t *value, int depth)
{
	const json_t *member;
	const char *name;
	size_t i;

	json_object_foreach((json_t *)value, name, member)
	{
		print_member(name, member, depth);
	}
	json_array_foreach(value, i, member)
	{
		print_member("-", member, depth);
	}
}

static void print_member(const char *name, const json_t *value, int depth)
{
	OWNED(text_finish) struct text line = {0};
	char *other;

	if (json_is_null(value))
		return;
	text_addf(&line, "%*s%-14s ", 2 * depth, "", name);
	if (json_is_object(value) || json_is_array(value)) {
		puts(text_string(&line));
		print_members(value, depth + 1);
		return;
	}
	other = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
	text_add_line(&line, other ? other : json_string_value(value));
	free(other);
	puts(text_string(&line));
}

void field_print_object(const json_t *object)
{
	print_members(object, 0);
}

void field_print(const char *name, const char *value)
{
	OWNED(text_finish) struct text line = {0};

	text_add_line(&line, value);
	printf("  %-12s %s\n", name, text_string(&line));
}

void field_print_column(const char *name, const struct pg_result *rows, int i, int column)
{
	if (!pg_is_null(rows, i, column))
		field_print(name, pg_value(rows, i, column));
}

void field_print_bytes(const char *name, const struct pg_result *rows, int i, int column)
{
	owned_text char *shown = NULL;
	bool is_text;

	if (!pg_is_null(rows, i, column))
		shown = field_bytes(pg_value(rows, i, column), false, &is_text);
	field_print(name, shown ? shown : "none");
}

/* --- a payload ------------------------------------------------------------------------------- */

void field_payload_print(const struct field_payload *payload)
{
	if (text_equal(payload->form, "null"))
		puts("  payload      null: a tombstone");
	else if (text_equal(payload->form, "hidden"))
		puts("  payload      this login or token may not read payloads");
	else
		printf("  payload      %zu bytes, as %s:\n%s\n", payload->bytes,
		    text_equal(payload->form, "text") ? "text" : "hexadecimal", payload->shown);
}

/* --- rows of outbox.audit -------------------------------------------------------------------- */

void field_print_audit(const json_t *audit)
{
	const json_t *row;
	size_t i;

	json_array_foreach(audit, i, row)
	{
		OWNED(text_finish) struct text line = {0};

		text_add_line(&line, field_member(row, "reason"));
		printf("  request %-4s %s by %s at %s: %s\n", field_member(row, "id"),
		    field_member(row, "verb"), field_member(row, "who"), field_member(row, "at"),
		    text_string(&line));
	}
}
