#include "config_source.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"

enum { FILE_SIZE = 1 << 20 };

static void entry_finish(struct config_entry *entry)
{
	free(entry->key);
	free(entry->value);
	free(entry->origin);
	free(entry->file);
}

void config_source_finish(struct config_source *source)
{
	text_finish(&source->warnings);
	for (int i = 0; i < source->count; i++) {
		struct config_section *section = &source->sections[i];
		for (int k = 0; k < section->count; k++)
			entry_finish(&section->entries[k]);
		free(section->entries);
		free(section->name);
		free(section->origin);
	}
	free(source->sections);
	*source = (struct config_source){0};
}

struct config_section *config_source_find(
    const struct config_source *source, enum config_kind kind, const char *name)
{
	for (int i = 0; i < source->count; i++) {
		struct config_section *section = &source->sections[i];
		if (section->kind == kind && (!name || strcmp(section->name, name) == 0))
			return section;
	}
	return NULL;
}

struct config_section *config_source_add(
    struct config_source *source, enum config_kind kind, const char *name, const char *origin)
{
	size_t size = (size_t)(source->count + 1) * sizeof *source->sections;

	source->sections = xrealloc(source->sections, size);
	source->sections[source->count] =
	    (struct config_section){.kind = kind, .name = xstrdup(name), .origin = xstrdup(origin)};
	return &source->sections[source->count++];
}

struct config_entry *config_source_entry(const struct config_section *section, const char *key)
{
	for (int i = 0; i < section->count; i++)
		if (strcmp(section->entries[i].key, key) == 0)
			return &section->entries[i];
	return NULL;
}

bool config_source_has_value(const struct config_section *section, const char *key)
{
	const struct config_entry *entry = config_source_entry(section, key);

	return entry && *entry->value;
}

static bool ends_with_file(const char *key, size_t length)
{
	return length > 5 && strcmp(key + length - 5, "_file") == 0;
}

char *config_source_other_key(const char *key)
{
	size_t length = strlen(key);

	return ends_with_file(key, length) ? xformat("%.*s", (int)(length - 5), key)
					   : xformat("%s_file", key);
}

const struct config_entry *config_source_file_entry(const struct config_section *section)
{
	for (int i = 0; i < section->count; i++) {
		const char *key = section->entries[i].key;
		if (ends_with_file(key, strlen(key)))
			return &section->entries[i];
	}
	return NULL;
}

void config_source_remove(struct config_section *section, struct config_entry *entry)
{
	entry_finish(entry);
	section->count--;
	memmove(
	    entry, entry + 1, (size_t)(&section->entries[section->count] - entry) * sizeof *entry);
}

void config_source_put(struct config_section *section, const char *key, const char *value,
    const char *origin, bool from_environ)
{
	struct config_entry *before = config_source_entry(section, key);
	size_t size;

	if (before)
		config_source_remove(section, before);
	size = (size_t)(section->count + 1) * sizeof *section->entries;
	section->entries = xrealloc(section->entries, size);
	section->entries[section->count++] = (struct config_entry){.key = xstrdup(key),
	    .value = xstrdup(value),
	    .origin = xstrdup(origin),
	    .from_environ = from_environ};
}

bool config_source_fail(struct err *err, const char *origin, const struct config_section *section,
    const char *key, const char *format, ...)
{
	const char *word = config_kinds[section->kind].word;
	char message[sizeof err->message];
	owned_text char *place = NULL;
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	/* a kind without a size exists once, and its "main" was never written */
	if (config_kinds[section->kind].size)
		place = xformat("[%s \"%s\"]", word, section->name);
	else
		place = xformat("[%s]", word);
	return err_set(err, ERR_CONFIG, "%s: %s%s%.60s: %s", origin, place, key ? " " : "",
	    key ? key : "", message);
}

bool config_source_refuse(struct err *err, const struct config_source *source,
    enum config_kind kind, const char *name, const char *key, const char *format, ...)
{
	const struct config_section *section = config_source_find(source, kind, name);
	const struct config_entry *entry = config_source_entry(section, key);
	char message[sizeof err->message];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	return config_source_fail(
	    err, entry ? entry->origin : section->origin, section, key, "%s", message);
}

char *config_source_read_file(const char *path, struct text *warnings, struct err *err)
{
	owned_file FILE *file = fopen(path, "re");
	owned_text char *content = xmalloc(FILE_SIZE + 1);
	struct stat state;
	size_t length;

	if (!file || fstat(fileno(file), &state) != 0) {
		err_set(err, ERR_CONFIG, "%s: cannot be read: %s", path, strerror(errno));
		return NULL;
	}
	/* of the open file: checking by path could look at another file than the one that is
	 * read */
	if (!config_files_check(path, &state, true, warnings, err))
		return NULL;

	/* one byte more than allowed tells a file that is too large from one that just fits */
	length = fread(content, 1, FILE_SIZE + 1, file);
	if (ferror(file))
		err_set(err, ERR_CONFIG, "%s: cannot be read: %s", path, strerror(errno));
	else if (length > FILE_SIZE)
		err_set(err, ERR_CONFIG, "%s: larger than %d bytes", path, FILE_SIZE);
	else if (memchr(content, '\0', length))
		err_set(err, ERR_CONFIG, "%s: holds a NUL byte; it must be text", path);
	else
		return xformat("%.*s", (int)length, content);
	return NULL;
}
