#pragma once
/*
 * What the commands about parked rows have in common: whose rows, which of them, and the questions
 * to the database. Rows are chosen by ids as such (12 13), or by terms that must all hold:
 *
 *   topic=orders  key=42  key=\x00ff  error="too large"  parked=2026-01-02..  state=dead ids=10..20
 */
#include <jansson.h>
#include "session.h"

enum { PARKED_STATES = 5 };
extern const char *const parked_states[PARKED_STATES];

struct parked {
	const struct call *call;
	const struct config_publisher *publisher;
	struct pg *pg;  /* NULL until something is asked */
	json_t *chosen; /* as outbox.parked_is takes it; {}: all rows of the publisher */
	int id_count;   /* rows named one by one; 0: by terms */
};

/*
 * The body of a command: the configuration, the publisher of --publisher, then `work`. Returns the
 * exit status.
 */
int parked_run(const struct call *call, bool (*work)(struct parked *parked, struct err *err));
#define PARKED_PUBLISHER_OPTION                                                                    \
	{                                                                                          \
		"publisher", "NAME",                                                               \
		    "Whose rows; the only publisher of the configuration, or \"main\"."            \
	}
/* Of the description of each command that takes terms. */
#define PARKED_TERMS_HELP                                                                          \
	"TERMs choose rows, each given once, and all must hold: topic=orders; key=42, or "         \
	"key=\\x00ff in hexadecimal; error=TEXT, a part of the error; "                            \
	"parked=2026-01-02..2026-01-03T12:00, when it was parked (UTC), the first end included; "  \
	"state=waiting|dead|stalled|free|behind; ids=10..20, both ends included. One end of a "    \
	"range may "                                                                               \
	"be left open.\n"

/* Reads the arguments of the call. Bare ids are refused unless may_name_ids. */
bool parked_choose(struct parked *parked, bool may_name_ids, struct err *err) MUST_CHECK;
/* One bare id. */
bool parked_id(const char *word, int64_t *ret_id, struct err *err) MUST_CHECK;

/* `chosen` as text; the caller frees. */
char *parked_chosen(const struct parked *parked);

/* database_query, connecting first if need be. */
struct pg_result *parked_query(struct parked *parked, const char *sql,
    const struct pg_param *params, int count, struct err *err);
