#pragma once
/*
 * The done ids of the store redis, if a filter has them (form=bitmap, form=bloom). With a window
 * the filter is cut into slices (redis_slices.h): an id goes into the slice of now, and is looked
 * for in all slices of the window and in the next one. The next one, because another process may
 * already be in it: a slice may end, and an id be added to its successor, after the names of keys
 * were made and before the server reads them.
 *
 * Owned by one thread.
 */
#include "dedup_store.h"
#include "redis_session.h"

struct redis_filter;

/* How far apart the clocks of a process and of the server may be; 0: they do not matter. The look
 * into the next slice is enough up to that. */
int64_t redis_filter_most_apart_ms(const struct dedup_spec *spec);
/* Can the slices be as short? */
bool redis_filter_check_slices(const struct dedup_spec *spec, struct err *err) MUST_CHECK;
/* For slices that are the days of a zone: checks `window` and `zone`, and sets `slices`. */
bool redis_filter_check_days(struct dedup_spec *spec, struct err *err) MUST_CHECK;

/*
 * The session has begun, and outlives the filter. NULL and err, ERR_CONFIG: the name is in use with
 * other settings, which would look into other keys; the server lacks the module of the form.
 */
struct redis_filter *redis_filter_open(
    struct redis_session *server, const struct dedup_spec *spec, struct err *err);
void redis_filter_close(struct redis_filter *filter); /* NULL is fine */

/* Adds the commands that look for the items. */
void redis_filter_say_looks(
    struct redis_filter *filter, const struct dedup_item *const *items, size_t count);
/*
 * Reads the answer to command `number` of them. For each item that the answer finds, sets ret_until
 * to the time up to which the server has the item: by the wall clock in milliseconds, INT64_MAX for
 * ever. A later time that is there already stays. 0: not found.
 */
void redis_filter_see_look(struct redis_filter *filter, size_t number,
    const struct redis_answer *answer, int64_t *ret_until);

/* Adds the items, and waits for the answers. ret_until: as above, of all of them. */
bool redis_filter_add(struct redis_filter *filter, const struct dedup_item *items, size_t count,
    int64_t *ret_until, struct err *err) MUST_CHECK;
