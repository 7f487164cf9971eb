#include "dedup_mapped_inspect.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include "cleanup.h"
#include "counting_filter.h"
#include "mapped_file.h"

/* The width of the counters; 0: the file has bits, or an offset. */
static int counter_bits_of(const struct mapped_head *head)
{
	return head->kind == DEDUP_MAPPED_COUNTS8 ? 8 : head->kind == DEDUP_MAPPED_COUNTS ? 4 : 0;
}

/* Adds up the counters of the body, or its bits if counter_bits is 0. */
static struct counting_sum sum_mapped_body(FILE *file, int counter_bits)
{
	uint64_t words[512];
	size_t length;
	struct counting_sum sum = {0};

	while ((length = fread(words, sizeof *words, sizeof words / sizeof *words, file)) > 0) {
		if (counter_bits) {
			struct counting_sum piece = counting_sum_up(words, length, counter_bits);
			sum.values += piece.values;
			sum.full += piece.full;
			continue;
		}
		for (size_t i = 0; i < length; i++)
			sum.values += (uint64_t)__builtin_popcountll(words[i]);
	}
	return sum;
}

/* A process may have been killed between changing the body and the count: a difference of one is no
 * fault. */
static void inspect_mapped_body(struct dedup_inspection *inspection, FILE *file, uint64_t ids)
{
	struct dedup_part *part = &inspection->part;
	struct counting_sum sum = sum_mapped_body(file, part->counter_bits);
	uint64_t count = part->counter_bits ? sum.values / BLOOM_BITS : sum.values;

	part->saturated = sum.full;
	/* The true value of a full counter is unknown, so that nothing follows from the sum. */
	if (!sum.full && !inspection->live && count + 1 < ids)
		dedup_inspection_report(inspection, part->file->name, MAPPED_HEAD, false,
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

	/* as the store refuses the file when it opens it */
	if (!why && !inspection->folder->fault && head->seed != inspection->folder->head.seed)
		why = "was written with another seed than the folder's";
	if (!why && head->number != number)
		why = "is of another slice than its name says";
	if (!why && (file->kind == STATE_FILE_COUNTS) != (counter_bits_of(head) > 0))
		why = "is of another kind than its name says";

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
		part->counter_bits = counter_bits_of(&head);
		if (part->counter_bits) {
			part->counters = head.bytes * 8 / (uint64_t)part->counter_bits;
			part->saturated = head.full;
		}
		fseek(file, MAPPED_HEAD, SEEK_SET);
		if (inspection->compare && part->file->kind != STATE_FILE_OFFSET)
			inspect_mapped_body(inspection, file, head.count);
	}

	if (part->file->kind != STATE_FILE_OFFSET && !inspection->folder->fault)
		part->slice_ms = inspection->folder->head.slice_ms;
	dedup_inspection_end_part(inspection);
	return true;
}
