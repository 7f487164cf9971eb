#include "dedup_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct row {
	int error;
	enum err_kind kind;
	const char *cure;
} rows[] = {
    {ENOSPC, ERR_RETRY,
	"; make room on its disk, name a folder of another one in path, or lower ids or window"},
    {EDQUOT, ERR_RETRY,
	"; raise its owner's quota, name a folder of another disk in path, or lower ids or window"},
    {EFBIG, ERR_RETRY,
	"; raise the limit of a file's size (ulimit -f), or lower ids or window, or raise slices"},
    {EROFS, ERR_DENIED, "; mount it for writing, or name a folder in path that can be written"},
    {EACCES, ERR_DENIED,
	"; give this user the folder of path, or name one in path that it may write"},
    {EPERM, ERR_DENIED,
	"; give this user the folder of path, or name one in path that it may write"},
    {EMFILE, ERR_RETRY, "; raise the limit of open files (ulimit -n)"},
    {ENOMEM, ERR_RETRY, "; give the process more memory, or lower ids or window"},
};

static const struct row *row_of_errno(int error)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].error == error)
			return &rows[i];
	return NULL;
}

enum err_kind dedup_disk_kind(int error)
{
	const struct row *row = row_of_errno(error);
	return row ? row->kind : ERR_RETRY;
}

const char *dedup_disk_cure(int error)
{
	const struct row *row = row_of_errno(error);
	return row ? row->cure : "";
}

bool dedup_disk_fail(const char *name, const char *what, struct err *err)
{
	int error = errno;
	return err_set(err, dedup_disk_kind(error), "%s cannot be %s: %s%s", name, what,
	    strerror(error), dedup_disk_cure(error));
}

int dedup_disk_open_folder(const char *path, const char **ret_why)
{
	struct stat found;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	*ret_why = NULL;
	if (fd < 0) {
		/* the kernel says ENOTDIR of a link as well */
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
