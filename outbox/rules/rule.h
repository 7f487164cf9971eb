#pragma once
/*
 * A rule, and the interface of the kinds of rules. Each kind has a file with a struct rule_type,
 * and a row in rules_spec.c.
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
	enum outbox_rules_action action; /* PASS: the rule only counts */
	char *expression;
	struct rule_key *key;
	/* how far back from its own time a message needs the others; set by check */
	int64_t reach_ms;
	/* used by rules.c: */
	uint32_t tag;                    /* made from its name; part of the hashes of its keys */
	uint64_t seed;                   /* seed of these hashes, from its name and expression */
	int width;                       /* number of the width of its logs */
	int64_t oldest_ms;               /* older occurrences no longer matter */
	struct occurrences known, moved; /* moved: read from logs of another width */
	uint64_t seen, exceeded, keyless;
};

/*
 * Which occurrences matter to a message: `most` of them in the pieces are too many (daily), or
 * `most` neighbours that lie with the message in one interval of within_ms (sliding).
 */
enum { RULE_MOST_PIECES = 4 };
struct rule_span {
	int64_t within_ms; /* 0: daily */
	struct {
		int64_t begin_ms, end_ms; /* half-open */
	} pieces[RULE_MOST_PIECES];
	int count;
	int64_t until_ms; /* the message matters to no message of this time or later */
};

struct rule_type {
	struct spec_type spec; /* its name and its own settings, which are stored in its struct */
	size_t size;           /* size of its struct, whose first member is a struct rule */
	bool (*check)(struct rule *rule, struct err *err);
	void (*finish)(struct rule *rule); /* NULL: nothing to do */
	/* Would one more message of this time be too many? */
	bool (*exceeds)(struct rule *rule, const struct occurrences_key *known, int64_t time_ms);
	/* The earliest time that matters to messages of this time and later. */
	int64_t (*oldest)(const struct rule *rule, int64_t time_ms);
	/* The time that exceeds looks at, for a store that judges somewhere else. */
	void (*span)(struct rule *rule, int64_t time_ms, struct rule_span *ret_span);
};

/* The settings that all rules share, as rows for struct spec_type: all of them, and the required
 * ones. */
extern const struct spec_setting rule_settings[];
enum { RULE_TAKES = 31, RULE_NEEDS = 15 };

extern const struct rule_type rule_sliding, rule_daily;
