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
#include "spec.h"

struct rule {
	const struct rule_type *type;
	char *name;
	int64_t most, late_ms;
	const char *acts;                /* the word of its action */
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

struct rule_type {
	struct spec_type spec; /* its name, and its own settings, of its struct */
	size_t size;           /* of its struct, in which a struct rule is the first member */
	bool (*check)(struct rule *rule, struct err *err);
	void (*finish)(struct rule *rule); /* NULL: nothing to do */
	/* Would one more message of this time be too many? */
	bool (*exceeds)(struct rule *rule, const struct occurrences_key *known, int64_t time_ms);
	/* The first time that matters to messages of this time and later. */
	int64_t (*oldest)(const struct rule *rule, int64_t time_ms);
};

/* The settings of every rule, as rows of struct spec_type: all of them, and those it needs. */
extern const struct spec_setting rule_settings[];
enum { RULE_TAKES = 31, RULE_NEEDS = 15 };

extern const struct rule_type rule_sliding, rule_daily;
