/* Claims in the table outbox.claim (sql/migrations/0013_claim.sql). */
#include <inttypes.h>
#include <stdlib.h>
#include "claims_store.h"
#include "cleanup.h"
#include "postgres_session.h"
#include "pg_column.h"
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"

enum statement { TAKE, RENEW, RELEASE, STATEMENTS };
static const char *const statements[STATEMENTS] = {
    [TAKE] = sql_claim_take,
    [RENEW] = sql_claim_renew,
    [RELEASE] = sql_claim_release,
};

struct claims_store {
	struct postgres_session server;
	char *name, *lease_ms;
	char *sql[STATEMENTS]; /* with the name of the schema inserted */
	struct pg_column ids, tokens;
};

static void close_postgres_claims(struct claims_store *claims)
{
	postgres_session_finish(&claims->server);
	pg_column_finish(&claims->ids);
	pg_column_finish(&claims->tokens);
	for (int i = 0; i < STATEMENTS; i++)
		free(claims->sql[i]);
	free(claims->name);
	free(claims->lease_ms);
	free(claims);
}

static struct claims_store *open_postgres_claims(const struct claims_spec *spec, struct err *err)
{
	const char *schema = spec->schema ? spec->schema : "outbox";
	if (!schema_text_check(schema, err))
		return NULL;

	struct claims_store *claims = xcalloc(1, sizeof *claims);
	claims->name = xstrdup(spec->name);
	claims->lease_ms = xformat("%" PRId64, spec->lease_ms);
	for (int i = 0; i < STATEMENTS; i++)
		claims->sql[i] = schema_text(statements[i], schema);
	claims->ids.type = PG_COLUMN_BYTEA;
	claims->tokens.type = PG_COLUMN_BIGINT;

	postgres_session_init(
	    &claims->server, spec->dsn, (int)spec->timeout_ms, POSTGRES_SESSION_ANY);
	if (postgres_session_connect(&claims->server, err))
		return claims;
	close_postgres_claims(claims);
	return NULL;
}

static void fill_claim_ids(
    struct claims_store *claims, const struct claims_id *ids, size_t count, bool with_tokens)
{
	pg_column_clear(&claims->ids);
	pg_column_clear(&claims->tokens);
	for (size_t i = 0; i < count; i++) {
		pg_column_add_bytes(&claims->ids, ids[i].id, ids[i].length);
		if (with_tokens)
			pg_column_add_int(&claims->tokens, ids[i].token);
	}
}

static bool has_answers(const struct pg_result *rows, size_t count, struct err *err)
{
	return (size_t)pg_rows(rows) == count ||
	       err_set(
		   err, ERR_RETRY, "the server answers for %d of %zu claims", pg_rows(rows), count);
}

static bool take_postgres_claims(
    struct claims_store *claims, struct claims_id *ids, size_t count, struct err *err)
{
	fill_claim_ids(claims, ids, count, false);
	const struct pg_param params[] = {
	    {claims->name}, pg_column_param(&claims->ids), {claims->lease_ms}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *tokens =
	    postgres_session_ask(&claims->server, claims->sql[TAKE], params, 3, NULL, err);
	if (!tokens || !has_answers(tokens, count, err))
		return false;
	for (size_t i = 0; i < count; i++) /* null: another holder; pg_int reads it as 0 */
		ids[i].token = pg_int(tokens, (int)i, 0);
	return true;
}

/* The answer is a 1 or 0 for each claim. */
static bool read_held(const struct pg_result *held, size_t count, bool *ret_held, struct err *err)
{
	if (!held || !has_answers(held, count, err))
		return false;
	for (size_t i = 0; i < count; i++)
		ret_held[i] = pg_int(held, (int)i, 0) == 1;
	return true;
}

static bool renew_postgres_claims(struct claims_store *claims, const struct claims_id *ids,
    size_t count, bool *ret_held, struct err *err)
{
	fill_claim_ids(claims, ids, count, true);
	const struct pg_param params[] = {{claims->name}, pg_column_param(&claims->ids),
	    pg_column_param(&claims->tokens), {claims->lease_ms}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *held =
	    postgres_session_ask(&claims->server, claims->sql[RENEW], params, 4, NULL, err);
	return read_held(held, count, ret_held, err);
}

static bool release_postgres_claims(struct claims_store *claims, const struct claims_id *ids,
    size_t count, bool *ret_held, struct err *err)
{
	fill_claim_ids(claims, ids, count, true);
	const struct pg_param params[] = {
	    {claims->name}, pg_column_param(&claims->ids), pg_column_param(&claims->tokens)};
	OWNED(owned_pg_result_destroy)
	struct pg_result *held =
	    postgres_session_ask(&claims->server, claims->sql[RELEASE], params, 3, NULL, err);
	return read_held(held, count, ret_held, err);
}

const struct claims_store_type postgres_claims = {
    .spec = {"postgres", claims_settings,
	1 << CLAIMS_DSN | 1 << CLAIMS_SCHEMA | 1 << CLAIMS_NAME | 1 << CLAIMS_LEASE |
	    1 << CLAIMS_TIMEOUT,
	1 << CLAIMS_NAME},
    .open = open_postgres_claims,
    .close = close_postgres_claims,
    .take = take_postgres_claims,
    .renew = renew_postgres_claims,
    .release = release_postgres_claims,
};
