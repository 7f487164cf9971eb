/*
 * The statements of the look-back's reader against the journal, each in a transaction under a
 * deadline: connect, progress, known ids, a batch, overdue ids.
 */
#include "journal.h"

#include <string.h>
#include "cleanup.h"
#include "clock.h"
#include "hex.h"
#include "pg.h"
#include "pg_array.h"
#include "schema_text.h"
#include "sql_files.h"

enum {
	CONNECT_MS = 5000,
	/* overdue prepares that one transaction takes of a partition; more are taken by the next */
	PROMOTE_MOST = 5000,
};

enum { PROGRESS, KNOWN, APPLY, DUE, REFUSED, PAYLOAD_MOST, STATEMENTS };

/*
 * Statements with a name are executed often. They are prepared if the session is the journal's own.
 */
static const struct {
	const char *sql, *name;
} statements[STATEMENTS] = {
    [PROGRESS] = {sql_lookback_progress, NULL},
    [KNOWN] = {sql_lookback_known, "outbox_lookback_known"},
    [APPLY] = {sql_lookback_apply, "outbox_lookback_apply"},
    [DUE] = {sql_lookback_due, "outbox_lookback_due"},
    [REFUSED] = {sql_lookback_refused, NULL},
    [PAYLOAD_MOST] = {sql_api_payload_most, NULL},
};

struct journal {
	const struct config_lookback *lookback;
	char *reader;
	struct pg *pg; /* NULL: none */
	char *sql[STATEMENTS];
	bool prepared; /* the statements are prepared in this session */
	bool pooled;   /* prepared statements were missing when executed: a pooler is in between */
	char held[PG_DETAIL_SIZE]; /* places of the decisions that the last statement could not make
				    */
	bool full;                 /* only since they were too many for a transaction */
};

struct journal *journal_create(const struct config_lookback *lookback, const char *reader)
{
	struct journal *journal = xcalloc(1, sizeof *journal);

	journal->lookback = lookback;
	journal->reader = xstrdup(reader);
	for (int i = 0; i < STATEMENTS; i++)
		journal->sql[i] = schema_text(statements[i].sql, lookback->postgres->schema);
	return journal;
}

void journal_destroy(struct journal *journal)
{
	if (!journal)
		return;
	pg_destroy(journal->pg);
	for (int i = 0; i < STATEMENTS; i++)
		free(journal->sql[i]);
	free(journal->reader);
	free(journal);
}

/* --- the connection -------------------------------------------------------------------------- */

/*
 * Is the session the journal's own? Behind a pooler the next transaction may run in another
 * session.
 */
static bool is_own_session(struct journal *journal)
{
	struct err ignored;
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    journal->pooled ? NULL : pg_query(journal->pg, sql_backend, NULL, 0, &ignored);

	return row && pg_int(row, 0, 0) == pg_backend(journal->pg);
}

/*
 * A failure is not reported here: the statement fails again when it is executed, and that is
 * reported.
 */
static bool prepare_statements(struct journal *journal)
{
	struct err ignored;

	for (int i = 0; i < STATEMENTS; i++)
		if (statements[i].name &&
		    !pg_prepare(journal->pg, statements[i].name, journal->sql[i], &ignored))
			return false;
	return true;
}

static bool be_connected(struct journal *journal, struct err *err)
{
	if (journal->pg)
		return true;
	journal->pg =
	    pg_connect(journal->lookback->postgres->dsn, "outbox-relay look-back", CONNECT_MS, err);
	journal->prepared = journal->pg && is_own_session(journal) && prepare_statements(journal);
	return journal->pg;
}

/* Classes of SQLSTATE that the content of a row causes: data exceptions, constraints. */
static bool is_about_data(const char *sqlstate)
{
	return text_starts(sqlstate, "22") || text_starts(sqlstate, "23") ||
	       text_equal(sqlstate, "54000") /* an index row that is too large */;
}

/*
 * May the connection be used further? Not to a standby, since the next connection to one of several
 * hosts may reach the primary; nor if the prepared statements no longer fit the schema.
 */
static bool may_go_on(const struct journal *journal, const char *sqlstate)
{
	return pg_state(journal->pg) == PG_IDLE && !text_equal(sqlstate, "25006") &&
	       !text_equal(sqlstate, "0A000");
}

static struct pg_result *ask_journal(
    struct journal *journal, int which, const struct pg_param *params, int count, struct err *err)
{
	struct pg_result *rows;
	const char *sqlstate;

	if (!be_connected(journal, err))
		return NULL;
	rows = journal->prepared && statements[which].name
		   ? pg_query_prepared(journal->pg, statements[which].name, params, count, err)
		   : pg_query(journal->pg, journal->sql[which], params, count, err);
	if (rows)
		return rows;

	sqlstate = pg_sqlstate(journal->pg);
	/*
	 * The prepared statement is not in this session: a pooler is in between, although
	 * is_own_session saw none. From now on the text is sent.
	 */
	journal->pooled |= text_equal(sqlstate, "26000");
	journal->prepared &= !journal->pooled;
	/* OR007 and OR008: outbox.lookback_apply cannot make all decisions now. */
	journal->full = text_equal(sqlstate, "OR008");
	text_copy(journal->held, sizeof journal->held,
	    journal->full || text_equal(sqlstate, "OR007") ? pg_detail(journal->pg) : "");
	if (*journal->held)
		err->kind = ERR_RETRY;
	/* OR004: outbox.lookback_apply found the row of another reader. */
	if (text_equal(sqlstate, "OR004"))
		err->kind = ERR_FENCED;
	else if (err->kind != ERR_FENCED && is_about_data(sqlstate))
		err->kind = ERR_REJECT;

	if (!may_go_on(journal, sqlstate)) {
		pg_destroy(journal->pg);
		journal->pg = NULL;
	}
	return NULL;
}

/* --- progress -------------------------------------------------------------------------------- */

static struct journal_place *find_journal_place(
    struct journal_place *places, int count, int64_t partition)
{
	for (int i = 0; i < count; i++)
		if (places[i].partition == partition)
			return &places[i];
	return NULL;
}

bool journal_progress(
    struct journal *journal, struct journal_place *places, int count, struct err *err)
{
	enum { PARTITION, N, NEXT_OFFSET };
	const struct pg_param params[] = {{journal->lookback->name}, {journal->lookback->topic}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_journal(journal, PROGRESS, params, 2, err);

	if (!rows)
		return false;
	/* A partition without a row begins at its first record. */
	for (int i = 0; i < count; i++) {
		places[i].n = 0;
		places[i].start = -1;
	}
	for (int i = 0; i < pg_rows(rows); i++) {
		struct journal_place *place =
		    find_journal_place(places, count, pg_int(rows, i, PARTITION));

		/* The partition is another reader's. */
		if (!place)
			continue;
		place->n = pg_int(rows, i, N);
		place->start = pg_int(rows, i, NEXT_OFFSET);
	}
	return true;
}

/* --- a batch --------------------------------------------------------------------------------- */

/* "\x0123…", as bytea is written. */
static bool read_digest(const char *text, unsigned char *ret_digest)
{
	return strlen(text) == 2 + 2 * LOOKBACK_DIGEST &&
	       hex_read(text + 2, LOOKBACK_DIGEST, ret_digest);
}

bool journal_know(struct journal *journal, struct batch *batch, struct err *err)
{
	enum { PLACE, KIND, PREPARED_AT, DIGEST, DECISION };
	const struct pg_param params[] = {batch_types(batch), batch_ids(batch)};
	OWNED(owned_pg_result_destroy) struct pg_result *rows = NULL;

	/* A batch of dead letters alone has no ids. */
	if (batch_id_count(batch) == 0)
		return true;
	rows = ask_journal(journal, KNOWN, params, 2, err);
	for (int i = 0; rows && i < pg_rows(rows); i++) {
		unsigned char digest[LOOKBACK_DIGEST];
		bool has_digest =
		    !pg_is_null(rows, i, DIGEST) && read_digest(pg_value(rows, i, DIGEST), digest);

		int64_t place = pg_int(rows, i, PLACE);

		if (place < 1 || place > batch_id_count(batch))
			return err_set(err, ERR_FATAL,
			    "the function lookback_known answered for id %lld of %d",
			    (long long)place, batch_id_count(batch));
		batch_know(batch, (int)place, pg_value(rows, i, KIND),
		    pg_value(rows, i, PREPARED_AT), has_digest ? digest : NULL,
		    pg_is_null(rows, i, DECISION) ? NULL : pg_value(rows, i, DECISION));
	}
	return rows != NULL;
}

/* The arrays of the places, in the order of the parameters. */
enum { PARTITIONS, NS, STARTS, NEXTS, HORIZONS, PLACE_ARRAYS };

static void add_places(
    const struct journal_place *places, int count, struct pg_array arrays[PLACE_ARRAYS])
{
	for (int i = 0; i < count; i++) {
		const struct journal_place *place = &places[i];

		pg_array_add_int(&arrays[PARTITIONS], place->partition);
		pg_array_add_int(&arrays[NS], place->n);
		pg_array_add_int(&arrays[STARTS], place->start);
		pg_array_add_int(&arrays[NEXTS], place->next);
		pg_array_add_text(&arrays[HORIZONS], *place->horizon ? place->horizon : NULL);
	}
}

bool journal_apply(struct journal *journal, struct batch *batch, const struct journal_place *places,
    int count, struct journal_outcome *ret_outcome, struct err *err)
{
	enum { BEFORE = 4, ALL = BEFORE + PLACE_ARRAYS + BATCH_COLUMNS };
	enum { WON, LOST, PROMOTED, DUPLICATES };
	struct pg_array arrays[PLACE_ARRAYS] = {0};
	owned_text char *most = xformat("%d", PROMOTE_MOST);
	struct pg_param params[ALL] = {
	    {journal->lookback->name}, {journal->lookback->topic}, {journal->reader}, {most}};
	OWNED(owned_pg_result_destroy) struct pg_result *rows = NULL;

	add_places(places, count, arrays);
	for (int i = 0; i < PLACE_ARRAYS; i++)
		params[BEFORE + i] = (struct pg_param){pg_array_end(&arrays[i])};
	for (int i = 0; i < BATCH_COLUMNS; i++)
		params[BEFORE + PLACE_ARRAYS + i] = batch_column(batch, (enum batch_column)i);
	rows = ask_journal(journal, APPLY, params, ALL, err);
	for (int i = 0; i < PLACE_ARRAYS; i++)
		pg_array_finish(&arrays[i]);
	if (!rows)
		return false;
	*ret_outcome = (struct journal_outcome){.won = (int)pg_int(rows, 0, WON),
	    .lost = (int)pg_int(rows, 0, LOST),
	    .promoted = (int)pg_int(rows, 0, PROMOTED),
	    .duplicates = (int)pg_int(rows, 0, DUPLICATES)};
	return true;
}

int journal_held(struct journal *journal, const struct batch *batch, int ret_records[JOURNAL_HELD],
    bool *ret_full)
{
	int count = 0;
	char *end;

	*ret_full = journal->full;
	for (const char *at = journal->held; *at && count < JOURNAL_HELD; at = end) {
		long place = strtol(at, &end, 10);
		int record = end == at ? -1 : batch_record_of(batch, "decision", (int)place);

		/* The detail is the server's: a place that the batch does not have is no record. */
		if (end == at)
			break;
		if (record >= 0)
			ret_records[count++] = record;
	}
	journal->held[0] = '\0';
	return count;
}

bool journal_refused(struct journal *journal, struct batch *batch,
    struct journal_refusal **ret_list, int *ret_count, struct err *err)
{
	enum { KIND, PLACE, ERROR };
	struct pg_param params[1 + BATCH_COLUMNS] = {{journal->lookback->name}};
	OWNED(owned_pg_result_destroy) struct pg_result *rows = NULL;

	for (int i = 0; i < BATCH_COLUMNS; i++)
		params[1 + i] = batch_column(batch, (enum batch_column)i);
	rows = ask_journal(journal, REFUSED, params, 1 + BATCH_COLUMNS, err);
	if (!rows)
		return false;
	*ret_list = xcalloc((size_t)pg_rows(rows) + 1, sizeof **ret_list);
	*ret_count = 0;
	for (int i = 0; i < pg_rows(rows); i++) {
		struct journal_refusal *refusal = &(*ret_list)[*ret_count];

		refusal->record =
		    batch_record_of(batch, pg_value(rows, i, KIND), (int)pg_int(rows, i, PLACE));
		text_copy(refusal->error, sizeof refusal->error, pg_value(rows, i, ERROR));
		/* A row that the batch does not have names no record that could be dropped. */
		*ret_count += refusal->record >= 0;
	}
	return true;
}

bool journal_payload_most(struct journal *journal, int64_t *ret_most, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = ask_journal(journal, PAYLOAD_MOST, NULL, 0, err);

	*ret_most =
	    rows && pg_rows(rows) > 0 && !pg_is_null(rows, 0, 0) ? pg_int(rows, 0, 0) : INT64_MAX;
	return rows != NULL;
}

/* --- what is due ----------------------------------------------------------------------------- */

bool journal_due(struct journal *journal, const struct journal_place *places, int count,
    int64_t *ret_wait_ms, char ret_clock[JOURNAL_CLOCK], struct err *err)
{
	enum { PLACE, WAIT_MS, CLOCK };
	struct pg_array partitions = {0};
	OWNED(owned_pg_result_destroy) struct pg_result *rows = NULL;

	for (int i = 0; i < count; i++) {
		pg_array_add_int(&partitions, places[i].partition);
		ret_wait_ms[i] = INT64_MAX;
	}
	rows = ask_journal(journal, DUE,
	    (const struct pg_param[]){
		{journal->lookback->name}, {journal->lookback->topic}, {pg_array_end(&partitions)}},
	    3, err);
	pg_array_finish(&partitions);
	if (!rows)
		return false;
	for (int i = 0; i < pg_rows(rows); i++) {
		int64_t place = pg_int(rows, i, PLACE);

		if (place < 1 || place > count)
			return err_set(err, ERR_FATAL,
			    "the function lookback_due answered for partition %lld of %d",
			    (long long)place, count);
		text_copy(ret_clock, JOURNAL_CLOCK, pg_value(rows, i, CLOCK));
		if (!pg_is_null(rows, i, WAIT_MS))
			ret_wait_ms[place - 1] = pg_int(rows, i, WAIT_MS);
	}
	return true;
}
