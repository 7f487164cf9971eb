/* Records of rules in the table outbox.rule_record (sql/migrations/0015_rules.sql). */
#include <stdlib.h>
#include "cleanup.h"
#include "pg_column.h"
#include "postgres_session.h"
#include "rules_store.h"
#include "schema_text.h"
#include "sql_files.h"
#include "text.h"

/* The parameters of the statement behind the name. */
enum column {
	TIMES,
	MARKS,
	COUNTS,
	KEYS,
	REFUSES,
	MOST,
	WITHIN,
	OLDEST,
	LIVE,
	BEGINS,
	ENDS,
	COLUMNS
};

struct rules_store {
	struct postgres_session server;
	char *name, *sql; /* sql: with the name of the schema inserted */
	int64_t keep_ms;
	struct pg_column columns[COLUMNS];
};

static void close_postgres_rules(struct rules_store *store)
{
	postgres_session_finish(&store->server);
	for (int i = 0; i < COLUMNS; i++)
		pg_column_finish(&store->columns[i]);
	free(store->name);
	free(store->sql);
	free(store);
}

static struct rules_store *open_postgres_rules(const struct rules_store_spec *spec, struct err *err)
{
	const char *schema = spec->schema ? spec->schema : "outbox";
	if (!schema_text_check(schema, err))
		return NULL;

	struct rules_store *store = xcalloc(1, sizeof *store);
	store->name = xstrdup(spec->name);
	store->sql = schema_text(sql_rules_judge, schema);
	store->keep_ms = spec->keep_ms;
	for (int i = 0; i < COLUMNS; i++)
		store->columns[i].type = i == KEYS ? PG_COLUMN_BYTEA : PG_COLUMN_BIGINT;

	postgres_session_init(
	    &store->server, spec->dsn, (int)spec->timeout_ms, POSTGRES_SESSION_ANY);
	if (postgres_session_connect(&store->server, err))
		return store;
	close_postgres_rules(store);
	return NULL;
}

static bool postgres_rules_need_user(const struct rules_store *store)
{
	(void)store;
	return false;
}

static void add_rule_number(struct rules_store *store, enum column column, int64_t number)
{
	pg_column_add_int(&store->columns[column], number);
}

static void add_part_row(
    struct rules_store *store, const struct rules_question *question, const struct rules_part *part)
{
	const struct rule_span *span = &part->span;

	pg_column_add_bytes(&store->columns[KEYS], part->key, sizeof part->key);
	add_rule_number(store, REFUSES, part->rule->action != OUTBOX_RULES_PASS);
	add_rule_number(store, MOST, part->rule->most);
	add_rule_number(store, WITHIN, span->within_ms);
	add_rule_number(store, OLDEST, part->oldest_ms);
	add_rule_number(
	    store, LIVE, span->until_ms - question->time_ms + part->rule->late_ms + store->keep_ms);
	/* A piece that is not used is empty. */
	for (int i = 0; i < RULE_MOST_PIECES; i++) {
		add_rule_number(store, BEGINS, i < span->count ? span->pieces[i].begin_ms : 0);
		add_rule_number(store, ENDS, i < span->count ? span->pieces[i].end_ms : 0);
	}
}

static void make_columns(
    struct rules_store *store, const struct rules_question *questions, size_t count)
{
	for (int i = 0; i < COLUMNS; i++)
		pg_column_clear(&store->columns[i]);
	for (size_t i = 0; i < count; i++) {
		add_rule_number(store, TIMES, questions[i].time_ms);
		add_rule_number(store, MARKS, questions[i].mark);
		add_rule_number(store, COUNTS, (int64_t)questions[i].count);
		for (size_t k = 0; k < questions[i].count; k++)
			add_part_row(store, &questions[i], &questions[i].parts[k]);
	}
}

static void read_row(struct rules_question *question, const char *verdict)
{
	question->again = text_equal(verdict, "again");
	for (size_t i = 0; i < question->count && !question->again; i++)
		question->parts[i].exceeded = verdict[i] == '1';
}

static bool judge_in_postgres(
    struct rules_store *store, struct rules_question *questions, size_t count, struct err *err)
{
	struct pg_param params[1 + COLUMNS] = {{store->name}};

	make_columns(store, questions, count);
	for (int i = 0; i < COLUMNS; i++)
		params[1 + i] = pg_column_param(&store->columns[i]);
	OWNED(owned_pg_result_destroy)
	struct pg_result *verdicts =
	    postgres_session_ask(&store->server, store->sql, params, 1 + COLUMNS, NULL, err);
	for (size_t i = 0; verdicts && i < count; i++)
		read_row(&questions[i], pg_value(verdicts, (int)i, 0));
	return verdicts;
}

const struct rules_store_type postgres_rules = {
    .spec = {"postgres", rules_store_settings,
	1 << RULES_DSN | 1 << RULES_SCHEMA | 1 << RULES_NAME | 1 << RULES_KEEP | 1 << RULES_TIMEOUT,
	1 << RULES_NAME},
    .open = open_postgres_rules,
    .close = close_postgres_rules,
    .needs_user = postgres_rules_need_user,
    .judge = judge_in_postgres,
};
