#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cleanup.h"
#include "disk_error.h"
#include "fingerprint.h"

enum { VERSION = 1 };
static const char magic[8] = "obmapped";

static uint64_t mapped_head_sum(const struct mapped_head *head)
{
	return XXH3_64bits(head, offsetof(struct mapped_head, count));
}

const char *mapped_head_fault(const struct mapped_head *head, uint64_t bytes)
{
	if (memcmp(head->magic, magic, sizeof magic) != 0)
		return "is of something else";
	if (head->version != VERSION)
		return "is of another version of the format than this program's";
	if (head->checksum != mapped_head_sum(head))
		return "has a damaged head";
	return head->bytes == bytes ? NULL : "is shorter or longer than it was";
}

static bool check_mapped_head(const struct mapped_head *head, const struct mapped_head *wanted,
    bool any_size, uint64_t bytes, const char *name, struct err *err)
{
	const char *why = mapped_head_fault(head, bytes);
	if (!why && head->seed != wanted->seed)
		why = "was written with another seed";
	else if (!why && (head->kind != wanted->kind || head->number != wanted->number))
		why = "is of another store or slice";
	else if (!why && head->bytes != wanted->bytes && !any_size)
		why = "was made for another number of ids";
	return !why || err_set(err, ERR_CONFIG, "%s %s: use a new folder, and load the ids again",
			   name, why);
}

/* A file without a head: the process was killed while it created the file. */
static bool make_mapped_file(
    int fd, const char *name, const struct mapped_head *wanted, struct err *err)
{
	struct mapped_head head = *wanted;

	memcpy(head.magic, magic, sizeof magic);
	head.version = VERSION;
	head.offset = -1;
	head.checksum = mapped_head_sum(&head);

	/*
	 * All of its room now: on a full disk, a later write to the map would end the process
	 * (SIGBUS). The head comes last: without it the file is made anew.
	 */
	if (ftruncate(fd, 0) ||
	    (errno = posix_fallocate(fd, 0, (off_t)(MAPPED_HEAD + head.bytes))) ||
	    pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
		return disk_error_fail(name, "made", err);
	return true;
}

bool mapped_file_is_blank(int fd, uint64_t length)
{
	static const char none[MAPPED_HEAD];
	char piece[sizeof none];
	for (uint64_t at = 0; at < length; at += sizeof piece) {
		ssize_t count = pread(fd, piece, sizeof piece, (off_t)at);
		if (count <= 0 || memcmp(piece, none, (size_t)count) != 0)
			return false;
	}
	return true;
}

static bool map_into_memory(
    struct mapped_file *file, int fd, const char *name, uint64_t length, struct err *err)
{
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return disk_error_fail(name, "mapped", err);
	file->head = memory;
	file->bytes = (char *)memory + MAPPED_HEAD;
	return true;
}

static bool open_it(struct mapped_file *file, int fd, const char *name,
    const struct mapped_head *wanted, bool any_size, struct err *err)
{
	struct stat state;
	struct mapped_head head;

	if (fstat(fd, &state))
		return disk_error_fail(name, "looked at", err);
	if (state.st_size > 0 && state.st_size < MAPPED_HEAD)
		return err_set(err, ERR_CONFIG,
		    "%s is of something else: use a new folder, and load the ids again", name);
	if (mapped_file_is_blank(fd, (uint64_t)state.st_size))
		return make_mapped_file(fd, name, wanted, err) &&
		       map_into_memory(file, fd, name, MAPPED_HEAD + wanted->bytes, err);
	if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
		return disk_error_fail(name, "read", err);
	return check_mapped_head(
		   &head, wanted, any_size, (uint64_t)state.st_size - MAPPED_HEAD, name, err) &&
	       map_into_memory(file, fd, name, (uint64_t)state.st_size, err);
}

/* --- syncs ---------------------------------------------------------------------------------- */

static bool fail_sync(const struct mapped_file *file, int error, struct err *err)
{
	file->head->failed = 1;
	return err_set(err, ERR_FATAL,
	    "what is kept cannot be made durable: %s%s; mend its disk, and open the folder again",
	    strerror(error), disk_error_cure(error));
}

static bool sync_bytes(const struct mapped_file *file, uint64_t bytes, struct err *err)
{
	if (file->head->failed)
		return fail_sync(file, EIO, err);
	return msync(file->head, bytes, MS_SYNC) == 0 || fail_sync(file, errno, err);
}

bool mapped_file_sync(const struct mapped_file *file, struct err *err)
{
	return sync_bytes(file, MAPPED_HEAD + file->head->bytes, err);
}

bool mapped_file_sync_offset(const struct mapped_file *file, int64_t offset, struct err *err)
{
	if (offset <= file->head->offset)
		return true;
	file->head->offset = offset;
	return sync_bytes(file, MAPPED_HEAD, err);
}

/* Writes each page's own content into it, so that the kernel writes the page. */
static bool dirty_mapped_pages(const struct mapped_file *file, struct err *err)
{
	uint64_t bytes = MAPPED_HEAD + file->head->bytes;

	if (!file->head->failed)
		return true;

	for (uint64_t at = 0; at < bytes; at += MAPPED_HEAD) {
		volatile char *page = (char *)file->head + at;
		*page = *page;
	}
	/* sync_bytes refuses a file that has failed. */
	file->head->failed = 0;
	if (sync_bytes(file, bytes, err))
		return true;

	/* The file is not in use yet, so that opening it can be tried again. */
	err->kind = ERR_RETRY;
	return false;
}

/* --- life ----------------------------------------------------------------------------------- */

bool mapped_file_open(struct mapped_file *ret_file, int folder, const char *name,
    const struct mapped_head *wanted, bool any_size, struct err *err)
{
	owned_fd int fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	*ret_file = (struct mapped_file){0};
	if (fd < 0)
		return disk_error_fail(name, "opened", err);
	if (open_it(ret_file, fd, name, wanted, any_size, err) && dirty_mapped_pages(ret_file, err))
		return true;
	mapped_file_close(ret_file);
	return false;
}

void mapped_file_close(struct mapped_file *file)
{
	if (file->head)
		munmap(file->head, MAPPED_HEAD + file->head->bytes);
	*file = (struct mapped_file){0};
}
