#pragma once
/*
 * The text that a commit carries next to its offset: inbox1:FINISHED:MARK
 *
 * FINISHED lists the records that are finished beyond the offset (offsets.h), MARK is the state of
 * the store `sequence` (outbox_dedup_mark). Each may be empty; if both are, the whole text is
 * empty.
 */
#include "offsets.h"

enum {
	COMMIT_TEXT_SIZE = 4096 + 1, /* as brokers allow by default, with a NUL */
	COMMIT_TEXT_FORM = 8,        /* bytes of it that are neither FINISHED nor MARK */
	COMMIT_TEXT_MARK = 4096 - COMMIT_TEXT_FORM, /* that a mark may have */
};

/* Splits the text in place; the two parts point into it. False: the inbox did not write this text,
 * and both parts are "". */
bool commit_text_parse(char *text, const char **ret_finished, const char **ret_mark);

/* Returns the length of the whole text. If it is above COMMIT_TEXT_SIZE - 1, the end of FINISHED is
 * left out. mark: at most COMMIT_TEXT_MARK long. */
size_t commit_text_write(
    const struct offsets *offsets, const char *mark, char ret_text[COMMIT_TEXT_SIZE]);

/*
 * Should a partition take no new records, so that FINISHED does not outgrow the room that the mark
 * leaves? True from three quarters of that room on, until FINISHED needs half of the three
 * quarters. needed: the result of commit_text_write.
 */
bool commit_text_is_full(bool was_full, size_t needed, size_t mark_length);
