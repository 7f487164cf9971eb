#pragma once
/*
 * Which slices the folder of a window has: so that a file that is removed is noticed, and not taken
 * for a time in which nothing came. It is written when a checkpoint has made a new file durable,
 * and replaced as a whole.
 *
 *   folder/files, little-endian:
 *     magic    8   "obfiles" and a zero
 *     version  4   1
 *     count    4
 *     count times: slice 8, sub-slice 8
 *     checksum 8   XXH3, 64 bits, with the folder's seed, of all before it
 */
#include "state_folder.h"

enum { FILE_LIST_MOST = 64 };

struct file_list {
	struct file_name {
		int64_t number, sub;
	} names[FILE_LIST_MOST];
	int count;
};

void file_list_add(struct file_list *list, int64_t number, int64_t sub);

/* What the folder says; without the file, nothing. ERR_CONFIG: it is damaged. */
bool file_list_read(int folder, uint64_t seed, struct file_list *ret_list, struct err *err);
/*
 * The first of these that has to be there and is not among those that are; NULL: none. slices: as
 * many are alive, and the newest. newest: of all files, empty ones as well: those that are over are
 * removed when it is made, and not when it is written.
 */
const struct file_name *file_list_missing(
    const struct file_list *listed, const struct file_list *there, int64_t newest, int slices);

/* Is all there? ERR_CONFIG: ids are lost. end: of the files' names. */
bool file_list_check(const struct state_folder *folder, const struct file_list *there,
    int64_t newest, const char *end, struct err *err) MUST_CHECK;
bool file_list_write(
    const struct state_folder *folder, const struct file_list *list, struct err *err) MUST_CHECK;
