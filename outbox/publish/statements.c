#include "statements.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "copy_binary.h"
#include "schema_text.h"
#include "script.h"
#include "sql_files.h"

enum { STANDBY_POLL_MS = 250 };

struct bounds {
	int64_t tick; /* 0: not known */
	char *low_xid, *sure_xid, *upto, *stragglers, *low_id, *high_id;
	char *listed; /* NULL: no listed window, and what is above counts */
};

enum { TICK, PEEK, REPEATED };

struct statements {
	struct link_statement repeated[REPEATED + 1];
	char *take, *tick, *tick_checked, *peek, *renew, *newest, *keys;
	char *destinations_open, *destinations_named, *destinations_closed;
	char *bounds_sql, *page, *page_stragglers, *page_listed;
	char *slot, *owner;
	char identity[40];
	int shard, shards;
	char deaths[80];         /* an array, of the call under way */
	char *seen;              /* the snapshot in which nothing was found; NULL: none */
	bool peeking;            /* the statement under way only asks whether anything moved */
	struct stream_tick call; /* under way on the log connection */
	struct bounds bounds;
	int64_t asked_tick;
	bool elsewhere;  /* said by the last take */
	int64_t checked; /* the connection (lost_count) whose server has our log row; -1: none */
};

struct statements *statements_create(
    const char *schema, const char *slot, int shard, int shards, const char *owner)
{
	struct statements *statements = xcalloc(1, sizeof *statements);
	statements->take = schema_text(sql_take, schema);
	statements->tick = schema_text(sql_tick, schema);
	statements->tick_checked = schema_text(sql_tick_checked, schema);
	statements->checked = -1;
	statements->peek = schema_text(sql_peek, schema);
	statements->renew = schema_text(sql_renew, schema);
	statements->repeated[TICK] = (struct link_statement){"outbox_tick", statements->tick};
	statements->repeated[PEEK] = (struct link_statement){"outbox_peek", statements->peek};
	statements->newest = schema_text(sql_newest, schema);
	statements->destinations_open = schema_text(sql_destinations_open, schema);
	statements->destinations_named = schema_text(sql_destinations_named, schema);
	statements->destinations_closed = schema_text(sql_destinations_closed, schema);
	statements->bounds_sql = schema_text(sql_bounds, schema);
	statements->page = schema_text(sql_page, schema);
	statements->page_stragglers = schema_text(sql_page_stragglers, schema);
	statements->page_listed = schema_text(sql_page_listed, schema);
	statements->keys = schema_text(sql_parked_keys, schema);
	statements->slot = xstrdup(slot);
	statements->owner = xstrdup(owner);
	statements->shard = shard;
	statements->shards = shards;
	return statements;
}

void statements_forget_bounds(struct statements *statements)
{
	struct bounds *bounds = &statements->bounds;
	free(bounds->low_xid);
	free(bounds->sure_xid);
	free(bounds->upto);
	free(bounds->stragglers);
	free(bounds->low_id);
	free(bounds->high_id);
	free(bounds->listed);
	*bounds = (struct bounds){0};
}

void statements_destroy(struct statements *statements)
{
	if (!statements)
		return;
	statements_forget_bounds(statements);
	free(statements->take);
	free(statements->tick);
	free(statements->tick_checked);
	free(statements->peek);
	free(statements->renew);
	free(statements->newest);
	free(statements->destinations_open);
	free(statements->destinations_named);
	free(statements->destinations_closed);
	free(statements->bounds_sql);
	free(statements->page);
	free(statements->page_stragglers);
	free(statements->page_listed);
	free(statements->keys);
	free(statements->slot);
	free(statements->owner);
	free(statements->seen);
	free(statements);
}

const char *statements_identity(const struct statements *statements)
{
	return statements->identity;
}

const struct link_statement *statements_repeated(const struct statements *statements)
{
	return statements->repeated;
}

/* Parameters in text form; numbers are written into a buffer of the list. */
struct parameters {
	struct pg_param list[22];
	char numbers[22][24];
	int count;
};

static void add_text(struct parameters *parameters, const char *text)
{
	parameters->list[parameters->count++] = (struct pg_param){text};
}

static void add_number(struct parameters *parameters, int64_t number)
{
	char *text = parameters->numbers[parameters->count];
	*text_write_int64(text, number) = '\0';
	add_text(parameters, text);
}

static void add_boolean(struct parameters *parameters, bool value)
{
	add_text(parameters, value ? "t" : "f");
}

static bool send_take(
    struct statements *statements, struct pg *pg, const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	add_text(&parameters, statements->slot);
	add_number(&parameters, statements->shard);
	add_number(&parameters, statements->shards);
	add_number(&parameters, call->new_nonce);
	add_text(&parameters, statements->owner);
	add_number(&parameters, call->lease_ms);
	add_number(&parameters, call->fresh_epoch);
	return pg_send(pg, statements->take, parameters.list, parameters.count, err);
}

static bool send_repeated(struct statements *statements, const struct link *log, int which,
    const struct parameters *parameters, struct err *err)
{
	const struct link_statement *statement = &statements->repeated[which];
	return log->prepared
		   ? pg_send_prepared(
			 log->pg, statement->name, parameters->list, parameters->count, err)
		   : pg_send(log->pg, statement->sql, parameters->list, parameters->count, err);
}

/*
 * A server that is exchanged for another one has a new session; behind a pooler that is not seen,
 * and each tick looks.
 */
static bool is_checked(const struct statements *statements, const struct link *log)
{
	return log->prepared && statements->checked == log->lost_count;
}

static const char *deaths_text(struct statements *statements, const struct deaths *deaths)
{
	if (!deaths->owners && !deaths->marked)
		return NULL;
	snprintf(statements->deaths, sizeof statements->deaths, "{%lld,%lld,%d}",
	    (long long)deaths->owners, (long long)deaths->alone, deaths->marked);
	return statements->deaths;
}

static bool send_tick(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	add_text(&parameters, statements->slot);
	add_number(&parameters, statements->shard);
	add_number(&parameters, statements->shards);
	add_number(&parameters, call->n);
	add_number(&parameters, call->nonce);
	add_number(&parameters, call->new_nonce);
	add_number(&parameters, call->lease_ms);
	add_number(&parameters, call->closed);
	add_number(&parameters, call->acked_id);
	add_text(&parameters, call->destinations);
	if (call->new_epoch)
		add_number(&parameters, call->fresh_epoch);
	else
		add_text(&parameters, NULL);
	add_boolean(&parameters, call->may_open);
	add_boolean(&parameters, call->must_write);
	add_number(&parameters, call->max_rows);
	add_number(&parameters, call->max_bytes);
	add_text(&parameters, statements->seen);
	add_text(&parameters, call->parks);
	add_boolean(&parameters, call->may_list);
	add_number(&parameters, call->batch);
	add_text(&parameters, deaths_text(statements, &call->deaths));
	add_boolean(&parameters, call->blind);
	add_boolean(&parameters, call->fold);
	if (!is_checked(statements, log))
		return pg_send(
		    log->pg, statements->tick_checked, parameters.list, parameters.count, err);
	return send_repeated(statements, log, TICK, &parameters, err);
}

static bool send_renew(
    struct statements *statements, struct pg *pg, const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	add_text(&parameters, statements->slot);
	add_number(&parameters, statements->shard);
	add_number(&parameters, call->n);
	add_number(&parameters, call->nonce);
	add_number(&parameters, call->new_nonce);
	add_number(&parameters, call->lease_ms);
	add_text(&parameters, deaths_text(statements, &call->deaths));
	return pg_send(pg, statements->renew, parameters.list, parameters.count, err);
}

static bool send_destinations(
    struct statements *statements, struct pg *pg, const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	const char *sql =
	    call->topics ? statements->destinations_named : statements->destinations_open;
	add_text(&parameters, statements->slot);
	add_number(&parameters, statements->shard);
	add_number(&parameters, call->n);
	add_number(&parameters, call->nonce);
	add_text(&parameters, call->topics ? call->topics : call->after);
	if (!call->topics) {
		add_number(&parameters, call->max_topics);
		add_number(&parameters, call->max_partitions);
	}
	return pg_send(pg, sql, parameters.list, parameters.count, err);
}

/*
 * A look that need not write begins with a peek while nothing was found the last time: an idle
 * database is asked for its snapshot and nothing else.
 */
bool statements_send_call(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	statements->call = *call;
	statements->peeking =
	    call->call == STREAM_TICK && !call->must_write && !call->may_list && statements->seen;
	if (statements->peeking)
		return send_repeated(statements, log, PEEK, &parameters, err);
	if (call->call == STREAM_TAKE)
		return send_take(statements, log->pg, call, err);
	if (call->call == STREAM_TICK)
		return send_tick(statements, log, call, err);
	if (call->call == STREAM_RENEW)
		return send_renew(statements, log->pg, call, err);
	if (call->call == STREAM_DESTINATIONS)
		return send_destinations(statements, log->pg, call, err);
	add_text(&parameters, statements->slot);
	add_number(&parameters, statements->shard);
	if (call->call == STREAM_CLOSED) {
		add_text(&parameters, call->after);
		add_number(&parameters, call->max_topics);
		return pg_send(log->pg, statements->destinations_closed, parameters.list,
		    parameters.count, err);
	}
	const char *sql = call->call == STREAM_KEYS ? statements->keys : statements->newest;
	return pg_send(log->pg, sql, parameters.list, parameters.count, err);
}

/* --- answers, in binary form -------------------------------------------------------------- */

static int64_t int8_at(const struct pg_result *result, int column)
{
	return pg_is_null(result, 0, column) ? 0 : copy_int64(pg_value(result, 0, column));
}

static int32_t int4_at(const struct pg_result *result, int column)
{
	return pg_is_null(result, 0, column) ? 0 : copy_int32(pg_value(result, 0, column));
}

enum { NAME_TOPIC, NAME_PARTITIONS, NAME_OFFSETS, NAME_OPEN, NAME_N };

/* An array of numbers in binary form; the caller frees. */
static int64_t *read_offsets(const char *array, int length, int32_t *ret_count)
{
	enum { HEADER = 20, ELEMENT = 4 + 8 };
	*ret_count = length < HEADER ? 0 : (length - HEADER) / ELEMENT;
	int64_t *offsets = xcalloc((size_t)*ret_count + 1, sizeof *offsets);
	for (int32_t i = 0; i < *ret_count; i++)
		offsets[i] = copy_int64(array + HEADER + i * ELEMENT + 4);
	return offsets;
}

static void tell_destination(const struct pg_result *result, int row, struct stream *stream)
{
	struct stream_destination destination = {
	    .topic = pg_value(result, row, NAME_TOPIC),
	    .partitions = copy_int32(pg_value(result, row, NAME_PARTITIONS)),
	    .open = *pg_value(result, row, NAME_OPEN) != 0,
	    .n = copy_int64(pg_value(result, row, NAME_N)),
	};
	int64_t *offsets = read_offsets(pg_value(result, row, NAME_OFFSETS),
	    pg_length(result, row, NAME_OFFSETS), &destination.count);
	destination.offsets = offsets;
	stream_destination(stream, &destination);
	free(offsets);
}

static void answer_closed(struct statements *statements, const struct pg_result *result,
    struct stream *stream, int64_t now)
{
	for (int row = 0; row < pg_rows(result); row++)
		stream_closed_destination(stream, pg_value(result, row, 0));
	stream_closed_end(stream, now, pg_rows(result) < statements->call.max_topics);
}

static void answer_destinations(struct statements *statements, const struct pg_result *result,
    struct stream *stream, int64_t now)
{
	int64_t topics = 0, partitions = 0;
	if (pg_rows(result) == 0) {
		stream_log_failed(stream, now, false, false);
		return;
	}
	for (int row = 0; row < pg_rows(result); row++) {
		if (pg_is_null(result, row, NAME_TOPIC))
			continue;
		topics++;
		partitions += copy_int32(pg_value(result, row, NAME_PARTITIONS));
		tell_destination(result, row, stream);
	}
	stream_destinations_end(stream,
	    topics < statements->call.max_topics && partitions < statements->call.max_partitions);
}

static void answer_take(struct statements *statements, const struct pg_result *result,
    struct stream *stream, int64_t now, char *holder, size_t size)
{
	const char *outcome = pg_value(result, 0, 0);
	*holder = '\0';
	statements->elsewhere = text_equal(outcome, "elsewhere");
	if (statements->elsewhere) {
		stream_not_taken(stream, now, STANDBY_POLL_MS);
		return;
	}
	/* a standby of a slot that was split begins anew, also while another process holds it */
	if (text_equal(outcome, "absent")) {
		stream_absent(stream, now);
		return;
	}
	if (text_equal(outcome, "held")) {
		int64_t wait = int8_at(result, 7);
		text_copy(holder, size, pg_value(result, 0, 6));
		stream_not_taken(stream, now, wait < STANDBY_POLL_MS ? wait : STANDBY_POLL_MS);
		return;
	}
	statements_forget_bounds(statements);
	free(statements->seen);
	statements->seen = NULL;
	text_copy(statements->identity, sizeof statements->identity, pg_value(result, 0, 13));
	const struct stream_taken taken = {
	    .n = int8_at(result, 1),
	    .epoch = int8_at(result, 2),
	    .first_tick = int8_at(result, 3),
	    .acked_id = int8_at(result, 4),
	    .windows = int4_at(result, 5),
	    .former_epoch = int8_at(result, 8),
	    .listed_tick = int8_at(result, 9),
	    .parked = *pg_value(result, 0, 10) != 0,
	    .scheduled = *pg_value(result, 0, 11) != 0,
	    .requests = int8_at(result, 12),
	    .deaths = {.owners = int4_at(result, 14), .alone = int4_at(result, 15)},
	};
	stream_taken(stream, now, &taken);
}

static const struct {
	const char *text;
	enum stream_verdict verdict;
} verdicts[] = {
    {"fenced", STREAM_FENCED},
    {"dropped", STREAM_DROPPED},
    {"idle", STREAM_IDLE},
    {"splitting", STREAM_SPLITTING},
    {"noted", STREAM_NOTED},
    {"rows", STREAM_ROWS},
    {"pages", STREAM_PAGES},
    {"listed", STREAM_LISTED},
};

enum {
	TICK_ID = 2,
	TICK_TOPIC = 5,
	TICK_KEY,
	TICK_PARTITION = 9,
	TICK_REQUESTS = 2 + MESSAGE_FIELDS,
	TICK_DUE
};

static void tell_recovered(const struct pg_result *result, int row, struct stream *stream)
{
	stream_recovered(stream, pg_value(result, row, TICK_TOPIC),
	    (size_t)pg_length(result, row, TICK_TOPIC),
	    copy_int32(pg_value(result, row, TICK_PARTITION)),
	    pg_is_null(result, row, TICK_ID) ? 0 : copy_int64(pg_value(result, row, TICK_ID)));
}

static void tell_parked(
    const struct pg_result *result, int verdict_row, struct stream *stream, int64_t now)
{
	for (int row = 0; row < verdict_row; row++) {
		if (text_equal(pg_value(result, row, 0), "recovered"))
			tell_recovered(result, row, stream);
		if (!text_equal(pg_value(result, row, 0), "empty"))
			continue;
		stream_unparked(stream, pg_value(result, row, TICK_TOPIC),
		    (size_t)pg_length(result, row, TICK_TOPIC), pg_value(result, row, TICK_KEY),
		    pg_length(result, row, TICK_KEY));
	}
	/* said only where the slot was looked at */
	if (!pg_is_null(result, verdict_row, TICK_REQUESTS))
		stream_parked_news(stream, now,
		    copy_int64(pg_value(result, verdict_row, TICK_REQUESTS)),
		    pg_is_null(result, verdict_row, TICK_DUE)
			? -1
			: copy_int64(pg_value(result, verdict_row, TICK_DUE)));
}

static bool answer_tick(struct statements *statements, const struct pg_result *result,
    struct stream *stream, int64_t now, struct err *err)
{
	int last = pg_rows(result) - 1; /* the verdict, behind the rows */
	const char *text = last >= 0 ? pg_value(result, last, 0) : "";
	size_t i = 0;
	while (i < sizeof verdicts / sizeof *verdicts && !text_equal(text, verdicts[i].text))
		i++;
	if (i == sizeof verdicts / sizeof *verdicts)
		return err_set(err, ERR_FATAL, "the function tick answered '%s'", text);
	free(statements->seen);
	statements->seen = verdicts[i].verdict == STREAM_IDLE && !pg_is_null(result, last, 1)
			       ? xstrdup(pg_value(result, last, 1))
			       : NULL;
	tell_parked(result, last, stream, now);
	stream_ticked(stream, now, verdicts[i].verdict);
	if (verdicts[i].verdict != STREAM_ROWS && verdicts[i].verdict != STREAM_LISTED)
		return true;
	for (int row = 0; row < last; row++) {
		struct message message;
		if (!pg_is_null(result, row, 0)) /* told already */
			continue;
		if (!message_from_result(result, row, 2, &message, err))
			return false;
		stream_row(stream, &message);
	}
	stream_rows_end(stream);
	return true;
}

static bool answer_peek(struct statements *statements, const struct link *log,
    const struct pg_result *result, struct stream *stream, int64_t now, bool *ret_done,
    struct err *err)
{
	statements->peeking = false;
	if (text_equal(pg_value(result, 0, 0), statements->seen)) {
		stream_ticked(stream, now, STREAM_IDLE);
		return true;
	}
	*ret_done = false;
	return send_tick(statements, log, &statements->call, err);
}

static void tell_keys(const struct pg_result *result, struct stream *stream)
{
	for (int row = 0; row < pg_rows(result); row++) {
		if (!pg_is_null(result, row, 3))
			stream_stalled_place(stream, pg_value(result, row, 0),
			    (size_t)pg_length(result, row, 0),
			    copy_int32(pg_value(result, row, 3)));
		else if (!pg_is_null(result, row, 2))
			stream_parked_row(stream, copy_int64(pg_value(result, row, 2)));
		else
			stream_parked_key(stream, pg_value(result, row, 0),
			    (size_t)pg_length(result, row, 0), pg_value(result, row, 1),
			    pg_length(result, row, 1));
	}
	stream_keys_end(stream);
}

bool statements_answer(struct statements *statements, const struct link *log,
    const struct pg_result *result, struct stream *stream, int64_t now, char *holder, size_t size,
    bool *ret_done, struct err *err)
{
	*ret_done = true;
	if (statements->peeking)
		return answer_peek(statements, log, result, stream, now, ret_done, err);
	if (statements->call.call == STREAM_TAKE) {
		answer_take(statements, result, stream, now, holder, size);
		return true;
	}
	if (statements->call.call == STREAM_RENEW) {
		stream_renewed(stream, now, text_equal(pg_value(result, 0, 0), "noted"));
		return true;
	}
	statements->checked = statements->call.call == STREAM_TICK ? log->lost_count : -1;
	if (statements->call.call == STREAM_TICK)
		return answer_tick(statements, result, stream, now, err);
	if (statements->call.call == STREAM_CLOSED) {
		answer_closed(statements, result, stream, now);
		return true;
	}
	if (statements->call.call == STREAM_DESTINATIONS) {
		answer_destinations(statements, result, stream, now);
		return true;
	}
	if (statements->call.call == STREAM_KEYS) {
		tell_keys(result, stream);
		return true;
	}
	if (pg_rows(result))
		stream_newest(stream, now, int8_at(result, 0), int8_at(result, 1),
		    int4_at(result, 2), int8_at(result, 3));
	else
		stream_newest(stream, now, 0, 0, 0, 0);
	return true;
}

bool statements_elsewhere(const struct statements *statements)
{
	return statements->elsewhere;
}

/* --- pages --------------------------------------------------------------------------------- */

bool statements_bounds(
    struct statements *statements, const struct pg_result *result, struct err *err)
{
	if (pg_rows(result) != 1)
		return err_set(err, ERR_FATAL, "the function window_bounds gave no row");
	struct bounds *bounds = &statements->bounds;
	statements_forget_bounds(statements);
	bounds->tick = statements->asked_tick;
	bounds->low_xid = xstrdup(pg_value(result, 0, 0));
	bounds->sure_xid = xstrdup(pg_value(result, 0, 1));
	bounds->upto = xstrdup(pg_value(result, 0, 2));
	bounds->stragglers = xstrdup(pg_value(result, 0, 3));
	/* no row in the main range: a range that holds none */
	bool empty = pg_is_null(result, 0, 4);
	bounds->low_id = xformat("%lld", empty ? 1LL : (long long)int8_at(result, 4));
	bounds->high_id = xformat("%lld", empty ? 0LL : (long long)int8_at(result, 5));
	bounds->listed = pg_is_null(result, 0, 6) ? NULL : xstrdup(pg_value(result, 0, 6));
	return true;
}

bool statements_send_page(struct statements *statements, struct pg *pg,
    const struct stream_page *page, bool *ret_copying, struct err *err)
{
	const struct bounds *bounds = &statements->bounds;
	*ret_copying = bounds->tick == page->tick;
	if (!*ret_copying) {
		struct parameters parameters = {0};
		add_text(&parameters, statements->slot);
		add_number(&parameters, statements->shard);
		add_number(&parameters, page->n);
		add_number(&parameters, page->nonce);
		add_number(&parameters, page->tick);
		statements->asked_tick = page->tick;
		return pg_send(pg, statements->bounds_sql, parameters.list, parameters.count, err);
	}
	char shard[24], shards[24], n[24], nonce[24], after[24], rows[24];
	*text_write_int64(shard, statements->shard) = '\0';
	*text_write_int64(shards, statements->shards) = '\0';
	*text_write_int64(n, page->n) = '\0';
	*text_write_int64(nonce, page->nonce) = '\0';
	*text_write_int64(after, page->after_id) = '\0';
	*text_write_int64(rows, page->rows) = '\0';
	const struct script_place places[] = {
	    {"slot", statements->slot},
	    {"shards", shards, true},
	    {"shard", shard, true},
	    {"nonce", nonce, true},
	    {"n", n, true},
	    {"low_xid", bounds->low_xid},
	    {"sure_xid", bounds->sure_xid},
	    {"upto", bounds->upto},
	    {"stragglers", bounds->stragglers},
	    {"low_id", bounds->low_id, true},
	    {"high_id", bounds->high_id, true},
	    {"listed", bounds->listed},
	    {"after", after, true},
	    {"rows", rows, true},
	    {"withheld", page->withheld ? "true" : "false", true},
	    {0},
	};
	const char *sql = bounds->listed                         ? statements->page_listed
			  : text_equal(bounds->stragglers, "{}") ? statements->page
								 : statements->page_stragglers;
	owned_text char *script = script_fill(sql, places);
	return pg_send_copy(pg, script, err);
}
