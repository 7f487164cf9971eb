/*
 * Any bytes are an archive, or are refused: nothing is read beyond their ends, and an archive that
 * is taken has the numbers that its end says. The first byte says what is made right, so that what
 * lies behind it is reached: 0 nothing, 1 the frames around the bytes, 2 also the compression.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "archive_file.h"
#include "cleanup.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void read_archive(const char *path)
{
	struct archive_totals totals = {.rows = -1};
	struct err err = {0};

	if (archive_file_check(path, -1, &totals, &err))
		require(totals.rows >= 0 && totals.bytes > 0 && strlen(totals.checksum) == 32);
	else
		require(err.message[0] && !strchr(err.message, '\n'));
}

/* What the writer takes for a whole COPY comes back from the file. */
static void write_and_read(const char *path, const uint8_t *data, size_t size)
{
	struct archive_totals written, found;
	struct err err;
	struct archive_writer *writer = archive_writer_open(path, "the fuzz", "{}", &err);
	bool whole;

	require(writer);
	for (size_t at = 0; at < size; at += 7)
		require(archive_writer_put(writer, data + at, size - at < 7 ? size - at : 7, &err));
	whole = archive_writer_end(writer, &written, &err);
	archive_writer_close(writer);
	if (whole)
		require(archive_file_check(path, -1, &found, &err) &&
			archive_totals_equal(&written, &found));
}

static void write_frames(int fd, const uint8_t *data, size_t size)
{
	const unsigned char head[] = "\x50\x2a\x4d\x18\x0a\0\0\0obarchiv{}";
	const unsigned char tail[] = "\x5e\x2a\x4d\x18\x28\0\0\0obtotals";
	unsigned char numbers[32] = {1};

	require(write(fd, head, sizeof head - 1) == sizeof head - 1);
	require(write(fd, data, size) == (ssize_t)size);
	require(write(fd, tail, sizeof tail - 1) == sizeof tail - 1);
	require(write(fd, numbers, sizeof numbers) == sizeof numbers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[] = "/tmp/fuzz-archive-XXXXXX";
	owned_fd int fd = mkstemp(path);

	require(fd >= 0);
	if (size > 0 && data[0] % 3 == 2) {
		require(unlink(path) == 0); /* the writer begins new files only */
		write_and_read(path, data + 1, size - 1);
	} else if (size > 0) {
		if (data[0] % 3 == 1)
			write_frames(fd, data + 1, size - 1);
		else
			require(write(fd, data + 1, size - 1) == (ssize_t)size - 1);
		read_archive(path);
	}
	(void)unlink(path);
	return 0;
}
