#pragma once
/*
 * The arguments of a URL, what they name, and pages of rows. Each call refuses what is wrong.
 * Internal to relay/admin.
 */
#include "api_private.h"

/* False: an argument is not one of these, occurs twice, has no value or is not UTF-8; refused. */
bool api_arguments_check(struct api_call *call, const char *const *names, int count);
/* A whole number; *ret stays as it is if the argument is not there. False: refused. */
bool api_argument_number(
    struct api_call *call, const char *name, int64_t from, int64_t to, int64_t *ret);
/* "yes" or "no"; *ret as above. False: refused. */
bool api_argument_yes(struct api_call *call, const char *name, bool *ret);

/* Is the caller's token limited to publishers, sections or types? */
bool api_is_limited(const struct api_call *call);
/* Is the caller's token for this publisher? */
bool api_may_see_publisher(const struct api_call *call, const char *publisher);
/*
 * May the caller see a series or event with these labels? NULL: it has no such label. context: the
 * call.
 */
bool api_may_see_labels(const char *publisher, const char *section, void *context);
/* The publisher of this name; NULL: the only one. NULL is returned when the call was refused. */
const struct publisher_settings *api_named_publisher(struct api_call *call, const char *name);
/* The same for a [postgres] section. */
const struct postgres_settings *api_named_postgres(struct api_call *call, const char *name);

/*
 * Adds "rows", `limit` at most, and "next": the id (column 0) of the last one if `rows` has more,
 * else null.
 */
void api_add_page(json_t *answer, const struct pg_result *rows, int64_t limit,
    json_t *(*row_json)(const struct pg_result *rows, int i));
