#pragma once
/*
 * Key logs of a window without maps, for a store that keeps its ids in memory and is rebuilt from
 * them: one log a span of time, files N.0.log of the folder, with as many spans alive as the
 * folder's head has slices, and one more. An entry is in the span of its time, or in the oldest
 * that is alive. One that is missing is noticed (file_list.h).
 *
 * An id that was released has an entry with offset KEY_SPANS_GONE in each log that is alive: what
 * stands before it in that log is void. So an id is there if the last that one of the logs says of
 * it is that it is.
 *
 * Owned by one thread.
 */
#include "state_folder.h"
#include "key_log.h"

#define KEY_SPANS_GONE INT64_MIN

struct key_spans;

/*
 * folder: open, and so until key_spans_close. ids: expected in the window. see is shown each id
 * that is there, in any order, some more than once. Errors as key_log_open.
 */
struct key_spans *key_spans_open(const struct state_folder *folder, uint64_t ids,
    void (*see)(void *context, const struct key_entry *entry), void *context, struct err *err);
void key_spans_close(struct key_spans *spans);

/* The window's end is that of the newest entry: older spans are removed. */
bool key_spans_add(
    struct key_spans *spans, const struct key_entry *entry, struct err *err) MUST_CHECK;
void key_spans_release(struct key_spans *spans, struct fingerprint hash, int64_t now_ms);
/* Writes what was added, and does not wait for the disk. */
bool key_spans_flush(struct key_spans *spans, struct err *err) MUST_CHECK;
/* As dedup_window_checkpoint. */
bool key_spans_checkpoint(struct key_spans *spans, int64_t offset, struct err *err) MUST_CHECK;

int64_t key_spans_offset(const struct key_spans *spans);
uint64_t key_spans_bytes(const struct key_spans *spans);
