#include "failure.h"
#include <string.h>
#include "cleanup.h"
#include "text.h"

static const char login_advice[] = "check user and password in the dsn (or what password_command "
				   "prints), and the server's "
				   "pg_hba.conf";
static const char migrate_advice[] = "run `outbox-relay migrate up`";
static const char absent_advice[] = "does Postgres run there, and listen on that address and port?";
static const char primary_advice[] = "this is a standby: name the primary in the dsn, or all hosts "
				     "and target_session_attrs=read-write";

/* The first row whose code is a prefix of the SQLSTATE counts. */
static const struct {
	const char *code;
	enum err_kind kind;
	const char *advice;
} sqlstates[] = {
    {"08", ERR_RETRY, NULL},
    {"25006", ERR_RETRY, primary_advice},
    {"25P03", ERR_RETRY, NULL}, /* idle_in_transaction_session_timeout */
    {"40001", ERR_RETRY, NULL},
    {"40P01", ERR_RETRY, NULL},
    {"53", ERR_RETRY, NULL},
    {"55P03", ERR_RETRY, NULL},
    {"57014", ERR_RETRY, NULL}, /* cancelled, also by statement_timeout */
    {"57P0", ERR_RETRY, NULL},
    {"28", ERR_DENIED, login_advice},
    {"42501", ERR_DENIED, "`outbox-relay doctor` names the missing grant, or the policy"},
    {"3D000", ERR_CONFIG, "create the database, or correct its name in the dsn"},
    {"3F000", ERR_CONFIG, migrate_advice},
    {"42P01", ERR_CONFIG, migrate_advice},
    {"42703", ERR_CONFIG, migrate_advice}, /* a column of a later schema */
    {"42883", ERR_CONFIG, migrate_advice},
    {"23505", ERR_FENCED, NULL},
};

/* Texts of libpq before a server answers, and of PgBouncer, whose errors all have the code 08P01.
 */
static const struct {
	const char *phrase;
	enum err_kind kind;
	const char *advice;
} phrases[] = {
    {"authentication failed", ERR_DENIED, login_advice},
    {"no such user", ERR_DENIED, login_advice},
    {"no password supplied", ERR_DENIED, "put it into the dsn, PGPASSWORD or a .pgpass file"},
    {"no such database", ERR_CONFIG, "correct the dsn, or add it to pgbouncer.ini"},
    {"unsupported startup parameter", ERR_CONFIG,
	"add it to ignore_startup_parameters in pgbouncer.ini"},
    {"SSL was required", ERR_CONFIG, "turn on ssl at the server, or change sslmode in the dsn"},
    {"certificate verify failed", ERR_CONFIG,
	"the server's certificate has expired, or no authority of sslrootcert signed it: renew it, "
	"or "
	"correct sslrootcert in the dsn"},
    {"does not match host name", ERR_CONFIG,
	"write the host in the dsn as the server's certificate has it"},
    {"alert certificate expired", ERR_CONFIG, "renew the certificate of sslcert"},
    {"certificate", ERR_CONFIG, "check the ssl settings of the dsn"},
    {"private key", ERR_CONFIG, "check the ssl settings of the dsn"},
    {"does not exist", ERR_CONFIG, "check database and user in the dsn"},
    {"could not translate host name", ERR_RETRY, "check the host in the dsn"},
    {"Connection refused", ERR_RETRY, absent_advice},
    {"No such file or directory", ERR_RETRY,
	"no Postgres listens there; name the server in DATABASE_URL or dsn"},
    {"session is read-only", ERR_RETRY, primary_advice},
    {"server is in hot standby mode", ERR_RETRY, primary_advice},
};

enum err_kind failure_kind(const char *sqlstate, const char **ret_advice)
{
	for (size_t i = 0; i < sizeof sqlstates / sizeof *sqlstates; i++) {
		if (!text_starts(sqlstate, sqlstates[i].code))
			continue;
		if (ret_advice)
			*ret_advice = sqlstates[i].advice;
		return sqlstates[i].kind;
	}
	if (ret_advice)
		*ret_advice = NULL;
	return ERR_FATAL;
}

/* Leaves both as they are when the text has no known phrase. */
static void phrase_kind(const char *text, enum err_kind *ret_kind, const char **ret_advice)
{
	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
		if (!strstr(text, phrases[i].phrase))
			continue;
		*ret_kind = phrases[i].kind;
		*ret_advice = phrases[i].advice;
		return;
	}
}

static bool tell_pg_failure(const char *place, enum err_kind kind, const char *message,
    const char *sqlstate, const char *advice, struct err *err)
{
	owned_text char *code = sqlstate[0] ? xformat(" (SQLSTATE %s)", sqlstate) : NULL;
	return err_set(err, kind, "%s: %s%s%s%s", place, message, code ? code : "",
	    advice ? "; " : "", advice ? advice : "");
}

/* A lock that was not free in time, a deadlock, or a serialization failure. */
static bool is_contended(const char *sqlstate)
{
	return text_equal(sqlstate, "55P03") || text_equal(sqlstate, "40P01") ||
	       text_equal(sqlstate, "40001");
}

bool failure_of_statement(
    const char *place, const char *sqlstate, const char *message, const char *hint, struct err *err)
{
	const char *advice;
	enum err_kind kind = failure_kind(sqlstate, &advice);

	tell_pg_failure(place, kind, message, sqlstate, advice ? advice : hint, err);
	return is_contended(sqlstate) && err_contended(err);
}

/* A verbose line is "FATAL:  28P01: message"; moves *line to the message. */
static void take_sqlstate(const char **line, char ret_sqlstate[SQLSTATE_SIZE])
{
	const size_t length = SQLSTATE_SIZE - 1;
	const char *code = strstr(*line, ":  ");
	if (!code)
		return;
	code += 3;
	if (strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != length ||
	    !text_starts(code + length, ": "))
		return;
	memcpy(ret_sqlstate, code, length);
	ret_sqlstate[length] = '\0';
	*line = code + length + 2;
}

/* A message of libpq about a server begins `connection to server at "x", port 1 failed: `. */
static const char server_prefix[] = "connection to server ";

static const char *skip_server(const char *line)
{
	const char *failed = text_starts(line, server_prefix) ? strstr(line, " failed: ") : NULL;
	return failed ? failed + strlen(" failed: ") : line;
}

/* Is it a line that repeats the advice, or names a place in the server's source? */
static bool is_noise(const char *line)
{
	return line[0] == '\t' || line[0] == '\0' || text_starts(line, "LOCATION:") ||
	       text_starts(line, "This probably means the server terminated abnormally");
}

/* Was only one server tried? Then the place names it; otherwise each line keeps its server. */
static bool tried_one(const char *text)
{
	const char *server = strstr(text, server_prefix);
	return !server || !strstr(server + 1, server_prefix);
}

static void condense_server_text(
    const char *text, char ret_sqlstate[SQLSTATE_SIZE], struct text *message)
{
	owned_text char *copy = xstrdup(text);
	bool one = tried_one(text);
	char *rest = copy, *line;

	while ((line = strsep(&rest, "\n"))) {
		if (is_noise(line))
			continue;
		const char *said = skip_server(line);
		size_t server = (size_t)(said - line);
		take_sqlstate(&said, ret_sqlstate);
		text_add(message, message->length ? "; " : "");
		if (!one)
			text_append(message, line, server);
		text_add(message, said);
	}
}

bool failure_of_connecting(const char *dsn, const char *place, const char *text,
    char ret_sqlstate[SQLSTATE_SIZE], struct err *err)
{
	ret_sqlstate[0] = '\0';
	/* Failures to connect begin in one of these ways; any other text is about the dsn. */
	if (!text_starts(text, server_prefix) && !text_starts(text, "could not translate host"))
		return failure_of_dsn(dsn, text, err);

	OWNED(text_finish) struct text message = {0};
	condense_server_text(text, ret_sqlstate, &message);

	/* Class 08 and no SQLSTATE say only that connecting failed: the text says why. */
	const char *advice = NULL;
	enum err_kind kind = ERR_RETRY;
	bool vague = !ret_sqlstate[0] || text_starts(ret_sqlstate, "08");
	if (!vague)
		kind = failure_kind(ret_sqlstate, &advice);
	else
		phrase_kind(text, &kind, &advice);
	return tell_pg_failure(place, kind, text_string(&message), ret_sqlstate, advice, err);
}

static bool may_hold_password(const char *dsn)
{
	return strstr(dsn, "password") || strchr(dsn, '@');
}

/*
 * If a password contains a blank or one of / : @ % that is not escaped, libpq takes its rest for
 * another part of the dsn and quotes that part.
 */
bool failure_of_dsn(const char *dsn, const char *text, struct err *err)
{
	/*
	 * Only quoted parts repeat the dsn, and only a dsn with a password has something to hide.
	 */
	if (!may_hold_password(dsn) || !strchr(text, '"'))
		return err_set(err, ERR_CONFIG, "dsn: %s", text);

	OWNED(text_finish) struct text shown = {0};
	bool quoted = false;
	for (; *text; text++) {
		if (*text == '"') {
			text_add(&shown, quoted ? "…\"" : "\"");
			quoted = !quoted;
		} else if (!quoted) {
			text_append(&shown, text, 1);
		}
	}
	return err_set(err, ERR_CONFIG,
	    "dsn: %s; not quoted here since the dsn holds a password: are / : @ %% and blanks in "
	    "it escaped?",
	    text_string(&shown));
}
