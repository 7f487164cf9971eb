#include "partition_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "archives.h"
#include "cleanup.h"
#include "moment.h"
#include "partitions.h"
#include "text.h"

/* Behind every partition with a beginning and an end: the year 33658. */
#define NO_TIME_US INT64_C(999999999999999999)

/* --- places ---------------------------------------------------------------------------------- */

/* "message.1767225600000000.message_p20260101" */
bool partition_place_parse(const char *text, struct partition_place *ret_place)
{
	const char *dot = strchr(text, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
	owned_text char *table = NULL, *us = NULL;

	if (!second || !second[1] || strlen(second + 1) >= sizeof ret_place->label)
		return false;
	table = xformat("%.*s", (int)(dot - text), text);
	us = xformat("%.*s", (int)(second - dot - 1), dot + 1);
	*ret_place = (struct partition_place){.table = PARTITION_TABLES};
	for (int i = 0; i < PARTITION_TABLES; i++)
		if (text_equal(table, partition_tables[i]))
			ret_place->table = i;
	text_copy(ret_place->label, sizeof ret_place->label, second + 1);
	return ret_place->table < PARTITION_TABLES &&
	       text_to_int64(us, -NO_TIME_US, NO_TIME_US, &ret_place->from_us);
}

char *partition_page_next(const struct partition_page *page)
{
	const struct partition_place *last = &page->last;

	return page->more ? xformat("%s.%" PRId64 ".%s", partition_tables[last->table],
				last->from_us, last->label)
			  : NULL;
}

static int compare_places(const struct partition_place *a, const struct partition_place *b)
{
	if (a->table != b->table)
		return a->table < b->table ? -1 : 1;
	if (a->from_us != b->from_us)
		return a->from_us < b->from_us ? -1 : 1;
	return strcmp(a->label, b->label);
}

/* --- rows ------------------------------------------------------------------------------------ */

struct listed_row {
	struct partition_place place;
	const struct partition *partition;
	const struct archive *archive; /* NULL: the row is a partition */
};

static int compare_listed_rows(const void *a, const void *b)
{
	const struct listed_row *row = a, *other = b;

	return compare_places(&row->place, &other->place);
}

static bool add_listed_partition(struct pg *pg, const struct postgres_settings *postgres,
    const struct partition *partition, json_t *list, struct err *err)
{
	char from[MOMENT_SIZE] = "", to[MOMENT_SIZE] = "", holder[HOLDER_SIZE] = "";
	bool bounded = partition->bounded, counted = partition->rows >= 0;

	if (bounded) {
		moment_format(partition->from_us, from);
		moment_format(partition->to_us, to);
		if (!partition_holder(
			pg, postgres->schema, partition->name, holder, sizeof holder, err))
			return false;
	}
	json_array_append_new(
	    list, json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:o, s:s?}", "partition", partition->name,
		      "state", partition->kept_until_us ? "restored" : "attached", "from",
		      bounded ? from : NULL, "to", bounded ? to : NULL, "bytes",
		      (json_int_t)partition->bytes, "rows_estimated",
		      counted ? json_integer(partition->rows) : json_null(), "held_by",
		      holder[0] ? holder : NULL));
	return true;
}

static void add_listed_archive(const struct archive *archive, json_t *list)
{
	char from[MOMENT_SIZE], to[MOMENT_SIZE];
	owned_text char *place = archive_is_waiting(archive) ? xformat("table %s", archive->leaf)
							     : archive_place(archive);

	moment_format(archive->from_us, from);
	moment_format(archive->to_us, to);
	json_array_append_new(
	    list, json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:s}", "partition", archive->name,
		      "state", archive->state, "from", from, "to", to, "bytes",
		      (json_int_t)archive->totals.file_bytes, "rows",
		      archive->has_totals ? json_integer(archive->totals.rows) : json_null(),
		      "place", place));
}

/* --- the page -------------------------------------------------------------------------------- */

/* All rows of a table in their order; the caller frees. */
static struct listed_row *sort_listed_rows(int table, const struct partition_list *partitions,
    const struct archive_list *archives, int *ret_count)
{
	int most = partitions->count + archives->count, count = 0;
	struct listed_row *rows = xcalloc((size_t)most, sizeof *rows);

	for (int i = 0; i < archives->count; i++) {
		const struct archive *archive = &archives->items[i];
		struct listed_row *row = &rows[count];

		if (text_equal(archive->state, "restored"))
			continue;
		*row = (struct listed_row){.place = {table, archive->from_us}, .archive = archive};
		/* one partition may have several archives: in the order of their ids */
		snprintf(row->place.label, sizeof row->place.label, "%020" PRId64, archive->id);
		count++;
	}
	for (int i = 0; i < partitions->count; i++) {
		const struct partition *partition = &partitions->items[i];
		int64_t from_us = partition->bounded ? partition->from_us : NO_TIME_US;
		struct listed_row *row = &rows[count++];

		*row = (struct listed_row){.place = {table, from_us}, .partition = partition};
		text_copy(row->place.label, sizeof row->place.label, partition->name);
	}
	qsort(rows, (size_t)count, sizeof *rows, compare_listed_rows);
	*ret_count = count;
	return rows;
}

static bool is_on_page(const struct partition_page *page, const struct listed_row *row)
{
	const char *name = row->archive ? row->archive->name : row->partition->name;

	return (!page->name || text_equal(page->name, name)) &&
	       (!page->after || compare_places(&row->place, page->after) > 0);
}

static bool add_listed_rows(struct pg *pg, const struct postgres_settings *postgres,
    const struct listed_row *rows, int count, struct partition_page *page, struct err *err)
{
	for (int i = 0; i < count && !page->more; i++) {
		const struct listed_row *row = &rows[i];

		if (!is_on_page(page, row))
			continue;
		page->more = page->limit && (int64_t)json_array_size(page->rows) == page->limit;
		if (page->more)
			return true;
		if (row->archive)
			add_listed_archive(row->archive, page->rows);
		else if (!add_listed_partition(pg, postgres, row->partition, page->rows, err))
			return false;
		page->last = row->place;
	}
	return true;
}

static bool add_listed_table(struct pg *pg, const struct postgres_settings *postgres, int table,
    struct partition_page *page, struct err *err)
{
	const char *name = partition_tables[table], *schema = postgres->schema;
	OWNED(partition_list_finish) struct partition_list partitions = {0};
	OWNED(archive_list_finish) struct archive_list archives = {0};
	struct listed_row *rows;
	int count;
	bool done;

	if (!partition_list(pg, schema, name, postgres->partition_every_ms, &partitions, err) ||
	    !archive_list(pg, schema, name, &archives, err))
		return false;
	rows = sort_listed_rows(table, &partitions, &archives, &count);
	done = add_listed_rows(pg, postgres, rows, count, page, err);
	free(rows);
	return done;
}

bool partition_page_load(struct pg *pg, const struct postgres_settings *postgres,
    struct partition_page *page, struct err *err)
{
	partition_page_finish(page);
	page->rows = json_array();
	page->more = false;
	for (int i = page->after ? page->after->table : 0; i < PARTITION_TABLES && !page->more; i++)
		if ((!page->table || text_equal(page->table, partition_tables[i])) &&
		    !add_listed_table(pg, postgres, i, page, err))
			return false;
	return true;
}

void partition_page_finish(struct partition_page *page)
{
	json_decref(page->rows);
	page->rows = NULL;
}
