#pragma once
/*
 * The ids that a `lookback` command is about, shared by all of these commands, and their queries.
 * Ids are named (TYPE ID…), or selected by options that must all hold.
 */
#include <jansson.h>
#include "session.h"

struct lookback_selection {
	const struct call *call;
	const struct config *config;
	const struct config_postgres *postgres;
	struct pg *pg;  /* NULL until the first query */
	json_t *chosen; /* as outbox.lookback_operate takes it; {}: all that is overdue or parked */
	const char *type; /* business type of the named ids; NULL: ids are selected by options */
	const char *const *ids;
	int id_count;
};

/*
 * The body of a command whose arguments, if there are any, are TYPE ID…: the configuration, the
 * database, then `work`. Returns the exit status.
 */
int lookback_selection_run(
    const struct call *call, bool (*work)(struct lookback_selection *selection, struct err *err));

/* Options of each command that can select ids by them. */
#define LOOKBACK_SELECTION_OPTIONS                                                                 \
	{"type", "TYPE", "Only ids of this business type."},                                       \
	    {"section", "NAME", "Only those of this [lookback] section."},                         \
	    {"state", "STATE", "Only those that are overdue, or parked."},                         \
	    {"service", "NAME", "Only those that this [check] section is asked about."},           \
	    {"error", "TEXT", "Only those with this as a part of their last error."},              \
	    {"from", "TIME", "Only those prepared at this time (UTC) or later."},                  \
	{                                                                                          \
		"to", "TIME", "Only those prepared before this time."                              \
	}
#define LOOKBACK_SELECTION_POSTGRES_OPTION                                                         \
	{                                                                                          \
		"postgres", "SECTION",                                                             \
		    "The [postgres] section; that of the [lookback] section unless given."         \
	}

/* Reads those options into `chosen`. */
bool lookback_selection_choose(struct lookback_selection *selection, struct err *err) MUST_CHECK;
/* Is any of them given? *ret_name is the first. */
bool lookback_selection_is_narrowed(
    const struct lookback_selection *selection, const char **ret_name);

/* `chosen` as text; the caller frees. */
char *lookback_selection_chosen(const struct lookback_selection *selection);

/* database_query, connecting first if need be. */
struct pg_result *lookback_selection_query(struct lookback_selection *selection, const char *sql,
    const struct pg_param *params, int count, struct err *err);
