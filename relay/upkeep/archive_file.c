/*
 * Writes and reads the file of an archived partition (its format: archive_file.h). Begin at
 * archive_writer_open and archive_reader_open. Both count the rows in the bytes of the COPY by
 * themselves (scan_copy), so that the count of the reader does not repeat what the writer noted.
 */
#include "archive_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include "cleanup.h"
#include "text.h"

enum {
	LEVEL = 1, /* 2 to 3 times as fast as level 3, for about the same size of JSON */
	BUFFER_BYTES = 1 << 20,
	MAGIC_HEADER = 0x184D2A50,
	MAGIC_TOTALS = 0x184D2A5E,
	FRAME_BYTES = 8, /* magic and length of a skippable frame */
	WORD_BYTES = 8,
	NUMBERS_BYTES = 32, /* rows, bytes, checksum */
	TOTALS_BYTES = FRAME_BYTES + WORD_BYTES + NUMBERS_BYTES,
};
static const char header_word[WORD_BYTES + 1] = "obarchiv";
static const char totals_word[WORD_BYTES + 1] = "obtotals";

/* --- errors -------------------------------------------------------------------------------- */

static const struct {
	int error;
	enum err_kind kind;
	const char *cure;
} disk_cures[] = {
    {ENOSPC, ERR_RETRY, "; make room on its disk, or set archive_path to a folder of another one"},
    {EDQUOT, ERR_RETRY,
	"; raise its owner's quota, or set archive_path to a folder of another disk"},
    {EFBIG, ERR_RETRY,
	"; raise the limit of a file's size (ulimit -f), or make partition_every shorter"},
    {EROFS, ERR_DENIED,
	"; mount it for writing, or set archive_path to a folder that can be written"},
    {EACCES, ERR_DENIED,
	"; give this user the folder, or set archive_path to one that it may write"},
    {EPERM, ERR_DENIED,
	"; give this user the folder, or set archive_path to one that it may write"},
    {ENOENT, ERR_CONFIG, "; make the folder, or correct archive_path"},
    {ENOTDIR, ERR_CONFIG, "; set archive_path to a folder"},
};

static bool fail_on_disk(const char *path, const char *what, struct err *err)
{
	int error = errno;

	for (size_t i = 0; i < sizeof disk_cures / sizeof *disk_cures; i++)
		if (disk_cures[i].error == error)
			return err_set(err, disk_cures[i].kind, "%s cannot be %s: %s%s", path, what,
			    strerror(error), disk_cures[i].cure);
	return err_set(err, ERR_RETRY, "%s cannot be %s: %s", path, what, strerror(error));
}

static bool fail_as_damaged(const char *path, const char *what, struct err *err)
{
	return err_set(err, ERR_REJECT,
	    "%s: %s; the file is damaged or was cut, and nothing of it is used: take another copy "
	    "of it",
	    path, what);
}

/* --- the rows in a stream ------------------------------------------------------------------- */

/*
 * Walks over the bytes of a COPY in pieces of any length: "PGCOPY…", flags, an extension; then for
 * each row the number of fields and for each field its length and bytes; -1 instead of a number of
 * fields ends it.
 */
struct copy_scan {
	enum { SIGNATURE, FIELD_COUNT, FIELD_LENGTH, TRAILER_SEEN, BROKEN } state;
	unsigned char part[19]; /* a number, or the signature, that a piece has begun */
	size_t part_length;
	int64_t skip; /* bytes of the field, or of the extension, still to come */
	int fields;   /* fields of the row that are still to come */
	int64_t rows;
};

static const unsigned char copy_signature[11] = "PGCOPY\n\377\r\n";

static uint32_t big_endian(const unsigned char *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof value);
	return be32toh(value);
}

static void scan_number(struct copy_scan *scan)
{
	const unsigned char *part = scan->part;
	int32_t length;

	switch (scan->state) {
	case SIGNATURE:
		length = (int32_t)big_endian(part + 15);
		if (memcmp(part, copy_signature, sizeof copy_signature) != 0 || length < 0) {
			scan->state = BROKEN;
			return;
		}
		scan->skip = length;
		scan->state = FIELD_COUNT;
		return;
	case FIELD_COUNT:
		scan->fields = (int16_t)(part[0] << 8 | part[1]);
		if (scan->fields == -1)
			scan->state = TRAILER_SEEN;
		else if (scan->fields < 0)
			scan->state = BROKEN;
		else
			scan->state = scan->fields > 0 ? FIELD_LENGTH : FIELD_COUNT;
		scan->rows += scan->fields >= 0;
		return;
	default:
		length = (int32_t)big_endian(part);
		/* -1 is NULL; no other negative length exists */
		if (length < -1) {
			scan->state = BROKEN;
			return;
		}
		scan->skip = length > 0 ? length : 0;
		if (--scan->fields == 0)
			scan->state = FIELD_COUNT;
	}
}

static size_t number_size(const struct copy_scan *scan)
{
	return scan->state == SIGNATURE ? sizeof scan->part : scan->state == FIELD_COUNT ? 2 : 4;
}

static void scan_copy(struct copy_scan *scan, const void *data, size_t length)
{
	const unsigned char *at = data, *end = at + length;

	while (at < end && scan->state != BROKEN) {
		int64_t skipped = end - at < scan->skip ? end - at : scan->skip;
		size_t wanted, taken;

		scan->skip -= skipped;
		at += skipped;
		if (at == end)
			return;

		/* bytes behind the trailer are of no row */
		if (scan->state == TRAILER_SEEN) {
			scan->state = BROKEN;
			return;
		}
		wanted = number_size(scan) - scan->part_length;
		taken = (size_t)(end - at) < wanted ? (size_t)(end - at) : wanted;
		memcpy(scan->part + scan->part_length, at, taken);
		scan->part_length += taken;
		at += taken;
		if (taken < wanted)
			return;
		scan->part_length = 0;
		scan_number(scan);
	}
}

/* --- totals --------------------------------------------------------------------------------- */

/* The numbers of a stream that its writer and its reader compute. */
struct stream_sums {
	struct copy_scan scan;
	XXH3_state_t *hash; /* its alignment is larger than that of malloc */
	int64_t bytes;
};

static void begin_sums(struct stream_sums *sums, const char *header)
{
	sums->hash = XXH3_createState();
	if (!sums->hash)
		abort(); /* as xmalloc */
	XXH3_128bits_reset(sums->hash);
	XXH3_128bits_update(sums->hash, header, strlen(header));
}

static void add_to_sums(struct stream_sums *sums, const void *data, size_t length)
{
	XXH3_128bits_update(sums->hash, data, length);
	scan_copy(&sums->scan, data, length);
	sums->bytes += (int64_t)length;
}

static struct archive_totals end_sums(const struct stream_sums *sums, int64_t file_bytes)
{
	XXH128_hash_t hash = XXH3_128bits_digest(sums->hash);
	struct archive_totals totals = {
	    .rows = sums->scan.rows, .bytes = sums->bytes, .file_bytes = file_bytes};

	snprintf(totals.checksum, sizeof totals.checksum, "%016" PRIx64 "%016" PRIx64, hash.high64,
	    hash.low64);
	return totals;
}

bool archive_totals_equal(const struct archive_totals *a, const struct archive_totals *b)
{
	return a->rows == b->rows && a->bytes == b->bytes && a->file_bytes == b->file_bytes &&
	       strcmp(a->checksum, b->checksum) == 0;
}

static void store_word(unsigned char *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof value);
}

static uint64_t load_word(const unsigned char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof value);
	return le64toh(value);
}

static void store_frame(unsigned char *at, uint32_t magic, uint32_t length, const char *word)
{
	uint32_t numbers[2] = {htole32(magic), htole32(length)};

	memcpy(at, numbers, sizeof numbers);
	memcpy(at + FRAME_BYTES, word, WORD_BYTES);
}

/* The length behind the word of a skippable frame; -1: not this frame. */
static int64_t load_frame(const unsigned char *at, uint32_t magic, const char *word)
{
	uint32_t numbers[2];

	memcpy(numbers, at, sizeof numbers);
	if (le32toh(numbers[0]) != magic || le32toh(numbers[1]) < WORD_BYTES ||
	    memcmp(at + FRAME_BYTES, word, WORD_BYTES) != 0)
		return -1;
	return (int64_t)le32toh(numbers[1]) - WORD_BYTES;
}

/* --- writing -------------------------------------------------------------------------------- */

struct archive_writer {
	char *path, *label;
	int fd;
	ZSTD_CCtx *zstd;
	struct stream_sums sums;
	unsigned char *buffer;
	int64_t file_bytes;
	bool ended;
};

static bool write_all(
    struct archive_writer *writer, const void *data, size_t length, struct err *err)
{
	const char *at = data;

	while (length > 0) {
		ssize_t written = write(writer->fd, at, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return fail_on_disk(writer->label, "written", err);
		at += written;
		length -= (size_t)written;
		writer->file_bytes += written;
	}
	return true;
}

static bool write_header(struct archive_writer *writer, const char *header, struct err *err)
{
	unsigned char frame[FRAME_BYTES + WORD_BYTES];
	size_t length = strlen(header);

	if (length > ARCHIVE_HEADER_MOST)
		return err_set(
		    err, ERR_FATAL, "%s: the header has %zu bytes", writer->label, length);
	store_frame(frame, MAGIC_HEADER, (uint32_t)(WORD_BYTES + length), header_word);
	return write_all(writer, frame, sizeof frame, err) &&
	       write_all(writer, header, length, err);
}

static bool start_compressor(struct archive_writer *writer, struct err *err)
{
	writer->zstd = ZSTD_createCCtx();
	if (!writer->zstd ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_compressionLevel, LEVEL)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_checksumFlag, 1)))
		return err_set(err, ERR_FATAL, "zstd does not start");
	/* Compression in a thread beside the one that receives rows. A library without threads
	 * refuses it, and then compresses here. */
	(void)ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_nbWorkers, 1);
	return true;
}

struct archive_writer *archive_writer_open(
    const char *path, const char *label, const char *header, struct err *err)
{
	struct archive_writer *writer = xcalloc(1, sizeof *writer);

	writer->path = xstrdup(path);
	writer->label = xstrdup(label);
	writer->buffer = xmalloc(BUFFER_BYTES);
	begin_sums(&writer->sums, header);
	/* payloads are inside: nobody else may read it */
	writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (writer->fd < 0)
		fail_on_disk(label, "written", err);
	else if (start_compressor(writer, err) && write_header(writer, header, err))
		return writer;
	archive_writer_close(writer);
	return NULL;
}

static bool compress_piece(struct archive_writer *writer, const void *data, size_t length,
    ZSTD_EndDirective how, struct err *err)
{
	ZSTD_inBuffer in = {data, length, 0};
	size_t left;

	do {
		ZSTD_outBuffer out = {writer->buffer, BUFFER_BYTES, 0};

		left = ZSTD_compressStream2(writer->zstd, &out, &in, how);
		if (ZSTD_isError(left))
			return err_set(
			    err, ERR_FATAL, "%s: zstd: %s", writer->label, ZSTD_getErrorName(left));
		if (!write_all(writer, writer->buffer, out.pos, err))
			return false;
	} while (how == ZSTD_e_end ? left > 0 : in.pos < in.size);
	return true;
}

bool archive_writer_put(
    struct archive_writer *writer, const void *data, size_t length, struct err *err)
{
	add_to_sums(&writer->sums, data, length);
	return compress_piece(writer, data, length, ZSTD_e_continue, err);
}

static bool write_totals(
    struct archive_writer *writer, struct archive_totals *ret_totals, struct err *err)
{
	XXH128_hash_t hash = XXH3_128bits_digest(writer->sums.hash);
	unsigned char frame[TOTALS_BYTES], *numbers = frame + FRAME_BYTES + WORD_BYTES;

	store_frame(frame, MAGIC_TOTALS, WORD_BYTES + NUMBERS_BYTES, totals_word);
	store_word(numbers, (uint64_t)writer->sums.scan.rows);
	store_word(numbers + 8, (uint64_t)writer->sums.bytes);
	store_word(numbers + 16, hash.high64);
	store_word(numbers + 24, hash.low64);
	if (!write_all(writer, frame, sizeof frame, err))
		return false;
	*ret_totals = end_sums(&writer->sums, writer->file_bytes);
	return true;
}

bool archive_writer_end(
    struct archive_writer *writer, struct archive_totals *ret_totals, struct err *err)
{
	if (writer->sums.scan.state != TRAILER_SEEN)
		return err_set(
		    err, ERR_FATAL, "%s: the rows are not a whole COPY BINARY", writer->label);
	if (!compress_piece(writer, NULL, 0, ZSTD_e_end, err) ||
	    !write_totals(writer, ret_totals, err))
		return false;
	if (fsync(writer->fd) != 0)
		return fail_on_disk(writer->label, "made durable", err);
	writer->ended = true;
	return true;
}

void archive_writer_close(struct archive_writer *writer)
{
	if (!writer)
		return;

	if (writer->fd >= 0)
		close(writer->fd);
	/* a part of a file serves nobody and takes room on a disk that may be full */
	if (writer->fd >= 0 && !writer->ended)
		(void)unlink(writer->path);
	ZSTD_freeCCtx(writer->zstd);
	XXH3_freeState(writer->sums.hash);
	free(writer->buffer);
	free(writer->path);
	free(writer->label);
	free(writer);
}

/* Never over another file: it may be the only one of another partition. As rename(2). */
static int rename_anew(int folder, const char *from, const char *to)
{
	if (renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0)
		return 0;
	/* not every file system knows the flag */
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (faccessat(folder, to, F_OK, 0) == 0) {
		errno = EEXIST;
		return -1;
	}
	return renameat(folder, from, folder, to);
}

bool archive_file_keep(const char *folder, const char *from, const char *to, struct err *err)
{
	owned_fd int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fail_on_disk(folder, "opened", err);
	if (rename_anew(fd, from, to) != 0)
		return fail_on_disk(folder, "changed", err);
	return fsync(fd) == 0 || fail_on_disk(folder, "made durable", err);
}

bool archive_folder_check(const char *folder, struct err *err)
{
	owned_text char *path = xformat("%s/.outbox-relay-check-%d", folder, (int)getpid());
	owned_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return fail_on_disk(folder, "written", err);
	(void)unlink(path);
	return true;
}

/* --- reading -------------------------------------------------------------------------------- */

struct archive_reader {
	char *path, *header;
	int fd;
	ZSTD_DCtx *zstd;
	struct stream_sums sums;
	struct archive_totals totals;
	unsigned char *read, *plain;
	ZSTD_inBuffer in;
	int64_t left;    /* bytes of the zstd frame that were not read yet */
	bool frame_done; /* the zstd frame has ended */
};

static bool read_exactly(
    struct archive_reader *reader, void *to, size_t length, int64_t at, struct err *err)
{
	char *next = to;

	while (length > 0) {
		ssize_t had = pread(reader->fd, next, length, at);

		if (had < 0 && errno == EINTR)
			continue;
		if (had < 0)
			return fail_on_disk(reader->path, "read", err);
		if (had == 0)
			return fail_as_damaged(reader->path, "it ends too early", err);
		next += had;
		at += had;
		length -= (size_t)had;
	}
	return true;
}

static bool read_archive_totals(struct archive_reader *reader, int64_t size, struct err *err)
{
	unsigned char frame[TOTALS_BYTES], *numbers = frame + FRAME_BYTES + WORD_BYTES;

	if (size < TOTALS_BYTES)
		return fail_as_damaged(reader->path, "it has no totals at its end", err);
	if (!read_exactly(reader, frame, sizeof frame, size - TOTALS_BYTES, err))
		return false;
	if (load_frame(frame, MAGIC_TOTALS, totals_word) != NUMBERS_BYTES)
		return fail_as_damaged(reader->path, "it has no totals at its end", err);

	reader->totals = (struct archive_totals){.rows = (int64_t)load_word(numbers),
	    .bytes = (int64_t)load_word(numbers + 8),
	    .file_bytes = size};
	snprintf(reader->totals.checksum, sizeof reader->totals.checksum,
	    "%016" PRIx64 "%016" PRIx64, load_word(numbers + 16), load_word(numbers + 24));
	return true;
}

static bool read_archive_header(struct archive_reader *reader, int64_t size, struct err *err)
{
	unsigned char frame[FRAME_BYTES + WORD_BYTES];
	int64_t length;

	if (size < (int64_t)sizeof frame)
		return err_set(err, ERR_REJECT, "%s is no archive of outbox-relay", reader->path);
	if (!read_exactly(reader, frame, sizeof frame, 0, err))
		return false;
	length = load_frame(frame, MAGIC_HEADER, header_word);
	if (length < 0 || length > ARCHIVE_HEADER_MOST)
		return err_set(err, ERR_REJECT, "%s is no archive of outbox-relay", reader->path);

	/* the totals come first, since they tell a file that was cut from a damaged one */
	if (!read_archive_totals(reader, size, err))
		return false;
	reader->left = size - (int64_t)sizeof frame - length - TOTALS_BYTES;
	if (reader->left < 0)
		return fail_as_damaged(reader->path, "its header is too long", err);
	reader->header = xcalloc(1, (size_t)length + 1);
	return read_exactly(reader, reader->header, (size_t)length, sizeof frame, err) &&
	       (lseek(reader->fd, (off_t)sizeof frame + length, SEEK_SET) >= 0 ||
		   fail_on_disk(reader->path, "read", err));
}

static bool begin_archive_reading(struct archive_reader *reader, struct err *err)
{
	struct stat stat;

	reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC);
	if (reader->fd < 0 && errno == ENOENT)
		return err_set(err, ERR_REJECT,
		    "%s does not exist; name its folder with --folder, or copy the file there",
		    reader->path);
	if (reader->fd < 0 || fstat(reader->fd, &stat) != 0)
		return fail_on_disk(reader->path, "read", err);
	if (!S_ISREG(stat.st_mode))
		return err_set(err, ERR_REJECT, "%s is no file", reader->path);
	if (!read_archive_header(reader, stat.st_size, err))
		return false;

	reader->zstd = ZSTD_createDCtx();
	reader->read = xmalloc(BUFFER_BYTES);
	reader->plain = xmalloc(BUFFER_BYTES);
	begin_sums(&reader->sums, reader->header);
	return reader->zstd || err_set(err, ERR_FATAL, "zstd does not start");
}

struct archive_reader *archive_reader_open(const char *path, struct err *err)
{
	struct archive_reader *reader = xcalloc(1, sizeof *reader);

	reader->path = xstrdup(path);
	if (begin_archive_reading(reader, err))
		return reader;
	archive_reader_close(reader);
	return NULL;
}

const char *archive_reader_header(const struct archive_reader *reader)
{
	return reader->header;
}

const struct archive_totals *archive_reader_totals(const struct archive_reader *reader)
{
	return &reader->totals;
}

/* Reads more of the zstd frame into the empty input. */
static bool refill_input(struct archive_reader *reader, struct err *err)
{
	size_t wanted = reader->left < BUFFER_BYTES ? (size_t)reader->left : BUFFER_BYTES;
	ssize_t had;

	do
		had = read(reader->fd, reader->read, wanted);
	while (had < 0 && errno == EINTR);
	if (had < 0)
		return fail_on_disk(reader->path, "read", err);
	if (had == 0)
		return fail_as_damaged(reader->path, "it ends too early", err);
	reader->left -= had;
	reader->in = (ZSTD_inBuffer){reader->read, (size_t)had, 0};
	return true;
}

static bool end_reading(const struct archive_reader *reader, struct err *err)
{
	struct archive_totals found = end_sums(&reader->sums, reader->totals.file_bytes);

	if (!reader->frame_done || reader->sums.scan.state != TRAILER_SEEN)
		return fail_as_damaged(reader->path, "its rows end too early", err);
	if (found.rows != reader->totals.rows)
		return fail_as_damaged(reader->path, "its number of rows differs", err);
	return archive_totals_equal(&found, &reader->totals) ||
	       fail_as_damaged(reader->path, "its checksum differs", err);
}

bool archive_reader_next(
    struct archive_reader *reader, const void **ret_data, size_t *ret_length, struct err *err)
{
	ZSTD_outBuffer out = {reader->plain, BUFFER_BYTES, 0};

	while (out.pos == 0 && !reader->frame_done) {
		bool dry = reader->in.pos == reader->in.size && reader->left == 0;
		size_t hint;

		if (reader->in.pos == reader->in.size && !dry && !refill_input(reader, err))
			return false;
		/* also without input: zstd may hold output that the last call had no room for */
		hint = ZSTD_decompressStream(reader->zstd, &out, &reader->in);
		if (ZSTD_isError(hint))
			return fail_as_damaged(reader->path, ZSTD_getErrorName(hint), err);
		reader->frame_done = hint == 0;
		if (dry && out.pos == 0)
			break;
	}
	if (out.pos == 0 && (reader->in.pos < reader->in.size || reader->left > 0))
		return fail_as_damaged(reader->path, "it has bytes behind its rows", err);

	add_to_sums(&reader->sums, reader->plain, out.pos);
	*ret_data = reader->plain;
	*ret_length = out.pos;
	return out.pos > 0 || end_reading(reader, err);
}

void archive_reader_close(struct archive_reader *reader)
{
	if (!reader)
		return;

	if (reader->fd >= 0)
		close(reader->fd);
	ZSTD_freeDCtx(reader->zstd);
	XXH3_freeState(reader->sums.hash);
	free(reader->read);
	free(reader->plain);
	free(reader->header);
	free(reader->path);
	free(reader);
}

static bool is_stopped(int fd)
{
	struct pollfd stop = {.fd = fd, .events = POLLIN};

	return poll(&stop, 1, 0) > 0;
}

static bool read_archive_to_end(struct archive_reader *reader, int stop_fd, struct err *err)
{
	const void *data;
	size_t length;

	/* from the disk, and not from the memory that the writer has just filled */
	(void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_DONTNEED);
	do {
		if (is_stopped(stop_fd))
			return err_set(err, ERR_RETRY, "%s: interrupted", reader->path);
		if (!archive_reader_next(reader, &data, &length, err))
			return false;
	} while (length > 0);
	return true;
}

bool archive_file_check(
    const char *path, int stop_fd, struct archive_totals *ret_totals, struct err *err)
{
	struct archive_reader *reader = archive_reader_open(path, err);
	bool whole = reader && read_archive_to_end(reader, stop_fd, err);

	if (whole)
		*ret_totals = reader->totals;
	archive_reader_close(reader);
	return whole;
}
