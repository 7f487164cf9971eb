#pragma once
/*
 * The archives of a database (sql/migrations/0016_archive.sql has the states and the rules), and
 * the restoring of one. Calls block.
 */
#include "archive_file.h"
#include "pg.h"

struct archive {
	int64_t id;
	char *table;  /* "message" or "lookback" */
	char *name;   /* of the partition */
	char *state;  /* waiting, written, archived, loading, restored */
	char *leaf;   /* the table that holds the rows; "" */
	char *host;   /* which wrote the file; "" */
	char *folder; /* on that host; "" */
	char *file;   /* ""; in the state waiting the one that a try may have begun */
	int64_t from_us, to_us;
	bool has_totals; /* the file was checked */
	struct archive_totals totals;
};

struct archive_list {
	struct archive *items; /* oldest first */
	int count;
};

/* table "": of all tables. */
bool archive_list(struct pg *pg, const char *schema, const char *table,
    struct archive_list *ret_list, struct err *err) MUST_CHECK;
void archive_list_finish(struct archive_list *list);

/* Are the rows of this archive still in a detached table? */
bool archive_is_waiting(const struct archive *archive);

/* "host1:/srv/archive/message_p20260102-1.copy.zst" without the host if it is this one; the caller
 * frees. */
char *archive_place(const struct archive *archive);
void archive_host(char *ret_host, size_t size);

struct restore_request {
	const char *name;         /* the partition's name, or the file's */
	const char *folder;       /* NULL: as recorded, or else the next one */
	const char *archive_path; /* "" */
	int64_t keep_ms;          /* upkeep leaves the partition for so long */
};

struct restored {
	char partition[64], table[16];
	int64_t rows;
};

/*
 * Makes a partition of an archive again. The file is read and checked before the database changes.
 * Interrupted at any point, it can be called again. ERR_REJECT: no such archive, or its file is
 * damaged, or its range is taken; ERR_RETRY: a lock was not free for 10 s.
 */
bool archive_restore(struct pg *pg, const char *schema, const struct restore_request *request,
    struct restored *ret_restored, struct err *err) MUST_CHECK;
