#pragma once
/*
 * A rule, and what differs between its kinds. A kind is a file with a struct rule_type, and a row
 * in rules_spec.c.
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"
#include "occurrences.h"
#include "rule_key.h"
#include "rules.h"

struct rule {
	const struct rule_type *type;
	char *name;
	int64_t most, late_ms;
	bool acts;                       /* an action was given: */
	enum outbox_rules_action action; /* PASS: it only counts */
	char *expression;
	struct rule_key *key;
	/* of how much time before its own a message needs to know the others; set by check */
	int64_t reach_ms;
	/* of rules.c: */
	uint32_t tag;                    /* of its name, in the hashes of its keys */
	uint64_t seed;                   /* of those, by its name and expression */
	int width;                       /* of its logs */
	int64_t oldest_ms;               /* what is before matters to nobody any more */
	struct occurrences known, moved; /* moved: read from logs that are not those of width */
	uint64_t seen, exceeded, keyless;
};

struct rule_setting {
	const char *name, *example; /* "a number of messages from 1 to 1G, as most=5" */
	/* Fills *err only if there is more to say than the example. */
	bool (*set)(struct rule *rule, const char *value, struct err *err);
};

struct rule_type {
	const char *name; /* a line begins with it */
	size_t size;      /* of its struct, in which a struct rule is the first member */
	struct rule_setting settings[4]; /* of its own; the last has no name */
	bool (*check)(struct rule *rule, struct err *err);
	void (*finish)(struct rule *rule); /* NULL: nothing to do */
	/* Would one more message of this time be too many? */
	bool (*exceeds)(struct rule *rule, const struct occurrences_key *known, int64_t time_ms);
	/* The first time that matters to messages of this time and later. */
	int64_t (*oldest)(const struct rule *rule, int64_t time_ms);
};

extern const struct rule_type rule_sliding, rule_daily;
