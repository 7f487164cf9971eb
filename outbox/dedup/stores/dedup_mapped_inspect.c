#include "dedup_mapped_inspect.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include "bloom_filter.h"
#include "cleanup.h"
#include "mapped_file.h"

static uint64_t count_nibbles(uint64_t word)
{
	uint64_t pairs =
	    (word & UINT64_C(0x0f0f0f0f0f0f0f0f)) + (word >> 4 & UINT64_C(0x0f0f0f0f0f0f0f0f));
	return pairs * UINT64_C(0x0101010101010101) >> 56;
}

/* Counts the ids of the body. ret_sure false: a counter is full, and its true value is unknown. */
static uint64_t count_body(FILE *file, bool counters, bool *ret_sure)
{
	uint64_t words[512], count = 0;
	size_t length;
	*ret_sure = true;
	while ((length = fread(words, sizeof *words, sizeof words / sizeof *words, file)) > 0)
		for (size_t i = 0; i < length; i++) {
			uint64_t full = words[i] & words[i] >> 1;
			count += counters ? count_nibbles(words[i])
					  : (uint64_t)__builtin_popcountll(words[i]);
			/* 15 is the largest value of a counter of 4 bits. */
			if (counters && (full & full >> 2 & UINT64_C(0x1111111111111111)))
				*ret_sure = false;
		}

	return counters ? count / BLOOM_BITS : count;
}

/* A process may have been killed between changing the body and the count: a difference of one is no
 * fault. */
static void inspect_mapped_body(
    struct dedup_inspection *inspection, FILE *file, uint64_t ids, bool counters)
{
	bool sure;
	uint64_t count = count_body(file, counters, &sure);
	if (sure && !inspection->live && count + 1 < ids)
		dedup_inspection_report(inspection, inspection->part.file->name, MAPPED_HEAD, false,
		    "it counts %" PRIu64 " ids, and has %" PRIu64
		    " of them: damaged, or cut off by a loss of power before a checkpoint",
		    ids, count);
}

static bool check_mapped(
    struct dedup_inspection *inspection, const struct mapped_head *head, uint64_t bytes)
{
	const struct state_file *file = inspection->part.file;
	const char *why = mapped_head_fault(head, bytes);
	int64_t number = file->kind == STATE_FILE_BITS ? dedup_bits_number(file->number, file->sub)
						       : file->number;

	if (!why && !inspection->folder->fault && head->seed != inspection->folder->head.seed)
		why = "was written with another seed than the folder's";
	if (!why && head->number != number)
		why = "is of another slice than its name says";
	if (why)
		dedup_inspection_report(
		    inspection, file->name, 0, false, "%s: the store is refused", why);
	return !why;
}

bool dedup_inspect_mapped(struct dedup_inspection *inspection, struct err *err)
{
	struct dedup_part *part = &inspection->part;
	struct mapped_head head = {0};
	struct stat state;

	int fd =
	    openat(inspection->folder->fd, part->file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	owned_file FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
	if (!file || fstat(fd, &state))
		return dedup_inspection_fail_unless_gone(part->file->name, err);

	part->bytes = (uint64_t)state.st_size;
	bool whole = fread(&head, sizeof head, 1, file) == 1 && part->bytes >= MAPPED_HEAD;
	if (mapped_file_is_blank(fd, part->bytes))
		dedup_inspection_report(inspection, part->file->name, DEDUP_WHOLE_FILE, true,
		    inspection->live ? "it is being made"
				     : "it was being made: it will be made anew");
	else if (check_mapped(inspection, &head, whole ? part->bytes - MAPPED_HEAD : 0)) {
		part->ids = head.count;
		part->offset = head.offset;
		fseek(file, MAPPED_HEAD, SEEK_SET);
		if (inspection->compare && part->file->kind != STATE_FILE_OFFSET)
			inspect_mapped_body(
			    inspection, file, head.count, part->file->kind == STATE_FILE_COUNTS);
	}

	if (part->file->kind != STATE_FILE_OFFSET && !inspection->folder->fault)
		part->slice_ms = inspection->folder->head.slice_ms;
	dedup_inspection_end_part(inspection);
	return true;
}
