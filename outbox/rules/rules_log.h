#pragma once
/*
 * What rules have recorded, on disk. Rules share logs by width: how long their occurrences matter,
 * rounded up to a minute times a power of four. So there are few files and few syncs, however many
 * rules there are, and a message takes 32 bytes for each rule.
 *
 *   folder/lock, folder/window   state_folder.h: the seed of the keys
 *   folder/16m/…                 those of a width, with a folder of their own: key_spans.h
 *
 * Owned by one thread.
 */
#include "key_log.h"

enum { RULES_LOG_WIDTHS = 13 }; /* 31 years */

struct rules_log;

/* The smallest width of this time at least. */
int rules_log_width(int64_t reach_ms);

/* NULL: errors as state_folder_open has them. */
struct rules_log *rules_log_open(const char *path, struct err *err);
void rules_log_close(struct rules_log *log);
uint64_t rules_log_seed(const struct rules_log *log);

/* Was there something of this width when the process before ended? */
bool rules_log_has(const struct rules_log *log, int width);
/* Before anything is added to it. stays: it will not be removed. see: as key_spans_open. */
bool rules_log_read(struct rules_log *log, int width, bool stays,
    void (*see)(void *context, const struct key_entry *entry), void *context,
    struct err *err) MUST_CHECK;
/* What was read of it is somewhere else, and durable: its files go. */
bool rules_log_remove(struct rules_log *log, int width, struct err *err) MUST_CHECK;

/* As key_spans has them. */
bool rules_log_add(
    struct rules_log *log, int width, const struct key_entry *entry, struct err *err) MUST_CHECK;
bool rules_log_checkpoint(struct rules_log *log, int64_t offset, struct err *err) MUST_CHECK;
int64_t rules_log_offset(const struct rules_log *log);
uint64_t rules_log_bytes(const struct rules_log *log);
