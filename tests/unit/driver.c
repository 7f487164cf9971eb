/*
 * dedup_driver LINE: a store of dedup for a test that is written in Python. Reads commands, one a
 * line, and answers each with one line, at once:
 *
 *   check ID…          the states: new pending done
 *   done ID…           ok
 *   release ID…        ok
 *   checkpoint OFFSET  ok
 *   stats              name=number …
 *   time MS            ok; what follows is of records of this time
 *   connect DSN        ok: a connection of the application's own, to Postgres
 *   run STATEMENT      ok: on that
 *   take ID…            the states: in its open transaction
 *
 * An id that begins with hex: is the bytes that follow. Errors are "error KIND message", with a
 * kind as retry, reject, config, denied, fenced, fatal. The end of the input closes it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

#include "dedup.h"

enum { MOST = 2000 };
static const char *const kinds[] = {"retry", "reject", "config", "denied", "fenced", "fatal"};
static const char *const states[] = {"new", "pending", "done"};

static struct outbox_dedup *dedup;
static struct outbox_dedup_id ids[MOST];
static size_t count;
static int64_t time_ms = -1; /* of the records */
static struct outbox_error error;
static PGconn *connection;

/* In place. */
static size_t decode(char *word)
{
	size_t length = 0;
	if (strncmp(word, "hex:", 4) != 0)
		return strlen(word);
	for (const char *at = word + 4; at[0] && at[1]; at += 2) {
		const char digits[3] = {at[0], at[1]};
		word[length++] = (char)strtol(digits, NULL, 16);
	}
	return length;
}

static void take_ids(char *rest)
{
	count = 0;
	for (char *word; count < MOST && (word = strtok_r(NULL, " \n", &rest)); count++) {
		size_t length = decode(word);
		ids[count] = (struct outbox_dedup_id){word, length, time_ms, -1};
	}
}

static bool check(bool in_transaction)
{
	enum outbox_dedup_state found[MOST];
	if (in_transaction ? !outbox_dedup_take(dedup, connection, ids, count, found, &error)
			   : !outbox_dedup_check(dedup, ids, count, found, &error))
		return false;
	for (size_t i = 0; i < count; i++)
		printf("%s%s", i ? " " : "", states[found[i]]);
	putchar('\n');
	return true;
}

static bool ok(bool good)
{
	if (good)
		puts("ok");
	return good;
}

static bool tell_stats(void)
{
	struct outbox_dedup_stats stats;
	outbox_dedup_stats(dedup, &stats);
	printf("ids=%" PRIu64 " pending=%" PRIu64 " memory=%" PRIu64 " disk=%" PRIu64
	       " slices=%d sub_slices=%d newest=%" PRId64 " offset=%" PRId64
	       " rebuilt=%d filter_hits=%" PRIu64 " false_hits=%" PRIu64
	       " planned_rate=%.9f observed_rate=%.9f alarm=%d"
	       " alarms=%" PRIu64 " repairs=%" PRIu64 " saturated=%" PRIu64 "\n",
	    stats.ids, stats.pending, stats.memory_bytes, stats.disk_bytes, stats.slices,
	    stats.sub_slices, stats.newest_ms, stats.offset, stats.rebuilt, stats.filter_hits,
	    stats.false_hits, stats.planned_rate, stats.observed_rate, stats.alarm, stats.alarms,
	    stats.repairs, stats.saturated);
	return true;
}

static bool fail_on_connection(void)
{
	error.kind = OUTBOX_RETRY;
	snprintf(error.message, sizeof error.message, "%s", PQerrorMessage(connection));
	*strchrnul(error.message, '\n') = '\0';
	return false;
}

static bool connect_to(const char *dsn)
{
	PQfinish(connection);
	connection = PQconnectdb(dsn);
	return ok(PQstatus(connection) == CONNECTION_OK) || fail_on_connection();
}

static bool run(const char *statement)
{
	PGresult *result = PQexec(connection, statement);
	ExecStatusType status = PQresultStatus(result);
	PQclear(result);
	return ok(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) || fail_on_connection();
}

static int64_t number_of(char *rest)
{
	const char *word = strtok_r(NULL, " \n", &rest);
	return word ? strtoll(word, NULL, 10) : -1;
}

static bool obey(const char *command, char *rest)
{
	if (strcmp(command, "connect") == 0)
		return connect_to(strtok_r(NULL, " \n", &rest));
	if (strcmp(command, "run") == 0)
		return run(strtok_r(NULL, "\n", &rest));
	if (strcmp(command, "checkpoint") == 0)
		return ok(outbox_dedup_checkpoint(dedup, number_of(rest), &error));
	if (strcmp(command, "time") == 0) {
		time_ms = number_of(rest);
		return ok(true);
	}
	take_ids(rest);
	if (strcmp(command, "check") == 0)
		return check(false);
	if (strcmp(command, "take") == 0)
		return check(true);
	if (strcmp(command, "done") == 0)
		return ok(outbox_dedup_done(dedup, ids, count, &error));
	if (strcmp(command, "release") == 0)
		return ok(outbox_dedup_release(dedup, ids, count, &error));
	if (strcmp(command, "stats") == 0)
		return tell_stats();
	fprintf(stderr, "dedup_driver: unknown command '%s'\n", command);
	exit(64);
}

static void complain(void)
{
	printf("error %s %s\n", kinds[error.kind], error.message);
}

int main(int argument_count, char **arguments)
{
	char *line = NULL, *rest, *command;
	size_t capacity = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	dedup = outbox_dedup_open(arguments[argument_count - 1], &error);
	if (!dedup) {
		complain();
		return 1;
	}
	puts("open");
	while (getline(&line, &capacity, stdin) > 0)
		if ((command = strtok_r(line, " \n", &rest)) && !obey(command, rest))
			complain();
	free(line);
	outbox_dedup_close(dedup);
	PQfinish(connection);
	return 0;
}
