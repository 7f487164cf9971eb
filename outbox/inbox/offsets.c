/*
 * The set of finished offsets beyond the committed one, as bits and as the text that travels in the
 * commit. [use] has the operations; [reading the text] and [writing the text] have the two
 * encodings, runs and bits.
 */
#include "offsets.h"

#include <stdlib.h>
#include <string.h>
#include "text.h"

enum {
	WORD = 64,
	DIGIT_BITS = 6,
	RUN_BITS = 5,
	MORE = 1 << RUN_BITS,
	LONG_GAP = 1 << 16, /* is not worth its bits */
};
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* --- bits ----------------------------------------------------------------------------------- */

static uint64_t *word_of_offset(const struct offsets *offsets, int64_t offset)
{
	return &offsets->words[(offset - offsets->origin) / WORD];
}

static bool offset_is_set(const struct offsets *offsets, int64_t offset)
{
	int64_t end = offsets->origin + (int64_t)offsets->capacity * WORD;
	return offset < end && *word_of_offset(offsets, offset) >> (offset & (WORD - 1)) & 1;
}

/* Finished offsets need no bits: the remaining bits move to the front. */
static void reserve_words(struct offsets *offsets, int64_t offset)
{
	size_t gone = (size_t)((offsets->done - offsets->origin) / WORD);
	size_t needed = (size_t)((offset - offsets->origin) / WORD) + 1;

	if (needed <= offsets->capacity)
		return;

	gone = gone < offsets->capacity ? gone : offsets->capacity;
	size_t kept = offsets->capacity - gone;
	if (kept)
		memmove(offsets->words, offsets->words + gone, kept * sizeof *offsets->words);
	offsets->origin = offsets->done / WORD * WORD;
	needed = (size_t)((offset - offsets->origin) / WORD) + 1;
	if (needed > offsets->capacity / 2) {
		offsets->capacity = needed * 2;
		offsets->words =
		    xrealloc(offsets->words, offsets->capacity * sizeof *offsets->words);
	}
	memset(offsets->words + kept, 0, (offsets->capacity - kept) * sizeof *offsets->words);
}

/* Sets all bits of [from, to). */
static void set_range(struct offsets *offsets, int64_t from, int64_t to)
{
	if (from >= to)
		return;
	reserve_words(offsets, to - 1);
	offsets->end = to > offsets->end ? to : offsets->end;
	while (from < to) {
		int64_t end = (from | (WORD - 1)) + 1;
		int64_t count = (end < to ? end : to) - from;
		uint64_t ones = count == WORD ? UINT64_MAX : (UINT64_C(1) << count) - 1;
		*word_of_offset(offsets, from) |= ones << (from & (WORD - 1));
		from += count;
	}
}

/* The first bit of [from, to) that is set (or not set); `to` if there is none. */
static int64_t find_offset(const struct offsets *offsets, int64_t from, int64_t to, bool set)
{
	while (from < to) {
		uint64_t word =
		    set ? *word_of_offset(offsets, from) : ~*word_of_offset(offsets, from);
		word >>= from & (WORD - 1);
		if (word) {
			from += __builtin_ctzll(word);
			return from < to ? from : to;
		}
		from = (from | (WORD - 1)) + 1;
	}
	return to;
}

/* --- reading the text ----------------------------------------------------------------------- */

static int value_of(char digit)
{
	const char *at = digit ? strchr(digits, digit) : NULL;
	return at ? (int)(at - digits) : -1;
}

/* In a text of 4096 bytes no run is longer than that. */
static bool read_length(const char **at, int64_t *ret_length)
{
	int64_t length = 0;

	for (int shift = 0; shift <= 40; shift += RUN_BITS) {
		int value = value_of(**at);
		if (value < 0)
			return false;
		++*at;
		length |= (int64_t)(value & (MORE - 1)) << shift;
		if (!(value & MORE)) {
			*ret_length = length;
			return true;
		}
	}
	return false;
}

static bool read_runs(struct offsets *offsets, const char *at)
{
	int64_t offset = offsets->done, length;
	for (bool finished = false; *at; finished = !finished, offset += length) {
		if (!read_length(&at, &length) || offset + length - offsets->done > OFFSETS_REACH)
			return false;
		if (finished)
			set_range(offsets, offset, offset + length);
	}
	return true;
}

static bool read_bits(struct offsets *offsets, const char *at)
{
	int64_t offset = offsets->done;
	for (; *at; at++, offset += DIGIT_BITS) {
		int value = value_of(*at);
		if (value < 0 || offset - offsets->done > OFFSETS_REACH)
			return false;
		for (int i = 0; i < DIGIT_BITS; i++)
			if (value >> i & 1)
				set_range(offsets, offset + i, offset + i + 1);
	}
	return true;
}

bool offsets_init(struct offsets *offsets, int64_t committed, const char *text)
{
	*offsets = (struct offsets){.done = committed,
	    .next = committed,
	    .end = committed,
	    .origin = committed / WORD * WORD};
	if (!text[0] || (text[0] == 'r' && read_runs(offsets, text + 1)) ||
	    (text[0] == 'b' && read_bits(offsets, text + 1)))
		return true;
	if (offsets->words)
		memset(offsets->words, 0, offsets->capacity * sizeof *offsets->words);
	offsets->end = committed;
	return false;
}

void offsets_finish(struct offsets *offsets)
{
	free(offsets->words);
	*offsets = (struct offsets){0};
}

/* --- use ------------------------------------------------------------------------------------ */

static void advance_done(struct offsets *offsets)
{
	offsets->done = find_offset(offsets, offsets->done, offsets->next, false);
	offsets->end = offsets->done > offsets->end ? offsets->done : offsets->end;
}

bool offsets_reaches(const struct offsets *offsets, int64_t offset)
{
	return offsets->unfinished == 0 || offset - offsets->done < OFFSETS_REACH;
}

/* Nothing before it is unfinished, nothing from it on finished: no bits are needed. */
static void jump_to(struct offsets *offsets, int64_t offset)
{
	offsets_finish(offsets);
	offsets_init(offsets, offset, "");
}

void offsets_skip(struct offsets *offsets, int64_t offset)
{
	if (offset <= offsets->next)
		return;
	if (offsets->unfinished == 0 && offset >= offsets->end && offset - offsets->done > LONG_GAP)
		jump_to(offsets, offset);
	set_range(offsets, offsets->next, offset);
	offsets->next = offset;
	advance_done(offsets);
}

bool offsets_take(struct offsets *offsets, int64_t offset)
{
	offsets_skip(offsets, offset);
	reserve_words(offsets, offset);
	bool fresh = !offset_is_set(offsets, offset);
	offsets->unfinished += fresh;
	offsets->next = offset + 1;
	advance_done(offsets);
	return fresh;
}

void offsets_finished(struct offsets *offsets, int64_t offset)
{
	set_range(offsets, offset, offset + 1);
	offsets->unfinished--;
	advance_done(offsets);
}

bool offsets_is_finished(const struct offsets *offsets, int64_t offset)
{
	return offset < offsets->done || offset_is_set(offsets, offset);
}

/* --- writing the text ----------------------------------------------------------------------- */

static char *write_length(char *at, int64_t length)
{
	for (; length >= MORE; length >>= RUN_BITS)
		*at++ = digits[MORE | (length & (MORE - 1))];
	*at++ = digits[length];
	return at;
}

/* Writes pairs of runs, as long as both fit. Returns the end; adds the length of all to *needed. */
static char *write_runs(const struct offsets *offsets, char *at, const char *end, size_t *needed)
{
	char pair[2 * 16];

	for (int64_t from = offsets->done, behind; from < offsets->end; from = behind) {
		int64_t finished = find_offset(offsets, from, offsets->end, true);
		behind = find_offset(offsets, finished, offsets->end, false);
		size_t length =
		    (size_t)(write_length(write_length(pair, finished - from), behind - finished) -
			     pair);
		*needed += length;
		if (at + length <= end)
			at = (char *)memcpy(at, pair, length) + length;
		else
			end = at; /* a pair written after this one would be read in its place */
	}
	return at;
}

static char *write_bits(const struct offsets *offsets, char *at)
{
	for (int64_t from = offsets->done; from < offsets->end; from += DIGIT_BITS) {
		int value = 0;
		for (int i = 0; i < DIGIT_BITS && from + i < offsets->end; i++)
			value |= offset_is_set(offsets, from + i) << i;
		*at++ = digits[value];
	}
	return at;
}

size_t offsets_text(const struct offsets *offsets, char *ret_text, size_t size, size_t *ret_needed)
{
	char *begin = ret_text + 1, *end = begin;
	size_t runs = 1, bits = 1;

	bits += (size_t)((offsets->end - offsets->done + DIGIT_BITS - 1) / DIGIT_BITS);
	ret_text[0] = 'r';
	end = write_runs(offsets, begin, ret_text + size - 1, &runs);
	if (bits < runs && bits < size) {
		ret_text[0] = 'b';
		end = write_bits(offsets, begin);
	}
	*ret_needed = runs == 1 ? 0 : bits < runs ? bits : runs;
	if (end == begin)
		end = ret_text;
	*end = '\0';
	return (size_t)(end - ret_text);
}
