/*
 * The bits of a bitmap in slices (bit_slices.h). Read begin_bit_slice and end_old_slices first,
 * then the opening, then bit_slices_set.
 */
#include "bit_slices.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cleanup.h"
#include "dedup_mapped_inspect.h"
#include "fault.h"
#include "file_list.h"
#include "state_file_name.h"
#include "text.h"

enum { KIND_BITS = 2, NAME = 64 };
_Static_assert((int)FILE_LIST_MOST >= (int)MOST_BIT_SLICES, "a list has room for all slices");

/* --- partitions ----------------------------------------------------------------------------- */

static void name_bits_file(int64_t number, uint64_t partition, char name[NAME])
{
	snprintf(name, NAME, "%" PRId64 ".%" PRIu64 ".bits", number, partition);
}

static bool open_bit_part(
    struct bit_slices *bits, struct bit_slice *slice, uint64_t partition, struct err *err)
{
	char name[NAME];
	const struct mapped_head wanted = {.kind = KIND_BITS,
	    .bytes = BIT_PARTITION / 8,
	    .seed = bits->folder->head.seed,
	    .number = dedup_bits_number(slice->number, (int64_t)partition)};

	name_bits_file(slice->number, partition, name);
	if (!mapped_file_open(
		&slice->parts[partition].file, bits->folder->fd, name, &wanted, false, err))
		return err_prefix(err, "path=%s", bits->folder->path);
	slice->files++;
	bits->folder_dirty = true;
	return true;
}

static void flip_bit(struct bit_slice *slice, uint64_t bit)
{
	struct bit_part *part = &slice->parts[bit >> BIT_PARTITION_SHIFT];
	uint64_t *word = bit_part_word(part, bit), mask = UINT64_C(1) << bit % 64;
	uint64_t change = *word & mask ? (uint64_t)-1 : 1;

	*word ^= mask;
	part->file.head->count += change;
	slice->ids += change;
	part->dirty = true;
}

/* After a loss of power the head's count may be larger or smaller than the number of set bits. */
static void count_bits(struct bit_slice *slice, const struct bit_part *part)
{
	const uint64_t *words = part->file.bytes;
	part->file.head->count = 0;
	for (uint64_t i = 0; i < BIT_PARTITION / 64; i++)
		part->file.head->count += (uint64_t)__builtin_popcountll(words[i]);
	slice->ids += part->file.head->count;
}

/* --- slices --------------------------------------------------------------------------------- */

static struct bit_slice *find_bit_slice(const struct bit_slices *bits, int64_t number)
{
	for (int i = bits->count; i-- > 0;)
		if (bits->slices[i]->number == number)
			return bits->slices[i];
	return NULL;
}

static struct bit_slice *make_bit_slice(const struct bit_slices *bits, int64_t number)
{
	struct bit_slice *slice =
	    xcalloc(1, sizeof *slice + bits->part_count * sizeof *slice->parts);
	slice->number = number;
	return slice;
}

static void insert_bit_slice(struct bit_slices *bits, struct bit_slice *slice)
{
	int place = bits->count++;
	for (; place > 0 && bits->slices[place - 1]->number > slice->number; place--)
		bits->slices[place] = bits->slices[place - 1];
	bits->slices[place] = slice;
}

/* --- removal -------------------------------------------------------------------------------- */

static void remove_bit_slice(struct bit_slices *bits, struct bit_slice *slice)
{
	char name[NAME];
	for (uint64_t i = 0; i < bits->part_count; i++) {
		if (!slice->parts[i].file.head)
			continue;
		fault_point("before_bits_removal");
		mapped_file_close(&slice->parts[i].file);
		name_bits_file(slice->number, i, name);
		unlinkat(bits->folder->fd, name, 0);
		bits->gone_files--;
	}
	free(slice);
}

static void *remove_gone_slices(void *context)
{
	struct bit_slices *bits = context;
	while (bits->gone) {
		struct bit_slice *slice = bits->gone;
		bits->gone = slice->next;
		remove_bit_slice(bits, slice);
	}
	return NULL;
}

static void join_bit_remover(struct bit_slices *bits)
{
	if (bits->removing)
		pthread_join(bits->remover, NULL);
	bits->removing = false;
}

/* Takes slices that ended out of the looks, and begins to remove their files. */
static void end_old_slices(struct bit_slices *bits)
{
	int ended = 0;

	if (!slice_time_is_gone(&bits->time, bits->slices[0]->number))
		return;

	join_bit_remover(bits);
	while (slice_time_is_gone(&bits->time, bits->slices[ended]->number)) {
		struct bit_slice *slice = bits->slices[ended++];
		bits->gone_files += slice->files;
		slice->next = bits->gone;
		bits->gone = slice;
	}
	bits->count -= ended;
	memmove(bits->slices, bits->slices + ended, (size_t)bits->count * sizeof *bits->slices);

	bits->removing = pthread_create(&bits->remover, NULL, remove_gone_slices, bits) == 0;
	if (!bits->removing)
		remove_gone_slices(bits);
}

/* --- a new slice ----------------------------------------------------------------------------- */

/*
 * The first file comes before the window moves. A window that had moved without a file would move
 * back when the folder is opened again, and miss the files of slices that were removed.
 */
static bool begin_bit_slice(struct bit_slices *bits, int64_t number, uint64_t partition,
    struct bit_slice **ret_slice, struct err *err)
{
	*ret_slice = make_bit_slice(bits, number);
	if (!open_bit_part(bits, *ret_slice, partition, err)) {
		free(*ret_slice);
		return false;
	}

	insert_bit_slice(bits, *ret_slice);
	if (slice_time_note(&bits->time, number))
		end_old_slices(bits);
	return true;
}

/* --- opening -------------------------------------------------------------------------------- */

struct bit_file {
	long long number;
	int partition;
	bool blank; /* its process was killed while it made the file */
};

struct bit_files {
	struct bit_file *files;
	size_t count;
};

static void bit_files_finish(struct bit_files *list)
{
	free(list->files);
}

static bool is_blank_file(const struct state_folder *folder, const char *name)
{
	struct stat state;
	owned_fd int fd = openat(folder->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fstat(fd, &state) == 0 &&
	       mapped_file_is_blank(fd, (uint64_t)state.st_size);
}

static void note_bit_file(const struct bit_slices *bits, const char *name, struct bit_files *list)
{
	struct bit_file file;
	if (!state_file_name_parse(name, "bits", &file.number, &file.partition))
		return;
	file.blank = is_blank_file(bits->folder, name);
	list->files = xrealloc(list->files, (list->count + 1) * sizeof file);
	list->files[list->count++] = file;
}

static bool list_bit_files(const struct bit_slices *bits, struct bit_files *list, struct err *err)
{
	/* A descriptor of its own, because closedir closes it. */
	int copy = openat(bits->folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	if (!names)
		return state_folder_fail(bits->folder, "the folder cannot be read", err);
	while ((entry = readdir(names)))
		note_bit_file(bits, entry->d_name, list);
	closedir(names);
	return true;
}

static bool open_bit_file(struct bit_slices *bits, const struct bit_file *file, struct err *err)
{
	uint64_t partition = (uint64_t)file->partition;

	/* Fewer ids are planned than before: done ids would lie outside of the bits. */
	if (partition >= bits->part_count)
		return err_set(err, ERR_CONFIG,
		    "path=%s has ids up to %" PRIu64 ": raise ids, or use a new folder",
		    bits->folder->path, (partition + 1) * BIT_PARTITION);

	struct bit_slice *slice = find_bit_slice(bits, file->number);
	if (!slice) {
		slice = make_bit_slice(bits, file->number);
		insert_bit_slice(bits, slice);
	}
	if (!open_bit_part(bits, slice, partition, err))
		return false;
	count_bits(slice, &slice->parts[partition]);
	/* A killed process may have set bits and not synced them. A check calls their ids done, so
	 * they are not set again, and the next checkpoint vouches for them. */
	slice->parts[partition].dirty = true;
	return true;
}

static struct file_list list_bit_slices(const struct bit_slices *bits)
{
	struct file_list list = {.totals = true};
	for (int i = 0; i < bits->count; i++)
		file_list_add(&list, bits->slices[i]->number, (int64_t)bits->slices[i]->files);
	return list;
}

/* Files of slices that are gone are left by a process that was killed. */
static void remove_left_files(const struct bit_slices *bits, const struct bit_files *list)
{
	char name[NAME];
	for (size_t i = 0; i < list->count; i++) {
		const struct bit_file *file = &list->files[i];
		if (!file->blank && !slice_time_is_gone(&bits->time, file->number))
			continue;
		name_bits_file(file->number, (uint64_t)file->partition, name);
		unlinkat(bits->folder->fd, name, 0);
	}
}

/*
 * Files with ids make the window, and files are removed only when each of these was found to be of
 * this folder. For the list of files a blank one counts, too: slices may have been removed when it
 * was made, and a loss of power may have emptied it since.
 */
static bool open_bit_files(struct bit_slices *bits, struct err *err)
{
	OWNED(bit_files_finish) struct bit_files list = {0};
	struct slice_time named = bits->time;

	if (!list_bit_files(bits, &list, err))
		return false;
	for (size_t i = 0; i < list.count; i++) {
		slice_time_note(&named, list.files[i].number);
		if (!list.files[i].blank)
			slice_time_note(&bits->time, list.files[i].number);
	}

	for (size_t i = 0; i < list.count; i++)
		if (!list.files[i].blank &&
		    !slice_time_is_gone(&bits->time, list.files[i].number) &&
		    !open_bit_file(bits, &list.files[i], err))
			return false;

	const struct file_list there = list_bit_slices(bits);
	if (!file_list_check(bits->folder, &there, named.newest, "bits", err))
		return false;
	if (named.newest > bits->time.newest && !file_list_drop_missing(bits->folder, &there, err))
		return false;
	remove_left_files(bits, &list);
	return true;
}

bool bit_slices_open(
    struct bit_slices *ret_bits, const struct state_folder *folder, uint64_t size, struct err *err)
{
	*ret_bits = (struct bit_slices){.folder = folder,
	    .part_count = (size - 1) / BIT_PARTITION + 1,
	    .time = {folder->head.slice_ms, folder->head.slices, INT64_MIN}};
	return open_bit_files(ret_bits, err);
}

static void close_bit_slice(const struct bit_slices *bits, struct bit_slice *slice)
{
	for (uint64_t i = 0; i < bits->part_count; i++)
		mapped_file_close(&slice->parts[i].file);
	free(slice);
}

void bit_slices_close(struct bit_slices *bits)
{
	join_bit_remover(bits);
	for (int i = 0; i < bits->count; i++)
		close_bit_slice(bits, bits->slices[i]);
	bits->count = 0;
}

/* --- use ------------------------------------------------------------------------------------ */

/* Sets the bit also if an older slice has it, because that one ends sooner. */
bool bit_slices_set(struct bit_slices *bits, uint64_t bit, int64_t time_ms, struct err *err)
{
	uint64_t partition = bit >> BIT_PARTITION_SHIFT;
	int64_t number = slice_time_place(&bits->time, time_ms);
	struct bit_slice *slice = find_bit_slice(bits, number);

	if (!slice && !begin_bit_slice(bits, number, partition, &slice, err))
		return false;
	if (!slice->parts[partition].file.head && !open_bit_part(bits, slice, partition, err))
		return false;
	if (!bit_slice_has(slice, bit))
		flip_bit(slice, bit);
	return true;
}

void bit_slices_clear(const struct bit_slices *bits, uint64_t bit)
{
	for (int i = 0; i < bits->count; i++)
		if (bit_slice_has(bits->slices[i], bit))
			flip_bit(bits->slices[i], bit);
}

static bool sync_bit_slice(const struct bit_slices *bits, struct bit_slice *slice, struct err *err)
{
	for (uint64_t i = 0; i < bits->part_count; i++) {
		struct bit_part *part = &slice->parts[i];
		if (part->dirty && !mapped_file_sync(&part->file, err))
			return err_prefix(err, "path=%s", bits->folder->path);
		part->dirty = false;
	}
	return true;
}

bool bit_slices_sync(struct bit_slices *bits, struct err *err)
{
	for (int i = 0; i < bits->count; i++)
		if (!sync_bit_slice(bits, bits->slices[i], err))
			return false;

	const struct file_list there = list_bit_slices(bits);
	if (bits->folder_dirty && !file_list_write(bits->folder, &there, err))
		return false;
	bits->folder_dirty = false;
	return true;
}

uint64_t bit_slices_files(const struct bit_slices *bits)
{
	uint64_t files = bits->gone_files;
	for (int i = 0; i < bits->count; i++)
		files += bits->slices[i]->files;
	return files;
}
