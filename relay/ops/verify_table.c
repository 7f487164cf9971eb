/*
 * The table's side of `verify`: the publisher's log, and rows with a digest of their content, by
 * id. Begin at verify_table_read.
 */
#include "verify_table.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "copy_binary.h"
#include "digest.h"
#include "hex.h"
#include "message.h"
#include "moment.h"
#include "partitions.h"
#include "schema_text.h"
#include "script.h"
#include "sql_files.h"

enum { TURN_MS = 500 }; /* a wait looks this often whether the caller goes on */

struct verify_table {
	struct pg *pg;
	const struct postgres_settings *postgres;
	const struct publisher_settings *publisher;
	char from_at[MOMENT_SIZE], to_at[MOMENT_SIZE]; /* range of created_at, as SQL text */
	char *shards, *acked, *windows, *acked_ids;    /* of verify_publisher.sql */
	char *start, *start_at;                        /* of the publisher */
	char *identity, *identity_since;
	struct partition_list partitions;
	int64_t first_id; /* the smallest in the table at the start; INT64_MAX: it was empty */
	struct progress_watch watch;
};

uint64_t verify_event_digest(const char *text, size_t length)
{
	return digest_add(DIGEST_BEGIN, text, length);
}

uint64_t verify_content_digest(const char *topic, size_t topic_length, const void *key,
    size_t key_length, const void *payload, size_t payload_length)
{
	uint64_t state = digest_add(DIGEST_BEGIN, topic, topic_length);

	state = digest_add(state, key, key_length);
	return digest_add(state, payload, payload_length);
}

/* --- the publisher's log ------------------------------------------------------------------- */

static bool read_publisher_log(struct verify_table *table, struct err *err)
{
	const struct pg_param params[] = {{table->publisher->name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(table->pg, table->postgres, sql_verify_publisher, params, 1, err);

	if (!row)
		return false;

	/* without the log it is unknown which rows Kafka must have */
	if (pg_rows(row) == 0)
		return err_set(err, ERR_REJECT,
		    "there is no publisher %s in %s; see `outbox-relay publisher list`",
		    table->publisher->name, pg_place(table->pg));
	table->shards = xstrdup(pg_value(row, 0, 0));
	table->acked = xstrdup(pg_value(row, 0, 1));
	table->windows = xstrdup(pg_value(row, 0, 2));
	table->acked_ids = xstrdup(pg_value(row, 0, 3));
	table->start = xstrdup(pg_value(row, 0, 4));
	table->start_at = xstrdup(pg_value(row, 0, 5));
	table->identity = xstrdup(pg_value(row, 0, 7));
	table->identity_since = xstrdup(pg_value(row, 0, 8));
	return text_to_int64(pg_value(row, 0, 6), INT64_MIN, INT64_MAX, &table->first_id) ||
	       err_set(err, ERR_FATAL, "the smallest id of the message table is no number");
}

struct verify_table *verify_table_open(struct pg *pg, const struct postgres_settings *postgres,
    const struct publisher_settings *publisher, const struct verify_range *range,
    const struct progress_watch *watch, struct err *err)
{
	struct verify_table *table = xcalloc(1, sizeof *table);

	*table = (struct verify_table){.pg = pg,
	    .postgres = postgres,
	    .publisher = publisher,
	    .watch = *watch,
	    .from_at = "-infinity",
	    .to_at = "infinity"};
	if (range->from_us != INT64_MIN)
		moment_format_exact(range->from_us, table->from_at);
	if (range->to_us != INT64_MAX)
		moment_format_exact(range->to_us, table->to_at);
	if (read_publisher_log(table, err) &&
	    partition_list(pg, postgres->schema, "message", postgres->partition_every_ms,
		&table->partitions, err))
		return table;
	verify_table_close(table);
	return NULL;
}

void verify_table_close(struct verify_table *table)
{
	if (!table)
		return;

	partition_list_finish(&table->partitions);
	free(table->shards);
	free(table->acked);
	free(table->windows);
	free(table->acked_ids);
	free(table->start);
	free(table->start_at);
	free(table->identity);
	free(table->identity_since);
	free(table);
}

const char *verify_table_identity(const struct verify_table *table)
{
	return table->identity;
}

bool verify_table_topics(struct verify_table *table,
    void (*topic)(void *context, const char *name, size_t length), void *context, struct err *err)
{
	const struct pg_param params[] = {{table->publisher->name}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows =
	    database_query(table->pg, table->postgres, sql_topics, params, 1, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		topic(context, pg_value(rows, i, 0), strlen(pg_value(rows, i, 0)));
	return rows != NULL;
}

/*
 * A row of a partition that is gone is no phantom. With timestamp = created the record's timestamp
 * is the row's; otherwise it is later, and the id decides for records near the border.
 */
bool verify_table_keeps(const struct verify_table *table, int64_t id, int64_t timestamp_ms)
{
	int64_t end_us = INT64_MIN, us = timestamp_ms * 1000;

	/* the time of publishing may be later than the bounds of the partition that held the row */
	if (table->publisher->timestamp == TIMESTAMP_PUBLISH && id < table->first_id)
		return false;
	for (int i = 0; i < table->partitions.count; i++) {
		const struct partition *partition = &table->partitions.items[i];

		/* the default partition keeps rows of any time, and proves nothing about a
		 * moment */
		if (!partition->bounded)
			continue;
		if (us >= partition->from_us && us < partition->to_us)
			return true;
		end_us = partition->to_us > end_us ? partition->to_us : end_us;
	}
	return us >= end_us;
}

/* --- rows ---------------------------------------------------------------------------------- */

enum {
	ID,
	EVENT_ID,
	TOPIC,
	KEY,
	PAYLOAD,
	HEADERS,
	BEFORE,
	ACKNOWLEDGED,
	PARKED,
	SCHEDULED,
	INHERITED,
	FIELDS
};

static bool send_row_query(struct verify_table *table, int64_t after, int64_t most, struct err *err)
{
	owned_text char *after_text = xformat("%lld", (long long)after);
	owned_text char *most_text = xformat("%lld", (long long)most);
	owned_text char *sql = schema_text(sql_verify_rows, table->postgres->schema);
	const struct script_place places[] = {
	    {"acked_ids", table->acked_ids},
	    {"acked", table->acked},
	    {"windows", table->windows},
	    {"count", table->shards},
	    {"after", after_text},
	    {"most", most_text},
	    {"from_at", table->from_at},
	    {"to_at", table->to_at},
	    {"start_at", table->start_at},
	    {"start", table->start},
	    {"identity_since", table->identity_since},
	    {"publisher", table->publisher->name},
	    {0},
	};
	owned_text char *script = script_fill(sql, places);

	return pg_send_copy(table->pg, script, err);
}

struct header_digest {
	uint64_t state;
};

static void digest_header(
    void *context, const char *name, size_t name_length, const void *value, size_t length)
{
	struct header_digest *digest = context;

	digest->state = digest_add(digest->state, name, name_length);
	digest->state = digest_add(digest->state, value, length);
}

static uint64_t content_of(const struct copy_field *fields, int64_t id)
{
	const struct message message = {
	    .id = id, .headers = fields[HEADERS].data, .headers_length = fields[HEADERS].length};
	struct header_digest digest = {verify_content_digest(fields[TOPIC].data,
	    (size_t)fields[TOPIC].length, fields[KEY].data, (size_t)fields[KEY].length,
	    fields[PAYLOAD].data, (size_t)fields[PAYLOAD].length)};
	OWNED(text_finish) struct text scratch = {0};
	struct err err;

	/* headers that cannot be read cannot be published either */
	return message_headers(&message, &scratch, digest_header, &digest, &err) ? digest.state : 0;
}

static bool is_row(const struct copy_field *fields)
{
	return fields[ID].length == 8 && fields[EVENT_ID].length == 16 && fields[TOPIC].data &&
	       !memchr(fields[TOPIC].data, '\0', (size_t)fields[TOPIC].length) &&
	       fields[BEFORE].length == 1 && fields[ACKNOWLEDGED].length == 1 &&
	       fields[PARKED].length == 1 && fields[SCHEDULED].length == 1 &&
	       fields[INHERITED].length == 1;
}

static enum verify_state row_state(const struct copy_field *fields)
{
	/* parked and scheduled rows are acknowledged as well, but are not published yet */
	if (fields[PARKED].data[0])
		return VERIFY_PARKED;
	if (fields[SCHEDULED].data[0])
		return VERIFY_SCHEDULED;
	if (fields[BEFORE].data[0])
		return VERIFY_BEFORE;
	if (!fields[ACKNOWLEDGED].data[0])
		return VERIFY_PENDING;
	/* if this database is a copy, its record may have the identity of the original */
	return fields[INHERITED].data[0] ? VERIFY_BEFORE : VERIFY_ACKNOWLEDGED;
}

static struct verify_row row_of_fields(const struct copy_field *fields)
{
	char event[UUID_TEXT];
	int64_t id = copy_int64(fields[ID].data);

	uuid_write(fields[EVENT_ID].data, event);
	return (struct verify_row){.id = id,
	    .event = verify_event_digest(event, sizeof event),
	    .content = content_of(fields, id),
	    .state = row_state(fields)};
}

static bool wait_for_postgres(const struct verify_table *table, struct err *err)
{
	struct pollfd wanted = {.fd = pg_fd(table->pg), .events = pg_events(table->pg)};

	poll(&wanted, 1, TURN_MS); /* EINTR: the callers' loops ask again */
	return progress_watch_goes_on(&table->watch, err) && pg_step(table->pg, err);
}

/* *ret_message NULL: the end. */
static bool wait_for_table_row(
    const struct verify_table *table, char **ret_message, int *ret_length, struct err *err)
{
	enum pg_copy what;

	for (;;) {
		if (!progress_watch_goes_on(&table->watch, err) ||
		    !pg_copy_next(table->pg, &what, ret_message, ret_length, err))
			return false;
		if (what == PG_COPY_END)
			*ret_message = NULL;
		if (what != PG_COPY_WAIT)
			return true;
		if (!wait_for_postgres(table, err))
			return false;
	}
}

bool verify_table_read(struct verify_table *table, struct verify_engine *engine, int64_t after,
    void (*topic)(void *context, const char *name, size_t length), void *context, int64_t *ret_end,
    bool *ret_last, struct err *err)
{
	int64_t count = 0, capacity = verify_engine_capacity(engine);
	bool good = send_row_query(table, after, capacity, err), first = true;

	progress_watch_step(&table->watch, "rows read", 0);
	verify_engine_begin(engine, after);
	while (good) {
		struct copy_field fields[FIELDS];
		enum copy_kind kind = COPY_TRAILER;
		char *message;
		int length;

		good = wait_for_table_row(table, &message, &length, err);
		if (!good || !message)
			break;
		good = copy_parse(message, length, first, fields, FIELDS, &kind, err);
		first = false;
		if (good && kind == COPY_ROW && !is_row(fields))
			good = err_set(
			    err, ERR_FATAL, "a row of the message table has unexpected types");
		if (good && kind == COPY_ROW) {
			struct verify_row row = row_of_fields(fields);

			good = verify_engine_row(engine, &row, err);
			if (good)
				topic(context, fields[TOPIC].data, (size_t)fields[TOPIC].length);
			progress_watch_step(&table->watch, "rows read", ++count);
		}
		pg_free_row(message);
	}
	progress_watch_end(&table->watch);
	/* a full page may be followed by another; a shorter one ends the table */
	*ret_last = count < capacity;
	*ret_end = verify_engine_rows_end(engine, *ret_last);
	return good;
}

/* --- rows by id ---------------------------------------------------------------------------- */

static struct pg_result *wait_for_result(const struct verify_table *table, struct err *err)
{
	struct pg_result *result;
	bool done;

	for (;;) {
		if (!pg_receive(table->pg, &done, &result, err))
			return NULL;
		if (done)
			return result;
		if (!wait_for_postgres(table, err))
			return NULL;
	}
}

static struct verify_found_row found_row(const struct pg_result *rows, int i)
{
	char event[UUID_TEXT];

	uuid_write(pg_value(rows, i, 1), event);
	return (struct verify_found_row){.id = pg_int8(rows, i, 0),
	    .event = verify_event_digest(event, sizeof event),
	    .topic = pg_value(rows, i, 2),
	    .topic_length = pg_length(rows, i, 2),
	    .key = pg_is_null(rows, i, 3) ? NULL : pg_value(rows, i, 3),
	    .key_length = pg_length(rows, i, 3),
	    .partition = pg_is_null(rows, i, 4) ? -1 : pg_int4(rows, i, 4),
	    .in_range = pg_value(rows, i, 5)[0] != 0,
	    .skipped = pg_value(rows, i, 6)[0] != 0};
}

bool verify_table_find(struct verify_table *table, const int64_t *ids, int count,
    void (*see)(void *context, const struct verify_found_row *row), void *context, struct err *err)
{
	owned_text char *sql = schema_text(sql_verify_ids, table->postgres->schema);
	OWNED(text_finish) struct text list = {0};

	for (int i = 0; i < count; i++)
		text_addf(&list, "%s%lld", i ? "," : "{", (long long)ids[i]);
	text_add(&list, "}");

	const struct pg_param params[] = {
	    {text_string(&list)}, {table->from_at}, {table->to_at}, {table->publisher->name}};
	OWNED(owned_pg_result_destroy) struct pg_result *rows = NULL;

	if (!pg_send(table->pg, sql, params, 4, err) || !(rows = wait_for_result(table, err)))
		return false;
	if (!pg_has_shape(rows, "lxtxibb", err))
		return false;
	for (int i = 0; i < pg_rows(rows); i++) {
		/* found_row reads 16 bytes */
		if (pg_length(rows, i, 1) != 16)
			return err_set(
			    err, ERR_FATAL, "the server sends an event_id that is no uuid");

		struct verify_found_row row = found_row(rows, i);

		see(context, &row);
	}
	return true;
}
