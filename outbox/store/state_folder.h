#pragma once
/*
 * The folder of a local store. One process at a time has it open; it belongs to one store, and has
 * a random seed.
 *
 *   folder/lock       locked by the process that has it open
 *   folder/window     64 bytes, little-endian:
 *     magic    8   "obwindow"
 *     version  4   1
 *     slices   4   the number of slices of the window; 0: there is no window
 *     seed     8   of the hash, random
 *     slice_ms 8
 *     store    8   name of the store, followed by zeroes
 *     size     8   planned size of the store, if it cannot be opened with another one; or 0
 *     zero     8
 *     checksum 8   XXH3, 64 bits, of the 56 bytes before it
 */
#include <stdbool.h>
#include <stdint.h>
#include "errors.h"

struct state_folder_head {
	char magic[8];
	uint32_t version, slices;
	uint64_t seed;
	int64_t slice_ms;
	char store[8];
	uint64_t size, zero, checksum;
};

/* The fault of a head that no store could use; NULL: none. */
const char *state_folder_head_fault(const struct state_folder_head *head);

struct state_folder {
	char *path;
	int fd, lock;
	struct state_folder_head head;
};

/*
 * Opens a state folder, and refuses it if another user could put files into it: a symbolic link, a
 * folder of a user other than this one and root, or one that others may write to. Its group may
 * write only if root owns it, as on volumes of Kubernetes. Returns the descriptor, or -1: errno is
 * that of open, or errno is 0 and *ret_why is the reason.
 */
int state_folder_open_descriptor(const char *path, const char **ret_why);

/*
 * Opens the folder, or creates it if it is missing; its parent must exist. store: at most 8 bytes.
 * ERR_CONFIG: path is NULL, or its parent is missing, or the folder is damaged, or belongs to
 * another store, window or size; ERR_FENCED: another process has it open; ERR_DENIED, ERR_RETRY:
 * the disk. The caller closes it in any case.
 */
bool state_folder_open(struct state_folder *ret_folder, const char *path, const char *store,
    int slices, int64_t slice_ms, uint64_t size, struct err *err) MUST_CHECK;
void state_folder_close(struct state_folder *folder);

/* Fills *err from errno: "path=…: what: why; the cure". */
bool state_folder_fail(const struct state_folder *folder, const char *what, struct err *err);
/* Makes new and removed names of files durable. */
bool state_folder_sync(const struct state_folder *folder, struct err *err) MUST_CHECK;
/* ERR_FATAL: the folder was removed or replaced since it was opened, and writes would be lost. */
bool state_folder_check(const struct state_folder *folder, struct err *err) MUST_CHECK;
