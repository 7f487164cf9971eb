#pragma once
/*
 * The statements of a shard_worker: from what a stream wants (stream.h) to SQL on a connection, and
 * from the answer back to the stream. Internal to outbox/publish. One thread.
 */
#include "link.h"
#include "pg.h"
#include "stream.h"

struct statements;

/* schema must have passed schema_text_check; publisher, owner are copied. */
struct statements *statements_create(
    const char *schema, const char *publisher, int shard, int shards, const char *owner);
void statements_destroy(struct statements *statements);
/* Of the publisher, a UUID; "" before the shard was taken for the first time. */
const char *statements_identity(const struct statements *statements);

/* --- the log connection --------------------------------------------------------------------- */

/* For the link of the log connection; theirs. */
const struct link_statement *statements_repeated(const struct statements *statements);

/* Sends what stream_log_call wants; the link must be ready. */
bool statements_send_call(struct statements *statements, const struct link *log,
    const struct stream_tick *call, struct err *err) MUST_CHECK;

/*
 * Tells the stream the answer. *ret_done false: it was only a first look, the call itself is under
 * way now. slow: so much of the call's time has passed that a first look is to be the last.
 * holder (size bytes) becomes who holds the shard, when TAKE says it.
 */
bool statements_answer(struct statements *statements, const struct link *log,
    const struct pg_result *result, struct stream *stream, int64_t now, bool slow, char *holder,
    size_t size, bool *ret_done, struct err *err) MUST_CHECK;
/* The last TAKE was refused: the log or rows were carried here from another database cluster. */
bool statements_elsewhere(const struct statements *statements);

/* --- the read connection -------------------------------------------------------------------- */

/*
 * Sends what the page needs first: a chunk of the bounds of its window while they are not all known
 * (false in *ret_copying; give the answer to statements_bounds), else the page itself as a COPY.
 */
bool statements_send_page(struct statements *statements, const struct link *read,
    const struct stream_page *page, int64_t now, bool *ret_copying, struct err *err) MUST_CHECK;
bool statements_bounds(
    struct statements *statements, const struct pg_result *result, struct err *err) MUST_CHECK;
/*
 * The page came to its end; full: with as many rows as it may have. Returns whether it is the
 * window's last one; else *ret_upto_id is up to where it has looked, 0: to its last row.
 */
bool statements_page_over(
    struct statements *statements, int64_t now, int64_t limit_ms, bool full, int64_t *ret_upto_id);
/* The page, or a chunk of bounds, took too long: the next one looks at less. */
void statements_page_late(struct statements *statements, bool copying);
/* The bounds are of another history, or may be: read them again. */
void statements_forget_bounds(struct statements *statements);
