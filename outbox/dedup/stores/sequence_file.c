#include "sequence_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cleanup.h"
#include "fingerprint.h"
#include "text.h"

enum { MOST = 1 << 24 };

/* The last line: the checksum of the text before it. */
static char *seal_line(const char *text, size_t length)
{
	return xformat("%016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, length));
}

/* Checks the checksum, reads the offset, and cuts the text behind the marks. */
static bool verify_seal(char *text, int64_t *ret_offset)
{
	char *offset = strchr(text, '\n'), *end = offset ? strchr(offset + 1, '\n') : NULL;
	owned_text char *expected = end ? seal_line(text, (size_t)(end + 1 - text)) : NULL;
	if (!end || !text_equal(end + 1, expected))
		return false;
	*offset = *end = '\0';
	return text_to_int64(offset + 1, -1, INT64_MAX, ret_offset);
}

char *sequence_file_read(int folder, int64_t *ret_offset)
{
	owned_fd int fd = openat(folder, "positions", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (fd < 0)
		return NULL;
	char *text = xcalloc(1, size >= 0 && size <= MOST ? (size_t)size + 1 : 1);
	if (size >= 0 && size <= MOST && pread(fd, text, (size_t)size, 0) == size &&
	    strlen(text) == (size_t)size && verify_seal(text, ret_offset))
		return text;
	free(text);
	errno = EBADMSG;
	return NULL;
}

bool sequence_file_write(int folder, const char *marks, int64_t offset)
{
	OWNED(text_finish) struct text text = {0};
	text_addf(&text, "%s\n%" PRId64 "\n", marks, offset);
	owned_text char *sealed = seal_line(text.data, text.length);
	text_add(&text, sealed);
	owned_fd int fd = openat(
	    folder, "positions.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd >= 0 && write(fd, text.data, text.length) == (ssize_t)text.length &&
	       fsync(fd) == 0 && renameat(folder, "positions.new", folder, "positions") == 0;
}
