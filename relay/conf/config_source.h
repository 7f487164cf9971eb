#pragma once
/*
 * The written configuration before the checks: sections with their keys, values and places. They
 * come from the file, then the environment overrides them, then the files of *_file keys are read.
 */
#include <sys/stat.h>
#include "config_rows.h"
#include "text.h"

struct config_entry {
	char *key, *value;
	char *origin; /* "relay.ini:7" or the name of the variable */
	char *file;   /* the file that the value was read from, of a *_file key; NULL: none */
	bool from_environ;
};

struct config_section {
	enum config_kind kind;
	char *name;   /* "main" if none was written */
	char *origin; /* where it was declared */
	struct config_entry *entries;
	int count;
};

struct config_source {
	struct config_section *sections;
	int count;
	struct text warnings; /* warnings about files, one line each */
};

/* The three steps, in their order; each may find an error. */
bool config_ini_read(
    struct config_source *source, const char *name, const char *ini, struct err *err) MUST_CHECK;
bool config_environ_apply(
    struct config_source *source, char *const *environ_list, struct err *err) MUST_CHECK;
bool config_secret_read(
    struct config_source *source, char *const *environ_list, struct err *err) MUST_CHECK;
void config_source_finish(struct config_source *source);

/* Sets values that follow from others, and checks that the sections agree (config_lookback.c). */
bool config_lookback_finish(
    struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;

/* The same for [deliver] (config_deliver.c), and frees the memory that deliver_finish allocated. */
bool config_deliver_finish(
    struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;
void config_deliver_free(struct config *config);

/* Checks that publishers and [deliver] sections can do without the headers (config_topics.c). */
bool config_topics_finish(
    const struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;

/* Is this address allowed for a listener? (config_api.c) */
bool config_api_finish(
    const struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;
bool config_tokens_finish(
    const struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;

/* The origin of a section that nobody declared. */
#define CONFIG_SOURCE_DEFAULT "default"

/* The pointer is valid until the next section is added. NULL name: any section of the kind. */
struct config_section *config_source_find(
    const struct config_source *source, enum config_kind kind, const char *name);
struct config_section *config_source_add(
    struct config_source *source, enum config_kind kind, const char *name, const char *origin);
struct config_entry *config_source_entry(const struct config_section *section, const char *key);
bool config_source_has_value(const struct config_section *section, const char *key);
/* Replaces the entry of the key. */
void config_source_put(struct config_section *section, const char *key, const char *value,
    const char *origin, bool from_environ);
void config_source_remove(struct config_section *section, struct config_entry *entry);

/* The first entry whose key ends with _file; NULL: none. */
const struct config_entry *config_source_file_entry(const struct config_section *section);
/* dsn for dsn_file, dsn_file for dsn: only one of the two may give the value. The caller frees. */
char *config_source_other_key(const char *key);

/* `relay.ini:7: [publisher "main"] lease: …`; key may be NULL. Always false. */
bool config_source_fail(struct err *err, const char *origin, const struct config_section *section,
    const char *key, const char *format, ...) __attribute__((format(printf, 5, 6)));

/*
 * The same for a key of an existing section, with the place where the key was written, if it was.
 */
bool config_source_refuse(struct err *err, const struct config_source *source,
    enum config_kind kind, const char *name, const char *key, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/*
 * Reads a whole file as a string. NULL and *err (without a place) if it cannot be read, contains a
 * NUL, or other users can write it. Adds a line to *warnings if others can read it.
 */
char *config_source_read_file(const char *path, struct text *warnings, struct err *err) MUST_CHECK;

/* False: other users can write the file. If they can read it, adds a line to *warnings.
 * (config_files.c) */
bool config_files_check(const char *path, const struct stat *file, bool secret,
    struct text *warnings, struct err *err) MUST_CHECK;
/* The same for the keys and certificates that the configuration names. */
bool config_files_finish(struct config *config, struct err *err) MUST_CHECK;

/* The value of a variable in a "K=V" list; NULL: not set. */
const char *config_environ_get(char *const *environ_list, const char *variable);
