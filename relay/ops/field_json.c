#include "field_json.h"

#include <string.h>
#include "cleanup.h"
#include "text.h"

/* --- bytes ----------------------------------------------------------------------------------- */

static unsigned hex_value(char c)
{
	return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static bool is_printable(const char *bytes, size_t length, bool lines)
{
	json_t *utf8 = json_stringn(bytes, length);
	bool good = utf8 != NULL;

	json_decref(utf8);
	for (size_t i = 0; good && i < length; i++)
		good = !text_is_control(bytes + i) ||
		       (lines && (bytes[i] == '\n' || bytes[i] == '\t'));
	return good;
}

char *field_bytes(const char *hex, bool lines, bool *ret_is_text)
{
	size_t length = strlen(hex) / 2;
	char *bytes = xmalloc(length + 1);

	for (size_t i = 0; i < length; i++)
		bytes[i] = (char)(hex_value(hex[2 * i]) << 4 | hex_value(hex[2 * i + 1]));
	bytes[length] = '\0';
	/* text that begins with \x would read as hexadecimal when it is given back as key= */
	*ret_is_text =
	    length > 0 && is_printable(bytes, length, lines) && !text_starts(bytes, "\\x");
	if (*ret_is_text)
		return bytes;
	free(bytes);
	return xformat("\\x%s", hex);
}

/* --- values ---------------------------------------------------------------------------------- */

json_t *field_json(const struct pg_result *rows, int i, int column)
{
	return pg_is_null(rows, i, column) ? json_null() : json_string(pg_value(rows, i, column));
}

json_t *field_json_number(const struct pg_result *rows, int i, int column)
{
	return pg_is_null(rows, i, column) ? json_null() : json_integer(pg_int(rows, i, column));
}

json_t *field_json_parsed(const struct pg_result *rows, int i, int column)
{
	return pg_is_null(rows, i, column) ? json_null()
					   : json_loads(pg_value(rows, i, column), 0, NULL);
}

json_t *field_json_bytes(const struct pg_result *rows, int i, int column)
{
	owned_text char *shown = NULL;
	bool is_text;

	if (!pg_is_null(rows, i, column))
		shown = field_bytes(pg_value(rows, i, column), false, &is_text);
	return shown ? json_string(shown) : json_null();
}

json_t *field_json_texts(
    const struct pg_result *rows, int i, const struct field_column *columns, size_t count)
{
	json_t *object = json_object();

	for (size_t k = 0; k < count; k++)
		json_object_set_new(
		    object, columns[k].name, field_json(rows, i, columns[k].column));
	return object;
}

json_t *field_json_numbers_as_text(json_t *value)
{
	const char *name;
	json_t *member;
	size_t index;
	void *next;

	json_object_foreach_safe(value, next, name, member)
	    json_object_set_new(value, name, field_json_numbers_as_text(json_incref(member)));
	json_array_foreach(value, index, member)
	    json_array_set_new(value, index, field_json_numbers_as_text(json_incref(member)));

	if (json_is_integer(value)) {
		json_t *text = json_sprintf("%" JSON_INTEGER_FORMAT, json_integer_value(value));

		json_decref(value);
		return text;
	}
	return value;
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

void field_payload_add_json(json_t *object, const struct field_payload *payload)
{
	json_object_set_new(object, "payload_form", json_string(payload->form));
	json_object_set_new(
	    object, "payload", payload->shown ? json_string(payload->shown) : json_null());
	json_object_set_new(object, "payload_bytes",
	    payload->shown ? json_integer((json_int_t)payload->bytes) : json_null());
}

/* --- rows of outbox.audit -------------------------------------------------------------------- */

json_t *field_json_audit(const struct pg_result *audit)
{
	static const struct field_column texts[] = {
	    {"id", 0}, {"at", 1}, {"who", 2}, {"verb", 3}, {"reason", 4}};
	json_t *list = json_array();

	for (int i = 0; i < pg_rows(audit); i++)
		json_array_append_new(list, FIELD_JSON_TEXTS(audit, i, texts));
	return list;
}
