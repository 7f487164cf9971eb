#pragma once
/*
 * Reports handled messages to the database that they come from (outbox.unique_done), so that a
 * writer with while_pending => 'done' may use their unique keys again. One thread asks the server,
 * for many messages in a request, so that the loop waits for no round trip:
 *
 *   reporter_add -> mark … reporter_reported >= mark: the offsets may be committed
 *
 * A report that fails is tried again. So a message whose offset was committed was reported before.
 *
 * The loop's thread calls all functions.
 */
#include <stddef.h>
#include <stdint.h>
#include "errors.h"

struct reporter;

/*
 * line: report_spec.h; checked before. wake_fd: an eventfd, written when something was reported or
 * failed. Connects in its own thread.
 */
struct reporter *reporter_create(const char *line, int wake_fd, struct err *err);
/* Forgets all ids that are not reported yet. Waits for a running request. NULL is fine. */
void reporter_destroy(struct reporter *reporter);

/* Adds ids, UUID_BYTES each. Returns how many ids were added so far. */
uint64_t reporter_add(struct reporter *reporter, const char *ids, size_t count);
/* How many ids were reported so far, in the order in which they were added. */
uint64_t reporter_reported(struct reporter *reporter);
/* Did a request fail since the last call? Then *ret_err says why. */
bool reporter_failed(struct reporter *reporter, struct err *ret_err);
/* Waits until so many ids are reported. False: a request has failed, or that time has come
 * (clock_ms). */
bool reporter_wait(struct reporter *reporter, uint64_t mark, int64_t until_ms);
