#pragma once
/* The beginning of most commands: the configuration, its sections; and how a command fails. */
#include "call.h"
#include "database.h"
#include "moment.h"

DEFINE_OWNED(struct config, config_destroy)

/* Prints "outbox-relay: message", with the program's name, and returns the documented exit status.
 */
int session_failed(const struct err *err);

/* The file that --config or OUTBOX_RELAY_CONFIG names; NULL: none. */
const char *session_config_path(const struct call *call);
/* Loads the configuration and sets up the log for a command: warnings and errors only. */
struct config *session_config(const struct call *call, struct err *err);

/* The [postgres] section of --postgres; without it the only one, or "main". */
const struct postgres_settings *session_postgres(
    const struct call *call, const struct config *config, struct err *err);
#define SESSION_POSTGRES_OPTION                                                                    \
	{                                                                                          \
		"postgres", "SECTION",                                                             \
		    "The [postgres] section, if there are several (default \"main\")."             \
	}

/* A command about one database. */
struct session {
	const struct call *call;
	const struct config *config;
	const struct postgres_settings *postgres;
	struct pg *pg;
	int status; /* the exit status when all went well */
};
/*
 * The body of such a command: the configuration, `check` (NULL: nothing to check before there is a
 * connection), the section of --postgres, a connection, then `work`. Returns the exit status.
 */
int session_run(const struct call *call, bool (*check)(const struct call *call, struct err *err),
    bool (*work)(struct session *session, struct err *err));

/* The one of partition_tables that --table names; NULL: none was named. */
const char *session_table(const struct call *call);
bool session_check_table(const struct call *call, struct err *err) MUST_CHECK;
#define SESSION_TABLE_OPTION                                                                       \
	{                                                                                          \
		"table", "TABLE", "message, lookback, processed or unique_ledger (default: all)."  \
	}

/* The [publisher] section of --publisher; without it the only one, or "main". */
const struct publisher_settings *session_publisher(
    const struct call *call, const struct config *config, struct err *err);

/*
 * The range of --from and --to, without its second end. An end that is not given is open: the least
 * or the largest number, and its text stays as it was. ERR_REJECT: the range is empty, or begins in
 * the future.
 */
bool session_range(const struct call *call, int64_t *ret_from_us, int64_t *ret_to_us,
    char from[MOMENT_SIZE], char to[MOMENT_SIZE], struct err *err) MUST_CHECK;
