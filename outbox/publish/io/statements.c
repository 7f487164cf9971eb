#include "statements.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "copy_binary.h"
#include "hex.h"
#include "schema_text.h"
#include "script.h"
#include "sql_files.h"

/*
 * First the statements on the log connection: statements_send_call sends one, statements_answer
 * checks the form of its answer and hands it to the stream. The last part reads a window by pages:
 * first its bounds, in chunks, then spans of ids. The SQL is in sql/queries.
 */

enum { STANDBY_POLL_MS = 250, OPEN_WINDOWS_MAX = 1 << 16 };

/*
 * The bounds of the window that is read by pages. One statement finds the bounds of a chunk of
 * xids, and one page covers a span of ids. After a statement that took too long the next chunk or
 * span is smaller.
 */
struct bounds {
	int64_t tick; /* the window; 0: no bounds are known */
	bool whole;   /* the members below are complete */
	char *low_xid, *sure_xid, *upto, *stragglers;
	char *next_xid;            /* where the next chunk begins; NULL: at the first xid */
	int64_t low_id, high_id;   /* of the main range; high_id 0: it has no row */
	int64_t first_id, last_id; /* the same with the stragglers */
	char *listed;              /* ids of a listed window; NULL: the members above are valid */
};

enum {
	CHUNK_XIDS = 16384,
	CHUNK_XIDS_MAX = 1 << 24,
	CHUNK_ROWS = 200000,
	SPAN_IDS = 1 << 18,
	SPAN_IDS_MIN = 1024,
	SPAN_IDS_MAX = 1 << 30,
	LATE_PARTS = 16, /* a chunk or span after a late one is smaller by this factor */
	TOPIC_MAX = 249,
	VAIN_LOOKS = 8, /* after so many in a row, looks are rare */
	LOOK_AGAIN = 16
};

enum { TICK, LOOK, LOOKUP, RENEWAL, REPEATED };

struct statements {
	struct link_statement repeated[REPEATED + 1];
	char *take, *tick, *tick_checked, *look, *renew, *newest, *lookup, *digests, *places;
	struct text ids, numbers, events; /* arrays of the look-up in flight */
	char *destinations_open, *destinations_named, *destinations_closed;
	char *bounds_sql, *page, *page_stragglers, *page_listed;
	char *publisher, *owner;
	char identity[40];
	int shard, shards;
	char deaths[80]; /* an array, argument of the call in flight */
	char *seen;      /* the snapshot in which nothing was found; NULL: none */
	char *version;   /* xmin of the publisher's row, from before the last TICK; NULL: unknown */
	bool looking;    /* the statement in flight only finds out whether to tick */
	unsigned vain_looks;     /* since a look found nothing to do */
	struct stream_tick call; /* in flight on the log connection */
	struct bounds bounds;
	int64_t asked_tick;
	int64_t chunk_xids;       /* size of the next chunk of bounds */
	int64_t span_ids;         /* size of the next page */
	int64_t upto_id, upto_at; /* end of the page in flight, and when it was sent */
	/* The page in flight has null for the first topic, and the next page for the second; "":
	 * none. */
	char usual_topic[TOPIC_MAX + 1], last_topic[TOPIC_MAX + 1];
	bool elsewhere;  /* result of the last take */
	int64_t checked; /* the connection (link.made) whose server has our log row; -1: none */
};

struct statements *statements_create(
    const char *schema, const char *publisher, int shard, int shards, const char *owner)
{
	struct statements *statements = xcalloc(1, sizeof *statements);

	statements->take = schema_text(sql_take, schema);
	statements->tick = schema_text(sql_tick, schema);
	statements->tick_checked = schema_text(sql_tick_checked, schema);
	statements->checked = -1;
	statements->chunk_xids = CHUNK_XIDS;
	statements->span_ids = SPAN_IDS;
	statements->look = schema_text(sql_look, schema);
	statements->renew = schema_text(sql_renew, schema);
	statements->repeated[RENEWAL] = (struct link_statement){"outbox_renew", statements->renew};
	statements->repeated[TICK] = (struct link_statement){"outbox_tick", statements->tick};
	statements->repeated[LOOK] = (struct link_statement){"outbox_look", statements->look};
	statements->newest = schema_text(sql_newest, schema);
	statements->destinations_open = schema_text(sql_destinations_open, schema);
	statements->destinations_named = schema_text(sql_destinations_named, schema);
	statements->destinations_closed = schema_text(sql_destinations_closed, schema);
	statements->bounds_sql = schema_text(sql_bounds, schema);
	statements->page = schema_text(sql_page, schema);
	statements->page_stragglers = schema_text(sql_page_stragglers, schema);
	statements->page_listed = schema_text(sql_page_listed, schema);
	statements->lookup = schema_text(sql_parked_lookup, schema);
	statements->repeated[LOOKUP] = (struct link_statement){"outbox_lookup", statements->lookup};
	statements->digests = schema_text(sql_parked_digests, schema);
	statements->places = schema_text(sql_parked_places, schema);
	statements->publisher = xstrdup(publisher);
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
	free(bounds->next_xid);
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
	free(statements->look);
	free(statements->renew);
	free(statements->newest);
	free(statements->destinations_open);
	free(statements->destinations_named);
	free(statements->destinations_closed);
	free(statements->bounds_sql);
	free(statements->page);
	free(statements->page_stragglers);
	free(statements->page_listed);
	free(statements->lookup);
	free(statements->digests);
	free(statements->places);
	text_finish(&statements->ids);
	text_finish(&statements->numbers);
	text_finish(&statements->events);
	free(statements->publisher);
	free(statements->owner);
	free(statements->seen);
	free(statements->version);
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

/*
 * Parameters in text form. The list points to numbers in the same struct: a copy would point into
 * the original, so the struct is passed by its address, and no function returns one.
 */
struct parameters {
	struct pg_param list[22];
	char numbers[22][24];
	int count;
};

static void add_text_parameter(struct parameters *parameters, const char *text)
{
	parameters->list[parameters->count++] = (struct pg_param){text};
}

static void add_number_parameter(struct parameters *parameters, int64_t number)
{
	char *text = parameters->numbers[parameters->count];
	*text_write_int64(text, number) = '\0';
	add_text_parameter(parameters, text);
}

static void add_boolean_parameter(struct parameters *parameters, bool value)
{
	add_text_parameter(parameters, value ? "t" : "f");
}

static void add_shard_parameters(struct parameters *parameters, const struct statements *statements)
{
	add_text_parameter(parameters, statements->publisher);
	add_number_parameter(parameters, statements->shard);
}

/* Adds the shard and the row that its owner wrote last. */
static void add_row_parameters(struct parameters *parameters, const struct statements *statements,
    const struct stream_tick *call)
{
	add_shard_parameters(parameters, statements);
	add_number_parameter(parameters, call->n);
	add_number_parameter(parameters, call->nonce);
}

static bool send_take(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	add_shard_parameters(&parameters, statements);
	add_number_parameter(&parameters, statements->shards);
	add_number_parameter(&parameters, call->new_nonce);
	add_text_parameter(&parameters, statements->owner);
	add_number_parameter(&parameters, call->lease_ms);
	add_number_parameter(&parameters, call->fresh_epoch);
	return link_send(log, statements->take, parameters.list, parameters.count, err);
}

static bool send_repeated(struct statements *statements, const struct link *log, int which,
    const struct parameters *parameters, struct err *err)
{
	const struct link_statement *statement = &statements->repeated[which];
	return log->prepared
		   ? pg_send_prepared(
			 log->pg, statement->name, parameters->list, parameters->count, err)
		   : link_send(log, statement->sql, parameters->list, parameters->count, err);
}

/*
 * True: this session has been checked to have our log row. After a change of the server there is a
 * new session; behind a pooler we cannot see that, so each tick checks.
 */
static bool is_session_checked(const struct statements *statements, const struct link *log)
{
	return log->prepared && statements->checked == log->made;
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
	add_row_parameters(&parameters, statements, call);
	add_number_parameter(&parameters, statements->shards);
	add_number_parameter(&parameters, call->new_nonce);
	add_number_parameter(&parameters, call->lease_ms);
	add_number_parameter(&parameters, call->closed);
	add_number_parameter(&parameters, call->acked_id);
	add_text_parameter(&parameters, call->destinations);
	if (call->new_epoch)
		add_number_parameter(&parameters, call->fresh_epoch);
	else
		add_text_parameter(&parameters, NULL);

	add_boolean_parameter(&parameters, call->may_open);
	add_boolean_parameter(&parameters, call->must_write);
	add_number_parameter(&parameters, call->max_rows);
	add_number_parameter(&parameters, call->max_bytes);
	add_text_parameter(&parameters, statements->seen);
	add_text_parameter(&parameters, call->parks);
	add_boolean_parameter(&parameters, call->may_list);
	add_number_parameter(&parameters, call->batch);
	add_text_parameter(&parameters, deaths_text(statements, &call->deaths));
	add_boolean_parameter(&parameters, call->blind);
	if (call->fold_to)
		add_number_parameter(&parameters, call->fold_to);
	else
		add_text_parameter(&parameters, NULL);

	if (!is_session_checked(statements, log))
		return link_send(
		    log, statements->tick_checked, parameters.list, parameters.count, err);
	return send_repeated(statements, log, TICK, &parameters, err);
}

/*
 * The oldest transaction in progress of `seen`, whose text is xmin:xmax:xip,…: whatever has ended
 * since is not older.
 */
static const char *oldest_unseen(const struct statements *statements, char *xid, size_t size)
{
	if (!statements->seen)
		return NULL;
	snprintf(xid, size, "%.*s", (int)strcspn(statements->seen, ":"), statements->seen);
	return xid;
}

static bool send_look(struct statements *statements, const struct link *log, struct err *err)
{
	char xid[24];
	struct parameters parameters = {0};

	add_text_parameter(&parameters, statements->publisher);
	add_text_parameter(&parameters, oldest_unseen(statements, xid, sizeof xid));
	return send_repeated(statements, log, LOOK, &parameters, err);
}

static bool send_renew(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err)
{
	char xid[24];
	struct parameters parameters = {0};

	add_row_parameters(&parameters, statements, call);
	add_number_parameter(&parameters, call->new_nonce);
	add_number_parameter(&parameters, call->lease_ms);
	add_text_parameter(&parameters, deaths_text(statements, &call->deaths));
	add_text_parameter(
	    &parameters, call->may_open ? oldest_unseen(statements, xid, sizeof xid) : NULL);
	return send_repeated(statements, log, RENEWAL, &parameters, err);
}

static bool send_destinations(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	const char *sql =
	    call->topics ? statements->destinations_named : statements->destinations_open;
	add_row_parameters(&parameters, statements, call);
	add_text_parameter(&parameters, call->topics ? call->topics : call->after);
	if (!call->topics) {
		add_number_parameter(&parameters, call->max_topics);
		add_number_parameter(&parameters, call->max_partitions);
	}
	return link_send(log, sql, parameters.list, parameters.count, err);
}

/* Writes three arrays such as "{1,NULL,3}": ids, digests and event ids. */
static void write_lookups(struct statements *statements, const struct stream_tick *call)
{
	struct text *ids = &statements->ids, *digests = &statements->numbers;
	struct text *events = &statements->events;
	text_clear(ids);
	text_clear(digests);
	text_clear(events);
	for (int64_t i = 0; i < call->most; i++) {
		const struct stream_lookup *asked = &call->lookups[i];
		char id[24] = "NULL", digest[24] = "NULL", event[UUID_TEXT + 1] = "NULL";
		if (asked->id)
			*text_write_int64(id, asked->id) = '\0';
		if (asked->event_id) {
			uuid_write(asked->event_id, event);
			event[UUID_TEXT] = '\0';
		}
		if (asked->has_digest)
			*text_write_int64(digest, asked->digest) = '\0';
		text_addf(ids, "%c%s", i ? ',' : '{', id);
		text_addf(digests, "%c%s", i ? ',' : '{', digest);
		text_addf(events, "%c%s", i ? ',' : '{', event);
	}

	text_add(events, call->most ? "}" : "{}");
	text_add(ids, call->most ? "}" : "{}");
	text_add(digests, call->most ? "}" : "{}");
}

static bool send_lookup(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct parameters *parameters, struct err *err)
{
	write_lookups(statements, call);
	add_text_parameter(parameters, statements->ids.data);
	add_text_parameter(parameters, statements->numbers.data);
	add_text_parameter(parameters, statements->events.data);
	return send_repeated(statements, log, LOOKUP, parameters, err);
}

/* The query fails on a server that does not have our newest log row. */
static bool send_keys(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err)
{
	struct parameters parameters = {0};
	add_row_parameters(&parameters, statements, call);
	if (call->call == STREAM_LOOKUP)
		return send_lookup(statements, log, call, &parameters, err);

	if (call->call == STREAM_DIGESTS) {
		add_number_parameter(&parameters, call->from_digest);
	} else {
		add_text_parameter(&parameters, call->after_topic);
		add_number_parameter(&parameters, call->after_partition);
	}
	add_number_parameter(&parameters, call->most);
	const char *sql = call->call == STREAM_DIGESTS ? statements->digests : statements->places;
	return link_send(log, sql, parameters.list, parameters.count, err);
}

static bool asks_of_keys(enum stream_call call)
{
	return call == STREAM_LOOKUP || call == STREAM_DIGESTS || call == STREAM_PLACES;
}

/*
 * A TICK that need not write begins with a look if the last TICK found nothing: it costs half of a
 * TICK. A transaction that stays open keeps rows in sight that are published already: then looks
 * are in vain, and only each 16th TICK begins with one.
 */
static bool begins_with_look(struct statements *statements, const struct stream_tick *call)
{
	if (call->call != STREAM_TICK || call->must_write || call->may_list || !statements->seen)
		return false;
	unsigned vain = statements->vain_looks++;

	return vain < VAIN_LOOKS || vain % LOOK_AGAIN == 0;
}

bool statements_send_call(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err)
{
	statements->call = *call;
	statements->looking = begins_with_look(statements, call);
	if (statements->looking)
		return send_look(statements, log, err);
	if (call->call == STREAM_TAKE)
		return send_take(statements, log, call, err);
	if (call->call == STREAM_TICK)
		return send_tick(statements, log, call, err);
	if (call->call == STREAM_RENEW)
		return send_renew(statements, log, call, err);
	if (call->call == STREAM_DESTINATIONS)
		return send_destinations(statements, log, call, err);
	if (asks_of_keys(call->call))
		return send_keys(statements, log, call, err);

	struct parameters parameters = {0};
	add_shard_parameters(&parameters, statements);
	if (call->call == STREAM_CLOSED) {
		add_text_parameter(&parameters, call->after);
		add_number_parameter(&parameters, call->max_topics);
		return link_send(
		    log, statements->destinations_closed, parameters.list, parameters.count, err);
	}
	return link_send(log, statements->newest, parameters.list, parameters.count, err);
}

/* --- answers, in binary form -------------------------------------------------------------- */

enum { NAME_TOPIC, NAME_PARTITIONS, NAME_OFFSETS, NAME_OPEN, NAME_N };

/* Reads an array of numbers in binary form; the caller frees it. */
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
	    .partitions = pg_int4(result, row, NAME_PARTITIONS),
	    .open = *pg_value(result, row, NAME_OPEN) != 0,
	    .n = pg_int8(result, row, NAME_N),
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

static void answer_destinations(
    struct statements *statements, const struct pg_result *result, struct stream *stream)
{
	int64_t topics = 0, partitions = 0;
	/* The first row is the guard's (log_guard). */
	for (int row = 1; row < pg_rows(result); row++) {
		topics++;
		partitions += pg_int4(result, row, NAME_PARTITIONS);
		tell_destination(result, row, stream);
	}
	stream_destinations_end(stream,
	    topics < statements->call.max_topics && partitions < statements->call.max_partitions);
}

static void forget_seen(struct statements *statements)
{
	free(statements->seen);
	statements->seen = NULL;
}

static bool answer_take(struct statements *statements, const struct pg_result *result,
    struct stream *stream, int64_t now, char *holder, size_t size, struct err *err)
{
	const char *outcome = pg_value(result, 0, 0);

	*holder = '\0';
	statements->elsewhere = text_equal(outcome, "elsewhere");
	if (statements->elsewhere) {
		stream_not_taken(stream, now, STANDBY_POLL_MS);
		return true;
	}
	/* A standby of a publisher that was split starts again, even while an owner holds it. */
	if (text_equal(outcome, "absent")) {
		stream_absent(stream, now);
		return true;
	}
	if (text_equal(outcome, "held")) {
		int64_t wait = pg_int8(result, 0, 7);
		text_copy(holder, size, pg_value(result, 0, 6));
		stream_not_taken(stream, now, wait < STANDBY_POLL_MS ? wait : STANDBY_POLL_MS);
		return true;
	}

	/* Windows take memory, and no owner opens so many: such an answer is wrong. */
	if (pg_int4(result, 0, 5) < 0 || pg_int4(result, 0, 5) > OPEN_WINDOWS_MAX)
		return err_set(err, ERR_FATAL, "the function take answered %d open windows",
		    (int)pg_int4(result, 0, 5));

	statements_forget_bounds(statements);
	forget_seen(statements);
	text_copy(statements->identity, sizeof statements->identity, pg_value(result, 0, 13));
	const struct stream_taken taken = {
	    .n = pg_int8(result, 0, 1),
	    .epoch = pg_int8(result, 0, 2),
	    .first_tick = pg_int8(result, 0, 3),
	    .acked_id = pg_int8(result, 0, 4),
	    .windows = pg_int4(result, 0, 5),
	    .former_epoch = pg_int8(result, 0, 8),
	    .listed_tick = pg_int8(result, 0, 9),
	    .parked = *pg_value(result, 0, 10) != 0,
	    .scheduled = *pg_value(result, 0, 11) != 0,
	    .requests = pg_int8(result, 0, 12),
	    .deaths = {.owners = pg_int4(result, 0, 14), .alone = pg_int4(result, 0, 15)},
	    .paused = *pg_value(result, 0, 16) != 0,
	    .paused_topics = pg_is_null(result, 0, 17) ? NULL : pg_value(result, 0, 17),
	};
	stream_taken(stream, now, &taken);
	return true;
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
	TICK_PARTITION = 9,
	TICK_REQUESTS = 2 + MESSAGE_FIELDS,
	TICK_DUE,
	TICK_TOOK,
	TICK_PAUSED,
	TICK_PAUSED_TOPICS
};

static void tell_recovered(const struct pg_result *result, int row, struct stream *stream)
{
	stream_recovered(stream, pg_value(result, row, TICK_TOPIC),
	    (size_t)pg_length(result, row, TICK_TOPIC), pg_int4(result, row, TICK_PARTITION),
	    pg_int8(result, row, TICK_ID));
}

static void tell_parked(
    const struct pg_result *result, int verdict_row, struct stream *stream, int64_t now)
{
	for (int row = 0; row < verdict_row; row++) {
		if (text_equal(pg_value(result, row, 0), "recovered"))
			tell_recovered(result, row, stream);
		if (!text_equal(pg_value(result, row, 0), "empty"))
			continue;
		stream_unparked(stream, pg_int8(result, row, TICK_ID));
	}

	/* NULL if the tick did not look at the publisher. */
	if (!pg_is_null(result, verdict_row, TICK_REQUESTS))
		stream_parked_news(stream, now, pg_int8(result, verdict_row, TICK_REQUESTS),
		    pg_is_null(result, verdict_row, TICK_DUE)
			? -1
			: pg_int8(result, verdict_row, TICK_DUE));
	if (!pg_is_null(result, verdict_row, TICK_PAUSED)) {
		stream_pause(stream, *pg_value(result, verdict_row, TICK_PAUSED) != 0);
		stream_pause_topics(
		    stream, pg_is_null(result, verdict_row, TICK_PAUSED_TOPICS)
				? NULL
				: pg_value(result, verdict_row, TICK_PAUSED_TOPICS));
	}
	if (!pg_is_null(result, verdict_row, TICK_TOOK))
		stream_worked(stream, now, pg_int8(result, verdict_row, TICK_TOOK));
}

static bool answer_tick(struct statements *statements, const struct pg_result *result,
    struct stream *stream, int64_t now, struct err *err)
{
	int last = pg_rows(result) - 1; /* the verdict is in the last row */
	const char *text = last >= 0 ? pg_value(result, last, 0) : "";
	size_t i = 0;

	while (i < sizeof verdicts / sizeof *verdicts && !text_equal(text, verdicts[i].text))
		i++;
	if (i == sizeof verdicts / sizeof *verdicts)
		return err_set(err, ERR_FATAL, "the function tick answered '%s'", text);

	free(statements->seen);
	/* A TICK that only asks for the end of a pause has searched nothing. */
	statements->seen = verdicts[i].verdict == STREAM_IDLE && statements->call.may_open &&
				   !pg_is_null(result, last, 1)
			       ? xstrdup(pg_value(result, last, 1))
			       : NULL;
	tell_parked(result, last, stream, now);
	stream_ticked(stream, now, verdicts[i].verdict);
	if (verdicts[i].verdict != STREAM_ROWS && verdicts[i].verdict != STREAM_LISTED)
		return true;

	for (int row = 0; row < last; row++) {
		struct message message;
		if (!pg_is_null(result, row, 0)) /* not a message: see tell_parked */
			continue;
		if (!message_from_result(result, row, 2, &message, err))
			return false;
		stream_row(stream, &message);
	}
	stream_rows_end(stream);
	return true;
}

enum { LOOK_SEEN, LOOK_VERSION, LOOK_HAS_ROWS };

/*
 * The answer of a look, from a column on. True: since `seen`, nothing has happened that a TICK
 * would find. No row is new: one that was not visible then is of a transaction that had not ended.
 * And the publisher's row is the one of before that TICK.
 */
static bool found_nothing(struct statements *statements, const struct pg_result *result, int column)
{
	bool has_version = !pg_is_null(result, 0, column + LOOK_VERSION);
	const char *version = has_version ? pg_value(result, 0, column + LOOK_VERSION) : "";
	bool same = has_version && statements->version && text_equal(version, statements->version);

	if (!same) {
		free(statements->version);
		statements->version = has_version ? xstrdup(version) : NULL;
	}
	if (!same || pg_is_null(result, 0, column + LOOK_SEEN) ||
	    pg_is_null(result, 0, column + LOOK_HAS_ROWS) ||
	    *pg_value(result, 0, column + LOOK_HAS_ROWS) != 0)
		return false;

	free(statements->seen);
	statements->seen = xstrdup(pg_value(result, 0, column + LOOK_SEEN));
	statements->vain_looks = 0;
	return true;
}

static void answer_renewal(struct statements *statements, const struct pg_result *result,
    struct stream *stream, int64_t now)
{
	bool written = text_equal(pg_value(result, 0, 0), "noted");

	if (statements->call.may_open && statements->seen && found_nothing(statements, result, 1) &&
	    written) {
		stream_renewed_idle(stream, now);
		return;
	}
	forget_seen(statements); /* so the next TICK begins without a look */
	stream_renewed(stream, now, written);
}

/*
 * A tick after a look has the rest of the call's limit. After a slow look no tick is sent: the call
 * counts as failed, so that RENEW is next (stream_log_failed).
 */
static bool answer_look(struct statements *statements, const struct link *log,
    const struct pg_result *result, struct stream *stream, int64_t now, bool slow, bool *ret_done,
    struct err *err)
{
	statements->looking = false;
	if (slow) {
		forget_seen(statements);
		stream_log_failed(stream, now, false, false);
		return true;
	}
	if (found_nothing(statements, result, 0)) {
		stream_ticked(stream, now, STREAM_IDLE);
		return true;
	}

	*ret_done = false;
	return send_tick(statements, log, &statements->call, err);
}

static void tell_places(const struct pg_result *result, struct stream *stream)
{
	for (int row = 0; row < pg_rows(result); row++)
		stream_stalled_place(stream, pg_value(result, row, 0),
		    (size_t)pg_length(result, row, 0), pg_int4(result, row, 1));
	stream_places_end(stream, pg_rows(result));
}

static void tell_digests(const struct pg_result *result, struct stream *stream)
{
	for (int row = 0; row < pg_rows(result); row++)
		stream_digest(stream, pg_int8(result, row, 0));
	stream_digests_end(stream, pg_rows(result));
}

static void tell_keys(enum stream_call call, const struct pg_result *result, struct stream *stream)
{
	if (call == STREAM_PLACES) {
		tell_places(result, stream);
		return;
	}
	if (call == STREAM_DIGESTS) {
		tell_digests(result, stream);
		return;
	}

	for (int row = 0; row < pg_rows(result); row++)
		stream_looked_up(
		    stream, pg_int4(result, row, 0) - 1, *pg_value(result, row, 1) != 0);
	stream_lookup_end(stream);
}

/*
 * The expected form of each answer (pg_has_shape). The code that reads the answers relies on it:
 * the database may be hostile, and a restored one may have another schema.
 */
static const char *expected_shape(const struct statements *statements, bool *ret_has_a_row)
{
	*ret_has_a_row = true;
	if (statements->looking)
		return "ttb";

	switch (statements->call.call) {
	case STREAM_TAKE:
		return "tllllitlllbbltiibt";
	case STREAM_TICK:
		return "ttlxxtxxxixxxlllbt";
	case STREAM_RENEW:
		return "tttb";
	case STREAM_DESTINATIONS:
		return "tixbl";
	default:
		break;
	}

	*ret_has_a_row = false;
	switch (statements->call.call) {
	case STREAM_LOOKUP:
		return "ib";
	case STREAM_DIGESTS:
		return "l";
	case STREAM_PLACES:
		return "ti";
	case STREAM_CLOSED:
		return "t";
	default:
		return "llili";
	}
}

static bool has_expected_shape(
    const struct statements *statements, const struct pg_result *result, struct err *err)
{
	bool has_a_row;
	const char *shape = expected_shape(statements, &has_a_row);
	if (has_a_row && pg_rows(result) == 0)
		return err_set(err, ERR_FATAL, "the server's answer has no row");
	return pg_has_shape(result, shape, err);
}

bool statements_answer(struct statements *statements, const struct link *log,
    const struct pg_result *result, struct stream *stream, int64_t now, bool slow, char *holder,
    size_t size, bool *ret_done, struct err *err)
{
	*ret_done = true;
	if (!has_expected_shape(statements, result, err))
		return false;
	if (statements->looking)
		return answer_look(statements, log, result, stream, now, slow, ret_done, err);
	if (statements->call.call == STREAM_TAKE)
		return answer_take(statements, result, stream, now, holder, size, err);
	if (statements->call.call == STREAM_RENEW) {
		answer_renewal(statements, result, stream, now);
		return true;
	}
	if (asks_of_keys(statements->call.call)) {
		tell_keys(statements->call.call, result, stream);
		return true;
	}

	/* A TICK proves that this connection's server has our log row. */
	statements->checked = statements->call.call == STREAM_TICK ? log->made : -1;
	if (statements->call.call == STREAM_TICK)
		return answer_tick(statements, result, stream, now, err);
	if (statements->call.call == STREAM_CLOSED) {
		answer_closed(statements, result, stream, now);
		return true;
	}
	if (statements->call.call == STREAM_DESTINATIONS) {
		answer_destinations(statements, result, stream);
		return true;
	}

	if (pg_rows(result))
		stream_newest(stream, now, pg_int8(result, 0, 0), pg_int8(result, 0, 1),
		    pg_int4(result, 0, 2), pg_int8(result, 0, 3));
	else
		stream_newest(stream, now, 0, 0, 0, 0);
	return true;
}

bool statements_elsewhere(const struct statements *statements)
{
	return statements->elsewhere;
}

/* --- pages --------------------------------------------------------------------------------- */

static int64_t lower_of(int64_t a, int64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static int64_t higher_of(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static char *copy_at(const struct pg_result *result, int column)
{
	return pg_is_null(result, 0, column) ? NULL : xstrdup(pg_value(result, 0, column));
}

enum {
	BOUNDS_STRAGGLERS = 3,
	BOUNDS_LOW,
	BOUNDS_HIGH,
	BOUNDS_LISTED,
	BOUNDS_NEXT,
	BOUNDS_OVER,
	BOUNDS_LEAST,
	BOUNDS_LAST
};

static void begin_bounds(struct statements *statements, const struct pg_result *result)
{
	struct bounds *bounds = &statements->bounds;
	statements_forget_bounds(statements);
	bounds->tick = statements->asked_tick;
	bounds->low_xid = xstrdup(pg_value(result, 0, 0));
	bounds->sure_xid = xstrdup(pg_value(result, 0, 1));
	bounds->upto = xstrdup(pg_value(result, 0, 2));
	bounds->stragglers = copy_at(result, BOUNDS_STRAGGLERS);
	bounds->listed = copy_at(result, BOUNDS_LISTED);
	bounds->first_id = pg_int8(result, 0, BOUNDS_LEAST);
	bounds->last_id = pg_int8(result, 0, BOUNDS_LAST);
}

bool statements_bounds(
    struct statements *statements, const struct pg_result *result, struct err *err)
{
	if (pg_rows(result) != 1)
		return err_set(err, ERR_FATAL, "the function window_bounds gave no row");
	if (!pg_has_shape(result, "ttttllttbll", err))
		return false;

	struct bounds *bounds = &statements->bounds;
	if (bounds->tick != statements->asked_tick)
		begin_bounds(statements, result);
	free(bounds->next_xid);
	bounds->next_xid = copy_at(result, BOUNDS_NEXT);
	bounds->low_id = lower_of(bounds->low_id, pg_int8(result, 0, BOUNDS_LOW));
	bounds->high_id = higher_of(bounds->high_id, pg_int8(result, 0, BOUNDS_HIGH));
	bounds->whole = *pg_value(result, 0, BOUNDS_OVER) != 0;
	bounds->first_id = lower_of(bounds->first_id, bounds->low_id);
	bounds->last_id = higher_of(bounds->last_id, bounds->high_id);
	if (statements->chunk_xids < CHUNK_XIDS_MAX)
		statements->chunk_xids *= 2;
	return true;
}

static bool send_bounds_query(struct statements *statements, const struct link *read,
    const struct stream_page *page, struct err *err)
{
	struct parameters parameters = {0};
	bool begun = statements->bounds.tick == page->tick;

	add_text_parameter(&parameters, statements->publisher);
	add_number_parameter(&parameters, statements->shard);
	add_number_parameter(&parameters, statements->shards);
	add_number_parameter(&parameters, page->n);
	add_number_parameter(&parameters, page->nonce);
	add_number_parameter(&parameters, page->tick);
	add_text_parameter(&parameters, begun ? statements->bounds.next_xid : NULL);
	add_number_parameter(&parameters, statements->chunk_xids);
	add_number_parameter(&parameters, CHUNK_ROWS);
	statements->asked_tick = page->tick;
	return link_send(read, statements->bounds_sql, parameters.list, parameters.count, err);
}

/* A page looks at span_ids ids, from the first one on that a row may have. */
static int64_t page_end(const struct statements *statements, int64_t after_id)
{
	const struct bounds *bounds = &statements->bounds;
	int64_t from = higher_of(after_id, bounds->first_id - 1);
	return bounds->listed || bounds->last_id - from <= statements->span_ids
		   ? higher_of(bounds->last_id, after_id)
		   : from + statements->span_ids;
}

bool statements_page_over(
    struct statements *statements, int64_t now, int64_t limit_ms, bool full, int64_t *ret_upto_id)
{
	const struct bounds *bounds = &statements->bounds;
	bool quick = now - statements->upto_at < limit_ms / 8;
	if (quick && !full && statements->span_ids < SPAN_IDS_MAX)
		statements->span_ids *= 2;
	*ret_upto_id = full ? 0 : statements->upto_id;
	return !full && (bounds->listed || statements->upto_id >= bounds->last_id);
}

void statements_page_late(struct statements *statements, bool copying)
{
	if (copying)
		statements->span_ids = higher_of(SPAN_IDS_MIN, statements->span_ids / LATE_PARTS);
	else
		statements->chunk_xids = higher_of(1, statements->chunk_xids / LATE_PARTS);
}

/* A topic becomes a literal of the page, so one with other characters than Kafka allows does not.
 */
void statements_note_topic(struct statements *statements, const char *topic, int32_t length)
{
	static const char allowed[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	char name[TOPIC_MAX + 1];
	if (topic == statements->usual_topic || length > TOPIC_MAX)
		return;

	memcpy(name, topic, (size_t)length);
	name[length] = '\0';
	if (name[strspn(name, allowed)] == '\0')
		memcpy(statements->last_topic, name, (size_t)length + 1);
}

const char *statements_usual_topic(const struct statements *statements)
{
	return *statements->usual_topic ? statements->usual_topic : NULL;
}

static bool send_page_query(struct statements *statements, const struct link *read,
    const struct stream_page *page, struct err *err)
{
	const struct bounds *bounds = &statements->bounds;
	/* the range of the page that the window's main range has */
	int64_t from_id = higher_of(page->after_id + (page->after_id < INT64_MAX), bounds->low_id);
	int64_t to_id =
	    statements->upto_id < bounds->high_id ? statements->upto_id : bounds->high_id;
	const int64_t numbers[] = {statements->shard, statements->shards, page->n, page->nonce,
	    page->after_id, page->rows, statements->upto_id, from_id, to_id, read->limit_ms};
	char text[sizeof numbers / sizeof *numbers][24];
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		*text_write_int64(text[i], numbers[i]) = '\0';

	const struct script_place places[] = {
	    {"publisher", statements->publisher},
	    {"shard", text[0], true},
	    {"shards", text[1], true},
	    {"n", text[2], true},
	    {"nonce", text[3], true},
	    {"after", text[4], true},
	    {"rows", text[5], true},
	    {"upto_id", text[6], true},
	    {"from_id", text[7], true},
	    {"to_id", text[8], true},
	    {"limit", text[9], true},
	    {"low_xid", bounds->low_xid},
	    {"sure_xid", bounds->sure_xid},
	    {"upto", bounds->upto},
	    {"stragglers", bounds->stragglers},
	    {"listed", bounds->listed},
	    {"withheld", page->withheld ? "true" : "false", true},
	    {"topic", *statements->usual_topic ? statements->usual_topic : "null",
		!*statements->usual_topic},
	    {0},
	};

	const char *sql = bounds->listed                         ? statements->page_listed
			  : text_equal(bounds->stragglers, "{}") ? statements->page
								 : statements->page_stragglers;
	owned_text char *script = script_fill(sql, places);
	return pg_send_copy(read->pg, script, err);
}

bool statements_send_page(struct statements *statements, const struct link *read,
    const struct stream_page *page, int64_t now, bool *ret_copying, struct err *err)
{
	*ret_copying = statements->bounds.tick == page->tick && statements->bounds.whole;
	if (!*ret_copying)
		return send_bounds_query(statements, read, page, err);
	statements->upto_id = page_end(statements, page->after_id);
	statements->upto_at = now;
	text_copy(statements->usual_topic, sizeof statements->usual_topic, statements->last_topic);
	return send_page_query(statements, read, page, err);
}
