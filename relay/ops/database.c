#include "database.h"

#include "cleanup.h"
#include "schema_text.h"
#include "text.h"

enum { CONNECT_MS = 10000 };

const struct postgres_settings *database_section(
    const struct config *config, const char *name, struct err *err)
{
	const struct postgres_settings *found;

	/* a single section needs no name; if there are several, "main" is the default */
	if (!name && config->postgres_count == 1)
		return &config->postgres[0];
	found = config_find_postgres(config, name ? name : "main");
	if (!found && name)
		err_set(err, ERR_CONFIG, "there is no section [postgres \"%s\"]", name);
	else if (!found && config->postgres_count == 0)
		err_set(err, ERR_CONFIG,
		    "this configuration only delivers: it has no [postgres] section");
	else if (!found)
		err_set(err, ERR_CONFIG,
		    "there are several [postgres] sections: name one with "
		    "--postgres SECTION");
	return found;
}

struct pg *database_connect(const struct postgres_settings *postgres, struct err *err)
{
	return pg_connect(postgres->dsn, "outbox-relay", CONNECT_MS, err);
}

struct pg_result *database_query(struct pg *pg, const struct postgres_settings *postgres,
    const char *sql, const struct pg_param *params, int count, struct err *err)
{
	owned_text char *text = schema_text(sql, postgres->schema);
	struct pg_result *result = pg_query(pg, text, params, count, err);

	/* Functions of this schema raise P0001 about the values that the caller gave. */
	if (!result && text_equal(pg_sqlstate(pg), "P0001"))
		err->kind = ERR_REJECT;
	return result;
}
