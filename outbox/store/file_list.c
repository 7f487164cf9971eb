#include "file_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "fingerprint.h"
#include "text.h"

enum { VERSION = 1, HEAD = 16, MOST_BYTES = HEAD + FILE_LIST_MOST * 16 + 8 };
static const char magic[8] = "obfiles";

void file_list_add(struct file_list *list, int64_t number, int64_t sub)
{
	list->names[list->count++] = (struct file_name){number, sub};
}

/* --- reading -------------------------------------------------------------------------------- */

static bool parse_list_bytes(
    const char *bytes, size_t length, uint64_t seed, struct file_list *ret_list)
{
	uint32_t version, count;
	uint64_t sum;

	if (length < HEAD + sizeof sum || memcmp(bytes, magic, sizeof magic) != 0)
		return false;

	memcpy(&version, bytes + 8, sizeof version);
	memcpy(&count, bytes + 12, sizeof count);
	/* Before the names are copied, since count says how many bytes they have. */
	if (version != VERSION || count > FILE_LIST_MOST ||
	    length != HEAD + count * sizeof *ret_list->names + sizeof sum)
		return false;

	memcpy(&sum, bytes + length - sizeof sum, sizeof sum);
	memcpy(ret_list->names, bytes + HEAD, count * sizeof *ret_list->names);
	ret_list->count = (int)count;
	return sum == XXH3_64bits_withSeed(bytes, length - sizeof sum, seed);
}

bool file_list_read(int folder, uint64_t seed, struct file_list *ret_list, struct err *err)
{
	/* One byte more than the longest list, so that a longer file is noticed. */
	char bytes[MOST_BYTES + 1];
	owned_fd int fd = openat(folder, "files", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	*ret_list = (struct file_list){0};
	if (fd < 0 && errno == ENOENT)
		return true;

	ssize_t length = fd < 0 ? -1 : pread(fd, bytes, sizeof bytes, 0);
	if (length < 0)
		return err_set(
		    err, ERR_RETRY, "its file 'files' cannot be read: %s", strerror(errno));
	return parse_list_bytes(bytes, (size_t)length, seed, ret_list) ||
	       err_set(err, ERR_CONFIG,
		   "its file 'files' is damaged or of something else: use a new folder, and load "
		   "the ids again");
}

/* --- judging -------------------------------------------------------------------------------- */

static bool list_has_file(const struct file_list *list, const struct file_name *name)
{
	for (int i = 0; i < list->count; i++)
		if (list->names[i].number == name->number &&
		    (list->totals ? list->names[i].sub >= name->sub
				  : list->names[i].sub == name->sub))
			return true;
	return false;
}

const struct file_name *file_list_missing(
    const struct file_list *listed, const struct file_list *there, int64_t newest, int slices)
{
	for (int i = 0; i < listed->count; i++)
		if (listed->names[i].number > newest)
			newest = listed->names[i].number;
	for (int i = 0; i < listed->count; i++)
		if (listed->names[i].number >= newest - slices &&
		    !list_has_file(there, &listed->names[i]))
			return &listed->names[i];
	return NULL;
}

static bool refuse_missing(const struct state_folder *folder, const struct file_name *missing,
    bool totals, const char *end, struct err *err)
{
	long long number = missing->number, sub = missing->sub;
	owned_text char *what =
	    totals ? xformat("some of the %lld files %lld.*.%s are", sub, number, end)
		   : xformat("%lld.%lld.%s is", number, sub, end);
	return err_set(err, ERR_CONFIG,
	    "path=%s: %s missing, or empty: ids are lost; use a new folder, and load them again",
	    folder->path, what);
}

bool file_list_check(const struct state_folder *folder, const struct file_list *there,
    int64_t newest, const char *end, struct err *err)
{
	struct file_list listed;
	if (!file_list_read(folder->fd, folder->head.seed, &listed, err))
		return err_prefix(err, "path=%s", folder->path);
	const struct file_name *missing =
	    file_list_missing(&listed, there, newest, (int)folder->head.slices);
	return !missing || refuse_missing(folder, missing, there->totals, end, err);
}

/* --- writing -------------------------------------------------------------------------------- */

bool file_list_write(
    const struct state_folder *folder, const struct file_list *list, struct err *err)
{
	char bytes[MOST_BYTES];
	const uint32_t version = VERSION, count = (uint32_t)list->count;
	size_t length = HEAD + count * sizeof *list->names;

	memcpy(bytes, magic, sizeof magic);
	memcpy(bytes + 8, &version, sizeof version);
	memcpy(bytes + 12, &count, sizeof count);
	memcpy(bytes + HEAD, list->names, count * sizeof *list->names);
	uint64_t sum = XXH3_64bits_withSeed(bytes, length, folder->head.seed);
	memcpy(bytes + length, &sum, sizeof sum);
	length += sizeof sum;
	/* Renamed once it is durable, so that a reader finds the old list or the new one. */
	owned_fd int fd = openat(
	    folder->fd, "files.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return (fd >= 0 && write(fd, bytes, length) == (ssize_t)length && fdatasync(fd) == 0 &&
		   renameat(folder->fd, "files.new", folder->fd, "files") == 0 &&
		   state_folder_sync(folder, err)) ||
	       state_folder_fail(folder, "its file 'files' cannot be written", err);
}

bool file_list_drop_missing(
    const struct state_folder *folder, const struct file_list *there, struct err *err)
{
	struct file_list listed, kept;
	if (!file_list_read(folder->fd, folder->head.seed, &listed, err))
		return err_prefix(err, "path=%s", folder->path);

	/* Files that are not listed yet stay so: no checkpoint has made them durable. */
	kept = (struct file_list){.totals = listed.totals};
	for (int i = 0; i < listed.count; i++)
		if (list_has_file(there, &listed.names[i]))
			file_list_add(&kept, listed.names[i].number, listed.names[i].sub);
	return kept.count == listed.count || file_list_write(folder, &kept, err);
}
