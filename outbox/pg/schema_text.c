#include "schema_text.h"
#include <assert.h>
#include <string.h>
#include "cleanup.h"
#include "text.h"

#define LONGEST_NAME 40

/*
 * Words that need quotes as the name of a schema in SQL of PostgreSQL 13 to 18, and the reserved
 * words of PL/pgSQL, which end an expression wherever they occur.
 */
static const char reserved[] =
    " all analyse analyze and any array as asc asymmetric authorization begin between bigint "
    "binary bit boolean both by case cast char character check coalesce collate collation "
    "column concurrently constraint create cross current_catalog current_date current_role "
    "current_schema current_time current_timestamp current_user dec decimal declare default "
    "deferrable desc distinct do else end except execute exists extract false fetch float "
    "for foreach foreign freeze from full grant greatest group grouping having if ilike in "
    "initially inner inout int integer intersect interval into is isnull join json "
    "json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar "
    "json_serialize json_table json_value lateral leading least left like limit localtime "
    "localtimestamp loop merge_action national natural nchar none normalize not notnull "
    "null nullif numeric offset on only or order out outer overlaps overlay placing "
    "position precision primary real references returning right row select session_user "
    "setof similar smallint some strict substring symmetric system_user table tablesample "
    "then time timestamp to trailing treat trim true union unique user using values varchar "
    "variadic verbose when where while window with xmlattributes xmlconcat xmlelement "
    "xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable ";

static bool is_name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Would c make `outbox` a part of a longer word, such as outbox-relay, outbox_id or liboutbox? */
static bool continues_word(char c)
{
	return is_name_byte(c) || (c >= 'A' && c <= 'Z') || c == '-';
}

static bool is_reserved_word(const char *name)
{
	owned_text char *word = xformat(" %.60s ", name);

	return !strchr(name, ' ') && strstr(reserved, word);
}

bool schema_text_check(const char *schema, struct err *err)
{
	if (is_reserved_word(schema))
		return err_set(err, ERR_CONFIG,
		    "schema \"%s\": this is a reserved word of SQL or PL/pgSQL; choose another "
		    "name",
		    schema);

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
		/* A match inside a longer word is left as it is. */
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
