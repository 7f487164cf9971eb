/*
 * archive: a partition of published rows is written to a file below TMPDIR, checked and dropped, as
 * `retention = archive` does it, and restored. Each size of payload has a schema of its own.
 */
#include "bench_dedup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "archiver.h"
#include "archives.h"
#include "clock.h"
#include "partitions.h"
#include "text.h"

enum { DISK_MB = 256, WANTED_MB_PER_S = 100, STEP_MS = 60000, DAY_MS = 24 * 3600 * 1000 };

/* A folder for the files of this run, and the database that they are of. */
struct archive_place {
	struct bench place;
	struct postgres_settings settings;
	char folder[256], name[64]; /* name: the partition with the rows */
	int64_t payload, rows;
};

static double megabytes_per_second(int64_t bytes, int64_t us)
{
	return us > 0 ? (double)bytes / (double)us : 0;
}

/* The rate at which the disk makes plain bytes durable. */
static bool measure_disk(const char *folder, double *ret_rate, struct err *err)
{
	enum { CHUNK = 1 << 20 };
	owned_text char *path = xformat("%s/disk", folder);
	owned_text char *chunk = xcalloc(1, CHUNK);
	owned_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	int64_t begun = clock_us();
	bool good = fd >= 0;

	for (int i = 0; good && i < DISK_MB; i++) {
		/* differs in each chunk, for disks that compress */
		memset(chunk, 'a' + i % 26, CHUNK);
		good = write(fd, chunk, CHUNK) == CHUNK;
	}
	good = good && fsync(fd) == 0;
	*ret_rate = megabytes_per_second((int64_t)DISK_MB * CHUNK, clock_us() - begun);

	if (fd >= 0)
		(void)unlink(path);
	return good || err_set(err, ERR_RETRY, "%s cannot be written; set TMPDIR", folder);
}

/* All rows are published, and lie in the largest partition. */
static bool fill_archived(struct archive_place *archived, struct err *err)
{
	struct bench *place = &archived->place;
	OWNED(partition_list_finish) struct partition_list list = {0};
	owned_text char *snapshot = NULL;
	int64_t most = -1;

	if (!bench_fill(place, 1, archived->rows, archived->payload, false, err) ||
	    !bench_settle(place, err))
		return false;
	snapshot = bench_snapshot(place, err);
	if (!snapshot || !bench_rewind(place, snapshot, err) ||
	    !partition_list(place->pg, place->schema, "message", DAY_MS, &list, err))
		return false;

	for (int i = 0; i < list.count; i++) {
		if (!list.items[i].bounded || list.items[i].bytes <= most)
			continue;
		most = list.items[i].bytes;
		text_copy(archived->name, sizeof archived->name, list.items[i].name);
	}
	return true;
}

static bool detach_archived(struct archive_place *archived, struct err *err)
{
	enum partition_outcome outcome;

	/* autovacuum may hold the partition for a moment */
	do
		if (!bench_goes_on(err) ||
		    !partition_archive(
			archived->place.pg, archived->place.schema, archived->name, &outcome, err))
			return false;
	while (outcome == PARTITION_BUSY);
	return outcome == PARTITION_DETACHED ||
	       err_set(err, ERR_FATAL, "%s was not detached: %s", archived->name,
		   partition_outcome_name(outcome));
}

static bool archive_partition(struct archive_place *archived, double *ret_rate, struct err *err)
{
	struct archiver *archiver = archiver_start(&archived->settings, -1);
	int64_t begun = clock_us();
	bool good;

	archiver_step(archiver, clock_ms(), STEP_MS);
	*ret_rate = megabytes_per_second(archived->rows * archived->payload, clock_us() - begun);
	good = !archiver_problem(archiver)[0] ||
	       err_set(err, ERR_FATAL, "%s", archiver_problem(archiver));
	archiver_stop(archiver);
	return good;
}

static bool run_restore(struct archive_place *archived, double *ret_rate, struct err *err)
{
	const struct restore_request request = {.name = archived->name,
	    .folder = archived->folder,
	    .archive_path = "",
	    .keep_ms = DAY_MS};
	struct restored restored;
	int64_t begun = clock_us();
	bool good =
	    archive_restore(archived->place.pg, archived->place.schema, &request, &restored, err);

	*ret_rate = megabytes_per_second(archived->rows * archived->payload, clock_us() - begun);
	return good && (restored.rows == archived->rows ||
			   err_set(err, ERR_FATAL, "%lld of %lld rows came back",
			       (long long)restored.rows, (long long)archived->rows));
}

/* The bound is the disk's own rate, if that is lower. */
static bool measure_archive(struct archive_place *archived, double disk, struct err *err)
{
	double bound = disk < WANTED_MB_PER_S ? disk : WANTED_MB_PER_S, archive, restore;
	char name[80];

	if (!fill_archived(archived, err) || !detach_archived(archived, err) ||
	    !archive_partition(archived, &archive, err) || !run_restore(archived, &restore, err))
		return false;
	snprintf(
	    name, sizeof name, "archive, payloads of %lld bytes", (long long)archived->payload);
	bench_judge(&archived->place, name, "MB/s", archive, '>', bound);
	snprintf(
	    name, sizeof name, "restore, payloads of %lld bytes", (long long)archived->payload);
	bench_tell(&archived->place, name, "MB/s", restore);
	return true;
}

static bool archive_beside(
    struct bench *bench, int number, const char *folder, double disk, struct err *err)
{
	bool small = number == 0;
	struct archive_place archived = {.payload = small ? BENCH_SMALL : BENCH_LARGE,
	    .rows = small ? bench_short_rows(bench) : bench->options.large_rows};
	bool good = bench_place_beside(bench, 2 + number, &archived.place, err);

	text_copy(archived.folder, sizeof archived.folder, folder);
	archived.settings = *bench->postgres;
	archived.settings.schema = archived.place.schema;
	archived.settings.archive_path = archived.folder;
	good = good && measure_archive(&archived, disk, err);
	/* the figures were added to a copy */
	bench->figures = archived.place.figures;
	bench->figure_count = archived.place.figure_count;
	bench_schema_drop(&archived.place);
	return good;
}

bool bench_archive(struct bench *bench, struct err *err)
{
	char folder[256];
	double disk;
	bool good;

	if (!bench_dedup_folder(folder, sizeof folder, err))
		return false;
	good = measure_disk(folder, &disk, err);
	if (good)
		bench_tell(bench, "the disk of TMPDIR, written and made durable", "MB/s", disk);
	for (int number = 0; good && number < 2; number++)
		good = archive_beside(bench, number, folder, disk, err);
	bench_dedup_remove(folder);
	return good;
}
