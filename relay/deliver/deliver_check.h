#pragma once
/* Whether a [deliver] section could work, as far as that can be known without a server. */
#include "config.h"
#include "errors.h"

/* Files are read. ERR_CONFIG: names section and key. */
bool deliver_check(const struct config_deliver *section, struct err *err) MUST_CHECK;

/* The same for the rules alone: could the section have these? They may be of another configuration.
 */
bool deliver_check_rules(const struct config_deliver *section, const struct config_list *rules,
    const char *rules_file, struct err *err) MUST_CHECK;

/* The folder above `path` if it is missing; NULL: it is there, or no state is kept. The caller's.
 */
char *deliver_missing_folder(const struct config_deliver *section);

/* Whether the line of dedup, of claims or of reports has a dsn by which ids go unencrypted to
 * another machine (pg.h). */
bool deliver_dsn_is_exposed(const struct config_deliver *section);
