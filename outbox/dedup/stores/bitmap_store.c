/*
 * One bit for each id, for ever. Two forms:
 *
 *   plain  ids are integers from 0 to ids - 1, in decimal; the bit of an id is its number
 *   hash   any ids; the bit is the CRC32 of the id, so that an id is taken for done if another id
 *          with the same CRC32 is done
 *
 * The bits are in partitions of 2^22, each in a file N.bits that is created when the first of its
 * bits is set. For the form hash that is the classic scheme: 10 bits of the CRC32 are the
 * partition, 22 the offset in it. The file `offset` has the offset of the last checkpoint.
 *
 * Read find_bit and set_bit first, then checkpoint_bitmap.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "state_folder.h"
#include "dedup_mapped_inspect.h"
#include "dedup_store.h"
#include "mapped_file.h"
#include "state_file_name.h"
#include "text.h"

enum { KIND_BITS = 2, KIND_OFFSET = 3, OFFSET_BITS = 22, NAME = 64, DIGITS = 12 };
#define PARTITION_BITS (UINT64_C(1) << OFFSET_BITS)
#define HASH_BITS (UINT64_C(1) << 32)

struct part {
	struct mapped_file file; /* {0}: none of its bits is set */
	bool dirty;
};

struct bitmap_store {
	struct dedup_store store;
	struct state_folder folder;
	bool hashes;
	uint64_t size; /* bits */
	struct part *parts;
	uint64_t part_count, files, count; /* partitions, existing files, set bits */
	struct mapped_file offset;
};

static struct bitmap_store *bitmap_of(struct dedup_store *store)
{
	return (struct bitmap_store *)store;
}

/* --- partitions ----------------------------------------------------------------------------- */

static bool open_bitmap_part(struct bitmap_store *bitmap, uint64_t number, struct err *err)
{
	char name[NAME];
	const struct mapped_head wanted = {.kind = KIND_BITS,
	    .bytes = PARTITION_BITS / 8,
	    .seed = bitmap->store.seed,
	    .number = (int64_t)number};
	struct part *part = &bitmap->parts[number];
	snprintf(name, sizeof name, "%llu.bits", (unsigned long long)number);
	if (!mapped_file_open(&part->file, bitmap->folder.fd, name, &wanted, false, err))
		return err_prefix(err, "path=%s", bitmap->folder.path);
	bitmap->files++;
	return true;
}

static uint64_t *word_of_bit(const struct part *part, uint64_t bit)
{
	return (uint64_t *)part->file.bytes + (bit & (PARTITION_BITS - 1)) / 64;
}

static bool bit_is_set(const struct bitmap_store *bitmap, uint64_t bit)
{
	const struct part *part = &bitmap->parts[bit >> OFFSET_BITS];
	return part->file.head && *word_of_bit(part, bit) >> bit % 64 & 1;
}

/* After a loss of power the head's count may be larger or smaller than the number of set bits. */
static void count_bits(struct bitmap_store *bitmap, struct part *part)
{
	const uint64_t *words = part->file.bytes;
	part->file.head->count = 0;
	for (uint64_t i = 0; i < PARTITION_BITS / 64; i++)
		part->file.head->count += (uint64_t)__builtin_popcountll(words[i]);
	bitmap->count += part->file.head->count;
}

/* --- life ----------------------------------------------------------------------------------- */

static bool open_bitmap_file(struct bitmap_store *bitmap, const char *name, struct err *err)
{
	long long number;

	if (!state_file_name_parse(name, "bits", &number, NULL) || number < 0)
		return true;

	/* Fewer ids are planned than before: done ids would lie outside of the bits. */
	if ((uint64_t)number >= bitmap->part_count)
		return err_set(err, ERR_CONFIG,
		    "path=%s has ids up to %" PRIu64 ": raise ids, or use a new folder",
		    bitmap->folder.path, ((uint64_t)number + 1) * PARTITION_BITS);

	if (!open_bitmap_part(bitmap, (uint64_t)number, err))
		return false;
	count_bits(bitmap, &bitmap->parts[number]);
	return true;
}

static bool open_bitmap_files(struct bitmap_store *bitmap, struct err *err)
{
	const struct mapped_head wanted = {.kind = KIND_OFFSET, .seed = bitmap->store.seed};
	if (!mapped_file_open(&bitmap->offset, bitmap->folder.fd, "offset", &wanted, false, err))
		return err_prefix(err, "path=%s", bitmap->folder.path);

	/* A descriptor of its own, because closedir closes it. */
	int copy = openat(bitmap->folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	bool good = list || state_folder_fail(&bitmap->folder, "the folder cannot be read", err);
	while (good && (entry = readdir(list)))
		good = open_bitmap_file(bitmap, entry->d_name, err);
	if (list)
		closedir(list);
	return good;
}

static void close_bitmap_store(struct dedup_store *store)
{
	struct bitmap_store *bitmap = bitmap_of(store);
	for (uint64_t i = 0; i < bitmap->part_count; i++)
		mapped_file_close(&bitmap->parts[i].file);
	mapped_file_close(&bitmap->offset);
	state_folder_close(&bitmap->folder);
	free(bitmap->parts);
	free(bitmap);
}

static struct dedup_store *open_bitmap_store(const struct dedup_spec *spec, struct err *err)
{
	struct bitmap_store *bitmap = xcalloc(1, sizeof *bitmap);
	bitmap->hashes = text_equal(spec->type->form, "hash");
	bitmap->store.type = spec->type;
	bitmap->size = bitmap->hashes ? HASH_BITS : (uint64_t)spec->ids;
	bitmap->part_count = (bitmap->size - 1) / PARTITION_BITS + 1;
	bitmap->parts = xcalloc(bitmap->part_count, sizeof *bitmap->parts);

	bool good =
	    state_folder_open(&bitmap->folder, spec->path, spec->type->folder, 0, 0, 0, err);
	bitmap->store.seed = bitmap->folder.head.seed;
	if (good && open_bitmap_files(bitmap, err))
		return &bitmap->store;
	close_bitmap_store(&bitmap->store);
	return NULL;
}

/* --- ids ------------------------------------------------------------------------------------ */

static bool refuse_bitmap_id(
    const struct bitmap_store *bitmap, const struct dedup_item *item, struct err *err)
{
	int shown = item->length < 40 ? (int)item->length : 40;
	return err_set(err, ERR_REJECT,
	    "'%.*s' is no id of a bitmap: it has integers from 0 to %llu, in decimal; raise ids, "
	    "or "
	    "choose another store",
	    shown, (const char *)item->id, (unsigned long long)bitmap->size - 1);
}

/* A number has only one spelling: 007 and +7 would be other ids than 7. */
static bool read_bitmap_number(
    const struct bitmap_store *bitmap, const struct dedup_item *item, uint64_t *ret_bit)
{
	const char *text = item->id;
	uint64_t number = 0;
	if (item->length > DIGITS || (text[0] == '0' && item->length > 1))
		return false;
	for (size_t i = 0; i < item->length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		number = number * 10 + (uint64_t)(text[i] - '0');
	}
	*ret_bit = number;
	return number < bitmap->size;
}

static bool find_bit(const struct bitmap_store *bitmap, const struct dedup_item *item,
    uint64_t *ret_bit, struct err *err)
{
	if (!bitmap->hashes)
		return read_bitmap_number(bitmap, item, ret_bit) ||
		       refuse_bitmap_id(bitmap, item, err);
	*ret_bit = crc32(0, item->id, (uInt)item->length);
	return true;
}

/* --- use ------------------------------------------------------------------------------------ */

static bool look_up_bits(struct dedup_store *store, const struct dedup_item *items, size_t count,
    enum outbox_dedup_state *ret_states, struct err *err)
{
	const struct bitmap_store *bitmap = bitmap_of(store);
	uint64_t bit = 0;
	for (size_t i = 0; i < count; i++) {
		if (!find_bit(bitmap, &items[i], &bit, err))
			return false;
		ret_states[i] = bit_is_set(bitmap, bit) ? OUTBOX_DEDUP_DONE : OUTBOX_DEDUP_NEW;
	}
	return true;
}

static bool set_bit(struct bitmap_store *bitmap, uint64_t bit, bool on, struct err *err)
{
	struct part *part = &bitmap->parts[bit >> OFFSET_BITS];
	/* The count changes only with a bit, and no file is created to clear a bit. */
	if (bit_is_set(bitmap, bit) == on)
		return true;
	if (!part->file.head && !open_bitmap_part(bitmap, bit >> OFFSET_BITS, err))
		return false;
	*word_of_bit(part, bit) ^= UINT64_C(1) << bit % 64;
	part->file.head->count += on ? 1 : (uint64_t)-1;
	bitmap->count += on ? 1 : (uint64_t)-1;
	part->dirty = true;
	return true;
}

static bool set_bits(struct bitmap_store *bitmap, const struct dedup_item *items, size_t count,
    bool on, struct err *err)
{
	uint64_t bit = 0;
	for (size_t i = 0; i < count; i++)
		if (!find_bit(bitmap, &items[i], &bit, err) || !set_bit(bitmap, bit, on, err))
			return false;
	return true;
}

static bool add_bits(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	return set_bits(bitmap_of(store), items, count, true, err);
}

static bool remove_bits(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	return set_bits(bitmap_of(store), items, count, false, err);
}

static bool sync_parts(struct bitmap_store *bitmap, struct err *err)
{
	for (uint64_t i = 0; i < bitmap->part_count; i++) {
		struct part *part = &bitmap->parts[i];
		if (part->dirty && !mapped_file_sync(&part->file, err))
			return false;
		part->dirty = false;
	}
	return true;
}

static bool checkpoint_bitmap(struct dedup_store *store, int64_t offset, struct err *err)
{
	struct bitmap_store *bitmap = bitmap_of(store);
	if (!state_folder_check(&bitmap->folder, err))
		return false;
	if (sync_parts(bitmap, err) && state_folder_sync(&bitmap->folder, err) &&
	    mapped_file_sync_offset(&bitmap->offset, offset, err))
		return true;
	return err_prefix(err, "path=%s", bitmap->folder.path);
}

static void read_bitmap_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct bitmap_store *bitmap = (const struct bitmap_store *)store;
	stats->ids = bitmap->count;
	stats->memory_bytes = bitmap->files * (MAPPED_HEAD + PARTITION_BITS / 8);
	stats->disk_bytes = stats->memory_bytes + MAPPED_HEAD;
	stats->offset = bitmap->offset.head->offset;
	if (bitmap->hashes)
		stats->planned_rate = (double)bitmap->count / (double)HASH_BITS;
}

#define BITMAP_RESTART                                                                             \
	"remembers all ids after kill -9; after a loss of power, ids that a checkpoint "           \
	"made durable"
#define BITMAP_SCOPE                                                                               \
	"copies that one process sees with one folder: on the same machine and in the same "       \
	"partition, while the number of partitions stays the same"

#define BITMAP_ROW                                                                                 \
	.spec = {"bitmap", dedup_settings,                                                         \
	    DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(PATH) | DEDUP_TAKES(FORM),         \
	    DEDUP_TAKES(IDS)},                                                                     \
	.local = true, .files = 1 << STATE_FILE_BITS | 1 << STATE_FILE_OFFSET,                     \
	.inspect = dedup_inspect_mapped, .open = open_bitmap_store, .close = close_bitmap_store,   \
	.look = look_up_bits, .add = add_bits, .checkpoint = checkpoint_bitmap,                    \
	.stats = read_bitmap_stats

const struct dedup_store_type bitmap_store = {
    .form = "plain",
    .folder = "bitmap",
    .promise = {.store = "bitmap",
	.releases = true,
	.false_positives = "none",
	.false_negatives = "none: an id is remembered forever",
	.restart = BITMAP_RESTART,
	.scope = BITMAP_SCOPE,
	.memory = "1 bit for each integer of the range, in pieces of 512 KiB as they are needed",
	.disk = "the same"},
    .remove = remove_bits,
    BITMAP_ROW,
};

const struct dedup_store_type bitmap_hash_store = {
    .form = "hash",
    .folder = "bithash",
    .promise = {.store = "bitmap form=hash",
	.lossy = true,
	.false_positives = "the number of done ids, divided by 2^32: 0.23 % at 10 M, 2.3 % at "
			   "100 M; such a message is lost",
	.false_negatives = "none: an id is remembered forever",
	.restart = BITMAP_RESTART,
	.scope = BITMAP_SCOPE,
	.memory = "up to 512 MiB, whatever the number of ids, in pieces of 512 KiB",
	.disk = "the same"},
    BITMAP_ROW,
};
