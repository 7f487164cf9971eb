#pragma once
/* The folder of a local store as it stands: nothing in it is locked or changed. */
#include <stddef.h>
#include "dedup_folder.h"

enum dedup_file_kind {
	DEDUP_FILE_LOG,       /* N.S.log */
	DEDUP_FILE_MAP,       /* N.S.map */
	DEDUP_FILE_COUNTS,    /* N.S.counts */
	DEDUP_FILE_BITS,      /* N.bits */
	DEDUP_FILE_OFFSET,    /* offset */
	DEDUP_FILE_POSITIONS, /* positions */
	DEDUP_FILE_OTHER,     /* of nobody */
};
struct dedup_file {
	enum dedup_file_kind kind;
	long long number;
	int sub;
	char name[256];
};

struct dedup_folder_view {
	int fd;
	struct dedup_folder_head head; /* as it is in the file; {0}: there is none */
	char store[sizeof((struct dedup_folder_head *)0)->store + 1]; /* its name */
	const char *fault;        /* of the head; NULL: it is as it should be */
	long holder;              /* process id; -1: it is open in another; 0: in none */
	struct dedup_file *files; /* by number, sub and kind; without window and lock */
	size_t count;
};

/*
 * ERR_CONFIG: there is no such folder, or nothing of a store in it; ERR_DENIED, ERR_RETRY: the
 * disk. To be closed in any case. A process of another machine, or of another container, that
 * has it open is not seen.
 */
bool dedup_folder_view_open(
    struct dedup_folder_view *ret_view, const char *path, struct err *err) MUST_CHECK;
void dedup_folder_view_close(struct dedup_folder_view *view);
