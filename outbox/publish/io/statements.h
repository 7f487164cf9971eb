#pragma once
/*
 * The statements of a shard worker: turns a stream's calls (stream.h) into SQL on a connection, and
 * hands the answers back to the stream. Internal to outbox/publish. Owned by one thread.
 */
#include "link.h"
#include "pg.h"
#include "stream.h"

struct statements;

/* schema must have passed schema_text_check; copies publisher and owner. */
struct statements *statements_create(
    const char *schema, const char *publisher, int shard, int shards, const char *owner);
void statements_destroy(struct statements *statements);
/* The publisher's identity, a UUID; "" before the shard was taken for the first time. */
const char *statements_identity(const struct statements *statements);

/* --- the log connection --------------------------------------------------------------------- */

/* The prepared statements for the link of the log connection; `statements` owns them. */
const struct link_statement *statements_repeated(const struct statements *statements);

/* Sends the call of stream_log_call; the link must be ready. */
bool statements_send_call(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err) MUST_CHECK;

/*
 * Hands the answer to the stream. *ret_done false: it was only the answer of a look, and the call
 * itself is in flight now. slow: too much of the call's time has passed to send the call after the
 * look. holder (size bytes) is set to the shard's owner if TAKE names it.
 */
bool statements_answer(struct statements *statements, const struct link *log,
    const struct pg_result *result, struct stream *stream, int64_t now, bool slow, char *holder,
    size_t size, bool *ret_done, struct err *err) MUST_CHECK;
/* The last TAKE was refused: the log or its rows were copied here from another database cluster. */
bool statements_elsewhere(const struct statements *statements);

/* --- the read connection -------------------------------------------------------------------- */

/*
 * Sends the next statement for the page: while the bounds of its window are not complete, a query
 * for a chunk of them (*ret_copying false; give the answer to statements_bounds); then the page
 * itself as a COPY.
 */
bool statements_send_page(struct statements *statements, const struct link *read,
    const struct stream_page *page, int64_t now, bool *ret_copying, struct err *err) MUST_CHECK;
bool statements_bounds(
    struct statements *statements, const struct pg_result *result, struct err *err) MUST_CHECK;
/* The topic of the rows of the page in flight whose topic is null; NULL: there is none. */
const char *statements_usual_topic(const struct statements *statements);
/* A row of the page came with that topic: the next page need not send it. */
void statements_note_topic(struct statements *statements, const char *topic, int32_t length);
/*
 * The page has ended. full: it has as many rows as it may have. Returns whether it is the window's
 * last page; if not, *ret_upto_id is the id up to which it has looked, 0: up to its last row.
 */
bool statements_page_over(
    struct statements *statements, int64_t now, int64_t limit_ms, bool full, int64_t *ret_upto_id);
/* The page (copying), or the chunk of bounds, took too long: the next one is smaller. */
void statements_page_late(struct statements *statements, bool copying);
/* Forgets the bounds, which may be of another history: they are read again. */
void statements_forget_bounds(struct statements *statements);
