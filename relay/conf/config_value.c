/*
 * Reads, describes, compares and frees one value by its row: numbers with units, choices, lists,
 * addresses. Begin at config_value_set.
 */
#include "config_value.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "units.h"

enum { SCHEMA_LENGTH = 40 };

static const struct {
	const char *noun;
	const struct unit *units;
} numbers[] = {
    [CONFIG_INTEGER] = {"whole number", units_none},
    [CONFIG_DURATION] = {"duration", units_duration},
    [CONFIG_BYTES] = {"size", units_bytes},
};

static char **text_at(const void *item, const struct config_row *row)
{
	return (char **)((const char *)item + row->offset);
}

static int64_t *number_at(const void *item, const struct config_row *row)
{
	return (int64_t *)((const char *)item + row->offset);
}

static void replace_text(void *item, const struct config_row *row, char *text)
{
	free(*text_at(item, row));
	*text_at(item, row) = text;
}

static void add_number_with_unit(struct text *out, const struct config_row *row, int64_t number)
{
	const struct unit *best = units_best(number, numbers[row->type].units);

	text_addf(out, "%lld%s", (long long)(number / best->factor), number ? best->word : "");
}

void config_value_describe(struct text *out, const struct config_row *row)
{
	switch (row->type) {
	case CONFIG_INTEGER:
	case CONFIG_DURATION:
	case CONFIG_BYTES:
		add_number_with_unit(out, row, row->low);
		text_add(out, " to ");
		add_number_with_unit(out, row, row->high);
		break;
	case CONFIG_CHOICE:
		for (int i = 0; row->choices[i]; i++)
			text_addf(out, "%s%s", i ? " | " : "", row->choices[i]);
		break;
	case CONFIG_SCHEMA:
		text_addf(out, "up to %d of a-z, 0-9 and _, beginning with neither a digit nor pg_",
		    SCHEMA_LENGTH);
		break;
	case CONFIG_ADDRESS:
		text_add(out, "host:port or port");
		break;
	case CONFIG_SECTION:
		text_addf(out, "the name of a [%s] section", config_kinds[row->refers].word);
		break;
	case CONFIG_FILE:
		text_add(out, "path");
		break;
	case CONFIG_LIST:
		text_add(out, "a list, separated by commas");
		break;
	case CONFIG_LINES:
		text_add(out, "lines, separated by | or, in a file, by line ends");
		break;
	case CONFIG_TEXT:
		text_add(out, "text");
		break;
	}
}

static bool refuse_value(
    struct err *err, const char *text, const char *what, const struct config_row *row)
{
	return err_set(
	    err, ERR_CONFIG, "'%.40s' %s; write for example %s", text, what, row->default_value);
}

static bool refuse_range(struct err *err, const char *text, const struct config_row *row)
{
	struct text range = {0};

	config_value_describe(&range, row);
	err_set(err, ERR_CONFIG, "'%.40s' is out of range; write %s", text, range.data);
	text_finish(&range);
	return false;
}

static bool set_number_with_unit(
    void *item, const struct config_row *row, const char *text, struct err *err)
{
	int64_t number = 0;
	char what[40];

	switch (units_parse(text, numbers[row->type].units, &number)) {
	case UNITS_MALFORMED:
		snprintf(what, sizeof what, "is not a %s", numbers[row->type].noun);
		return refuse_value(err, text, what, row);
	case UNITS_MISSING:
		return refuse_value(err, text, "has no unit", row);
	case UNITS_TOO_LARGE:
		return refuse_range(err, text, row);
	case UNITS_READ:
		break;
	}
	/* after the unit, since the range of a row is in milliseconds or bytes */
	if (number < row->low || number > row->high)
		return refuse_range(err, text, row);
	*number_at(item, row) = number;
	return true;
}

static bool set_choice(void *item, const struct config_row *row, const char *text, struct err *err)
{
	struct text known = {0};

	for (int i = 0; row->choices[i]; i++)
		if (strcmp(row->choices[i], text) == 0) {
			memcpy((char *)item + row->offset, &i, sizeof i);
			return true;
		}
	config_value_describe(&known, row);
	err_set(err, ERR_CONFIG, "'%.40s' is not a choice; write %s", text, known.data);
	text_finish(&known);
	return false;
}

static bool set_schema(void *item, const struct config_row *row, const char *text, struct err *err)
{
	struct text rule = {0};
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");

	/* the name is put into SQL without quotes, so it must need none */
	if (!text[length] && length > 0 && length <= SCHEMA_LENGTH &&
	    strchr("0123456789", *text) == NULL && !text_starts(text, "pg_")) {
		replace_text(item, row, xstrdup(text));
		return true;
	}
	config_value_describe(&rule, row);
	err_set(err, ERR_CONFIG, "'%.40s' is not a schema name; write %s", text, rule.data);
	text_finish(&rule);
	return false;
}

/* An IPv6 address is in brackets, so the last colon is the one before the port. */
static bool set_address(void *item, const struct config_row *row, const char *text, struct err *err)
{
	const char *colon = strrchr(text, ':');
	const char *port = colon ? colon + 1 : text;
	size_t host = colon ? (size_t)(colon - text) : 0;
	bool bracketed = host > 2 && text[0] == '[' && text[host - 1] == ']';
	int64_t number;

	if (*text &&
	    (!text_to_int64(port, 0, 65535, &number) || (colon && host == 0) ||
		(colon && !bracketed && strcspn(text, ":[]") != host) || strpbrk(text, " \t/")))
		return err_set(err, ERR_CONFIG,
		    "'%.40s' is neither a port nor host:port; write for example 127.0.0.1:9187",
		    text);

	/* a bare port is on loopback: nothing is open to other machines by accident */
	replace_text(item, row, xformat("%s%s", *text && !colon ? "127.0.0.1:" : "", text));
	return true;
}

static struct config_list *list_at(const void *item, const struct config_row *row)
{
	return (struct config_list *)((const char *)item + row->offset);
}

void config_list_finish(struct config_list *list)
{
	for (int i = 0; i < list->count; i++)
		free(list->items[i]);
	free(list->items);
	free(list->lines);
	*list = (struct config_list){0};
}

void config_list_copy(struct config_list *to, const struct config_list *from)
{
	*to = (struct config_list){0};
	to->items = xcalloc((size_t)from->count + 1, sizeof *to->items);
	for (; to->count < from->count; to->count++)
		to->items[to->count] = xstrdup(from->items[to->count]);
	if (!from->lines)
		return;
	to->lines = xcalloc((size_t)from->count + 1, sizeof *to->lines);
	memcpy(to->lines, from->lines, (size_t)from->count * sizeof *to->lines);
}

static void list_add(struct config_list *list, const char *text, size_t length)
{
	list->items = xrealloc(list->items, (size_t)(list->count + 1) * sizeof *list->items);
	list->items[list->count++] = xformat("%.*s", (int)length, text);
}

static void set_list(struct config_list *list, const char *text)
{
	static const char separators[] = ", \t\r\n";

	config_list_finish(list);
	for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
		size_t length = strcspn(text, separators);

		list_add(list, text, length);
		text += length;
	}
}

/* The entry ends at a bar, or at the end of a line, outside of double quotes. */
static size_t line_length(const char *text)
{
	bool quoted = false;
	size_t length = 0;

	for (; text[length] && (quoted || !strchr("|\n", text[length])); length++)
		quoted ^= text[length] == '"';
	return length;
}

/* The object ends with its last brace, outside of strings; without it, at the end of the text. */
static size_t object_length(const char *text)
{
	bool quoted = false;
	int depth = 0;
	size_t length = 0;

	for (; text[length]; length++) {
		if (quoted && text[length] == '\\' && text[length + 1])
			length++;
		else if (text[length] == '"')
			quoted = !quoted;
		else if (!quoted && text[length] == '{')
			depth++;
		else if (!quoted && text[length] == '}' && --depth == 0)
			return length + 1;
	}
	return length;
}

/* With a line end for each line before it, so that its errors name their line of the text. */
static void list_add_object(struct config_list *list, const char *at, size_t length, int number)
{
	OWNED(text_finish) struct text object = {0};

	for (int i = 1; i < number; i++)
		text_add(&object, "\n");
	text_append(&object, at, length);
	list_add(list, object.data, object.length);
}

/* Adds the entry, which begins at `at`, with the number of its line in the text. */
static void add_line_entry(
    struct config_list *list, const char *text, const char *at, size_t length)
{
	int number = 1;

	for (; text < at; text++)
		number += *text == '\n';
	list->lines = xrealloc(list->lines, (size_t)(list->count + 1) * sizeof *list->lines);
	list->lines[list->count] = number;
	if (*at == '{')
		list_add_object(list, at, length, number);
	else
		list_add(list, at, length);
}

static size_t entry_length(const char *at)
{
	return *at == '#' ? strcspn(at, "\n") : *at == '{' ? object_length(at) : line_length(at);
}

static void set_lines(struct config_list *list, const char *text)
{
	static const char separators[] = "| \t\r\n";
	const char *at = text;

	config_list_finish(list);
	/* some editors begin a file of UTF-8 with its signature */
	if (strncmp(at, "\xef\xbb\xbf", 3) == 0)
		at += 3;
	for (at += strspn(at, separators); *at; at += strspn(at, separators)) {
		size_t whole = entry_length(at), length = whole;

		while (length > 0 && strchr(separators, at[length - 1]))
			length--;
		if (*at != '#')
			add_line_entry(list, text, at, length);
		at += whole;
	}
}

static bool list_equal(const struct config_list *a, const struct config_list *b)
{
	bool equal = a->count == b->count;

	for (int i = 0; equal && i < a->count; i++)
		equal = strcmp(a->items[i], b->items[i]) == 0;
	return equal;
}

bool config_value_set(void *item, const struct config_row *row, const char *text, struct err *err)
{
	switch (row->type) {
	case CONFIG_TEXT:
		replace_text(item, row, xstrdup(text));
		return true;
	case CONFIG_SCHEMA:
		return set_schema(item, row, text, err);
	case CONFIG_ADDRESS:
		return set_address(item, row, text, err);
	case CONFIG_INTEGER:
	case CONFIG_DURATION:
	case CONFIG_BYTES:
		return set_number_with_unit(item, row, text, err);
	case CONFIG_CHOICE:
		return set_choice(item, row, text, err);
	case CONFIG_LIST:
		set_list(list_at(item, row), text);
		return true;
	case CONFIG_LINES:
		set_lines(list_at(item, row), text);
		return true;
	case CONFIG_SECTION:
	case CONFIG_FILE:
		break;
	}
	assert(!"a reference or a file has no value of its own");
	return false;
}

static bool is_text_row(const struct config_row *row)
{
	return row->type == CONFIG_TEXT || row->type == CONFIG_SCHEMA ||
	       row->type == CONFIG_ADDRESS;
}

static bool is_list(const struct config_row *row)
{
	return row->type == CONFIG_LIST || row->type == CONFIG_LINES;
}

void config_value_free(void *item, const struct config_row *row)
{
	if (is_text_row(row) || (row->type == CONFIG_FILE && row->offset))
		replace_text(item, row, NULL);
	if (is_list(row))
		config_list_finish(list_at(item, row));
}

/* The name of the section that a member points to; a named struct begins with its name. */
static const char *section_name(const void *item, const struct config_row *row)
{
	const void *section;

	memcpy(&section, (const char *)item + row->offset, sizeof section);
	return section ? *(char *const *)section : "";
}

bool config_value_equal(const void *a, const void *b, const struct config_row *row)
{
	/* a path that is kept is read again; otherwise the content was compared at the other key */
	if (row->type == CONFIG_FILE)
		return !row->offset || text_equal(*text_at(a, row), *text_at(b, row));
	if (row->type == CONFIG_CHOICE)
		return memcmp((const char *)a + row->offset, (const char *)b + row->offset,
			   sizeof(int)) == 0;

	if (is_text_row(row))
		return text_equal(*text_at(a, row), *text_at(b, row));
	if (is_list(row))
		return list_equal(list_at(a, row), list_at(b, row));

	/* by name: pointers of two configurations always differ */
	if (row->type == CONFIG_SECTION)
		return text_equal(section_name(a, row), section_name(b, row));
	return *number_at(a, row) == *number_at(b, row);
}
