#pragma once
/*
 * The records of rules, on disk. Rules of the same width share a log. The width is the time for
 * which occurrences matter, rounded up to a minute times a power of four. So there are few files
 * and few syncs, however many rules there are, and a message takes 32 bytes for each rule.
 *
 *   folder/lock, folder/window   state_folder.h: the seed of the keys
 *   folder/16m/…                 the logs of a width, in their own folder: key_spans.h
 *
 * Owned by one thread.
 */
#include "key_log.h"

enum { RULES_LOG_WIDTHS = 13 }; /* 31 years */

struct rules_log;

/* The smallest width that is at least this time. */
int rules_log_width(int64_t reach_ms);

/* NULL: errors as in state_folder_open. */
struct rules_log *rules_log_open(const char *path, struct err *err);
void rules_log_close(struct rules_log *log);
uint64_t rules_log_seed(const struct rules_log *log);

/* Did the previous process leave logs of this width? */
bool rules_log_has(const struct rules_log *log, int width);
/* Reads the logs of a width, before anything is added to them. stays: they will not be removed.
 * see: as in key_spans_open. */
bool rules_log_read(struct rules_log *log, int width, bool stays,
    void (*see)(void *context, const struct key_entry *entry), void *context,
    struct err *err) MUST_CHECK;
/* Has rules_log_read read this width? */
bool rules_log_has_width(const struct rules_log *log, int width);
/* Changes whether a width that was read will be removed. */
void rules_log_keep(struct rules_log *log, int width, bool stays);
/* Removes the files of a width, whose records are durable elsewhere. */
bool rules_log_remove(struct rules_log *log, int width, struct err *err) MUST_CHECK;

/* As in key_spans.h. */
bool rules_log_add(
    struct rules_log *log, int width, const struct key_entry *entry, struct err *err) MUST_CHECK;
bool rules_log_checkpoint(struct rules_log *log, int64_t offset, struct err *err) MUST_CHECK;
int64_t rules_log_offset(const struct rules_log *log);
uint64_t rules_log_bytes(const struct rules_log *log);
