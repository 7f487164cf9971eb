#pragma once
/*
 * The list of slices in the folder of a window. With it a removed file is noticed, and not mistaken
 * for a time without messages. The list is written when a checkpoint has made a new file durable,
 * and is replaced as a whole.
 *
 *   folder/files, little-endian:
 *     magic    8   "obfiles" and a zero
 *     version  4   1
 *     count    4
 *     count times: slice 8, and 8 for its sub-slice, or for its number of files
 *     checksum 8   XXH3, 64 bits, with the folder's seed, of all before it
 */
#include "state_folder.h"

enum { FILE_LIST_MOST = 64 };

struct file_list {
	struct file_name {
		int64_t number, sub;
	} names[FILE_LIST_MOST];
	int count;
	/* A slice has too many files to list each: sub is their number, and more may exist. */
	bool totals;
};

void file_list_add(struct file_list *list, int64_t number, int64_t sub);

/* Reads the list; it is empty without the file. ERR_CONFIG: the file is damaged. */
bool file_list_read(int folder, uint64_t seed, struct file_list *ret_list, struct err *err);
/*
 * The first listed file that must exist and is not among the existing files; NULL: none. there has
 * totals: the first slice that has fewer files than listed. slices:
 * the number of slices that are alive, besides the newest. newest: the newest slice of all files,
 * also of empty ones, because expired files are removed when the newest file is created, and not
 * when it is written.
 */
const struct file_name *file_list_missing(
    const struct file_list *listed, const struct file_list *there, int64_t newest, int slices);

/* Do all listed files exist? ERR_CONFIG: ids are lost. end: the end of the files' names. */
bool file_list_check(const struct state_folder *folder, const struct file_list *there,
    int64_t newest, const char *end, struct err *err) MUST_CHECK;
/* Takes files that do not exist off the list. To be called before an empty file is removed that is
 * the newest: with it they were known to have ended, and without it they would be missed. */
bool file_list_drop_missing(
    const struct state_folder *folder, const struct file_list *there, struct err *err) MUST_CHECK;
bool file_list_write(
    const struct state_folder *folder, const struct file_list *list, struct err *err) MUST_CHECK;
