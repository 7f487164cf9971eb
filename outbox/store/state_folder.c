#include "state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cleanup.h"
#include "clock.h"
#include "disk_error.h"
#include "fingerprint.h"
#include "text.h"

enum { VERSION = 1 };
static const char magic[8] = "obwindow";

bool state_folder_fail(const struct state_folder *folder, const char *what, struct err *err)
{
	int error = errno;
	return err_set(err, disk_error_kind(error), "path=%s: %s: %s%s", folder->path, what,
	    strerror(error), disk_error_cure(error));
}

bool state_folder_sync(const struct state_folder *folder, struct err *err)
{
	return fsync(folder->fd) == 0 ||
	       state_folder_fail(folder, "the folder cannot be made durable", err);
}

bool state_folder_check(const struct state_folder *folder, struct err *err)
{
	struct stat here, ours;
	if (fstatat(folder->fd, "window", &here, 0) == 0 && fstat(folder->fd, &ours) == 0 &&
	    stat(folder->path, &here) == 0 && here.st_ino == ours.st_ino &&
	    here.st_dev == ours.st_dev)
		return true;
	return err_set(err, ERR_FATAL,
	    "path=%s was removed while it was in use: open it anew, which makes an empty one, and "
	    "load the ids again before the first check",
	    folder->path);
}

/* --- opening -------------------------------------------------------------------------------- */

int state_folder_open_descriptor(const char *path, const char **ret_why)
{
	struct stat found;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	*ret_why = NULL;
	if (fd < 0) {
		/* the kernel returns ENOTDIR for a link, too */
		if (lstat(path, &found) == 0 && S_ISLNK(found.st_mode))
			*ret_why = "it is a symbolic link; name the folder itself";
		else if (errno == ELOOP)
			errno = ENOTDIR;
		errno = *ret_why ? 0 : errno;
		return -1;
	}
	if (fstat(fd, &found) != 0)
		*ret_why = "it cannot be looked at";
	else if (found.st_uid != geteuid() && found.st_uid != 0)
		*ret_why = "it belongs to another user, who could change what is in it; chown it";
	else if (found.st_mode & S_IWOTH)
		*ret_why = "everybody may write to it; chmod o-w it";
	else if (found.st_mode & S_IWGRP && found.st_uid != 0)
		*ret_why = "its group may write to it; chmod g-w it";
	if (!*ret_why)
		return fd;
	close(fd);
	errno = 0;
	return -1;
}

static bool fail_path(const struct state_folder *folder, const char *what, struct err *err)
{
	bool missing = errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG;
	return missing ? err_set(err, ERR_CONFIG,
			     "path=%s: %s: %s; make the folder that it is in, or correct path",
			     folder->path, what, strerror(errno))
		       : state_folder_fail(folder, what, err);
}

/* Makes a new folder durable, so that it survives a loss of power. */
static bool make_state_folder(struct state_folder *folder, struct err *err)
{
	bool made = mkdir(folder->path, 0700) == 0;

	if (!made && errno != EEXIST)
		return fail_path(folder, "the folder cannot be made", err);

	const char *why;
	folder->fd = state_folder_open_descriptor(folder->path, &why);
	if (why)
		return err_set(err, ERR_CONFIG, "path=%s is refused: %s", folder->path, why);
	if (folder->fd < 0)
		return fail_path(folder, "the folder cannot be opened", err);

	owned_fd int parent =
	    made ? openat(folder->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	return parent < 0 || fsync(parent) == 0 ||
	       state_folder_fail(folder, "the folder cannot be made durable", err);
}

static bool lock_state_folder(struct state_folder *folder, struct err *err)
{
	if (!make_state_folder(folder, err))
		return false;
	folder->lock = openat(folder->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (folder->lock < 0)
		return state_folder_fail(folder, "its lock cannot be opened", err);
	if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0)
		return true;
	if (errno != EWOULDBLOCK)
		return state_folder_fail(folder, "it cannot be locked", err);
	return err_set(err, ERR_FENCED,
	    "path=%s is open in another process; give each its own folder", folder->path);
}

static uint64_t folder_head_sum(const struct state_folder_head *head)
{
	return XXH3_64bits(head, offsetof(struct state_folder_head, checksum));
}

const char *state_folder_head_fault(const struct state_folder_head *head)
{
	if (memcmp(head->magic, magic, sizeof magic) != 0 ||
	    head->checksum != folder_head_sum(head))
		return "its file 'window' is damaged or of something else";
	return head->version == VERSION ? NULL : "it is of another version of the format";
}

static bool refuse_folder(const struct state_folder *folder, const char *why, struct err *err)
{
	return err_set(err, ERR_CONFIG, "path=%s: %s; use a new folder, and load the ids again",
	    folder->path, why);
}

/* The error names slices only if they differ, because some stores have no such setting. */
static bool refuse_window(
    const struct state_folder *folder, const struct state_folder_head *wanted, struct err *err)
{
	const struct state_folder_head *head = &folder->head;

	if (head->slices == 0)
		return err_set(err, ERR_CONFIG,
		    "path=%s was made without a window: leave window and slices out, or use a new "
		    "folder and load the ids again",
		    folder->path);

	owned_text char *window =
	    xformat("window=%lldms", (long long)(head->slice_ms * head->slices));
	owned_text char *slices =
	    head->slices == wanted->slices ? xstrdup("") : xformat(" slices=%u", head->slices);
	return err_set(err, ERR_CONFIG,
	    "path=%s was made with %s%s; say that, or use a new folder and load the ids again",
	    folder->path, window, slices);
}

static bool check_folder_head(
    const struct state_folder *folder, const struct state_folder_head *wanted, struct err *err)
{
	const struct state_folder_head *head = &folder->head;
	const char *fault = state_folder_head_fault(head);

	if (fault)
		return refuse_folder(folder, fault, err);
	if (memcmp(head->store, wanted->store, sizeof head->store) != 0)
		return err_set(err, ERR_CONFIG,
		    "path=%s is of the store '%.8s', not of '%.8s': give each its own folder",
		    folder->path, head->store, wanted->store);
	if (head->slices != wanted->slices || head->slice_ms != wanted->slice_ms)
		return refuse_window(folder, wanted, err);
	return head->size == wanted->size ||
	       refuse_folder(folder, "it was made for another number of ids, or another rate", err);
}

/* Writes the file so that it appears whole or not at all. */
static bool write_head(struct state_folder *folder, struct err *err)
{
	const struct state_folder_head *head = &folder->head;
	int fd = openat(
	    folder->fd, "window.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	bool good = fd >= 0 && write(fd, head, sizeof *head) == (ssize_t)sizeof *head &&
		    fdatasync(fd) == 0 &&
		    renameat(folder->fd, "window.new", folder->fd, "window") == 0 &&
		    fsync(folder->fd) == 0;

	if (!good)
		state_folder_fail(folder, "its file 'window' cannot be written", err);
	if (fd >= 0)
		close(fd);
	return good;
}

static bool open_head(
    struct state_folder *folder, const struct state_folder_head *wanted, struct err *err)
{
	int fd = openat(folder->fd, "window", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT) {
		folder->head = *wanted;
		return write_head(folder, err);
	}
	ssize_t length = fd < 0 ? -1 : read(fd, &folder->head, sizeof folder->head);
	if (length < 0)
		state_folder_fail(folder, "its file 'window' cannot be read", err);
	if (fd >= 0)
		close(fd);
	return length >= 0 && check_folder_head(folder, wanted, err);
}

bool state_folder_open(struct state_folder *ret_folder, const char *path, const char *store,
    int slices, int64_t slice_ms, uint64_t size, struct err *err)
{
	*ret_folder = (struct state_folder){.fd = -1, .lock = -1};
	if (!path)
		return err_set(err, ERR_CONFIG,
		    "path is missing: the folder of its state, as path=/var/lib/billing/dedup");

	struct state_folder_head wanted = {.version = VERSION,
	    .slices = (uint32_t)slices,
	    .slice_ms = slice_ms,
	    .seed = (uint64_t)clock_random(),
	    .size = size};
	memcpy(wanted.magic, magic, sizeof magic);
	memcpy(wanted.store, store, strnlen(store, sizeof wanted.store));
	wanted.checksum = folder_head_sum(&wanted);
	ret_folder->path = xstrdup(path);
	/* The lock comes first, so that two processes never make the head at the same time. */
	return lock_state_folder(ret_folder, err) && open_head(ret_folder, &wanted, err);
}

void state_folder_close(struct state_folder *folder)
{
	if (folder->fd >= 0)
		close(folder->fd);
	if (folder->lock >= 0)
		close(folder->lock);
	free(folder->path);
	*folder = (struct state_folder){.fd = -1, .lock = -1};
}
