/*
 * A bitmap has one bit for each id, and there are two forms of it:
 *
 *   plain  ids are integers from 0 to ids - 1, in decimal; the bit of an id is its number
 *   hash   any ids; the bit is the CRC32 of the id, so that an id is taken for done if another id
 *          with the same CRC32 is done
 *
 * Without the setting `window` an id is remembered forever; with it, bit_slices.h forgets. For the
 * form hash the partitions of bit_slices.h are the classic scheme: 10 bits of the CRC32 are the
 * partition, 22 the offset in it. The file `offset` has the offset of the last checkpoint.
 *
 * Read find_bit first, then add_bits and checkpoint_bitmap.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>
#include "bit_slices.h"
#include "dedup_mapped_inspect.h"
#include "dedup_store.h"
#include "fault.h"
#include "text.h"

enum { KIND_OFFSET = 3, DIGITS = 12 };
#define HASH_BITS (UINT64_C(1) << 32)

struct bitmap_store {
	struct dedup_store store;
	struct state_folder folder;
	bool hashes;
	uint64_t size; /* bits of a slice */
	struct bit_slices bits;
	struct mapped_file offset;
};

static struct bitmap_store *bitmap_of(struct dedup_store *store)
{
	return (struct bitmap_store *)store;
}

/* --- life ----------------------------------------------------------------------------------- */

static bool open_bitmap_offset(struct bitmap_store *bitmap, struct err *err)
{
	const struct mapped_head wanted = {.kind = KIND_OFFSET, .seed = bitmap->store.seed};
	return mapped_file_open(
		   &bitmap->offset, bitmap->folder.fd, "offset", &wanted, false, err) ||
	       err_prefix(err, "path=%s", bitmap->folder.path);
}

static bool check_bitmap(struct dedup_spec *spec, struct err *err)
{
	if (spec->sliced && !spec->windowed)
		return err_set(err, ERR_CONFIG,
		    "slices=%" PRId64 " cuts a window, and this bitmap has none: add the time for "
		    "which an id is remembered, as window=24h, or leave slices out",
		    spec->slices);

	/* The bits of the form plain are made as they are needed, and need not all be. */
	if (!text_equal(spec->type->form, "hash"))
		return true;

	uint64_t alive = spec->windowed ? (uint64_t)spec->slices + 1 : 1;
	return dedup_spec_check_memory(spec, alive * (HASH_BITS / 8), false, err) ||
	       err_set(err, ERR_CONFIG,
		   "form=hash takes %" PRIu64 " MiB, 512 for each slice that is alive at a time, "
		   "and this machine has less memory: lower slices, or choose bloom",
		   spec->planned_bytes >> 20);
}

static void close_bitmap_store(struct dedup_store *store)
{
	struct bitmap_store *bitmap = bitmap_of(store);
	bit_slices_close(&bitmap->bits);
	mapped_file_close(&bitmap->offset);
	state_folder_close(&bitmap->folder);
	free(bitmap);
}

static struct dedup_store *open_bitmap_store(const struct dedup_spec *spec, struct err *err)
{
	struct bitmap_store *bitmap = xcalloc(1, sizeof *bitmap);
	bitmap->hashes = text_equal(spec->type->form, "hash");
	bitmap->store.type = spec->type;
	bitmap->size = bitmap->hashes ? HASH_BITS : (uint64_t)spec->ids;
	bool forgets = dedup_spec_forgets(spec);
	int64_t slice_ms = forgets ? dedup_spec_slice_ms(spec) : 0;

	bool good = state_folder_open(&bitmap->folder, spec->path, spec->type->folder,
	    forgets ? (int)spec->slices : 0, slice_ms, 0, err);
	bitmap->store.seed = bitmap->folder.head.seed;
	if (good && open_bitmap_offset(bitmap, err) &&
	    bit_slices_open(&bitmap->bits, &bitmap->folder, bitmap->size, err))
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
	    "or choose another store",
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
		ret_states[i] =
		    bit_slices_have(&bitmap->bits, bit) ? OUTBOX_DEDUP_DONE : OUTBOX_DEDUP_NEW;
	}
	return true;
}

static bool add_bits(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	struct bitmap_store *bitmap = bitmap_of(store);
	uint64_t bit = 0;
	for (size_t i = 0; i < count; i++)
		if (!find_bit(bitmap, &items[i], &bit, err) ||
		    !bit_slices_set(&bitmap->bits, bit, items[i].time_ms, err))
			return false;
	return true;
}

static bool remove_bits(
    struct dedup_store *store, const struct dedup_item *items, size_t count, struct err *err)
{
	const struct bitmap_store *bitmap = bitmap_of(store);
	uint64_t bit = 0;
	for (size_t i = 0; i < count; i++) {
		if (!find_bit(bitmap, &items[i], &bit, err))
			return false;
		bit_slices_clear(&bitmap->bits, bit);
	}
	return true;
}

static bool checkpoint_bitmap(struct dedup_store *store, int64_t offset, struct err *err)
{
	struct bitmap_store *bitmap = bitmap_of(store);

	if (!state_folder_check(&bitmap->folder, err) || !bit_slices_sync(&bitmap->bits, err))
		return false;

	/* The offset comes last, because it is valid for all files. */
	fault_point("before_dedup_offset");
	return mapped_file_sync_offset(&bitmap->offset, offset, err) ||
	       err_prefix(err, "path=%s", bitmap->folder.path);
}

static void read_bitmap_stats(const struct dedup_store *store, struct outbox_dedup_stats *stats)
{
	const struct bitmap_store *bitmap = (const struct bitmap_store *)store;
	const struct bit_slices *bits = &bitmap->bits;
	double none = 1;

	for (int i = 0; i < bits->count; i++) {
		stats->ids += bits->slices[i]->ids;
		/* A new id is taken for a done one if any slice has its bit. */
		none *= 1 - (double)bits->slices[i]->ids / (double)HASH_BITS;
	}

	stats->memory_bytes = bit_slices_files(bits) * (MAPPED_HEAD + BIT_PARTITION / 8);
	stats->disk_bytes = stats->memory_bytes + MAPPED_HEAD;
	stats->offset = bitmap->offset.head->offset;
	if (bitmap->hashes)
		stats->planned_rate = 1 - none;
	if (bits->time.slices == 0)
		return;

	stats->slices = bits->count;
	if (bits->count)
		stats->newest_ms = bits->time.newest * bits->time.slice_ms;
}

#define BITMAP_RESTART                                                                             \
	"remembers all ids after kill -9; after a loss of power, ids that a checkpoint "           \
	"made durable"
#define BITMAP_SCOPE                                                                               \
	"copies that one process sees with one folder: on the same machine and in the same "       \
	"partition, while the number of partitions stays the same"

#define BITMAP_NEGATIVES                                                                           \
	"none: an id is remembered forever; with window, for at least the window behind the "      \
	"newest record"

#define BITMAP_ROW                                                                                 \
	.spec = {"bitmap", dedup_settings,                                                         \
	    DEDUP_TAKES_ALWAYS | DEDUP_TAKES(IDS) | DEDUP_TAKES(WINDOW) | DEDUP_TAKES(SLICES) |    \
		DEDUP_TAKES(PATH) | DEDUP_TAKES(FORM),                                             \
	    DEDUP_TAKES(IDS)},                                                                     \
	.local = true, .window_optional = true, .check = check_bitmap,                             \
	.files = 1 << STATE_FILE_BITS | 1 << STATE_FILE_OFFSET, .inspect = dedup_inspect_mapped,   \
	.open = open_bitmap_store, .close = close_bitmap_store, .look = look_up_bits,              \
	.add = add_bits, .checkpoint = checkpoint_bitmap, .stats = read_bitmap_stats

const struct dedup_store_type bitmap_store = {
    .form = "plain",
    .folder = "bitmap",
    .promise = {.store = "bitmap",
	.releases = true,
	.false_positives = "none",
	.false_negatives = BITMAP_NEGATIVES,
	.restart = BITMAP_RESTART,
	.scope = BITMAP_SCOPE,
	.memory = "1 bit for each integer of the range, in pieces of 512 KiB as they are needed; "
		  "with window, in each of slices + 1 slices",
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
	.false_negatives = BITMAP_NEGATIVES,
	.restart = BITMAP_RESTART,
	.scope = BITMAP_SCOPE,
	.memory = "up to 512 MiB, whatever the number of ids, in pieces of 512 KiB; with window, "
		  "in each of slices + 1 slices",
	.disk = "the same"},
    BITMAP_ROW,
};
