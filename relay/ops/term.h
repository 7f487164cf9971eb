#pragma once
/*
 * The values of the terms by which an operator chooses rows: topic=orders key=\x00ff ids=10..20
 * created=2026-01-02.. . Each fails with ERR_REJECT; the message says why the term is wrong and
 * suggests a fix.
 */
#include "moment.h"

/*
 * "10..20", "10..", "..20", "10"; an open end stays as it was. Both ends are included. A reversed
 * range is refused with *ret_from > *ret_to.
 */
bool term_ids(const char *value, int64_t *ret_from, int64_t *ret_to, struct err *err) MUST_CHECK;

/*
 * A range of moments, either end may be open: its text stays as it was then. Moments after now_us
 * are refused. The second end is not part of it. name: "created". *ret_empty, unless NULL: the
 * refused range is well formed, but reversed, empty or in the future.
 */
bool term_moments(const char *name, const char *value, int64_t now_us, char from_at[MOMENT_SIZE],
    char to_at[MOMENT_SIZE], bool *ret_empty, struct err *err) MUST_CHECK;

bool term_topic(const char *value, struct err *err) MUST_CHECK;

/* "42" or "\x3432" as "\x3432"; the caller frees. NULL: refused. */
char *term_key(const char *value, struct err *err) MUST_CHECK;
