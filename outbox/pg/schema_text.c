#include "schema_text.h"
#include <assert.h>
#include <string.h>
#include "text.h"

#define LONGEST_NAME 40

static bool is_name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* What would make `outbox` a part of something longer: outbox-relay, outbox_id, liboutbox. */
static bool continues_word(char c)
{
	return is_name_byte(c) || (c >= 'A' && c <= 'Z') || c == '-';
}

bool schema_text_check(const char *schema, struct err *err)
{
	size_t length = strlen(schema);
	bool fits = length > 0 && length <= LONGEST_NAME && !(schema[0] >= '0' && schema[0] <= '9');
	for (size_t i = 0; fits && i < length; i++)
		fits = is_name_byte(schema[i]);
	if (fits && !text_starts(schema, "pg_"))
		return true;
	return err_set(err, ERR_CONFIG,
	    "schema \"%.60s\": a schema's name is 1 to %d of a-z, 0-9 and _, and does not begin "
	    "with "
	    "a digit or pg_",
	    schema, LONGEST_NAME);
}

static size_t word_length(const char *at)
{
	static const char *const words[] = {
	    "outbox_writer", "outbox_consumer", "outbox_relay", "outbox_reader", "outbox"};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		size_t length = strlen(words[i]);
		if (strncmp(at, words[i], length) == 0 && !continues_word(at[length]))
			return length;
	}
	return 0;
}

char *schema_text(const char *sql, const char *schema)
{
	static const size_t prefix = sizeof "outbox" - 1;
	struct text out = {0};
	const char *copied = sql;
	for (const char *at = sql; (at = strstr(at, "outbox"));) {
		size_t length = at > sql && continues_word(at[-1]) ? 0 : word_length(at);
		if (length > 0) {
			text_append(&out, copied, (size_t)(at - copied));
			text_add(&out, schema);
			copied = at + prefix;
		}
		at += prefix;
	}
	text_add(&out, copied);
	assert(out.data != NULL);
	return out.data;
}
