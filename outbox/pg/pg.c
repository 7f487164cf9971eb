#include "pg_private.h"
#include <assert.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include "clock.h"
#include "host.h"
#include "logging.h"
#include "text.h"

/*
 * The life of a connection: pg_start begins it, step_pg_connecting drives libpq until
 * finish_connecting, and pg_step then reads and flushes. pg_lose ends it, with the server's last
 * words as the error. Statements and results are in pg_statement.c, the settings of the session in
 * pg_session.c, the limit for hostile servers in pg_limit.c.
 */

/* --- notices and errors of the server ------------------------------------------------------ */

/*
 * Is it the warning "canceling wait for synchronous replication"? The commit succeeds after it. Its
 * text is translated, its source function is not. The connection is given up, so that no caller
 * goes on as if a standby had the commit: the next commit, on another connection, waits for the
 * standby again, since a commit waits for everything before it in the WAL.
 */
static bool tells_of_a_commit_cut_short(const PGresult *notice)
{
	return text_equal(PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION), "SyncRepWaitForLSN");
}

static void receive_notice(void *context, const PGresult *notice)
{
	struct pg *pg = context;
	const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);
	if (!message)
		message = PQresultErrorMessage(notice);

	if (text_equal(severity, "FATAL") || text_equal(severity, "PANIC"))
		pg_report(pg, notice, &pg->farewell);
	else if (tells_of_a_commit_cut_short(notice))
		err_set(&pg->farewell, ERR_RETRY,
		    "%s: the wait for a synchronous standby was cut short, so that what was "
		    "committed may be lost in a failover; it is tried again",
		    pg->place);

	log_debug(
	    "postgres_notice", {"place", LOG_TEXT(pg->place)}, {"message", LOG_TEXT(message)});
}

bool pg_report(struct pg *pg, const PGresult *error, struct err *err)
{
	const char *sqlstate = PQresultErrorField(error, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(error, PG_DIAG_MESSAGE_PRIMARY);
	const char *detail = PQresultErrorField(error, PG_DIAG_MESSAGE_DETAIL);
	snprintf(pg->sqlstate, sizeof pg->sqlstate, "%s", sqlstate ? sqlstate : "");
	snprintf(pg->detail, sizeof pg->detail, "%s", detail ? detail : "");
	return failure_of_statement(pg->place, pg->sqlstate,
	    message ? message : PQresultErrorMessage(error),
	    PQresultErrorField(error, PG_DIAG_MESSAGE_HINT), err);
}

bool pg_is_error(const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	return status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE;
}

void pg_keep_answer(struct pg *pg, PGresult *result)
{
	if (pg->answer && pg_is_error(pg->answer)) {
		PQclear(result);
		return;
	}
	PQclear(pg->answer);
	pg->answer = result;
}

/*
 * libpq still holds what arrived before the connection ended, such as the server's FATAL. With the
 * socket gone PQgetResult cannot block.
 */
static void take_last_words(struct pg *pg)
{
	PGresult *result;
	while (PQstatus(pg->connection) == CONNECTION_BAD && (result = PQgetResult(pg->connection)))
		pg_keep_answer(pg, result);
}

static bool refuse_flood(struct pg *pg, struct err *err)
{
	pg->state = PG_LOST;
	PQclear(pg->answer);
	pg->answer = NULL;
	return err_set(err, ERR_REJECT, "%s: the server sends more than %lld bytes", pg->place,
	    (long long)pg->answer_limit);
}

bool pg_lose(struct pg *pg, struct err *err)
{
	if (pg->flooded)
		return refuse_flood(pg, err);

	pg->state = PG_LOST;
	take_last_words(pg);
	if (pg->answer && PQresultErrorField(pg->answer, PG_DIAG_SQLSTATE)) {
		struct err said;
		pg_report(pg, pg->answer, &said);
		err_set(err, ERR_RETRY, "%s", said.message);
	} else if (pg->farewell.message[0]) {
		err_set(err, ERR_RETRY, "%s", pg->farewell.message);
	} else {
		err_set(err, ERR_RETRY, "%s: connection lost: %s", pg->place,
		    PQerrorMessage(pg->connection));
	}
	PQclear(pg->answer);
	pg->answer = NULL;
	return false;
}

/* --- connecting ---------------------------------------------------------------------------- */

void pg_note_place(struct pg *pg)
{
	const char *host = PQhost(pg->connection), *port = PQport(pg->connection);
	const char *database = PQdb(pg->connection);
	bool bare_ipv6 = host && strchr(host, ':');
	snprintf(pg->place, sizeof pg->place, "%s%s%s:%s/%s", bare_ipv6 ? "[" : "",
	    host && *host ? host : "?", bare_ipv6 ? "]" : "", port && *port ? port : "?",
	    database && *database ? database : "?");
}

static const char *find_dsn_option(const PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword; options++) {
		if (text_equal(options->keyword, keyword))
			return options->val;
	}
	return NULL;
}

/*
 * libpq accepts `postgres://user:p@ss/word@host/db`, with a part of the password as the host, and
 * messages would show that host.
 */
bool pg_dsn_check(const char *dsn, struct err *err)
{
	char *message = NULL;
	PQconninfoOption *options = PQconninfoParse(dsn, &message);
	if (!options) {
		failure_of_dsn(dsn, message ? message : "out of memory", err);
		PQfreemem(message);
		return false;
	}

	const char *host = find_dsn_option(options, "host"),
		   *database = find_dsn_option(options, "dbname");
	bool uri = text_starts(dsn, "postgresql://") || text_starts(dsn, "postgres://");
	/* Only in a URI can a part of the password become the host or the database. */
	bool split = uri && ((host && strchr(host, '@')) || (database && strchr(database, '@')));
	PQconninfoFree(options);

	if (split)
		return err_set(err, ERR_CONFIG,
		    "dsn: more than one @; write those of the password as %%40 (and / as %%2F, : "
		    "as "
		    "%%3A)");
	return true;
}

static const char *option_or_default(
    const PQconninfoOption *options, const PQconninfoOption *defaults, const char *keyword)
{
	const char *value = find_dsn_option(options, keyword);
	return value ? value : find_dsn_option(defaults, keyword);
}

/* Checks each host of a comma-separated list. */
static bool has_remote_host(const char *hosts)
{
	for (size_t length; *hosts; hosts += length + (hosts[length] == ',')) {
		length = strcspn(hosts, ",");
		/* An empty host is libpq's default, a Unix socket; "@" begins an abstract one. */
		bool is_socket = length == 0 || *hosts == '/' || *hosts == '@';
		if (!is_socket && !host_is_loopback(hosts, length))
			return true;
	}
	return false;
}

bool pg_dsn_is_exposed(const char *dsn)
{
	PQconninfoOption *options = PQconninfoParse(dsn, NULL), *defaults = PQconndefaults();
	bool exposed = false;

	if (options && defaults) {
		const char *hosts = option_or_default(options, defaults, "hostaddr");
		const char *mode = option_or_default(options, defaults, "sslmode");
		if (!hosts || !*hosts)
			hosts = option_or_default(options, defaults, "host");

		/* prefer goes on without TLS when an attacker in between says there is none */
		exposed = hosts && has_remote_host(hosts) &&
			  (!mode || text_equal(mode, "disable") || text_equal(mode, "allow") ||
			      text_equal(mode, "prefer"));
	}
	PQconninfoFree(options);
	PQconninfoFree(defaults);
	return exposed;
}

/*
 * Later keywords win, and "dbname" stands for all keywords of the dsn. PgBouncer tracks
 * client_encoding and application_name, and refuses startup options that it does not know.
 */
static PGconn *start_connecting(const char *dsn, const char *application, const char *password)
{
	const char *const keywords[] = {"keepalives_idle", "keepalives_interval",
	    "keepalives_count", "tcp_user_timeout", "fallback_application_name", "dbname",
	    "client_encoding", password ? "password" : NULL, NULL};
	const char *const values[] = {
	    "5", "2", "3", "10000", application, dsn, "UTF8", password, NULL};
	return PQconnectStartParams(keywords, values, 1);
}

static bool fail_pg_connecting(struct pg *pg, struct err *err)
{
	pg->state = PG_LOST;
	return failure_of_connecting(
	    pg->dsn, pg->place, PQerrorMessage(pg->connection), pg->sqlstate, err);
}

static bool begin_pg_connection(struct pg *pg, const char *password, struct err *err)
{
	pg->connection = start_connecting(pg->dsn, pg->application, password);
	if (!pg->connection)
		return err_set(err, ERR_FATAL, "out of memory");
	pg_note_place(pg);
	PQsetNoticeReceiver(pg->connection, receive_notice, pg);
	/* The only way to the SQLSTATE of a refused connection: no result carries it. */
	PQsetErrorVerbosity(pg->connection, PQERRORS_VERBOSE);
	return true;
}

static struct pg *start_pg_session(
    const char *dsn, const char *application, bool plain, struct err *err)
{
	if (!pg_dsn_check(dsn, err))
		return NULL;
	struct pg *pg = xcalloc(1, sizeof *pg);
	*pg = (struct pg){.state = PG_CONNECTING,
	    .plain = plain,
	    .dsn = xstrdup(dsn),
	    .application = xstrdup(application),
	    .polling = PGRES_POLLING_WRITING};

	struct err failure;
	pg_note_place(pg);
	/* If the command cannot be started, pg_step returns the failure. */
	if (!pg_password_begin(dsn, &pg->password, &pg->farewell) || pg->password)
		return pg;
	if (!begin_pg_connection(pg, NULL, err)) {
		pg_destroy(pg);
		return NULL;
	}
	if (PQstatus(pg->connection) == CONNECTION_BAD && !fail_pg_connecting(pg, &failure)) {
		/* A retry cannot correct the dsn, so this failure is reported at once. */
		if (failure.kind == ERR_CONFIG) {
			err_set(err, ERR_CONFIG, "%s", failure.message);
			pg_destroy(pg);
			return NULL;
		}
		pg->state = PG_CONNECTING; /* pg_step returns the failure */
	}
	return pg;
}

struct pg *pg_start(const char *dsn, const char *application, struct err *err)
{
	return start_pg_session(dsn, application, false, err);
}

struct pg *pg_start_plain(const char *dsn, const char *application, struct err *err)
{
	return start_pg_session(dsn, application, true, err);
}

static bool is_pg_socket_ready(const struct pg *pg)
{
	struct pollfd wanted = {.fd = pg_fd(pg), .events = pg_events(pg)};
	return wanted.fd < 0 || poll(&wanted, 1, 0) != 0;
}

/*
 * Refuses GSSAPI encryption: libpq does not say how many decrypted bytes GSSAPI holds, so an event
 * loop would wait for a socket on which nothing more comes.
 */
static bool finish_connecting(struct pg *pg, struct err *err)
{
	if (PQgssEncInUse(pg->connection)) {
		pg->state = PG_LOST;
		return err_set(err, ERR_CONFIG,
		    "%s: connections with GSSAPI encryption are not supported; put "
		    "gssencmode=disable, and sslmode=require for TLS, into the dsn",
		    pg->place);
	}

	if (PQsetnonblocking(pg->connection, 1) != 0)
		return pg_lose(pg, err);
	PQsetErrorVerbosity(pg->connection, PQERRORS_DEFAULT);
	free(pg->dsn);
	pg->dsn = NULL;
	pg->sqlstate[0] = '\0';
	if (!pg->plain)
		return pg_settle_begin(pg, err);
	pg->state = PG_IDLE;
	return true;
}

/* The command of the password runs: goes on to the server when it has ended. */
static bool step_pg_password(struct pg *pg, struct err *err)
{
	const char *text = NULL;

	if (!pg->password) {
		pg->state = PG_LOST;
		return err_set(err, pg->farewell.kind, "%s", pg->farewell.message);
	}
	if (!pg_password_step(pg->password, &text, err)) {
		pg->state = PG_LOST;
		return false;
	}
	if (!text)
		return true;

	bool good = begin_pg_connection(pg, text, err);
	pg_password_destroy(pg->password);
	pg->password = NULL;
	if (!good)
		pg->state = PG_LOST;
	return good;
}

/* PQconnectPoll mistakes a socket that is still connecting for a connected one: poll it first. */
static bool step_pg_connecting(struct pg *pg, struct err *err)
{
	if (pg->settling)
		return pg_settle_step(pg, err);
	if (!pg->connection)
		return step_pg_password(pg, err);
	if (PQstatus(pg->connection) != CONNECTION_BAD) {
		if (!is_pg_socket_ready(pg))
			return true;
		if (!pg_is_within_limit(pg))
			return refuse_flood(pg, err);
		pg->polling = PQconnectPoll(pg->connection);
		pg_note_place(pg);
	}

	if (PQstatus(pg->connection) == CONNECTION_BAD || pg->polling == PGRES_POLLING_FAILED)
		return fail_pg_connecting(pg, err);
	return pg->polling == PGRES_POLLING_OK ? finish_connecting(pg, err) : true;
}

/* libpq's connect_timeout is per host, in seconds, at least 2; 0 means none. */
static int64_t connect_limit_ms(const struct pg *pg, int timeout_ms)
{
	int64_t limit = timeout_ms, seconds = 0, hosts = 1;
	PQconninfoOption *options = PQconninfo(pg->connection);
	if (!options)
		return limit;

	const char *timeout = find_dsn_option(options, "connect_timeout"),
		   *host = find_dsn_option(options, "host");
	/* libpq tries the hosts one after another, and each has the whole connect_timeout. */
	for (; host && *host; host++)
		hosts += *host == ',';
	if (timeout && text_to_int64(timeout, 1, INT32_MAX, &seconds)) {
		int64_t own = (seconds < 2 ? 2 : seconds) * 1000 * hosts;
		limit = own < limit ? own : limit;
	}
	PQconninfoFree(options);
	return limit;
}

/* Takes over pg. */
static struct pg *finish_start(struct pg *pg, int timeout_ms, struct err *err)
{
	if (!pg)
		return NULL;

	/* The command of the password has a limit of its own. */
	bool up = pg_step(pg, err);
	while (up && pg->password)
		up = pg_wait(pg, -1) ? err_set(err, ERR_RETRY, "%s: interrupted", pg->place)
				     : pg_step(pg, err);

	const int64_t limit = connect_limit_ms(pg, timeout_ms), end = clock_ms() + limit;
	while (up && pg->state == PG_CONNECTING) {
		int64_t left = end - clock_ms();
		if (left <= 0) {
			up = err_set(
			    err, ERR_RETRY, "%s: no answer within %d ms", pg->place, (int)limit);
			break;
		}
		up = pg_wait(pg, (int)left) ? err_set(err, ERR_RETRY, "%s: interrupted", pg->place)
					    : pg_step(pg, err);
	}

	if (up)
		return pg;
	pg_destroy(pg);
	return NULL;
}

struct pg *pg_connect(const char *dsn, const char *application, int timeout_ms, struct err *err)
{
	return finish_start(pg_start(dsn, application, err), timeout_ms, err);
}

struct pg *pg_connect_plain(
    const char *dsn, const char *application, int timeout_ms, struct err *err)
{
	return finish_start(pg_start_plain(dsn, application, err), timeout_ms, err);
}

void pg_destroy(struct pg *pg)
{
	if (!pg)
		return;
	PQclear(pg->answer);
	pg_password_destroy(pg->password);
	if (!pg->borrowed)
		PQfinish(pg->connection);
	free(pg->dsn);
	free(pg->application);
	free(pg);
}

/* --- waiting and progress ------------------------------------------------------------------ */

enum pg_state pg_state(const struct pg *pg)
{
	return pg->state;
}

enum pg_connecting pg_connecting(const struct pg *pg)
{
	switch (PQstatus(pg->connection)) {
	case CONNECTION_NEEDED:
	case CONNECTION_STARTED:
	case CONNECTION_BAD:
		return PG_REACHES;
	case CONNECTION_MADE:
	case CONNECTION_SSL_STARTUP:
	case CONNECTION_GSS_STARTUP:
	case CONNECTION_AWAITING_RESPONSE:
		return PG_STARTS_UP;
	default:
		return PG_IS_ADMITTED;
	}
}

int pg_fd(const struct pg *pg)
{
	return pg->password ? pg_password_fd(pg->password) : PQsocket(pg->connection);
}

short pg_events(const struct pg *pg)
{
	switch (pg->state) {
	case PG_CONNECTING:
		if (pg->settling)
			return (short)(POLLIN | (pg->flushing ? POLLOUT : 0));
		return !pg->password && pg->polling == PGRES_POLLING_WRITING ? POLLOUT : POLLIN;
	case PG_BUSY:
		return (short)((pg->copying && !pg->drained ? 0 : POLLIN) |
			       (pg->flushing ? POLLOUT : 0));
	default:
		return POLLIN;
	}
}

static _Thread_local int interrupt_fd = -1;

void pg_interrupt_by(int fd)
{
	interrupt_fd = fd;
}

void pg_interrupt_in(int timer, int64_t ms)
{
	/* a timer of 0 would be off */
	struct itimerspec when = {
	    .it_value = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000 + 1}};

	timerfd_settime(timer, 0, &when, NULL);
}

bool pg_wait(const struct pg *pg, int timeout_ms)
{
	struct pollfd wanted[] = {
	    {.fd = pg_fd(pg), .events = pg_events(pg)}, {.fd = interrupt_fd, .events = POLLIN}};
	if (wanted[0].fd >= 0)
		poll(wanted, 2, timeout_ms); /* EINTR: the callers' loops poll again */
	return wanted[1].revents != 0;
}

bool pg_tls_holds_bytes(const struct pg *pg)
{
	SSL *tls = PQsslStruct(pg->connection, "OpenSSL");
	return tls && SSL_pending(tls) > 0;
}

static bool step_pg_idle(struct pg *pg, struct err *err)
{
	bool alive = pg_consume(pg);
	(void)PQisBusy(pg->connection); /* parses the input: receive_notice gets a FATAL */
	return alive && !pg->farewell.message[0] ? true : pg_lose(pg, err);
}

int pg_notifications(struct pg *pg)
{
	int count = 0;

	for (PGnotify *notify; (notify = PQnotifies(pg->connection)); count++)
		PQfreemem(notify);
	return count;
}

static bool step_pg_busy(struct pg *pg, struct err *err)
{
	if (pg->flushing) {
		int left = PQflush(pg->connection);
		if (left < 0)
			return pg_lose(pg, err);
		pg->flushing = left > 0;
	}

	bool reads = pg->copying ? pg->drained : PQisBusy(pg->connection);
	if (!reads)
		return true;
	pg->drained = false;
	return pg_consume(pg) ? true : pg_lose(pg, err);
}

bool pg_step(struct pg *pg, struct err *err)
{
	switch (pg->state) {
	case PG_CONNECTING:
		return step_pg_connecting(pg, err);
	case PG_IDLE:
		return step_pg_idle(pg, err);
	case PG_BUSY:
		return step_pg_busy(pg, err);
	default:
		return pg_is_there(pg, err);
	}
}

bool pg_is_there(const struct pg *pg, struct err *err)
{
	if (pg->state != PG_LOST)
		return true;
	return err_set(err, ERR_RETRY, "%s: the connection was lost before", pg->place);
}

bool pg_cancel(struct pg *pg, struct err *err)
{
	char message[256] = "out of memory";
	if (!pg_is_there(pg, err))
		return false;
	PGcancel *cancel = PQgetCancel(pg->connection);
	bool asked = cancel && PQcancel(cancel, message, sizeof message);
	PQfreeCancel(cancel);
	return asked ? true : err_set(err, ERR_RETRY, "%s: cancel: %s", pg->place, message);
}

const char *pg_sqlstate(const struct pg *pg)
{
	return pg->sqlstate;
}

const char *pg_detail(const struct pg *pg)
{
	return pg->detail;
}

int pg_backend(const struct pg *pg)
{
	return PQbackendPID(pg->connection);
}

int pg_server_version(const struct pg *pg)
{
	return PQserverVersion(pg->connection);
}

bool pg_may_land_on_standby(const struct pg *pg)
{
	PQconninfoOption *options = PQconninfo(pg->connection);
	if (!options)
		return false;

	const char *hosts = find_dsn_option(options, "hostaddr");
	const char *wanted = find_dsn_option(options, "target_session_attrs");
	if (!hosts || !*hosts)
		hosts = find_dsn_option(options, "host");

	/* With one host libpq has no choice of a server. */
	bool may = hosts && strchr(hosts, ',') && !text_equal(wanted, "read-write") &&
		   !text_equal(wanted, "primary");
	PQconninfoFree(options);
	return may;
}

const char *pg_place(const struct pg *pg)
{
	return pg->place;
}
