#pragma once
/* Reads the folder of a local store, without a lock and without a change. */
#include <stddef.h>
#include "state_folder.h"

enum state_file_kind {
	STATE_FILE_LOG,       /* N.S.log */
	STATE_FILE_MAP,       /* N.S.map */
	STATE_FILE_COUNTS,    /* N.S.counts */
	STATE_FILE_BITS,      /* N.P.bits: sub is the partition P */
	STATE_FILE_OFFSET,    /* offset */
	STATE_FILE_POSITIONS, /* positions */
	STATE_FILE_OTHER,     /* a file that belongs to no store */
};
struct state_file {
	enum state_file_kind kind;
	long long number;
	int sub;
	char name[256];
};

struct state_folder_view {
	int fd;
	struct state_folder_head head; /* as stored in the file; {0}: there is none */
	char store[sizeof((struct state_folder_head *)0)->store + 1]; /* name of the store */
	const char *fault; /* fault of the head; NULL: none */
	long holder; /* process id that has the folder open; -1: another process has; 0: none has */
	struct state_file *files; /* sorted by number, sub and kind; without window and lock */
	size_t count;
};

/*
 * ERR_CONFIG: there is no such folder, or it has no files of a store; ERR_DENIED, ERR_RETRY: the
 * disk. The caller closes the view in any case. A process of another machine or container that has
 * the folder open is not seen.
 */
bool state_folder_view_open(
    struct state_folder_view *ret_view, const char *path, struct err *err) MUST_CHECK;
void state_folder_view_close(struct state_folder_view *view);
