/*
 * Reads the file with libinih into sections and keys. libinih does not report line numbers and
 * empty sections; the line reader finds them. Begin at take_ini_entry; begin_section and refuse_key
 * have the errors of a line.
 */
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "cleanup.h"
#include "config_source.h"
#include "suggestion.h"

enum { NAME_LENGTH = 63, TOPIC_LENGTH = 249, LINE_SIZE = 64 << 10 };

/* One pass over the text: libinih asks for lines and hands back keys and values. */
struct reader {
	struct config_source *source;
	struct config_section *section; /* the last one begun */
	const char *name, *rest;
	int line;
	bool failed;
	struct err *err;
};

__attribute__((format(printf, 2, 3))) static bool fail_at_line(
    struct reader *reader, const char *format, ...)
{
	char message[sizeof reader->err->message];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	reader->failed = true;
	return err_set(reader->err, ERR_CONFIG, "%s:%d: %s", reader->name, reader->line, message);
}

static bool find_section_kind(const char *word, enum config_kind *ret_kind)
{
	for (int kind = 0; kind < CONFIG_KINDS; kind++)
		if (strcmp(config_kinds[kind].word, word) == 0) {
			*ret_kind = (enum config_kind)kind;
			return true;
		}
	return false;
}

static bool refuse_kind(struct reader *reader, const char *word)
{
	struct suggestion nearest = suggestion_begin(word);
	struct text known = {0};

	for (int kind = 0; kind < CONFIG_KINDS; kind++) {
		owned_text char *shown = xformat("[%s]", config_kinds[kind].word);

		suggestion_offer(&nearest, config_kinds[kind].word, shown);
		text_addf(&known, "%s%s", kind ? ", " : "", shown);
	}
	fail_at_line(
	    reader, "unknown section [%.40s]%s; there are %s", word, nearest.note, known.data);
	text_finish(&known);
	return false;
}

static bool declare_section(struct reader *reader, const char *word, const char *name)
{
	struct config_section *before;
	owned_text char *origin = xformat("%s:%d", reader->name, reader->line);
	enum config_kind kind;

	if (!find_section_kind(word, &kind))
		return refuse_kind(reader, word);
	if (*name && !config_kinds[kind].size)
		return fail_at_line(reader, "[%s] takes no name; write [%s]", word, word);
	if (!*name && config_kinds[kind].named)
		return fail_at_line(reader, "[%s] needs a name; write [%s \"orders\"]", word, word);
	if (!*name)
		name = "main";

	/* [publisher] and [publisher "main"] are the same section, so both together are a
	 * duplicate */
	before = config_source_find(reader->source, kind, name);
	reader->section = before ? before : config_source_add(reader->source, kind, name, origin);
	if (!before)
		return true;
	reader->failed = true;
	return config_source_fail(reader->err, origin, before, NULL,
	    "duplicate section, already at %s; keep one of them", before->origin);
}

static const char *skip_line_blanks(const char *at)
{
	return at + strspn(at, " \t\r");
}

/* The same rule as the constraint of outbox.publisher. */
static bool is_publisher_name(const char *name)
{
	size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
	return length <= 40 && name[length] == '\0';
}

/* Kafka's rule; the letters were checked before. */
static bool is_topic_section_name(const char *name)
{
	return *name && strlen(name) <= TOPIC_LENGTH && !text_equal(name, ".") &&
	       !text_equal(name, "..");
}

static bool check_section_name(struct reader *reader, const char *word, const char *name)
{
	if (text_equal(word, "topic"))
		return is_topic_section_name(name) ||
		       fail_at_line(reader,
			   "a topic's name is 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', in "
			   "double quotes, and neither . nor .., as in Kafka",
			   TOPIC_LENGTH);

	if (!*name || strlen(name) > NAME_LENGTH)
		return fail_at_line(reader,
		    "a section's name is 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', in double "
		    "quotes",
		    NAME_LENGTH);
	if (text_equal(word, "publisher") && !is_publisher_name(name))
		return fail_at_line(reader,
		    "a publisher's name is 1 to 40 of a-z, 0-9, '_' and '-', as in the database");
	return true;
}

/* Parses [word] or [word "name"]. libinih would cut it to 49 bytes and not report an empty one. */
static bool begin_section(struct reader *reader, const char *line)
{
	static const char alphabet[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
	owned_text char *word = NULL, *name = NULL;
	size_t length;

	line = skip_line_blanks(line + 1);
	length = strspn(line, alphabet);
	word = xformat("%.*s", (int)length, line);
	line = skip_line_blanks(line + length);
	/* a name with other letters ends before the quote, is empty then, and is refused */
	if (*line == '"') {
		length = strspn(++line, alphabet);
		name = xformat("%.*s", line[length] == '"' ? (int)length : 0, line);
		if (!check_section_name(reader, word, name))
			return false;
		line = skip_line_blanks(line + length + 1);
	}
	if (!*word || *line != ']' || !strchr(";#", *skip_line_blanks(line + 1)))
		return fail_at_line(
		    reader, "write a section as [publisher] or [publisher \"name\"]");
	return declare_section(reader, word, name ? name : "");
}

/*
 * The reader of libinih, like fgets. Removes blanks before a line, so that an indented line never
 * counts as the continuation of the line before.
 */
static char *next_ini_line(char *buffer, int size, void *user)
{
	struct reader *reader = user;
	const char *line = reader->rest;
	size_t length = strcspn(line, "\n");

	/* libinih goes on after an error: this ends its reading, and keeps the first message */
	if (reader->failed || !*line)
		return NULL;
	reader->line++;
	reader->rest += length + (line[length] == '\n');
	length -= strspn(line, " \t\r") < length ? strspn(line, " \t\r") : length;
	line = skip_line_blanks(line);
	if (length + 2 > (size_t)size) {
		fail_at_line(reader,
		    "the line is longer than %d bytes; put the value in a file and use "
		    "the key with _file",
		    size - 2);
		return NULL;
	}
	memcpy(buffer, line, length);
	buffer[length] = '\0';
	/* begun here and not in take_ini_entry, which libinih calls for keys only */
	if (*buffer == '[' && !begin_section(reader, buffer))
		return NULL;
	return buffer;
}

static bool refuse_key(struct reader *reader, const char *origin, const char *key)
{
	const char *word = config_kinds[reader->section->kind].word;
	struct suggestion nearest = suggestion_begin(key);
	struct text known = {0}, elsewhere = {0};

	for (int i = 0; i < config_row_count; i++)
		if (config_rows[i].kind == reader->section->kind) {
			suggestion_offer(&nearest, config_rows[i].key, config_rows[i].key);
			text_addf(&known, "%s%s", known.length ? ", " : "", config_rows[i].key);
		} else if (text_equal(config_rows[i].key, key)) {
			text_addf(&elsewhere, "%s[%s]",
			    elsewhere.length ? ", " : "; it is a key of ",
			    config_kinds[config_rows[i].kind].word);
		}
	reader->failed = true;
	config_source_fail(reader->err, origin, reader->section, key,
	    "unknown key%s%s; [%s] has %s", nearest.note, text_string(&elsewhere), word,
	    known.data);
	text_finish(&elsewhere);
	text_finish(&known);
	return false;
}

/* The handler of libinih; its `section` is not used, because libinih cuts long names. */
static int take_ini_entry(void *user, const char *section, const char *key, const char *value)
{
	struct reader *reader = user;
	owned_text char *origin = xformat("%s:%d", reader->name, reader->line);
	const struct config_entry *before;

	(void)section;
	if (reader->failed)
		return 0;
	if (!reader->section)
		return fail_at_line(reader,
		    "%.60s: a key before the first section; write [publisher] or another "
		    "section above it",
		    key);
	if (!*key)
		return fail_at_line(reader, "a value without a key; write key = value");

	/* an unknown key is most likely misspelt, and its setting would silently be the default */
	if (!config_kinds[reader->section->kind].open &&
	    !config_rows_find(reader->section->kind, key))
		return refuse_key(reader, origin, key);
	before = config_source_entry(reader->section, key);
	if (before) {
		reader->failed = true;
		return config_source_fail(reader->err, origin, reader->section, key,
		    "duplicate key, already at %s; keep one of them", before->origin);
	}
	config_source_put(reader->section, key, value, origin, false);
	return 1;
}

bool config_ini_read(
    struct config_source *source, const char *name, const char *ini, struct err *err)
{
	struct reader reader = {.source = source, .name = name, .rest = ini, .err = err};
	int first_bad;

#ifdef INIH_SETTINGS /* where lines of 200 bytes need not be the limit */
	ini_use_stack = false;
	ini_initial_alloc = ini_max_line = LINE_SIZE;
#endif
	/* some editors begin a file with a byte order mark */
	if (text_starts(ini, "\xef\xbb\xbf"))
		reader.rest += 3;
	first_bad = ini_parse_stream(next_ini_line, &reader, take_ini_entry, &reader);
	if (first_bad == 0 && !reader.failed)
		return true;

	/* the first of the two errors is reported; libinih's own have a line and no message */
	if (reader.failed && (first_bad <= 0 || first_bad >= reader.line))
		return false;
	reader.line = first_bad;
	return fail_at_line(&reader, "neither a [section] nor key = value");
}
