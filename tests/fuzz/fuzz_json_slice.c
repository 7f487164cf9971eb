/*
 * Any text that is a JSON object is cut into the texts of its members and elements, and each of
 * those is JSON as well: the same value that a parser finds. Any bytes are the value of a header.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "json_slice.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check_slice(const json_t *value, const char *slice, size_t length)
{
	json_error_t why;
	require(slice && length > 0);
	json_t *again = json_loadb(slice, length,
	    JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL,
	    &why);

	/* numbers beyond a double are passed on as text */
	if (again)
		require(json_typeof(again) == json_typeof(value) || json_is_number(value));
	else
		require(why.text[0]);
	json_decref(again);
}

static void check_elements(const json_t *array, const char *slice, size_t length)
{
	size_t offset = 0, index, part_length;
	json_t *value;

	json_array_foreach(array, index, value)
	{
		const char *part = json_slice_next(slice, length, &offset, &part_length);

		require(part && part >= slice && part + part_length <= slice + length);
		check_slice(value, part, part_length);
	}
	require(!json_slice_next(slice, length, &offset, &part_length));
}

/* Of others a text with escapes may be said not to be there. */
static bool is_a_name_of_ours(const char *name)
{
	static const char letters[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

	return name[strspn(name, letters)] == '\0';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* of its own size; what is read of records and bodies ends with a NUL as well */
	owned_text char *text = xmalloc(size + 1);
	const char *name;
	json_error_t why;
	json_t *value;

	memcpy(text, data, size);
	text[size] = '\0';
	json_t *header = json_bytes(data, size);
	require(json_is_string(header) || json_is_object(header));
	json_decref(header);
	json_t *body = json_read(text, size, &why);
	if (json_is_object(body)) {
		json_object_foreach(body, name, value)
		{
			size_t length;

			if (!is_a_name_of_ours(name))
				continue;
			const char *slice = json_slice(text, size, name, &length);

			require(slice && slice >= text && slice + length <= text + size);
			check_slice(value, slice, length);
			if (json_is_array(value))
				check_elements(value, slice, length);
		}
	}
	json_decref(body);
	return 0;
}
