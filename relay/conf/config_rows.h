#pragma once
/*
 * Every kind of section and every key of the configuration, as rows: the parser, the environment,
 * the sample file, the reference page and the comparison on reload are made from them. A new key is
 * a row here and a member of its struct in config.h.
 */
#include <stddef.h>
#include "config.h"

enum config_kind {
	CONFIG_POSTGRES,
	CONFIG_KAFKA,
	CONFIG_PUBLISHER,
	CONFIG_TOPIC,
	CONFIG_CHECK,
	CONFIG_LOOKBACK,
	CONFIG_DELIVER,
	CONFIG_TOKEN,
	CONFIG_API,
	CONFIG_ADMIN,
	CONFIG_LOG,
	CONFIG_KINDS
};

struct config_kind_row {
	const char *word;
	bool open;                /* accepts any key, stored as a struct kafka_property */
	bool named;               /* always has a name; exists only if declared */
	size_t list, count, size; /* where struct config has them; size 0: in itself, once */
	const char *help;
	size_t origin;   /* offset of the member with the place of declaration; 0: none */
	bool reloadable; /* a reload applies new sections, and those that are gone */
};

enum config_type {
	CONFIG_TEXT,     /* char * */
	CONFIG_SCHEMA,   /* char *, a name that needs no quotes in SQL */
	CONFIG_ADDRESS,  /* char *, "" or host:port; a bare port is on 127.0.0.1 */
	CONFIG_INTEGER,  /* int64_t, as are the next two */
	CONFIG_DURATION, /* in milliseconds */
	CONFIG_BYTES,
	CONFIG_CHOICE, /* an enum whose values count the choices from 0 */
	CONFIG_LIST,   /* a struct config_list: entries between commas and blanks */
	CONFIG_LINES,  /* the same; entries are lines, or are separated by bars outside of double
			  quotes */
	/* a pointer to the named section of kind `refers`; with the default "" it may be NULL */
	CONFIG_SECTION,
	CONFIG_FILE, /* no member: the file that holds the value of the key without _file */
};

struct config_row {
	enum config_kind kind;
	const char *key;
	enum config_type type;
	size_t offset; /* in the struct of the section; a CONFIG_FILE with 0 has no member for its
			  path */
	const char *default_value;
	int64_t low, high;          /* integers, durations, bytes */
	const char *const *choices; /* NULL-terminated */
	enum config_kind refers;
	bool reloadable;
	bool by_pace; /* default_value is that of the default pace; others follow from the pace */
	const char *help;
};

extern const struct config_kind_row config_kinds[CONFIG_KINDS];
extern const struct config_row config_rows[];
extern const int config_row_count;

/* The row of a key. NULL: the kind has no such key (an open kind has no rows at all). */
const struct config_row *config_rows_find(enum config_kind kind, const char *key);

/* The structs of one kind in a configuration, by number; each named one begins with its name. */
int config_rows_items(const struct config *config, enum config_kind kind);
void *config_rows_item(const struct config *config, enum config_kind kind, int number);
void *config_rows_item_named(const struct config *config, enum config_kind kind, const char *name);

/* The file, its sections, the environment, secrets and reloads, in Markdown. */
extern const char config_file_explained[];
