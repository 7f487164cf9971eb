#pragma once
/* One connection to a database of the configuration, and statements of sql/queries on its schema.
 */
#include "config.h"
#include "pg.h"

/* The section of this name; for NULL the only section, or "main". */
const struct postgres_settings *database_section(
    const struct config *config, const char *name, struct err *err);

/* Blocks for at most 10 s. NULL: *err says why. The caller destroys it. */
struct pg *database_connect(const struct postgres_settings *postgres, struct err *err);

/* Blocks until the answer is there. NULL: *err says why. The caller destroys the result. */
struct pg_result *database_query(struct pg *pg, const struct postgres_settings *postgres,
    const char *sql, const struct pg_param *params, int count, struct err *err);
