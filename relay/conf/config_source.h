#pragma once
/*
 * What was written, before it is checked: sections with their keys, values and places, first from
 * the file, then changed by the environment, then with the files of *_file keys read in.
 */
#include <sys/stat.h>
#include "config_rows.h"
#include "text.h"

struct config_entry {
	char *key, *value;
	char *origin; /* "relay.ini:7" or the name of the variable */
	bool from_environ;
};

struct config_section {
	enum config_kind kind;
	char *name;   /* "main" when none was written */
	char *origin; /* where it was declared */
	struct config_entry *entries;
	int count;
};

struct config_source {
	struct config_section *sections;
	int count;
	struct text warnings; /* about files, one line each */
};

/* The three steps, in their order; each may find a mistake. */
bool config_ini_read(
    struct config_source *source, const char *name, const char *ini, struct err *err) MUST_CHECK;
bool config_environ_apply(
    struct config_source *source, char *const *environ_list, struct err *err) MUST_CHECK;
bool config_secret_read(
    struct config_source *source, char *const *environ_list, struct err *err) MUST_CHECK;
void config_source_finish(struct config_source *source);

/* What is not written but follows, and whether the sections agree (config_lookback.c). */
bool config_lookback_finish(
    struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;

/* The same of [deliver] (config_deliver.c), and what only its finish made. */
bool config_deliver_finish(
    struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;
void config_deliver_free(struct config *config);

/* Whether publishers and [deliver] sections can do without the headers (config_topics.c). */
bool config_topics_finish(
    const struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;

/* May it listen so? (config_api.c) */
bool config_api_finish(
    const struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;
bool config_senders_finish(
    const struct config *config, const struct config_source *source, struct err *err) MUST_CHECK;

/* The origin of a section that nobody declared. */
#define CONFIG_SOURCE_DEFAULT "default"

/* The pointer is good until the next section is added. NULL name: any of the kind. */
struct config_section *config_source_find(
    const struct config_source *source, enum config_kind kind, const char *name);
struct config_section *config_source_add(
    struct config_source *source, enum config_kind kind, const char *name, const char *origin);
struct config_entry *config_source_entry(const struct config_section *section, const char *key);
bool config_source_has_value(const struct config_section *section, const char *key);
/* Replaces the entry of that key. */
void config_source_put(struct config_section *section, const char *key, const char *value,
    const char *origin, bool from_environ);
void config_source_remove(struct config_section *section, struct config_entry *entry);

/* The first entry whose key ends with _file; NULL: none. */
const struct config_entry *config_source_file_entry(const struct config_section *section);
/* dsn for dsn_file, dsn_file for dsn: only one of the two says the value. The caller frees. */
char *config_source_other_key(const char *key);

/* `relay.ini:7: [publisher "main"] lease: …`; key may be NULL. Always false. */
bool config_source_fail(struct err *err, const char *origin, const struct config_section *section,
    const char *key, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The same of a key of a section that is there, at the place where it was written, if it was. */
bool config_source_refuse(struct err *err, const struct config_source *source,
    enum config_kind kind, const char *name, const char *key, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/*
 * A whole file as a string without NUL inside, which other users cannot write; NULL and *err
 * (without a place) when it cannot. A line in *warnings when others can read it.
 */
char *config_source_read_file(const char *path, struct text *warnings, struct err *err) MUST_CHECK;

/* Short tokens can be guessed and are refused; the message never shows them. (config_api.c) */
bool config_tokens_finish(const struct config_source *source, enum config_kind kind,
    const char *name, const char *key, const struct config_list *tokens,
    struct err *err) MUST_CHECK;

/* May others write the file (false), or read it (a line in *warnings)? (config_files.c) */
bool config_files_check(const char *path, const struct stat *file, bool secret,
    struct text *warnings, struct err *err) MUST_CHECK;
/* The same of the keys and certificates that the configuration names. */
bool config_files_finish(struct config *config, struct err *err) MUST_CHECK;

/* The value of a variable in a "K=V" list; NULL: not set. */
const char *config_environ_get(char *const *environ_list, const char *variable);
