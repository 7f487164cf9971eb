#pragma once
/*
 * Lists partitions and archives, a page at a time: by table, and in each by the time at which they
 * begin. An archive keeps the place that its partition had. Calls block.
 */
#include <jansson.h>
#include "config.h"
#include "pg.h"

/* Where a row is in the list. */
enum { PARTITION_LABEL_SIZE = 64 };
struct partition_place {
	int table;                        /* of partition_tables */
	int64_t from_us;                  /* without a beginning or an end it is later than all */
	char label[PARTITION_LABEL_SIZE]; /* tells rows apart that begin at the same time */
};
/* False: the text is no place that a page has given as its end. */
bool partition_place_parse(const char *text, struct partition_place *ret_place) MUST_CHECK;

/* partition_page_finish frees. */
struct partition_page {
	const char *table;                   /* NULL: all tables */
	const char *name;                    /* only partitions and archives with it; NULL: all */
	const struct partition_place *after; /* NULL: the page is the first one */
	int64_t limit;                       /* maximum number of rows; 0: all */
	/* results */
	json_t *rows;                /* an array; bytes, rows and rows_estimated are numbers */
	struct partition_place last; /* of the rows */
	bool more;                   /* there are rows behind it */
};
bool partition_page_load(struct pg *pg, const struct postgres_settings *postgres,
    struct partition_page *page, struct err *err) MUST_CHECK;
/* The text of page->last for the next page; NULL: there is none. The caller frees. */
char *partition_page_next(const struct partition_page *page);
void partition_page_finish(struct partition_page *page);
