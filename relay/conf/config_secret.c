/* Reads values from separate files: key_file = path becomes key = content. */
#include <string.h>
#include "cleanup.h"
#include "config_source.h"

static char *read_secret(const char *path, struct text *warnings, struct err *err)
{
	char *secret = config_source_read_file(path, warnings, err);

	if (secret)
		text_cut_line_end(secret);
	return secret;
}

/* An empty path means no file. */
static bool read_entry(struct config_section *section, const struct config_entry *entry,
    const char *directory, struct text *warnings, struct err *err)
{
	owned_text char *key = config_source_other_key(entry->key), *secret = NULL;
	owned_text char *origin = xstrdup(entry->origin);
	owned_text char *file = *entry->value != '/' && directory
				    ? xformat("%s/%s", directory, entry->value)
				    : xstrdup(entry->value);
	struct err reason;

	if (!*entry->value)
		return true;

	/* it would be unclear which of the two is in force */
	if (config_source_has_value(section, key))
		return config_source_fail(err, origin, section, entry->key,
		    "%s is set as well, at %s; keep one of them", key,
		    config_source_entry(section, key)->origin);
	secret = read_secret(file, warnings, &reason);
	if (!secret)
		return config_source_fail(err, origin, section, entry->key, "%s", reason.message);
	config_source_put(section, key, secret, origin, entry->from_environ);
	config_source_entry(section, key)->file = file;
	file = NULL;
	return true;
}

static bool read_section(
    struct config_section *section, const char *directory, struct text *warnings, struct err *err)
{
	const struct config_entry *entry;

	while ((entry = config_source_file_entry(section))) {
		owned_text char *key = xstrdup(entry->key);
		if (!read_entry(section, entry, directory, warnings, err))
			return false;
		/* found again by its key: reading the file has moved the entries */
		config_source_remove(section, config_source_entry(section, key));
	}
	return true;
}

bool config_secret_read(struct config_source *source, char *const *environ_list, struct err *err)
{
	const char *directory = config_environ_get(environ_list, "CREDENTIALS_DIRECTORY");

	for (int i = 0; i < source->count; i++)
		if (!read_section(&source->sections[i], directory, &source->warnings, err))
			return false;
	return true;
}
