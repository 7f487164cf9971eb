#pragma once
/*
 * Ids that a query returns, a batch at a time: a cursor of the server's, in a transaction that may
 * only read. Owned by one thread.
 */
#include "pg.h"

struct dedup_source {
	bool timed; /* rows have a time */
	/* dedup_source.c's own */
	struct pg *pg;
	char *fetch;
};

/*
 * ERR_REJECT: the text is no query, or its columns are not an id and perhaps a time; other errors
 * as in pg.h. The caller closes the source in any case.
 */
bool dedup_source_open(struct dedup_source *ret_source, const char *dsn, const char *query,
    int64_t batch, struct err *err) MUST_CHECK;
void dedup_source_close(struct dedup_source *source);

/*
 * The next rows: the id in hexadecimal behind \x, and its time in milliseconds since 1970. No rows:
 * the end. The caller destroys the result.
 */
struct pg_result *dedup_source_next(struct dedup_source *source, struct err *err);
