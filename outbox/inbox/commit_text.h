#pragma once
/*
 * The text of a commit, beside its offset:  inbox1:FINISHED:MARK
 *
 * FINISHED says what is finished beyond the offset (offsets.h), MARK what the store `sequence`
 * knows (outbox_dedup_mark). Each may be empty; with both so, the whole text is.
 */
#include "offsets.h"

enum {
	COMMIT_TEXT_SIZE = 4096 + 1, /* as brokers allow by default, with a NUL */
	COMMIT_TEXT_FORM = 8,        /* bytes of it that are neither FINISHED nor MARK */
	COMMIT_TEXT_MARK = 4096 - COMMIT_TEXT_FORM, /* that a mark may have */
};

/* The texts inside are those of the given one, which is taken apart. False: it is none of ours, and
 * both are "". */
bool commit_text_parse(char *text, const char **ret_finished, const char **ret_mark);

/* Returns the length that the whole of it needs: above COMMIT_TEXT_SIZE - 1 the end of FINISHED is
 * left out. mark: at most COMMIT_TEXT_MARK long. */
size_t commit_text_write(
    const struct offsets *offsets, const char *mark, char ret_text[COMMIT_TEXT_SIZE]);

/*
 * Is a partition to take nothing new, so that FINISHED does not outgrow what its mark leaves? From
 * three quarters of that on, until it needs half of those. needed: as commit_text_write says.
 */
bool commit_text_is_full(bool was_full, size_t needed, size_t mark_length);
