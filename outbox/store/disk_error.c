#include "disk_error.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

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

enum err_kind disk_error_kind(int error)
{
	const struct row *row = row_of_errno(error);
	return row ? row->kind : ERR_RETRY;
}

const char *disk_error_cure(int error)
{
	const struct row *row = row_of_errno(error);
	return row ? row->cure : "";
}

bool disk_error_fail(const char *name, const char *what, struct err *err)
{
	int error = errno;
	return err_set(err, disk_error_kind(error), "%s cannot be %s: %s%s", name, what,
	    strerror(error), disk_error_cure(error));
}
