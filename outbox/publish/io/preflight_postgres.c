#include "preflight.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"

/*
 * The checks of a database. preflight_postgres is the list of checks on the server and the session,
 * check_outbox_schema that of the checks on the schema; each check is one function. The columns of
 * `facts` are those of sql/queries/preflight.sql.
 */

enum { OLDEST_SERVER = 130000, ID_INCREMENT = 9 };

/* The database that is checked, and the report for its findings. */
struct subject {
	struct preflight *report;
	struct pg *pg;
	const struct postgres_settings *postgres;
	char *place;
};

static struct pg_result *query_preflight(const struct subject *subject, const char *sql,
    const struct pg_param *params, int count, struct err *err)
{
	owned_text char *text = schema_text(sql, subject->postgres->schema);

	return pg_query(subject->pg, text, params, count, err);
}

static void check_server_version(const struct subject *subject, const char *version)
{
	if (pg_server_version(subject->pg) < OLDEST_SERVER)
		preflight_add(subject->report, PREFLIGHT_FAIL, subject->place,
		    "use PostgreSQL 13 or newer", "server version %s has no xid8 and pg_snapshot",
		    version);
	else
		preflight_add(subject->report, PREFLIGHT_OK, subject->place, NULL,
		    "PostgreSQL %s at %s", version, pg_place(subject->pg));
}

static void check_mode(const struct subject *subject, const struct pg_result *facts)
{
	if (text_equal(pg_value(facts, 0, 2), "t"))
		preflight_add(subject->report, PREFLIGHT_FAIL, subject->place,
		    "name the primary in the dsn, or several hosts with "
		    "target_session_attrs=read-write",
		    "%s is a standby; the relay writes its log on the primary",
		    pg_place(subject->pg));
	else if (text_equal(pg_value(facts, 0, 3), "on"))
		preflight_add(subject->report, PREFLIGHT_FAIL, subject->place,
		    "alter role … reset default_transaction_read_only",
		    "transactions of role %s are read-only by default", pg_value(facts, 0, 1));

	if (text_equal(pg_value(facts, 0, 4), "off"))
		preflight_add(subject->report, PREFLIGHT_WARN, subject->place, "set fsync = on",
		    "fsync is off: a crash of the server's machine loses committed rows");
}

static void check_hosts(const struct subject *subject)
{
	if (pg_may_land_on_standby(subject->pg))
		preflight_add(subject->report, PREFLIGHT_WARN, subject->place,
		    "add target_session_attrs=read-write to the dsn",
		    "several hosts are named without target_session_attrs: a connection may land "
		    "on a standby, where no log can be written");
}

/* The port of our end of the socket; 0: it is not a TCP socket. */
static int64_t local_port(int fd)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof name;

	if (getsockname(fd, (struct sockaddr *)&name, &length) != 0)
		return 0;
	if (name.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&name)->sin_port);
	return name.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&name)->sin6_port) : 0;
}

static void check_pooling(const struct subject *subject, const struct pg_result *facts)
{
	if (pg_int(facts, 0, 5) != local_port(pg_fd(subject->pg)))
		preflight_add(subject->report, PREFLIGHT_INFO, subject->place, NULL,
		    "a pooler or proxy is between relay and server; transaction and session "
		    "pooling both work, statement pooling does not");
}

static void check_sequence(const struct subject *subject, const struct pg_result *facts)
{
	owned_text char *cure = NULL, *direction = NULL;

	if (!pg_is_null(facts, 0, ID_INCREMENT) && pg_int(facts, 0, ID_INCREMENT) < 0) {
		direction = xformat("alter sequence %s.message_id_seq increment by 1, then "
				    "`outbox-relay migrate up`",
		    subject->postgres->schema);
		preflight_add(subject->report, PREFLIGHT_FAIL, subject->place, direction,
		    "the sequence of message.id goes down (INCREMENT %" PRId64
		    "): the records of a key would be reordered",
		    pg_int(facts, 0, ID_INCREMENT));
	}
	/* Without a cache ids rise in the order in which they are drawn. */
	if (pg_is_null(facts, 0, 7) || pg_int(facts, 0, 7) == 1)
		return;
	cure = xformat("alter sequence %s.message_id_seq cache 1, and restart the writers",
	    subject->postgres->schema);
	preflight_add(subject->report, PREFLIGHT_FAIL, subject->place, cure,
	    "the sequence of message.id has CACHE %" PRId64
	    ": sessions draw ids ahead, and the records of a key would be reordered",
	    pg_int(facts, 0, 7));
}

/*
 * A server may refuse functions that recognise a failover or a copy. `migrate up` then chooses
 * other evidence; a database that was copied here since calls refused functions and publishes
 * nothing.
 */
static bool check_evidence(const struct subject *subject, struct err *err)
{
	struct err refusal;
	OWNED(owned_pg_result_destroy)
	struct pg_result *evidence =
	    query_preflight(subject, sql_preflight_evidence, NULL, 0, &refusal);

	if (!evidence && refusal.kind == ERR_RETRY) {
		*err = refusal;
		return false;
	}
	if (!evidence) {
		preflight_add(subject->report, PREFLIGHT_FAIL, subject->place,
		    "run `outbox-relay migrate up` on this server: it chooses other functions",
		    "this server refuses a function that recognises a failover or a copy: %s",
		    refusal.message);
		return true;
	}

	if (text_equal(pg_value(evidence, 0, 0), "f"))
		preflight_add(subject->report, PREFLIGHT_INFO, subject->place, NULL,
		    "this server refuses pg_current_wal_lsn() or pg_walfile_name(): a failover is "
		    "recognised by the start time of the server, and each restart begins a new "
		    "epoch");
	if (text_equal(pg_value(evidence, 0, 1), "f"))
		preflight_add(subject->report, PREFLIGHT_INFO, subject->place, NULL,
		    "this server refuses pg_control_system(): a copy from a dump is recognised "
		    "only "
		    "by the transaction ids in its log");
	return true;
}

/* Columns of message_ids.sql: last_id, kept_id. */
static bool check_message_ids(const struct subject *subject, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *ids = query_preflight(subject, sql_message_ids, NULL, 0, err);

	if (!ids)
		return false;
	if (pg_int(ids, 0, 0) < pg_int(ids, 0, 1))
		preflight_add(subject->report, PREFLIGHT_WARN, subject->place,
		    "`outbox-relay migrate up` raises the sequence, as does a relay that runs",
		    "the sequence of message.id went back to %" PRId64
		    ", and rows with ids up to %" PRId64
		    " are kept: new messages get ids that others have or had",
		    pg_int(ids, 0, 0), pg_int(ids, 0, 1));
	return true;
}

/* All missing privileges are one finding, since one statement cures it. A few can be granted alone.
 */
enum { MOST_STATEMENTS = 3 };

static bool check_grants(const struct subject *subject, const char *role, bool has_roles,
    int *ret_lacking, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *lacking = query_preflight(subject, sql_preflight_grants, NULL, 0, err);
	OWNED(text_finish) struct text what = {0}, cure = {0};
	owned_text char *grant = NULL;

	if (!lacking)
		return false;
	*ret_lacking = pg_rows(lacking);
	for (int i = 0; i < *ret_lacking; i++) {
		if (i < MOST_STATEMENTS)
			text_addf(&what, "%s%s", i ? ", " : "", pg_value(lacking, i, 0));
		text_addf(&cure, "%s%s", i ? "; " : "", pg_value(lacking, i, 1));
	}
	if (*ret_lacking > MOST_STATEMENTS)
		text_addf(&what, " and %d more", *ret_lacking - MOST_STATEMENTS);
	grant = has_roles ? xformat("grant %s_relay to \"%s\"%s%s", subject->postgres->schema, role,
				*ret_lacking > MOST_STATEMENTS ? "" : ", or: ",
				*ret_lacking > MOST_STATEMENTS ? "" : text_string(&cure))
			  : xstrdup(text_string(&cure));
	if (*ret_lacking > 0)
		preflight_add(subject->report, PREFLIGHT_FAIL, subject->place, grant,
		    "role %s lacks %s", role, text_string(&what))
		    ->kind = ERR_DENIED;
	if (*ret_lacking == 0)
		preflight_add(subject->report, PREFLIGHT_OK, subject->place, NULL,
		    "role %s has every privilege that the relay needs", role);
	return true;
}

/* A table with row security and no policy hides all of its rows from the roles it applies to. */
static bool check_policies(
    const struct subject *subject, const char *role, int *faults, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *tables = query_preflight(subject, sql_preflight_policies, NULL, 0, err);

	for (int i = 0; tables && i < pg_rows(tables); i++) {
		bool applies = text_equal(pg_value(tables, i, 2), "t");
		const char *names = pg_value(tables, i, 1);
		owned_text char *policies =
		    names[0] ? xformat("policies: %s", names) : xstrdup("no policy");
		struct preflight_finding *finding = preflight_add(subject->report,
		    applies ? PREFLIGHT_FAIL : PREFLIGHT_WARN, subject->place,
		    pg_value(tables, i, 3),
		    applies
			? "table %s has row level security (%s) that applies to role %s: hidden "
			  "rows would count as published, so every statement on it fails"
			: "table %s has row level security (%s): it does not apply to role %s, but "
			  "may hide rows from writers and readers",
		    pg_value(tables, i, 0), policies, role);

		/* The policy does not hide rows from this role. */
		if (!applies)
			continue;
		finding->kind = ERR_DENIED;
		++*faults;
	}
	return tables != NULL;
}

/* The message table refuses bytes that came as text in the form \x00ff, but knows no other form. */
static bool check_bytea_output(const struct subject *subject, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *places = query_preflight(subject, sql_preflight_bytea, NULL, 0, err);

	for (int i = 0; places && i < pg_rows(places); i++)
		preflight_add(subject->report, PREFLIGHT_WARN, subject->place,
		    pg_value(places, i, 1),
		    "bytea_output is escape for %s: bytes that an application sends as text are "
		    "published in that form, and are not refused",
		    pg_value(places, i, 0));
	return places != NULL;
}

/* Columns of partitions.sql: name, from_us, to_us, bytes, rows_estimated, now_us. */
static void judge_partitions(
    const struct subject *subject, const char *table, const struct pg_result *leaves)
{
	const int64_t wanted = subject->postgres->partitions_ahead;
	int64_t ahead = 0;
	bool covered = false;

	for (int i = 0; i < pg_rows(leaves); i++) {
		int64_t now = pg_int(leaves, i, 5);

		if (pg_is_null(leaves, i, 1) && pg_is_null(leaves, i, 2))
			continue; /* the default partition, or one without both ends */
		if (!pg_is_null(leaves, i, 1) && pg_int(leaves, i, 1) > now)
			ahead++;
		else if (pg_is_null(leaves, i, 2) || pg_int(leaves, i, 2) > now)
			covered = true;
	}
	if (!covered || ahead == 0)
		preflight_add(subject->report, PREFLIGHT_WARN, subject->place,
		    "`outbox-relay run` makes them, or `outbox-relay partition make`",
		    covered
			? "no partition of table %s is made ahead"
			: "no partition of table %s covers the present: rows go to the default one",
		    table);
	else
		preflight_add(subject->report, PREFLIGHT_OK, subject->place, NULL,
		    "%" PRId64 " partitions of table %s ahead (partitions_ahead = %" PRId64 ")",
		    ahead, table, wanted);
}

static bool check_partitions(const struct subject *subject, const char *table, struct err *err)
{
	owned_text char *width = xformat("%" PRId64, subject->postgres->partition_every_ms);
	const struct pg_param params[] = {{table}, {width}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *leaves = query_preflight(subject, sql_partitions, params, 2, err);
	OWNED(owned_pg_result_destroy) struct pg_result *strays = NULL;

	if (!leaves)
		return false;
	judge_partitions(subject, table, leaves);
	strays = query_preflight(subject, sql_partition_default, params, 1, err);
	if (!strays)
		return false;
	if (pg_int(strays, 0, 0) > 0)
		preflight_add(subject->report, PREFLIGHT_WARN, subject->place,
		    "`outbox-relay run` moves them; if it cannot, its log says why",
		    "%s_default holds rows (%s counted): partitions were missing", table,
		    pg_value(strays, 0, 0));
	return true;
}

/* Columns of bell_reason.sql: the reason, whether messages may wait for it. */
static bool check_bell_reason(const struct subject *subject, const char *class, struct err *err)
{
	const struct pg_param params[] = {{class}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *reason = query_preflight(subject, sql_bell_reason, params, 1, err);

	if (!reason || pg_rows(reason) == 0)
		return reason != NULL;
	if (text_equal(pg_value(reason, 0, 1), "t"))
		preflight_add(subject->report, PREFLIGHT_WARN, subject->place,
		    "end that session, or the transaction that is open in it",
		    "messages may wait up to a second: %s", pg_value(reason, 0, 0));
	else
		preflight_add(subject->report, PREFLIGHT_INFO, subject->place, NULL,
		    "the relay cannot sleep, it polls: %s", pg_value(reason, 0, 0));
	return true;
}

/* Columns of bell_facts.sql: standby, class, oid, why there is no doorbell. */
static bool check_doorbell(const struct subject *subject, struct err *err)
{
	bool always = subject->postgres->doorbell == DOORBELL_ON;
	const struct pg_param use[] = {{always ? "true" : "false"}};
	OWNED(owned_pg_result_destroy) struct pg_result *backend = NULL;
	OWNED(owned_pg_result_destroy) struct pg_result *facts = NULL;

	if (subject->postgres->doorbell == DOORBELL_OFF)
		return true;

	/* bell_facts.sql takes a lock for the session, which a pooler would keep. */
	backend = query_preflight(subject, sql_backend, NULL, 0, err);
	if (!backend)
		return false;
	bool pooled = pg_int(backend, 0, 0) != pg_backend(subject->pg);
	if (!pooled && !(facts = query_preflight(subject, sql_bell_facts, use, 1, err)))
		return false;

	const char *why = pooled                     ? "a pooler is between relay and server"
			  : !pg_is_null(facts, 0, 3) ? pg_value(facts, 0, 3)
						     : NULL;
	if (!why)
		return check_bell_reason(subject, pg_value(facts, 0, 1), err);
	preflight_add(subject->report, PREFLIGHT_INFO, subject->place, NULL,
	    "writers do not wake the relay, it polls: %s", why);
	return true;
}

static bool check_outbox_schema(
    const struct subject *subject, const struct pg_result *facts, bool *ret_usable, struct err *err)
{
	int lacking = 0;

	if (!text_equal(pg_value(facts, 0, 6), "t")) {
		preflight_add(subject->report, PREFLIGHT_FAIL, subject->place,
		    "run `outbox-relay migrate up`", "schema %s has no message table",
		    subject->postgres->schema);
		return true;
	}
	check_sequence(subject, facts);
	if (!check_grants(subject, pg_value(facts, 0, 1), text_equal(pg_value(facts, 0, 8), "t"),
		&lacking, err))
		return false;
	if (!check_policies(subject, pg_value(facts, 0, 1), &lacking, err))
		return false;
	*ret_usable = lacking == 0;
	return lacking > 0 ||
	       (check_evidence(subject, err) && check_message_ids(subject, err) &&
		   check_bytea_output(subject, err) && check_doorbell(subject, err) &&
		   check_partitions(subject, "message", err) &&
		   check_partitions(subject, "lookback", err) &&
		   check_partitions(subject, "processed", err) &&
		   check_partitions(subject, "unique_ledger", err));
}

bool preflight_postgres(struct preflight *report, struct pg *pg,
    const struct postgres_settings *postgres, bool *ret_usable, struct err *err)
{
	owned_text char *place = xformat("postgres %s", postgres->name);
	struct subject subject = {report, pg, postgres, place};
	OWNED(owned_pg_result_destroy) struct pg_result *facts = NULL;

	*ret_usable = false;
	if (pg_server_version(pg) < OLDEST_SERVER) {
		check_server_version(&subject, "older than 13");
		return true;
	}
	facts = query_preflight(&subject, sql_preflight, NULL, 0, err);
	if (!facts)
		return false;
	check_server_version(&subject, pg_value(facts, 0, 0));
	check_mode(&subject, facts);
	check_hosts(&subject);
	check_pooling(&subject, facts);
	return check_outbox_schema(&subject, facts, ret_usable, err);
}
