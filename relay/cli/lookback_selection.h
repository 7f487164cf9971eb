#pragma once
/*
 * What the `lookback` commands have in common: whose ids, which of them, and the questions to the
 * database. Ids are named (TYPE ID…), or chosen by options that must all hold.
 */
#include <jansson.h>
#include "session.h"

struct undecided {
	const struct call *call;
	const struct config *config;
	const struct config_postgres *postgres;
	struct pg *pg;  /* NULL until something is asked */
	json_t *chosen; /* as outbox.lookback_operate takes it; {}: all that is overdue or parked */
	const char *type; /* of the ids that are named; NULL: chosen by options */
	const char *const *ids;
	int id_count;
};

/*
 * The body of a command whose arguments, if there are any, are TYPE ID…: the configuration, the
 * database, then `work`. Returns the exit status.
 */
int undecided_run(
    const struct call *call, bool (*work)(struct undecided *undecided, struct err *err));

/* Of each command that takes options to choose by. */
#define UNDECIDED_OPTIONS                                                                          \
	{"type", "TYPE", "Only ids of this business type."},                                       \
	    {"section", "NAME", "Only those of this [lookback] section."},                         \
	    {"state", "STATE", "Only those that are overdue, or parked."},                         \
	    {"service", "NAME", "Only those that this [check] section is asked about."},           \
	    {"error", "TEXT", "Only those with this as a part of their last error."},              \
	    {"from", "TIME", "Only those prepared at this time (UTC) or later."},                  \
	{                                                                                          \
		"to", "TIME", "Only those prepared before this time."                              \
	}
#define UNDECIDED_POSTGRES_OPTION                                                                  \
	{                                                                                          \
		"postgres", "SECTION",                                                             \
		    "The [postgres] section; that of the [lookback] section unless given."         \
	}

/* Reads those options into `chosen`. */
bool undecided_choose(struct undecided *undecided, struct err *err) MUST_CHECK;
/* Is any of them given? *ret_name is the first. */
bool undecided_is_narrowed(const struct undecided *undecided, const char **ret_name);

/* `chosen` as text; the caller frees. */
char *undecided_chosen(const struct undecided *undecided);

/* session_query, connecting first if need be. */
struct pg_result *undecided_query(struct undecided *undecided, const char *sql,
    const struct pg_param *params, int count, struct err *err);
