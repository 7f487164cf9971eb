#pragma once
/*
 * Key logs of a window without maps, for a store that keeps its ids in memory and is rebuilt from
 * them: one log for each span of time, in files N.0.log of the folder. One more span is alive than
 * the folder's head has slices. An entry is in the span of its time, or in the oldest one alive. A
 * missing file is noticed (file_list.h).
 *
 * A released id has an entry with offset KEY_SPANS_GONE in each log that is alive; it voids the
 * earlier entries of the id in that log. So an id is present if, in one of the logs, its last entry
 * is not such a release.
 *
 * Owned by one thread.
 */
#include "state_folder.h"
#include "key_log.h"

#define KEY_SPANS_GONE INT64_MIN

struct key_spans;

/*
 * folder: an open descriptor, which stays open until key_spans_close. ids: number expected in the
 * window. see is called for each id that is present, in any order, for some ids more than once.
 * Errors as in key_log_open.
 */
struct key_spans *key_spans_open(const struct state_folder *folder, uint64_t ids,
    void (*see)(void *context, const struct key_entry *entry), void *context, struct err *err);
void key_spans_close(struct key_spans *spans);

/* The window ends with the newest entry; older spans are removed. */
bool key_spans_add(
    struct key_spans *spans, const struct key_entry *entry, struct err *err) MUST_CHECK;
void key_spans_release(struct key_spans *spans, struct fingerprint hash, int64_t now_ms);
/* Writes the added entries, and does not wait for the disk. */
bool key_spans_flush(struct key_spans *spans, struct err *err) MUST_CHECK;
/* Like dedup_window_checkpoint. */
bool key_spans_checkpoint(struct key_spans *spans, int64_t offset, struct err *err) MUST_CHECK;

int64_t key_spans_offset(const struct key_spans *spans);
uint64_t key_spans_bytes(const struct key_spans *spans);
