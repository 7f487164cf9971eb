/*
 * Any bytes: what json_text_is says of them is what jansson says, but for numbers too large for it
 * and names with NUL in them; and jansson takes a NUL for the end.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "json_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_error_t error;
	json_t *value = json_loadb((const char *)data, size,
	    JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
	bool beyond = !value && (json_error_code(&error) == json_error_numeric_overflow ||
				    json_error_code(&error) == json_error_null_byte_in_key);

	bool is = json_text_is(data, size);

	if (is != (value != NULL) && !beyond && (is || !memchr(data, 0, size)))
		abort();
	json_decref(value);
	return 0;
}
