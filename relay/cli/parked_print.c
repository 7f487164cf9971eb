#include "parked_print.h"

#include <string.h>
#include "cleanup.h"

/* --- bytes ----------------------------------------------------------------------------------- */

static unsigned digit(char c)
{
	return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static bool is_control(const unsigned char *at, bool lines)
{
	if (lines && (*at == '\n' || *at == '\t'))
		return false;
	/* C1, as UTF-8 has it */
	return *at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
}

static bool is_printable(const char *bytes, size_t length, bool lines)
{
	json_t *utf8 = json_stringn(bytes, length);
	bool good = utf8 != NULL;

	json_decref(utf8);
	for (size_t i = 0; good && i < length; i++)
		good = !is_control((const unsigned char *)bytes + i, lines);
	return good;
}

char *parked_bytes(const char *hex, bool lines, bool *ret_is_text)
{
	size_t length = strlen(hex) / 2;
	char *bytes = xmalloc(length + 1);

	for (size_t i = 0; i < length; i++)
		bytes[i] = (char)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
	bytes[length] = '\0';
	*ret_is_text =
	    length > 0 && is_printable(bytes, length, lines) && !text_starts(bytes, "\\x");
	if (*ret_is_text)
		return bytes;
	free(bytes);
	return xformat("\\x%s", hex);
}

void parked_add_line(struct text *out, const char *line)
{
	for (; *line; line++)
		text_append(out, is_control((const unsigned char *)line, false) ? " " : line, 1);
}

/* --- rows ------------------------------------------------------------------------------------ */

static const char *or_dash(const struct pg_result *rows, int i, int column)
{
	return pg_is_null(rows, i, column) ? "-" : pg_value(rows, i, column);
}

void parked_add_row(struct text *out, const struct pg_result *rows, int i)
{
	bool is_text;
	owned_text char *key = pg_is_null(rows, i, PARKED_KEY)
				   ? xstrdup("-")
				   : parked_bytes(pg_value(rows, i, PARKED_KEY), false, &is_text);

	text_addf(out, "id %s  %s  key=%s  %s  attempts=%s  next=%s  parked=%s  request=%s  error=",
	    pg_value(rows, i, PARKED_ID), pg_value(rows, i, PARKED_TOPIC), key,
	    pg_value(rows, i, PARKED_STATE), pg_value(rows, i, PARKED_ATTEMPTS),
	    or_dash(rows, i, PARKED_NEXT_AT), pg_value(rows, i, PARKED_SINCE),
	    or_dash(rows, i, PARKED_REQUEST));
	parked_add_line(out, or_dash(rows, i, PARKED_ERROR));
	text_add(out, "\n");
}

json_t *parked_json_text(const struct pg_result *rows, int i, int column)
{
	return pg_is_null(rows, i, column) ? json_null() : json_string(pg_value(rows, i, column));
}

json_t *parked_row_json(const struct pg_result *rows, int i)
{
	static const struct {
		const char *name;
		enum parked_column column;
	} texts[] = {{"id", PARKED_ID}, {"topic", PARKED_TOPIC}, {"state", PARKED_STATE},
	    {"next_at", PARKED_NEXT_AT}, {"error", PARKED_ERROR}, {"parked_at", PARKED_SINCE},
	    {"request", PARKED_REQUEST}, {"request_id", PARKED_REQUEST_ID}};
	json_t *object = json_object();
	owned_text char *key = NULL;
	bool is_text;

	for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
		json_object_set_new(
		    object, texts[k].name, parked_json_text(rows, i, (int)texts[k].column));
	if (!pg_is_null(rows, i, PARKED_KEY))
		key = parked_bytes(pg_value(rows, i, PARKED_KEY), false, &is_text);
	json_object_set_new(object, "key", key ? json_string(key) : json_null());
	json_object_set_new(object, "attempts", json_integer(pg_int(rows, i, PARKED_ATTEMPTS)));
	return object;
}
