#pragma once
/*
 * A line of a configuration, for dedup, claims and rules. Its first word is a type, and the other
 * words are settings of that type, in any order:
 *
 *   bloom ids=50M rate=0.1% window=24h path=/var/lib/billing/dedup
 *   redis lossy form=bitmap ids=100M url=redis://127.0.0.1 name=billing
 *   sliding name=burst most=5 within=10s key="topic,header:user" action=drop
 *
 * A value with blanks is written in double quotes, and a double quote inside is written twice
 * (spec_words.h). The caller passes types and settings as rows. A setting that the type does not
 * have is refused. Each refusal names the setting and the cure (ERR_CONFIG).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "errors.h"
#include "units.h"

struct spec_setting {
	const char *name;    /* NULL: the end of the rows */
	const char *example; /* what a value is: "a time from 100ms to 1d, as lease=30s"; NULL: the
				setting is a word of its own, and set is called without a value */
	/* Stores the value in `object`. Fills *err only to say more than the example does. */
	bool (*set)(
	    void *object, const struct spec_setting *setting, const char *value, struct err *err);
	size_t offset;            /* offset of the value in the object */
	const struct unit *units; /* for spec_set_number */
	int64_t low, high;
	const char *missing; /* why a type needs the setting; NULL: the example says enough */
};

/* The first member of a caller's row. */
struct spec_type {
	const char *name;
	const struct spec_setting *shared; /* rows that several types choose from */
	uint32_t takes, needs;             /* bits 1 << number, for rows of `shared` */
	const struct spec_setting *own;    /* rows of this type alone; NULL: none */
};

/* Setters; the value at the offset is an int64_t, a malloc'ed text, a bool. */
bool spec_set_number(
    void *object, const struct spec_setting *setting, const char *value, struct err *err);
bool spec_set_text(
    void *object, const struct spec_setting *setting, const char *value, struct err *err);
/* Sets a text that may be a part of a key or of a file name. */
bool spec_set_name(
    void *object, const struct spec_setting *setting, const char *value, struct err *err);
bool spec_set_flag(
    void *object, const struct spec_setting *setting, const char *value, struct err *err);

/* Rows of stores on a server, for an object with members of these names. */
#define SPEC_DSN(object)                                                                           \
	{                                                                                          \
		"dsn", "a connection string, as dsn=\"host=/run/postgresql dbname=billing\"",      \
		    spec_set_text, offsetof(object, dsn)                                           \
	}
#define SPEC_SCHEMA(object)                                                                        \
	{                                                                                          \
		"schema", "a schema of the database, as schema=outbox", spec_set_text,             \
		    offsetof(object, schema)                                                       \
	}
#define SPEC_URL(object)                                                                           \
	{                                                                                          \
		"url", "the server's address, as url=redis://127.0.0.1:6379/0", spec_set_text,     \
		    offsetof(object, server.url),                                                  \
		    .missing = "the server, as url=redis://127.0.0.1:6379"                         \
	}
#define SPEC_PASSWORD_FILE(object)                                                                 \
	{                                                                                          \
		"password_file", "a file, as password_file=/run/secrets/redis", spec_set_text,     \
		    offsetof(object, server.password_file)                                         \
	}
#define SPEC_SENTINEL_PASSWORD_FILE(object)                                                        \
	{                                                                                          \
		"sentinel_password_file",                                                          \
		    "a file, as sentinel_password_file=/run/secrets/sentinel", spec_set_text,      \
		    offsetof(object, server.sentinel_password_file)                                \
	}
#define SPEC_TLS_CA(object)                                                                        \
	{                                                                                          \
		"tls_ca", "a PEM file of certificates, as tls_ca=/etc/redis/ca.pem",               \
		    spec_set_text, offsetof(object, server.tls_ca)                                 \
	}
#define SPEC_TLS_CERTIFICATE(object)                                                               \
	{                                                                                          \
		"tls_certificate", "a PEM file, as tls_certificate=/etc/redis/client.pem",         \
		    spec_set_text, offsetof(object, server.tls_certificate)                        \
	}
#define SPEC_TLS_KEY(object)                                                                       \
	{                                                                                          \
		"tls_key", "a PEM file, as tls_key=/etc/redis/client.key", spec_set_text,          \
		    offsetof(object, server.tls_key)                                               \
	}
#define SPEC_NAME(object)                                                                          \
	{                                                                                          \
		"name",                                                                            \
		    "up to 100 letters, digits, dots, dashes and underscores, as name=billing",    \
		    spec_set_name, offsetof(object, name),                                         \
		    .missing = "others that use the server are kept apart by it, as name=billing"  \
	}
#define SPEC_LEASE(object)                                                                         \
	{                                                                                          \
		"lease", "a time from 100ms to 1d, as lease=30s", spec_set_number,                 \
		    offsetof(object, lease_ms), units_duration, 100, 86400 * 1000                  \
	}
#define SPEC_TIMEOUT(object)                                                                       \
	{                                                                                          \
		"timeout", "a time from 10ms to 10m, as timeout=2s", spec_set_number,              \
		    offsetof(object, timeout_ms), units_duration, 10, 600 * 1000                   \
	}

/*
 * The type that the first word of *rest names; NULL and err: the word names no type. types: up to
 * NULL; types of one name are neighbours, and the first one is returned. what: "store of dedup".
 * *rest is changed, and is then for spec_parse_settings.
 */
const struct spec_type *spec_parse_type(
    char **rest, const struct spec_type *const *types, const char *what, struct err *err);
/* Sets all settings of the rest of the line. */
bool spec_parse_settings(
    char *rest, const struct spec_type *type, void *object, struct err *err) MUST_CHECK;
/* Sets one setting; value NULL: a word of its own. */
bool spec_set(const struct spec_type *type, void *object, const char *name, const char *value,
    struct err *err) MUST_CHECK;
/* Does the object have all required settings of the type? */
bool spec_check_needs(const struct spec_type *type, const void *object, struct err *err) MUST_CHECK;
