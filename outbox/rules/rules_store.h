#pragma once
/*
 * The interface between rules_shared.c and the stores that processes share: each store is a row of
 * functions. A store judges messages by rules and records the admitted ones, each message
 * atomically.
 */
#include "errors.h"
#include "redis_address.h"
#include "rule.h"

enum { RULES_KEY_BYTES = 16, RULES_TAG_BYTES = 8, RULES_STORE_MOST = 10000 };

/* The settings of a line. */
struct rules_store_spec {
	const struct rules_store_type *type;
	char *name; /* keeps these records apart from others on the server */
	struct redis_access server;
	char *dsn, *schema; /* database, and schema of the table; NULL: not given */
	int64_t keep_ms;    /* records stay on the server for so much longer than they matter */
	int64_t timeout_ms; /* for an answer of the server */
};

/* Parses "redis url=redis://127.0.0.1 name=push". The caller finishes ret_spec in any case. */
bool rules_store_spec_parse(
    const char *line, struct rules_store_spec *ret_spec, struct err *err) MUST_CHECK;
void rules_store_spec_finish(struct rules_store_spec *spec);

struct rules_store; /* a connection */

/* A message's part for a rule that has a key for it. */
struct rules_part {
	const struct rule *rule;
	unsigned char key[RULES_KEY_BYTES]; /* hash of the rule's name, its expression, the key */
	struct rule_span span;
	int64_t oldest_ms; /* older occurrences of the key matter to no message that is in time */
	bool exceeded;     /* the answer: one more message is too many */
};

struct rules_question {
	int64_t time_ms;
	int64_t mark;                       /* identifies the message among those of a key */
	unsigned char tag[RULES_TAG_BYTES]; /* hash of the user */
	struct rules_part *parts;
	size_t count; /* from 1 */
	bool again;   /* the answer: it was recorded before, and passes */
};

struct rules_store_type {
	struct spec_type spec; /* the store's name, and the settings that it takes */
	/* Connects; calls connect again after a failure. Owned by one thread. */
	struct rules_store *(*open)(const struct rules_store_spec *spec, struct err *err);
	void (*close)(struct rules_store *store);
	/* Must all keys of a message belong to one user? After open. */
	bool (*needs_user)(const struct rules_store *store);
	/*
	 * Answers the questions in their order, and records each message that no rule refuses with
	 * all its parts. On failure some are recorded, and answered with `again` later.
	 */
	bool (*judge)(struct rules_store *store, struct rules_question *questions, size_t count,
	    struct err *err);
};

/* Indexes of rules_store_settings. */
enum rules_store_setting {
	RULES_DSN,
	RULES_SCHEMA,
	RULES_URL,
	RULES_PASSWORD_FILE,
	RULES_TLS_CA,
	RULES_TLS_CERTIFICATE,
	RULES_TLS_KEY,
	RULES_SENTINEL_PASSWORD_FILE,
	RULES_NAME,
	RULES_KEEP,
	RULES_TIMEOUT,
	RULES_STORE_SETTINGS
};
extern const struct spec_setting rules_store_settings[RULES_STORE_SETTINGS + 1];

extern const struct rules_store_type redis_rules;
extern const struct rules_store_type postgres_rules;
