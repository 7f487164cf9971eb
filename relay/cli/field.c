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

void field_payload_read(struct field_payload *payload, const char *hex)
{
	bool is_text;

	payload->bytes = strlen(hex) / 2;
	payload->shown = field_bytes(hex, true, &is_text);
	payload->form = is_text ? "text" : "hex";
}

void field_payload_finish(struct field_payload *payload)
{
	free(payload->shown);
}

void field_payload_print(const struct field_payload *payload)
{
	if (text_equal(payload->form, "null"))
		puts("  payload      null: a tombstone");
	else if (text_equal(payload->form, "hidden"))
		puts("  payload      this login may not read payloads");
	else
		printf("  payload      %zu bytes, as %s:\n%s\n", payload->bytes,
		    text_equal(payload->form, "text") ? "text" : "hexadecimal", payload->shown);
}

void field_payload_add_json(json_t *object, const struct field_payload *payload)
{
	json_object_set_new(object, "payload_form", json_string(payload->form));
	json_object_set_new(
	    object, "payload", payload->shown ? json_string(payload->shown) : json_null());
	json_object_set_new(object, "payload_bytes",
	    payload->shown ? json_integer((json_int_t)payload->bytes) : json_null());
}

/* --- rows of outbox.audit -------------------------------------------------------------------- */

enum { AUDIT_ID, AUDIT_AT, AUDIT_WHO, AUDIT_VERB, AUDIT_REASON };

void field_print_audit(const struct pg_result *audit)
{
	for (int i = 0; i < pg_rows(audit); i++) {
		OWNED(text_finish) struct text line = {0};

		text_add_line(&line, pg_value(audit, i, AUDIT_REASON));
		printf("  request %-4s %s by %s at %s: %s\n", pg_value(audit, i, AUDIT_ID),
		    pg_value(audit, i, AUDIT_VERB), pg_value(audit, i, AUDIT_WHO),
		    pg_value(audit, i, AUDIT_AT), text_string(&line));
	}
}

json_t *field_json_audit(const struct pg_result *audit)
{
	static const char *const names[] = {"id", "at", "who", "verb", "reason"};
	json_t *list = json_array();

	for (int i = 0; i < pg_rows(audit); i++) {
		json_t *object = json_object();

		for (int k = AUDIT_ID; k <= AUDIT_REASON; k++)
			json_object_set_new(object, names[k], field_json(audit, i, k));
		json_array_append_new(list, object);
	}
	return list;
}
