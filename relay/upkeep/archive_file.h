#pragma once
/*
 * The file of an archived partition. It is a PostgreSQL COPY BINARY file in one zstd frame, so that
 * `zstd -dc FILE` and COPY … FROM read it without this program. A skippable frame before it has the
 * header, and one behind it the totals; zstd passes over both.
 *
 *   magic 0x184D2A50, length 4; "obarchiv"; the header: JSON, made and read by the server
 *   a zstd frame with the output of COPY … TO STDOUT (FORMAT binary)
 *   magic 0x184D2A5E, length 4; "obtotals"; rows 8, bytes 8, checksum 16
 *
 * Numbers are little-endian. The checksum is XXH3, 128 bits, of the header and of all bytes of the
 * COPY. A file is whole only with its totals, so one that was cut, or whose writer crashed, is
 * refused; so is one with a changed byte.
 *
 * Not thread-safe; calls block. Errors name the file, and a disk error the cure. Input is not
 * trusted: a reader turns any bytes into rows or an error.
 */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"

enum { ARCHIVE_HEADER_MOST = 65536, ARCHIVE_CHECKSUM_SIZE = 33 };

struct archive_totals {
	int64_t rows;
	int64_t bytes;      /* of the COPY, uncompressed */
	int64_t file_bytes; /* of the file */
	char checksum[ARCHIVE_CHECKSUM_SIZE];
};
bool archive_totals_equal(const struct archive_totals *a, const struct archive_totals *b);

/* --- writing ----------------------------------------------------------------------------- */

struct archive_writer;

/*
 * Makes the file, which must not exist, with mode 0600. Errors call it by its label, which stays
 * the same when the next try has another path. The header has at most ARCHIVE_HEADER_MOST bytes.
 */
struct archive_writer *archive_writer_open(
    const char *path, const char *label, const char *header, struct err *err);
/* Bytes of the COPY, in pieces of any length. */
bool archive_writer_put(
    struct archive_writer *writer, const void *data, size_t length, struct err *err) MUST_CHECK;
/* Writes the totals, and makes the file durable (not its name: archive_file_keep). */
bool archive_writer_end(
    struct archive_writer *writer, struct archive_totals *ret_totals, struct err *err) MUST_CHECK;
/* Closes the file; one that has not come to its end is removed. NULL is fine. */
void archive_writer_close(struct archive_writer *writer);

/*
 * Gives a file its final name, and makes that durable; both names are of this folder. A file that
 * has the final name already is not replaced.
 */
bool archive_file_keep(
    const char *folder, const char *from, const char *to, struct err *err) MUST_CHECK;

/* Can files be made in this folder? The error names it, with the cure. */
bool archive_folder_check(const char *folder, struct err *err) MUST_CHECK;

/* --- reading ----------------------------------------------------------------------------- */

struct archive_reader;

/* ERR_REJECT: not such a file, or one that is cut or damaged; as are the errors of the others. */
struct archive_reader *archive_reader_open(const char *path, struct err *err);
const char *archive_reader_header(const struct archive_reader *reader);
/* As the file says; they are true once archive_reader_next has come to the end. */
const struct archive_totals *archive_reader_totals(const struct archive_reader *reader);
/*
 * The next bytes of the COPY, valid until the next call. *ret_length 0: the end, and the rows, the
 * bytes and the checksum are those of the totals.
 */
bool archive_reader_next(struct archive_reader *reader, const void **ret_data, size_t *ret_length,
    struct err *err) MUST_CHECK;
void archive_reader_close(struct archive_reader *reader); /* NULL is fine */

/*
 * Reads the file to its end. stop_fd: while it is readable, the check ends with ERR_RETRY; -1:
 * none.
 */
bool archive_file_check(
    const char *path, int stop_fd, struct archive_totals *ret_totals, struct err *err) MUST_CHECK;
