/*
 * Any bytes are the text of a commit, or count as empty. The first eight are the committed offset.
 * Offsets that were read are written again, and that text is read as the same offsets.
 */
#include <stdlib.h>
#include <string.h>
#include "cleanup.h"
#include "commit_text.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void require_same(const struct offsets *one, const struct offsets *other)
{
	require(one->done == other->done && one->end == other->end);
	for (int64_t offset = one->done; offset < one->end && offset < one->done + 100000; offset++)
		require(offsets_is_finished(one, offset) == offsets_is_finished(other, offset));
}

static void write_again(const struct offsets *offsets, const char *mark)
{
	char text[COMMIT_TEXT_SIZE];
	const char *finished, *same_mark;
	struct offsets again;
	size_t needed = commit_text_write(offsets, mark, text);

	if (needed >= COMMIT_TEXT_SIZE)
		return; /* its end is left out */
	if (needed > 0)
		require(commit_text_parse(text, &finished, &same_mark));
	else
		finished = same_mark = "";
	require(strcmp(mark, same_mark) == 0);
	require(offsets_init(&again, offsets->done, finished));
	require_same(offsets, &again);
	offsets_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *finished, *mark;
	struct offsets offsets;
	int64_t committed;

	if (size < sizeof committed)
		return 0;
	memcpy(&committed, data, sizeof committed);
	committed &= INT64_MAX >> 1;
	owned_text char *text = xmalloc(size - sizeof committed + 1);
	memcpy(text, data + sizeof committed, size - sizeof committed);
	text[size - sizeof committed] = '\0';
	if (!commit_text_parse(text, &finished, &mark))
		require(!*finished && !*mark);
	if (!offsets_init(&offsets, committed, finished))
		require(offsets.end == committed);
	require(offsets.done >= committed && offsets.end >= offsets.done);
	require(offsets.end - committed <= OFFSETS_REACH);
	if (strlen(mark) <= COMMIT_TEXT_MARK)
		write_again(&offsets, mark);
	offsets_finish(&offsets);
	return 0;
}
