/*
 * Applies, lists and prints migrations. Begin at migrate_up: step_migration applies one file in one
 * transaction and records it with its checksum.
 */
#include "migrate.h"
#include <inttypes.h>
#include <string.h>
#include "ledger.h"
#include "schema_query.h"
#include "schema_text.h"

enum { OLDEST_SERVER = 130000 };

/* The first column of the first row, malloc'ed; *ret_value NULL for SQL NULL or no row. */
static bool ask_schema_value(
    struct pg *pg, const char *sql, const char *schema, char **ret_value, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *result = schema_query(pg, schema, sql, NULL, 0, err);
	if (!result)
		return false;
	bool none = pg_rows(result) == 0 || pg_is_null(result, 0, 0);
	*ret_value = none ? NULL : xstrdup(pg_value(result, 0, 0));
	return true;
}

static bool server_serves(struct pg *pg, const struct migrate_options *options, struct err *err)
{
	if (pg_server_version(pg) < OLDEST_SERVER)
		return err_set(err, ERR_CONFIG, "%s: PostgreSQL %d is too old; use 13 or newer",
		    pg_place(pg), pg_server_version(pg) / 10000);

	owned_text char *plain = NULL;
	if (!ask_schema_value(pg, sql_migration_name, options->schema, &plain, err))
		return false;
	if (!text_equal(plain, "t"))
		return err_set(err, ERR_CONFIG,
		    "schema \"%s\" is a reserved word of PostgreSQL; choose another name",
		    options->schema);

	owned_text char *missing = NULL;
	if (options->no_roles)
		return true;
	if (!ask_schema_value(pg, sql_migration_roles, options->schema, &missing, err))
		return false;
	if (missing)
		return err_set(err, ERR_DENIED,
		    "%s: this user may not create the roles %s; give it CREATEROLE, create them "
		    "first, "
		    "or use --no-roles and grant what you need yourself",
		    pg_place(pg), missing);
	return true;
}

static bool run_script(struct pg *pg, const char *sql, const char *schema, struct err *err)
{
	owned_text char *text = schema_text(sql, schema);
	return pg_script(pg, text, err);
}

static bool record_migration(
    struct pg *pg, const struct sql_file *file, const char *schema, struct err *err)
{
	owned_text char *sql = schema_text(sql_migration_record, schema);
	owned_text char *version = xformat("%d", file->version);
	const struct pg_param params[] = {
	    {file->name}, {version}, {file->checksum}, {file->oldest_program}, {RELAY_VERSION}};
	return pg_execute(pg, sql, params, 5, err);
}

static bool set_size(struct pg *pg, const struct migrate_options *options, struct err *err)
{
	if (!options->max_message_bytes)
		return true;
	owned_text char *sql = schema_text(sql_migration_size, options->schema);
	owned_text char *bytes = xformat("%" PRId64, options->max_message_bytes);
	const struct pg_param params[] = {{bytes}};
	return pg_execute(pg, sql, params, 1, err);
}

/* A restore may have brought rows back without the state of their sequence. */
static bool raise_ids(struct pg *pg, const struct migrate_options *options, struct err *err)
{
	owned_text char *sql = schema_text(sql_message_ids_raise, options->schema);
	const struct pg_param params[] = {{"0"}};
	return pg_execute(pg, sql, params, 1, err);
}

/* The server may refuse other functions than before, or be another server than before. */
static bool choose_evidence(struct pg *pg, const struct migrate_options *options, struct err *err)
{
	return run_script(pg, sql_migration_evidence, options->schema, err);
}

/*
 * Runs in an open transaction that holds the lock, so that it sees the migrations of another
 * process.
 */
static bool apply_next(struct pg *pg, const struct migrate_options *options,
    const struct sql_file **ret_file, struct err *err)
{
	OWNED(ledger_finish) struct ledger ledger = {0};

	if (!ledger_load(pg, options->schema, &ledger, err))
		return false;
	if (!ledger_accepts(&ledger, sql_migrations, sql_migration_count, RELAY_VERSION, err))
		return err_prefix(err, "%s: schema %s", pg_place(pg), options->schema);

	const struct sql_file *file = ledger_next(
	    &ledger, sql_migrations, sql_migration_count, RELAY_VERSION, !options->no_roles);
	*ret_file = file;
	/* All files are there: these three apply also to a schema that is up to date. */
	if (!file)
		return set_size(pg, options, err) && raise_ids(pg, options, err) &&
		       choose_evidence(pg, options, err);
	if (!run_script(pg, file->text, options->schema, err))
		return err_prefix(err, "migration %s", file->name);
	return record_migration(pg, file, options->schema, err);
}

static bool step_migration(struct pg *pg, const struct migrate_options *options,
    const struct sql_file **ret_file, struct err *err)
{
	if (run_script(pg, sql_migration_begin, options->schema, err) &&
	    apply_next(pg, options, ret_file, err) && pg_script(pg, "commit", err))
		return true;
	/* The first error is reported; a lost connection rolls back by itself. */
	bool rolled_back = pg_state(pg) == PG_IDLE && pg_script(pg, "rollback", NULL);
	(void)rolled_back;
	return false;
}

bool migrate_up(struct pg *pg, const struct migrate_options *options, struct err *err)
{
	if (!schema_text_check(options->schema, err) || !server_serves(pg, options, err))
		return false;
	const struct sql_file *file = NULL;
	/* One transaction for each file: a failure keeps those before it. */
	do {
		if (!step_migration(pg, options, &file, err))
			return false;
		if (file && options->applied)
			options->applied(options->context, file->name);
	} while (file);
	return true;
}

bool migrate_check(struct pg *pg, const char *schema, struct err *err)
{
	OWNED(ledger_finish) struct ledger ledger = {0};

	if (!schema_text_check(schema, err) || !ledger_load(pg, schema, &ledger, err))
		return false;
	if (!ledger.exists)
		return err_set(err, ERR_CONFIG,
		    "%s: the schema %s is not there; run `outbox-relay migrate up`", pg_place(pg),
		    schema);
	if (!ledger_accepts(&ledger, sql_migrations, sql_migration_count, RELAY_VERSION, err))
		return err_prefix(err, "%s: schema %s", pg_place(pg), schema);

	/* Without the repeatable files: the operator may manage roles without this program. */
	const struct sql_file *file =
	    ledger_next(&ledger, sql_migrations, sql_migration_count, RELAY_VERSION, false);
	if (!file)
		return true;
	return err_set(err, ERR_CONFIG,
	    "%s: the schema %s is older than this program: it lacks %s; run `outbox-relay migrate "
	    "up`",
	    pg_place(pg), schema, file->name);
}

const char *migration_state_name(enum migration_state state)
{
	static const char *const names[] = {
	    [MIGRATION_APPLIED] = "applied",
	    [MIGRATION_PENDING] = "pending",
	    [MIGRATION_CHANGED] = "changed",
	    [MIGRATION_NEWER] = "newer",
	};
	return names[state];
}

static struct migration describe_migration(
    const char *name, enum migration_state state, const struct ledger_row *row)
{
	return (struct migration){
	    .name = xstrdup(name),
	    .state = state,
	    .applied_at = xstrdup(row ? row->applied_at : ""),
	    .applied_by = xstrdup(row ? row->applied_by : ""),
	    .program = xstrdup(row ? row->program : ""),
	};
}

bool migrate_list(
    struct pg *pg, const char *schema, struct migration **ret_list, int *ret_count, struct err *err)
{
	OWNED(ledger_finish) struct ledger ledger = {0};

	if (!schema_text_check(schema, err) || !ledger_load(pg, schema, &ledger, err))
		return false;

	int count = 0;
	struct migration *list =
	    xcalloc((size_t)(ledger.count + sql_migration_count), sizeof *list);
	for (int i = 0; i < sql_migration_count; i++) {
		const struct sql_file *file = &sql_migrations[i];
		list[count++] = describe_migration(
		    file->name, ledger_state(&ledger, file), ledger_find(&ledger, file->name));
	}
	for (int i = 0; i < ledger.count; i++) {
		const struct ledger_row *row = &ledger.rows[i];
		if (!ledger_knows(sql_migrations, sql_migration_count, row->name))
			list[count++] = describe_migration(row->name, MIGRATION_NEWER, row);
	}
	*ret_list = list;
	*ret_count = count;
	return true;
}

void migrate_list_free(struct migration *list, int count)
{
	for (int i = 0; i < count; i++) {
		free(list[i].name);
		free(list[i].applied_at);
		free(list[i].applied_by);
		free(list[i].program);
	}
	free(list);
}

/* The statement with its parameters $1 … put in as literals; none of ours holds a quote. */
static void print_statement(struct text *out, const char *sql, const char *const *values)
{
	for (const char *dollar; (dollar = strchr(sql, '$')); sql = dollar + 2) {
		text_append(out, sql, (size_t)(dollar - sql));
		text_addf(out, "'%s'", values[dollar[1] - '1']);
	}
	text_add(out, sql);
}

static void print_file(struct text *out, const struct sql_file *file)
{
	owned_text char *version = xformat("%d", file->version);
	const char *const values[] = {
	    file->name, version, file->checksum, file->oldest_program, RELAY_VERSION};
	text_addf(out, "\n-- %s\n", file->name);
	text_add(out, sql_migration_begin);
	text_add(out, file->text);
	print_statement(out, sql_migration_record, values);
	text_add(out, "commit;\n");
}

bool migrate_print(const struct migrate_options *options, struct text *out, struct err *err)
{
	if (!schema_text_check(options->schema, err))
		return false;

	struct text script = {0};
	text_add(&script, "-- outbox-relay " RELAY_VERSION ": psql -v ON_ERROR_STOP=1 -f FILE\n");
	for (int i = 0; i < sql_migration_count; i++)
		if (sql_migrations[i].version || !options->no_roles)
			print_file(&script, &sql_migrations[i]);
	text_addf(&script, "\n%s", sql_migration_evidence);
	if (options->max_message_bytes) {
		owned_text char *bytes = xformat("%" PRId64, options->max_message_bytes);
		const char *const values[] = {bytes};
		text_add(&script, "\n");
		print_statement(&script, sql_migration_size, values);
	}
	owned_text char *text = schema_text(script.data, options->schema);
	text_add(out, text);
	text_finish(&script);
	return true;
}
