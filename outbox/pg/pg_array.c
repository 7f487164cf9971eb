#include "pg_array.h"
#include <assert.h>
#include <string.h>

static void begin_element(struct pg_array *array)
{
	assert(!array->ended);
	text_append(&array->text, array->text.length ? "," : "{", 1);
}

void pg_array_add_text(struct pg_array *array, const char *text)
{
	begin_element(array);
	if (!text) {
		text_add(&array->text, "NULL");
		return;
	}

	text_append(&array->text, "\"", 1);
	while (*text) {
		/* Within quotes only these two characters have a meaning. */
		size_t plain = strcspn(text, "\"\\");
		text_append(&array->text, text, plain);
		text += plain;
		if (*text) {
			const char escaped[] = {'\\', *text++};
			text_append(&array->text, escaped, sizeof escaped);
		}
	}
	text_append(&array->text, "\"", 1);
}

void pg_array_add_int(struct pg_array *array, int64_t value)
{
	char digits[20];
	begin_element(array);
	text_append(&array->text, digits, (size_t)(text_write_int64(digits, value) - digits));
}

const char *pg_array_end(struct pg_array *array)
{
	if (!array->ended)
		text_add(&array->text, array->text.length ? "}" : "{}");
	array->ended = true;
	return text_string(&array->text);
}

void pg_array_clear(struct pg_array *array)
{
	text_clear(&array->text);
	array->ended = false;
}

void pg_array_finish(struct pg_array *array)
{
	text_finish(&array->text);
	array->ended = false;
}
