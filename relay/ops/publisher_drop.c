#include "publisher_drop.h"

#include "cleanup.h"
#include "force_words.h"
#include "partitions.h"
#include "sql_files.h"
#include "text.h"

const char *const publisher_drop_force[] = {"owned", "last", "configured", NULL};

/* Columns of status.sql. */
enum { OWNED_PUBLISHER = 0, OWNED_SHARD = 1, OWNED_OWNER = 6, OWNED_LEASE_LEFT = 7 };

static bool check_unowned(struct pg *pg, const struct publisher_drop *drop, struct err *err)
{
	OWNED(owned_pg_result_destroy)
	struct pg_result *rows = database_query(pg, drop->postgres, sql_status, NULL, 0, err);

	for (int i = 0; rows && i < pg_rows(rows); i++)
		if (text_equal(pg_value(rows, i, OWNED_PUBLISHER), drop->publisher) &&
		    pg_int(rows, i, OWNED_LEASE_LEFT) > 0 &&
		    !force_words_have(drop->force, "owned"))
			return err_set(err, ERR_FENCED,
			    "publisher %s shard %s is owned by %s: stop it, or force the drop with "
			    "`owned`",
			    drop->publisher, pg_value(rows, i, OWNED_SHARD),
			    pg_value(rows, i, OWNED_OWNER));
	return rows != NULL;
}

/* `run` ends at its start when a publisher of its configuration is not in the database. */
static bool check_not_configured(const struct publisher_drop *drop, struct err *err)
{
	const struct config_publisher *publisher =
	    config_find_publisher(drop->config, drop->publisher);

	if (!publisher || publisher->settings.postgres != drop->postgres ||
	    config_is_default(publisher->origin) || force_words_have(drop->force, "configured"))
		return true;
	return err_set(err, ERR_REJECT,
	    "publisher %s is in the configuration (%s), and `run` would not start without it; "
	    "remove its section first, or force the drop with `configured`",
	    drop->publisher, publisher->origin);
}

/* Partitions stay for the sake of publishers that have not published their rows. */
static bool count_what_goes(struct pg *pg, struct publisher_drop *drop, struct err *err)
{
	owned_text char *bound = xformat("%d", COUNTED_ROWS);
	const struct pg_param params[] = {{drop->publisher}, {bound}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(pg, drop->postgres, sql_publisher_drop_check, params, 2, err);

	if (!row)
		return false;
	drop->is_missing = !pg_int(row, 0, 3);
	if (drop->is_missing)
		return err_set(err, ERR_REJECT,
		    "publisher %s does not exist; `outbox-relay publisher list` shows all",
		    drop->publisher);
	drop->parked = pg_int(row, 0, 1);
	drop->scheduled = pg_int(row, 0, 2);

	/* only publishers keep partitions: without one, unpublished rows are dropped by age */
	if (pg_int(row, 0, 0) == 0 && !force_words_have(drop->force, "last"))
		return err_set(err, ERR_REJECT,
		    "publisher %s is the last one: without a publisher nothing is published, and "
		    "rows go with their partitions; create another one first, or force the drop "
		    "with `last`",
		    drop->publisher);
	return true;
}

bool publisher_drop_plan(struct pg *pg, struct publisher_drop *drop, struct err *err)
{
	return count_what_goes(pg, drop, err) && check_not_configured(drop, err) &&
	       check_unowned(pg, drop, err);
}

bool publisher_drop(struct pg *pg, struct publisher_drop *drop, struct err *err)
{
	const struct pg_param params[] = {
	    {drop->publisher}, {drop->force}, {drop->reason}, {drop->caller}};
	OWNED(owned_pg_result_destroy)
	struct pg_result *row =
	    database_query(pg, drop->postgres, sql_publisher_drop, params, 4, err);

	drop->audit = row ? pg_int(row, 0, 0) : 0;
	return row != NULL;
}

char *publisher_drop_question(const char *publisher)
{
	return xformat("Drop publisher %s?", publisher);
}
