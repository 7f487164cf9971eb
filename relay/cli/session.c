#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "logging.h"
#include "partitions.h"
#include "text.h"

int session_failed(const struct err *err)
{
	/* the error comes behind the output that was printed before, where both go to one file */
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", program_name, err->message);
	return err_exit_status(err);
}

const char *session_config_path(const struct call *call)
{
	const char *path = call->config ? call->config : getenv("OUTBOX_RELAY_CONFIG");

	return path && path[0] ? path : NULL;
}

struct config *session_config(const struct call *call, struct err *err)
{
	struct config *config = config_load(session_config_path(call), err);

	if (!config)
		return NULL;
	config_use_password_commands(config);
	/* a command prints its own results; only warnings and errors of the log matter */
	log_configure(config->log_level > LOG_LEVEL_WARN ? config->log_level : LOG_LEVEL_WARN,
	    config->log_format);
	return config;
}

const struct postgres_settings *session_postgres(
    const struct call *call, const struct config *config, struct err *err)
{
	return database_section(config, call_text(call, "postgres", NULL), err);
}

int session_run(const struct call *call, bool (*check)(const struct call *call, struct err *err),
    bool (*work)(struct session *session, struct err *err))
{
	struct err err;
	OWNED(owned_config_destroy) struct config *config = session_config(call, &err);
	struct session session = {.call = call, .config = config};
	bool done;

	/* checks need no connection, so a wrong call fails even without a server */
	if (config && (!check || check(call, &err)))
		session.postgres = session_postgres(call, config, &err);
	session.pg = session.postgres ? database_connect(session.postgres, &err) : NULL;
	done = session.pg && work(&session, &err);
	pg_destroy(session.pg);
	return done ? session.status : session_failed(&err);
}

const char *session_table(const struct call *call)
{
	const char *name = call_text(call, "table", NULL);

	for (int i = 0; name && i < PARTITION_TABLES; i++)
		if (text_equal(name, partition_tables[i]))
			return partition_tables[i];
	return NULL;
}

bool session_check_table(const struct call *call, struct err *err)
{
	return !call_flag(call, "table") || session_table(call) ||
	       err_set(err, ERR_REJECT,
		   "--table is message, lookback, processed or unique_ledger, not \"%s\"",
		   call_text(call, "table", NULL));
}

const struct publisher_settings *session_publisher(
    const struct call *call, const struct config *config, struct err *err)
{
	const char *name = call_text(call, "publisher", NULL);
	const struct config_publisher *publisher;

	/* a single publisher needs no name; if there are several, "main" is the default */
	if (!name && config->publisher_count == 1)
		return &config->publishers[0].settings;
	publisher = config_find_publisher(config, name ? name : "main");
	if (!publisher && name)
		err_set(err, ERR_CONFIG, "there is no section [publisher \"%s\"]", name);
	else if (!publisher && config->publisher_count == 0)
		err_set(err, ERR_CONFIG,
		    "this configuration only delivers: it has no [publisher] section");
	else if (!publisher)
		err_set(err, ERR_CONFIG,
		    "there are several publishers: name one with --publisher NAME");
	return publisher ? &publisher->settings : NULL;
}

static bool read_moment(const struct call *call, const char *option, int64_t *ret_us,
    char text[MOMENT_SIZE], struct err *err)
{
	const char *given = call_text(call, option, NULL);

	if (!given)
		return true;
	if (!moment_parse(given, ret_us, err))
		return err_prefix(err, "--%s", option);
	moment_format_exact(*ret_us, text);
	return true;
}

bool session_range(const struct call *call, int64_t *ret_from_us, int64_t *ret_to_us,
    char from[MOMENT_SIZE], char to[MOMENT_SIZE], struct err *err)
{
	*ret_from_us = INT64_MIN;
	*ret_to_us = INT64_MAX;
	if (!read_moment(call, "from", ret_from_us, from, err) ||
	    !read_moment(call, "to", ret_to_us, to, err))
		return false;
	if (*ret_from_us >= *ret_to_us)
		return err_set(err, ERR_REJECT, "--from %s does not lie before --to %s", from, to);

	/* such a range is most likely a typing error, and an empty result would hide it */
	return *ret_from_us <= clock_wall_us() ||
	       err_set(err, ERR_REJECT, "--from %s lies in the future, where nothing is", from);
}
